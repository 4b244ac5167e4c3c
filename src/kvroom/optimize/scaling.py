"""Which target an autoscaler should have: the same requests at several, what each costs, what holds.

The cheapest within the objectives is the best; beside them stands a fleet that is always as large as the
autoscaler may make it. ``simulate --scale-to`` tries every combination of the values; ``search`` looks
for the fewest and the most replicas too (``optimize/search/tuned.py``). Both go by ``played``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown, table_of
from kvroom.errors import KvroomError, did_you_mean
from kvroom.planner.plan import work
from kvroom.planner.simulate import Objective, serve
from kvroom.records import dataclass
from kvroom.scenario.autoscale import AUTOSCALERS, METRICS, Autoscaling
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch
from kvroom.units import number, show_usd
from kvroom.workloads.requests import Request

POINTS = 9
DAY_S = 86400
_WHOLE = ("min", "max")
"""Keys that count replicas."""
_EXAMPLE = "Write waiting=2..64 (equal ratios) or waiting=2,4,8."


@dataclass(frozen=True, slots=True)
class ScaleRange:
    """``key`` of an autoscaler (a metric's target or a setting) at ``values``."""

    key: str
    values: tuple[float, ...]


def parse_targets(text: str, field: str = "--scale-to") -> ScaleRange:
    """``KEY=FROM..TO`` or ``KEY=VALUE,VALUE…``; KvroomError says what is wrong."""
    key, equals, parts = (part.strip() for part in text.partition("="))
    if not equals or not parts:
        raise KvroomError(field, text, "is no KEY=FROM..TO", _EXAMPLE)
    first, dots, last = parts.partition("..")
    if not dots:
        return ScaleRange(key, tuple(number(field, each, _EXAMPLE) for each in parts.split(",")))
    low, high = number(field, first, _EXAMPLE), number(field, last, _EXAMPLE)
    if not 0 < low < high:
        raise KvroomError(field, text, "ends before it begins, or begins at nothing", _EXAMPLE)
    ratio = (high / low) ** (1 / (POINTS - 1))
    digits = ".0f" if key in _WHOLE else ".3g"
    values = [float(f"{low * ratio**index:{digits}}") for index in range(POINTS)]
    return ScaleRange(key, tuple(dict.fromkeys([low, *values[1:-1], high])))


Settings = Mapping[str, float]
"""Targets of metrics and settings of an autoscaler, by their keys."""


def combined(over: Sequence[ScaleRange], field: str = "--scale-to") -> list[dict[str, float]]:
    """Every combination of the values; KvroomError for a key that is said twice."""
    keys = [one.key for one in over]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise KvroomError(field, key, "is said twice", "Say each key once.")
    return [
        dict(zip(keys, values, strict=True)) for values in product(*(one.values for one in over))
    ]


def autoscaling_of(
    scenario: Scenario, field: str = "--scale-to", value: object = None
) -> Autoscaling:
    """The autoscaler of ``scenario``; KvroomError where there is none."""
    rule = scenario.fleet.autoscale if scenario.fleet else None
    if rule is None:
        fix = (
            'Add --fleet \'{"autoscale": {"policy": "hpa", "max": 8, "metrics": {"waiting": 8}}}\'.'
        )
        raise KvroomError(field, value, "needs an autoscaler", fix)
    return rule


def at(scenario: Scenario, settings: Settings, field: str = "--scale-to") -> Scenario:
    """``scenario`` with keys of its autoscaler at the values of ``settings``."""
    rule = autoscaling_of(scenario, field, next(iter(settings), None))
    assert scenario.fleet is not None
    entry = AUTOSCALERS[rule.policy]
    own = [key for key in rule.known(rule.policy) if key not in ("policy", "metrics", "settings")]
    known = (*(METRICS if entry.metrics else ()), *own)
    keys = rule.to_dict()
    targets = dict(rule.metrics or {})
    for key, value in settings.items():
        if key not in known:
            why = f"is nothing that {rule.policy} goes by"
            raise KvroomError(field, key, why, did_you_mean(key, known, _EXAMPLE))
        whole = key in _WHOLE
        if whole and value != int(value):
            raise KvroomError(field, f"{key}={value:g}", "is no whole number of replicas", _EXAMPLE)
        if entry.metrics and key in METRICS:
            targets[key] = value
        else:
            keys[key] = int(value) if whole else value
    if targets:
        keys["metrics"] = targets
    changed = Autoscaling.parse("fleet.autoscale", keys)
    return replace(scenario, fleet=replace(scenario.fleet, autoscale=changed))


def always(scenario: Scenario) -> Scenario:
    """``scenario`` with as many replicas as its autoscaler may start, all the time."""
    assert scenario.fleet is not None and scenario.fleet.autoscale is not None
    most = scenario.fleet.autoscale.max or scenario.replicas
    rule = Autoscaling(min=most, max=most)
    return replace(scenario, replicas=most, fleet=replace(scenario.fleet, autoscale=rule))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """What came of the autoscaler at ``settings`` (None: as many replicas as there may be, always).

    ``holds``: every objective is met, and every request answered. The costs are those of a day, if it goes on
    like this; ``usd_per_day`` None where the card's price is not known.
    """

    settings: dict[str, float] | None
    holds: bool
    usd_per_day: float | None
    gpu_hours_per_day: float
    mean_replicas: float
    cold_starts: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    tpot_p95_s: float | None
    goodput_requests_per_s: float
    slo: dict[str, float | None]
    """What each objective came to, in seconds."""

    @property
    def cost(self) -> float:
        """The cost to minimise: dollars, or GPU hours where there is no price."""
        return self.gpu_hours_per_day if self.usd_per_day is None else self.usd_per_day

    @property
    def rank(self) -> tuple[float, float]:
        """The cheapest first; of equal ones, to six digits, the quicker."""
        return (float(f"{self.cost:.6g}"), self.ttft_p95_s or 0.0)

    def told_cost(self) -> str:
        """The cost of a day in words."""
        if self.usd_per_day is None:
            return f"{self.gpu_hours_per_day:,.3g} GPU hours a day"
        return f"{show_usd(self.usd_per_day)} a day"

    def told(self) -> str:
        """Cost, TTFT and replicas in words."""
        late = self.ttft_p95_s
        first = "nobody is answered" if late is None else f"TTFT p95 {late:,.3g} s"
        return f"{self.told_cost()}, {first}, {self.mean_replicas:.3g} replicas on average"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def named(settings: Settings) -> str:
    """``concurrency 6, max 3``."""
    return ", ".join(f"{key} {value:g}" for key, value in settings.items()) or "as asked"


def played(
    scenario: Scenario,
    settings: Settings | None,
    source: Iterable[Request],
    *,
    slo: Sequence[Objective],
    watch: Watch | None = None,
    paths: bool = True,
    linked: bool = True,
) -> ScalePoint | None:
    """The requests served with the autoscaler of ``scenario`` at ``settings`` (None: always as many replicas
    as there may be); None where ``watch`` ended it."""
    question = always(scenario) if settings is None else at(scenario, settings)
    workings = work(question, paths=paths)
    simulated = serve(workings, source, slo=tuple(slo), watch=watch, linked=linked)
    if simulated.fleet.stopped:
        return None
    answer = simulated.to_dict()
    fleet, counts, spent_s = answer["fleet"], answer["requests"], answer["duration_s"]
    hours = fleet["gpu_hours"] * DAY_S / spent_s if spent_s else 0.0
    price = workings.deployment.device.usd_per_hour
    met = all(each["met"] for each in answer["slo"].values())
    return ScalePoint(
        settings=None if settings is None else dict(settings),
        holds=met and counts["completed"] + counts["dropped"] == counts["arrived"],
        usd_per_day=None if price is None else hours * price,
        gpu_hours_per_day=hours,
        mean_replicas=sum(one["there_s"] for one in fleet["replicas"]) / spent_s
        if spent_s
        else 0.0,
        cold_starts=fleet["cold_starts"],
        ttft_p50_s=answer["ttft_s"]["p50"],
        ttft_p95_s=answer["ttft_s"]["p95"],
        ttft_p99_s=answer["ttft_s"]["p99"],
        tpot_p95_s=answer["tpot_s"]["p95"],
        goodput_requests_per_s=answer["goodput_requests_per_s"],
        slo={name: each["value_s"] for name, each in answer["slo"].items()},
    )


def best_of(points: Iterable[ScalePoint]) -> ScalePoint | None:
    """The cheapest that holds; of equal ones the quicker."""
    return min((p for p in points if p.holds), key=lambda p: p.rank, default=None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScaleSweep(Shown):
    """The settings that were tried (fewer where ``watch`` ended it), and a fleet of constant size."""

    TITLE = "What an autoscaler should aim at"

    over: tuple[ScaleRange, ...]
    points: tuple[ScalePoint, ...]
    fixed: ScalePoint | None
    scenario: Scenario

    @property
    def stopped(self) -> bool:
        """Whether it was ended before all were tried."""
        return self.fixed is None

    @property
    def best(self) -> ScalePoint | None:
        """The cheapest that holds; of equal ones the quicker."""
        return best_of(self.points)

    def summary(self) -> str:
        """The best target, its cost a day, and what it is compared with."""
        tried = " and ".join(f"{o.key} from {o.values[0]:g} to {o.values[-1]:g}" for o in self.over)
        if not self.points:
            return "It was stopped before any target was tried."
        best = self.best
        if best is None:
            near = min(self.points, key=lambda point: point.ttft_p95_s or 0.0)
            values = ", ".join(f"{value:g}" for value in (near.settings or {}).values())
            sentence = f"No {tried} holds the objectives; {values} comes nearest ({near.told()})"
        else:
            sentence = f"{named(best.settings or {})}: {best.told()}"
        if self.fixed is not None:
            holds = "holds" if self.fixed.holds else "does not hold"
            sentence += f"; as many as there may be, always, {holds} at {self.fixed.told_cost()}"
        return sentence + "."

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a target; the last is the fleet that never changes."""
        fixed = [self.fixed] if self.fixed is not None else []
        keys = [one.key for one in self.over]
        rows = []
        for point in (*self.points, *fixed):
            row = point.to_dict()
            settings, reached = row.pop("settings") or {}, row.pop("slo")
            slo = {f"{name}_reached_s": value for name, value in reached.items()}
            rows.append({key: settings.get(key) for key in keys} | row | slo)
        return rows

    def questions(self) -> Sequence[Scenario]:
        """The question that was swept."""
        return [self.scenario]

    def html_parts(self) -> list[str]:
        """The sentence, what a day costs, and every target."""
        parts = [html.paragraph(self.summary())]
        if len(self.over) == 1:
            key = self.over[0].key
            title = f"Cost of a day over {key}"
            dots = [((p.settings or {})[key], p.cost) for p in self.points]
            parts += [html.heading(title), charts.curve(dots, title, labelled=True)]
        return [*parts, table_of(self.rows())]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "keys": [one.key for one in self.over],
            "best": self.best.to_dict() if self.best else None,
            "points": [point.to_dict() for point in self.points],
            "fixed": self.fixed.to_dict() if self.fixed else None,
        }


def sweep(
    over: Sequence[ScaleRange],
    scenario: Scenario,
    source: Iterable[Request],
    *,
    slo: Sequence[Objective] = (),
    watch: Watch | None = None,
    paths: bool = True,
    on_point: Callable[[ScalePoint], None] | None = None,
) -> ScaleSweep:
    """Serve the requests at every combination of values, and by as many replicas as there may be."""
    check_objectives(slo)
    combinations = combined(over)
    for one in combinations:
        at(scenario, one)  # what is wrong is said before the first is played
    points: list[ScalePoint] = []
    fixed: ScalePoint | None = None
    each: list[Settings | None] = [*combinations, None]
    for settings in each:
        point = played(scenario, settings, source, slo=slo, watch=watch, paths=paths)
        if point is None:
            break
        if settings is None:
            fixed = point
        else:
            points.append(point)
        if on_point:
            on_point(point)
    return ScaleSweep(over=tuple(over), points=tuple(points), fixed=fixed, scenario=scenario)


def check_objectives(slo: Sequence[Objective]) -> None:
    """KvroomError where no objective says which settings are good enough."""
    if not slo:
        fix = "Add --slo ttft_p95=2s."
        raise KvroomError("--slo", None, "is needed, to tell which targets hold", fix)
