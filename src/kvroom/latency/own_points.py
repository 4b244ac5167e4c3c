"""Measurements of one's own: the ``times`` part of a calibration file, which later plans are drawn to.

``{"kvroom_calibration": 1, "times": {"points": [{…}]}}``. A point says what was measured, ``step_s`` (with
``concurrency`` and ``context_tokens``) or ``tpot_s`` and ``ttft_s`` (with ``concurrency``,
``input_tokens``, ``output_tokens``), and may say of which ``engine``, ``gpu``, ``model`` and ``tp``; it
holds for plans that agree. The more points, the nearer the plan comes to them and the narrower its band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log, sqrt
from typing import Any

from kvroom.engines.corrections import check
from kvroom.errors import KvroomError
from kvroom.latency.estimate import Timing
from kvroom.latency.load import SPREAD, Load, lengths_of, served
from kvroom.latency.step_time import Clock
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.units import check_float, check_int, parse_tokens

METRICS = {"step_s": "step", "tpot_s": "tpot", "ttft_s": "ttft"}
SCATTER = 0.1
"""How far one measurement lies from another of the same load (a logarithm)."""
SHARED, NEAR = 0.5, 0.4
"""How far a machine lies from the shipped calibration at any load, and how much farther at some loads."""
MOST = 2**30
_FIX = "Write points with step_s, or tpot_s and ttft_s, and what they were measured at."


def points_for(value: Any, deployment: Deployment, model: Any) -> list[Mapping[str, Any]]:
    """The points of a calibration's content that hold for ``deployment`` (``model`` as the Scenario
    names it)."""
    times = check(value).get("times", {})
    points = times.get("points", []) if isinstance(times, Mapping) else None
    if not isinstance(points, list | tuple) or not all(
        isinstance(point, Mapping) for point in points
    ):
        raise KvroomError("calibration.times", times, "holds no list of points", _FIX)
    for point in points:
        if not any(metric in point for metric in METRICS):
            raise KvroomError("calibration.times.points", point, "says no time", _FIX)
    own = {
        "engine": deployment.engine,
        "gpu": deployment.device.name,
        "model": model,
        "tp": deployment.layout.tp,
    }
    return [
        point
        for point in points
        if all(point[key] == value for key, value in own.items() if point.get(key) is not None)
    ]


Place = tuple[float, float]
"""A load: logarithms of users at once, and of tokens that each holds."""


def drawn_to(
    timing: Timing, points: Sequence[Mapping[str, Any]], here: Place | None = None
) -> Timing:
    """``timing`` with its steps, then its first tokens, scaled towards the measured ones: the more, the
    nearer a point's load is to that asked, ``here`` (None: to a point's own as to any other's)."""
    steps = [point for point in points if "step_s" in point or "tpot_s" in point]
    firsts = [point for point in points if "ttft_s" in point]
    if steps:
        pairs = [(_place(step), log(m / t)) for step in steps for m, t in _steps(timing, step)]
        drawn = _Drawn.of(pairs, here)
        k = timing.clock.k
        clock = replace(timing.clock, k=replace(k, scale=k.scale * exp(drawn.log)))
        timing = _with(timing, clock, ("step", "tpot", "whole"), drawn)
    if firsts:
        drawn = _Drawn.of([(_place(first), _first(timing, first)) for first in firsts], here)
        clock = replace(timing.clock, first_ratio=timing.clock.first_ratio * exp(drawn.log))
        timing = _with(timing, clock, ("ttft",), drawn)
    return timing


def place_of(users: float, tokens: float) -> Place:
    """The place of a load of ``users`` at once whose requests hold ``tokens``."""
    return log(max(1.0, users)), log(max(1.0, tokens))


