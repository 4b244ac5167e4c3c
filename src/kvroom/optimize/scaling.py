"""Which target an autoscaler should have: the same requests at several, what each costs, what holds.

The cheapest within the objectives is the best; beside them stands a fleet that is always as large as the
autoscaler may make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
    key, equals, said = (part.strip() for part in text.partition("="))
    if not equals or not said:
        raise KvroomError(field, text, "is no KEY=FROM..TO", _EXAMPLE)
    first, dots, last = said.partition("..")
    if not dots:
        return ScaleRange(key, tuple(number(field, each, _EXAMPLE) for each in said.split(",")))
    low, high = number(field, first, _EXAMPLE), number(field, last, _EXAMPLE)
    if not 0 < low < high:
        raise KvroomError(field, text, "ends before it begins, or begins at nothing", _EXAMPLE)
    ratio = (high / low) ** (1 / (POINTS - 1))
    digits = ".0f" if key in _WHOLE else ".3g"
    values = [float(f"{low * ratio**index:{digits}}") for index in range(POINTS)]
    return ScaleRange(key, tuple(dict.fromkeys([low, *values[1:-1], high])))


def at(scenario: Scenario, key: str, value: float, field: str = "--scale-to") -> Scenario:
    """``scenario`` with ``key`` of its autoscaler at ``value``."""
    rule = scenario.fleet.autoscale if scenario.fleet else None
    if rule is None or scenario.fleet is None:
        fix = (
            'Add --fleet \'{"autoscale": {"policy": "hpa", "max": 8, "metrics": {"waiting": 8}}}\'.'
        )
        raise KvroomError(field, key, "needs an autoscaler", fix)
    entry = AUTOSCALERS[rule.policy]
    own = [key for key in rule.known(rule.policy) if key not in ("policy", "metrics", "settings")]
    known = (*(METRICS if entry.metrics else ()), *own)
    if key not in known:
        why = f"is nothing that {rule.policy} goes by"
        raise KvroomError(field, key, why, did_you_mean(key, known, _EXAMPLE))
    keys = rule.to_dict()
    whole = key in _WHOLE
    if whole and value != int(value):
        raise KvroomError(field, f"{key}={value:g}", "is no whole number of replicas", _EXAMPLE)
    if entry.metrics and key in METRICS:
        keys["metrics"] = {**(rule.metrics or {}), key: value}
    else:
        keys[key] = int(value) if whole else value
    changed = Autoscaling.parse("fleet.autoscale", keys)
    return replace(scenario, fleet=replace(scenario.fleet, autoscale=changed))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """One target and what came of it; ``value`` None: as many as there may be, always."""

    value: float | None
    answer: dict[str, Any]
    usd_per_hour: float | None
    """Of one GPU; None where its price is not known."""

    @property
    def holds(self) -> bool:
        """Whether every objective is met, and every request answered."""
        counts = self.answer["requests"]
        met = all(each["met"] for each in self.answer["slo"].values())
        return met and counts["completed"] + counts["dropped"] == counts["arrived"]

    @property
    def gpu_hours_per_day(self) -> float:
        """GPU hours, as if it went on like this for a day."""
        spent: float = self.answer["fleet"]["gpu_hours"]
        return spent * DAY_S / self.answer["duration_s"] if self.answer["duration_s"] else 0.0

    @property
    def usd_per_day(self) -> float | None:
        """The same in dollars."""
        return None if self.usd_per_hour is None else self.gpu_hours_per_day * self.usd_per_hour

    @property
    def cost(self) -> float:
        """What is to be small: dollars, or GPU hours where there is no price."""
        usd = self.usd_per_day
        return self.gpu_hours_per_day if usd is None else usd

    def told_cost(self) -> str:
        """The cost of a day in words."""
        usd = self.usd_per_day
        if usd is None:
            return f"{self.gpu_hours_per_day:,.3g} GPU hours a day"
        return f"{show_usd(usd)} a day"

    def to_dict(self) -> dict[str, Any]:
        """The figures that matter, plain."""
        fleet, spent = self.answer["fleet"], self.answer["duration_s"]
        there = sum(replica["there_s"] for replica in fleet["replicas"])
        return {
            "value": self.value,
            "holds": self.holds,
            "usd_per_day": self.usd_per_day,
            "gpu_hours_per_day": self.gpu_hours_per_day,
            "mean_replicas": there / spent if spent else 0.0,
            "cold_starts": fleet["cold_starts"],
            "ttft_p50_s": self.answer["ttft_s"]["p50"],
            "ttft_p95_s": self.answer["ttft_s"]["p95"],
            "ttft_p99_s": self.answer["ttft_s"]["p99"],
            "tpot_p95_s": self.answer["tpot_s"]["p95"],
            "goodput_requests_per_s": self.answer["goodput_requests_per_s"],
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScaleSweep(Shown):
    """The targets that were tried, fewer where ``watch`` ended it, and the fleet that never changes."""

    TITLE = "What an autoscaler should aim at"

    range: ScaleRange
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
        holding = [point for point in self.points if point.holds]
        key = lambda point: (point.cost, point.answer["ttft_s"]["p95"])  # noqa: E731
        return min(holding, key=key, default=None)

    def summary(self) -> str:
        """The best target, what it costs a day, and against what."""
        tried = f"{self.range.values[0]:g} to {self.range.values[-1]:g}"
        if not self.points:
            return "It was stopped before any target was tried."
        best = self.best
        if best is None:
            near = min(self.points, key=lambda point: point.answer["ttft_s"]["p95"] or 0.0)
            said = f"No {self.range.key} from {tried} holds the objectives; {near.value:g} comes nearest"
            said += f" ({_told(near)})"
        else:
            said = f"{self.range.key} {best.value:g}: {_told(best)}"
        if self.fixed is not None:
            holds = "holds" if self.fixed.holds else "does not hold"
            said += f"; as many as there may be, always, {holds} at {self.fixed.told_cost()}"
        return said + "."

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a target; the last is the fleet that never changes."""
        fixed = [self.fixed] if self.fixed is not None else []
        return [point.to_dict() for point in (*self.points, *fixed)]

    def questions(self) -> Sequence[Scenario]:
        """The question that was swept."""
        return [self.scenario]

    def html_parts(self) -> list[str]:
        """The sentence, cost over TTFT, and every target."""
        title = f"Cost of a day over {self.range.key}"
        drawn = charts.curve([(p.value or 0.0, p.cost) for p in self.points], title, labelled=True)
        return [html.paragraph(self.summary()), html.heading(title), drawn, table_of(self.rows())]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "key": self.range.key,
            "best": self.best.to_dict() if self.best else None,
            "points": [point.to_dict() for point in self.points],
            "fixed": self.fixed.to_dict() if self.fixed else None,
        }


