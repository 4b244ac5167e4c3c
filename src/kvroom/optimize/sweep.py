"""A curve: the same question over one key's values, and where it turns.

``KEY=FROM..TO`` takes every power of two between (and both ends), ``KEY=A,B,C`` the values named. KEY is any
key of a Scenario or of its workload that one value fills, or ``engine_args.FLAG``. The crossover is where
what a step moves turns from weights to cache: over batches and lengths the exact value is put in between and
marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.plan import Plan
from kvroom.answer.shown import Shown, table_of
from kvroom.errors import KvroomError, did_you_mean
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import work
from kvroom.records import dataclass
from kvroom.scenario.layout import LAYOUT_KEYS
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.units import check_float, check_int, number, parse_tokens, smallest

Value = int | float | str

SHORT = {
    "batch": "concurrency",
    "context": "context_tokens",
    "rate": "workload.requests_per_s",
    "input": "workload.input_tokens",
    "output": "workload.output_tokens",
}
"""Other words for keys."""
USERS = "users"
"""A key of the sweep alone: both concurrencies."""
NOT_SWEPT = (
    "workload", "engine_args", "tiers", "fleet", "disaggregation", "calibration", "known_bytes", "prices",
    "allow_overcommit", "static", "lengths",
)  # fmt: skip
"""Keys that hold more than one value, or are said or not."""
COUNTS = (*LAYOUT_KEYS, "replicas", "concurrency", "requests_per_s", "requests", "seed", USERS)
OPENING = ("gpu", "model", "weight_dtype", *LAYOUT_KEYS, "speculation", "engine")
"""Keys on which a layout that is left open hangs: it is chosen anew for each of their values."""
MOST_VALUES = 200
MOST = 2**40
COLUMNS = (
    "value", "requests", "weight_bytes", "cache_bytes", "step_s", "step_low_s", "step_high_s",
    "tokens_per_s", "tpot_s", "ttft_s", "usd_per_million_output_tokens", "crossover",
)  # fmt: skip
"""What each point of a curve says; ``requests`` is how many the engine fits, ``crossover`` a mark."""
DRAWN = (
    ("requests", "requests at once"), ("tpot_s", "TPOT, s"), ("step_s", "a step, s"),
    ("usd_per_million_output_tokens", "dollars a million output tokens"),
)  # fmt: skip
"""What a report draws of a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One value and its Plan, or the error that says why there is none; ``crossover`` marks the value
    from which cache outweighs weights in a step."""

    value: Value
    plan: Plan | None
    error: KvroomError | None = None
    crossover: bool = False

    def row(self) -> dict[str, Any]:
        """The point as plain values, by COLUMNS; None where a figure is not known."""
        if self.plan is None:
            return dict.fromkeys(COLUMNS) | {"value": self.value, "crossover": False}
        plan = self.plan
        limit = plan.capacity.engine.max_concurrency if plan.capacity.engine else None
        figures = (
            self.value, limit, plan.step.bytes.weights, plan.step.bytes.kv + plan.step.bytes.state,
            plan.step.seconds, plan.step.seconds_low, plan.step.seconds_high, plan.step.tokens_per_s,
            plan.serving.tpot_s, plan.serving.ttft_s, plan.cost.usd_per_million_output_tokens, self.crossover,
        )  # fmt: skip
        return dict(zip(COLUMNS, figures, strict=True))


def known() -> tuple[str, ...]:
    """Every word that may be swept."""
    keys = [key for key in Scenario.PARSERS if key not in NOT_SWEPT]
    own = [key for key in Workload.PARSERS if key not in NOT_SWEPT and key != "concurrency"]
    return (*SHORT, USERS, *keys, *own)


def key_of(word: str) -> str:
    """The Scenario's key that ``word`` stands for (``workload.…`` and ``engine_args.…`` with their dot)."""
    key = SHORT.get(word, word)
    within, dot, name = key.partition(".")
    if within == "engine_args" and dot and name.replace("_", "").isalnum():
        return key
    if within == "workload" and name in Workload.PARSERS and name not in NOT_SWEPT:
        return key
    if key == USERS or (key in Scenario.PARSERS and key not in NOT_SWEPT):
        return key
    if key in Workload.PARSERS and key not in NOT_SWEPT:
        return f"workload.{key}"
    fix = did_you_mean(word, known(), f"One of: {', '.join(known())}, engine_args.FLAG.")
    raise KvroomError("sweep", word, "cannot be swept", fix)


def parse(text: str) -> tuple[str, list[Value]]:
    """``KEY=FROM..TO`` or ``KEY=A,B,C`` as the word and its values; KvroomError otherwise."""
    word, equals, rest = text.partition("=")
    if not equals or not rest:
        fix = "Write KEY=FROM..TO, such as batch=1..256, or KEY=A,B."
        raise KvroomError("sweep", text, "is no KEY=FROM..TO", fix)
    key = key_of(word.strip())
    low, dots, high = rest.partition("..")
    if dots:
        ends = _value(key, low), _value(key, high)
        if isinstance(ends[0], str) or isinstance(ends[1], str):
            fix = f"List them: {word}=A,B."
            raise KvroomError("sweep", text, f"is a range, and {word} takes names", fix)
        return word, list(_doubled(ends[0], ends[1]))
    names = [part.strip() for part in rest.split(",") if part.strip()]
    if not names or len(names) > MOST_VALUES:
        fix = f"Give 1 to {MOST_VALUES} values."
        raise KvroomError("sweep", text, f"names {len(names)} values", fix)
    return word, [_value(key, name) for name in names]


