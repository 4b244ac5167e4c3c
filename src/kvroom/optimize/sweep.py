"""A curve: the same question over one key's values, and where it turns.

``KEY=FROM..TO`` takes every power of two between (and both ends), ``KEY=A,B,C`` the values named. The
crossover is where what a step moves turns from weights to cache: over batches and lengths the exact
value is put in between and marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError, did_you_mean
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import check_int, parse_tokens, smallest

KEYS = {
    "batch": "concurrency",
    "context": "context_tokens",
    "tp": "tp",
    "kv_dtype": "kv_dtype",
    "gpu": "gpu",
}
NUMBERS = ("batch", "context", "tp")
MOST_VALUES = 200
MOST = 2**40
COLUMNS = (
    "value", "requests", "weight_bytes", "cache_bytes", "step_s", "step_low_s", "step_high_s",
    "tokens_per_s", "tpot_s", "ttft_s", "usd_per_million_output_tokens", "crossover",
)  # fmt: skip
"""What each point of a curve says; ``requests`` is how many the engine fits, ``crossover`` a mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One value and its Plan, or the error that says why there is none; ``crossover`` marks the value
    from which cache outweighs weights in a step."""

    value: int | str
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


def parse(text: str) -> tuple[str, list[int | str]]:
    """``KEY=FROM..TO`` or ``KEY=A,B,C`` as the key and its values; KvroomError otherwise."""
    key, equals, rest = text.partition("=")
    if not equals or not rest:
        fix = "Write KEY=FROM..TO, such as batch=1..256, or KEY=A,B."
        raise KvroomError("sweep", text, "is no KEY=FROM..TO", fix)
    if key not in KEYS:
        fix = did_you_mean(key, tuple(KEYS), f"One of: {', '.join(KEYS)}.")
        raise KvroomError("sweep", key, "cannot be swept", fix)
    low, dots, high = rest.partition("..")
    if dots:
        if key not in NUMBERS:
            fix = f"List them: {key}=A,B."
            raise KvroomError("sweep", text, f"is a range, and {key} takes names", fix)
        return key, list(_doubled(_number(key, low), _number(key, high)))
    names = [part.strip() for part in rest.split(",") if part.strip()]
    if not names or len(names) > MOST_VALUES:
        fix = f"Give 1 to {MOST_VALUES} values."
        raise KvroomError("sweep", text, f"names {len(names)} values", fix)
    return key, [_number(key, name) for name in names] if key in NUMBERS else list(names)


def _number(key: str, text: str) -> int:
    if key == "context":
        return parse_tokens("sweep", text)
    return check_int("sweep", int(text) if text.isdecimal() else text, low=1, high=MOST)


def _doubled(low: int, high: int) -> Sequence[int]:
    if low > high:
        raise KvroomError("sweep", f"{low}..{high}", "runs backwards", f"Write {high}..{low}.")
    made = [low]
    while made[-1] * 2 < high:
        made.append(made[-1] * 2)
    return (*made, high) if high > low else made


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The points over the values of ``key``."""

    key: str
    points: tuple[CurvePoint, ...]


def curve(scenario: Scenario, text: str) -> Curve:
    """The curve that ``KEY=FROM..TO`` or ``KEY=A,B`` asks for."""
    key, values = parse(text)
    return Curve(key=key, points=sweep(scenario, key, values))


def sweep(scenario: Scenario, key: str, values: Sequence[int | str]) -> tuple[CurvePoint, ...]:
    """A Plan for each value of ``key``, and one more at the crossover where it lies between two."""
    if key not in ("gpu", "tp"):
        scenario, _ = laid_out(scenario)
    turn = _turn(scenario, key, values)
    if isinstance(turn, int) and turn not in values:
        values = sorted({*(value for value in values if isinstance(value, int)), turn})
    return tuple(_point(scenario, key, value, marked=value == turn) for value in values)


def _with(scenario: Scenario, key: str, value: int | str) -> Scenario:
    given = scenario.differences() | {KEYS[key]: value}
    if key == "tp":
        given.pop("gpu_count", None)
    if key == "batch" and scenario.workload is not None:
        given["workload"] = scenario.workload.differences() | {"concurrency": value}
    return Scenario.from_dict(given)


def _point(scenario: Scenario, key: str, value: int | str, *, marked: bool) -> CurvePoint:
    try:
        return CurvePoint(
            value=value, plan=work(_with(scenario, key, value)).plan, crossover=marked
        )
    except KvroomError as error:
        return CurvePoint(value=value, plan=None, error=error)


def _turn(scenario: Scenario, key: str, values: Sequence[int | str]) -> int | None:
    """The batch, or length, from which a step moves more cache than weights, if it lies inside."""
    if key not in ("batch", "context"):
        return None
    workings = work(scenario)
    low, high = int(values[0]), int(values[-1])
    if key == "batch":
        found = workings.traffic.crossover_batch(workings.plan.step.request_tokens)
    else:
        batch = workings.plan.step.batch
        weights = workings.traffic.weight_bytes(batch)
        found = smallest(lambda n: batch * sum(workings.traffic.request_bytes(n)) >= weights, high)
    return found if found is not None and low <= found <= high else None