def _told(point: ScalePoint) -> str:
    late = point.answer["ttft_s"]["p95"]
    told = "nobody is answered" if late is None else f"TTFT p95 {late:,.3g} s"
    return (
        f"{point.told_cost()}, {told}, {point.to_dict()['mean_replicas']:.3g} replicas on average"
    )


def sweep(
    over: ScaleRange,
    scenario: Scenario,
    source: Iterable[Request],
    *,
    slo: Sequence[Objective] = (),
    watch: Watch | None = None,
    paths: bool = True,
    on_point: Callable[[ScalePoint], None] | None = None,
) -> ScaleSweep:
    """Serve the requests at every target, and by as many replicas as there may be."""
    if not slo:
        fix = "Add --slo ttft_p95=2s."
        raise KvroomError("--slo", None, "is needed, to tell which targets hold", fix)
    asked = [(value, at(scenario, over.key, value)) for value in over.values]
    points: list[ScalePoint] = []
    fixed: ScalePoint | None = None
    for value, question in (*asked, (None, always(scenario))):
        workings = work(question, paths=paths)
        made = serve(workings, source, slo=tuple(slo), watch=watch)
        if made.fleet.stopped:
            break
        price = workings.deployment.device.usd_per_hour
        point = ScalePoint(value=value, answer=made.to_dict(), usd_per_hour=price)
        if value is None:
            fixed = point
        else:
            points.append(point)
        if on_point:
            on_point(point)
    return ScaleSweep(range=over, points=tuple(points), fixed=fixed, scenario=scenario)


def always(scenario: Scenario) -> Scenario:
    """``scenario`` with as many replicas as its autoscaler may start, from the beginning to the end."""
    assert scenario.fleet is not None and scenario.fleet.autoscale is not None
    most = scenario.fleet.autoscale.max or scenario.replicas
    rule = Autoscaling(min=most, max=most)
    return replace(scenario, replicas=most, fleet=replace(scenario.fleet, autoscale=rule))