def _value(key: str, text: str) -> Value:
    """A value in the form that its key takes: tokens, a number, or the text itself."""
    name = key.rpartition(".")[2]
    if key.startswith("engine_args."):
        try:
            amount = number("sweep", text, "")
        except KvroomError:
            return text
        return int(amount) if amount.is_integer() else amount
    if name.endswith("_tokens"):
        return parse_tokens("sweep", text)
    if name not in COUNTS:
        return text
    amount = number("sweep", text, "Write numbers: 1..256, or 1,2,4.")
    check_float("sweep", amount, low=1e-9, high=MOST)
    if name != "requests_per_s":
        return check_int("sweep", amount, low=1, high=MOST)
    return int(amount) if amount.is_integer() else amount


def _doubled(low: float, high: float) -> Sequence[int | float]:
    if low > high:
        raise KvroomError("sweep", f"{low}..{high}", "runs backwards", f"Write {high}..{low}.")
    made = [low]
    while made[-1] * 2 < high:
        made.append(made[-1] * 2)
    values = (*made, high) if high > low else made
    return [int(value) if value == int(value) else value for value in values]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Curve(Shown):
    """The points over the values of ``key``, as it was written."""

    TITLE = "One key turned"

    key: str
    points: tuple[CurvePoint, ...]

    def summary(self) -> str:
        """What was swept, and where cache comes to outweigh weights."""
        turns = [point.value for point in self.points if point.crossover]
        ends = f"{self.key} from {self.points[0].value} to {self.points[-1].value}"
        return ends + (f"; cache outweighs weights from {turns[0]} on" if turns else "")

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a value, by COLUMNS (``value`` named after the key)."""
        rows = (point.row() for point in self.points)
        return [{self.key: row.pop("value"), **row} for row in rows]

    def questions(self) -> Sequence[Scenario]:
        """The question at the first value that could be answered."""
        plans = [point.plan for point in self.points if point.plan is not None]
        return [plan.scenario for plan in plans[:1]]

    def html_parts(self) -> list[str]:
        """The figures drawn over the values, and every point."""
        parts = [html.paragraph(self.summary() + ".")]
        for column, title in DRAWN:
            points = [
                (point.value, point.row()[column])
                for point in self.points
                if not isinstance(point.value, str) and point.row()[column] is not None
            ]
            if len(points) > 1:
                parts += [html.heading(f"{title} over {self.key}")]
                parts += [charts.curve(points, f"{title} over {self.key}", labelled=True)]
        return [*parts, table_of(self.rows())]


def curve(scenario: Scenario, text: str) -> Curve:
    """The curve that ``KEY=FROM..TO`` or ``KEY=A,B`` asks for."""
    word, values = parse(text)
    return Curve(key=word, points=sweep(scenario, word, values))


def sweep(scenario: Scenario, word: str, values: Sequence[Value]) -> tuple[CurvePoint, ...]:
    """A Plan for each value of a key, and one more at the crossover where it lies between two."""
    key = key_of(word)
    if key not in OPENING:
        scenario, _ = laid_out(scenario)
    turn = _turn(scenario, key, values)
    if isinstance(turn, int) and turn not in values:
        values = sorted({*(value for value in values if not isinstance(value, str)), turn})
    return tuple(_point(scenario, key, value, marked=value == turn) for value in values)


def _with(scenario: Scenario, key: str, value: Value) -> Scenario:
    keys = scenario.differences()
    within, dot, name = key.partition(".")
    if dot:
        held = keys.get(within)
        keys[within] = {**(held if isinstance(held, dict) else {}), name: value}
    else:
        keys["concurrency" if key == USERS else key] = value
    if key in LAYOUT_KEYS and key not in ("ep", "dcp"):
        # a degree that changes takes its own number of cards, a number of cards its own degrees
        for other in ("tp", "pp", "dp", "ep", "dcp") if key == "gpu_count" else ("gpu_count",):
            keys.pop(other, None)
    both = key == USERS or (key == "concurrency" and scenario.workload is not None)
    if both or key == "workload.concurrency":
        keys["concurrency"] = value
        workload = scenario.workload.differences() if scenario.workload else {}
        keys["workload"] = workload | {"concurrency": value}
    return Scenario.from_dict(keys)


def _point(scenario: Scenario, key: str, value: Value, *, marked: bool) -> CurvePoint:
    try:
        return CurvePoint(
            value=value, plan=work(_with(scenario, key, value)).plan, crossover=marked
        )
    except KvroomError as error:
        return CurvePoint(value=value, plan=None, error=error)


def _turn(scenario: Scenario, key: str, values: Sequence[Value]) -> int | None:
    """The batch, or length, from which a step moves more cache than weights, if it lies inside."""
    if key not in ("concurrency", "context_tokens"):
        return None
    workings = work(scenario)
    low, high = int(values[0]), int(values[-1])
    if key == "concurrency":
        found = workings.traffic.crossover_batch(workings.plan.step.request_tokens)
    else:
        batch = workings.plan.step.batch
        weights = workings.traffic.weight_bytes(batch)
        found = smallest(lambda n: batch * sum(workings.traffic.request_bytes(n)) >= weights, high)
    return found if found is not None and low <= found <= high else None