def _place(point: Mapping[str, Any]) -> Place:
    if "context_tokens" in point:
        tokens = parse_tokens("calibration.times.context_tokens", point["context_tokens"])
    else:
        load = _load(point)
        tokens = load.input_tokens + load.output_tokens // 2
    return place_of(_users(point), tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """The logarithm that draws predictions to measurements, how far these scatter round what is drawn, how
    well it is known (a standard deviation), and of how many."""

    log: float
    scatter: float
    known: float
    points: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[Place, float]], here: Place | None) -> _Drawn:
        """A Gaussian process: all loads of a machine have SHARED in common, near ones NEAR as well
        (Rasmussen and Williams, 2.2)."""
        places, logs = [p for p, _ in pairs], [x for _, x in pairs]
        joint = [
            [
                _common(place, one_place) + (SCATTER**2 if index == one_index else 0.0)
                for one_index, one_place in enumerate(places)
            ]
            for index, place in enumerate(places)
        ]
        weights = solve(joint, logs)
        at = [[_common(place, one_place) for one_place in places] for place in places]
        means = [sum(c * weight for c, weight in zip(row, weights, strict=True)) for row in at]
        off = [log - mean for log, mean in zip(logs, means, strict=True)]
        if here is None:
            toward = [sum(row) / len(at) for row in zip(*at, strict=True)]
            own = sum(toward) / len(toward)
        else:
            toward, own = [_common(here, place) for place in places], SHARED**2 + NEAR**2
        mean = sum(c * weight for c, weight in zip(toward, weights, strict=True))
        explained = sum(c * w for c, w in zip(toward, solve(joint, toward), strict=True))
        return cls(
            log=mean,
            scatter=sqrt(sum(x * x for x in off) / len(off)),
            known=sqrt(max(0.0, own - explained)),
            points=len(logs),
        )


def _common(place: Place, one_place: Place) -> float:
    apart = (place[0] - one_place[0]) ** 2 + (place[1] - one_place[1]) ** 2
    return SHARED**2 + NEAR**2 * exp(-apart / 2)


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x of ``matrix``·x = ``right``, by Gaussian elimination; the matrix is positive definite."""
    rows = [[*row, r] for row, r in zip(matrix, right, strict=True)]
    size = len(rows)
    for index in range(size):
        for other_index in range(index + 1, size):
            share = rows[other_index][index] / rows[index][index]
            rows[other_index] = [
                row - share * one_row
                for row, one_row in zip(rows[other_index], rows[index], strict=True)
            ]
    x = [0.0] * size
    for index in reversed(range(size)):
        later = sum(
            rows[index][other_index] * x[other_index] for other_index in range(index + 1, size)
        )
        x[index] = (rows[index][size] - later) / rows[index][index]
    return x


WITHIN = 1.2816
"""Standard deviations that four of five of a normal distribution lie within."""


def _with(timing: Timing, clock: Clock, metrics: Sequence[str], drawn: _Drawn) -> Timing:
    own = dict(timing.own_bands)
    for metric in metrics:
        known = timing.table["bands"][f"{metric} {timing.kind}"]["known"]
        own[metric] = hypot(known / sqrt(drawn.points + 1), drawn.scatter, WITHIN * drawn.known)
    return replace(timing, clock=clock, own_bands=own)


def _steps(timing: Timing, point: Mapping[str, Any]) -> list[tuple[float, float]]:
    found = []
    if "step_s" in point:
        tokens = parse_tokens("calibration.times.context_tokens", point.get("context_tokens"))
        found.append((_seconds(point, "step_s"), timing.clock.decode_s(_users(point), tokens)))
    if "tpot_s" in point:
        found.append((_seconds(point, "tpot_s"), served(timing.clock, _load(point)).tpot_s))
    return found


def _first(timing: Timing, point: Mapping[str, Any]) -> float:
    predicted = served(timing.clock, _load(point)).ttft_s
    return log(_seconds(point, "ttft_s") / predicted) if predicted else 0.0


def _users(point: Mapping[str, Any]) -> int:
    return check_int("calibration.times.concurrency", point.get("concurrency", 1), low=1, high=MOST)


def _seconds(point: Mapping[str, Any], key: str) -> float:
    return check_float(f"calibration.times.{key}", point[key], low=1e-9, high=1e9, unit="seconds")


def _load(point: Mapping[str, Any]) -> Load:
    entering, leaving = (
        parse_tokens(f"calibration.times.{k}", point.get(k))
        for k in ("input_tokens", "output_tokens")
    )
    users = _users(point)
    return Load(lengths=lengths_of(entering, leaving, SPREAD), users=users)
