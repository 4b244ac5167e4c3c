"""Measurements of one's own: the ``times`` part of a calibration file, which later plans are drawn to.

``{"kvroom_calibration": 1, "times": {"points": [{…}]}}``. A point says what was measured, ``step_s`` (with
``concurrency`` and ``context_tokens``) or ``tpot_s`` and ``ttft_s`` (with ``concurrency``,
``input_tokens``, ``output_tokens``), and may say of which ``engine``, ``gpu``, ``model`` and ``tp``; it
holds for plans that agree. The more points, the nearer the plan comes to them and the narrower its band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log, log1p, sqrt
from typing import Any, NamedTuple

from kvroom.engines.corrections import check
from kvroom.errors import KvroomError, check_spelling, did_you_mean, nearest
from kvroom.hardware import catalogue as hardware
from kvroom.latency.estimate import Timing
from kvroom.latency.load import SPREAD, Load, lengths_of, served
from kvroom.latency.step_time import Clock
from kvroom.models import catalogue as models
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.units import check_float, check_int, parse_tokens

WHOSE = ("model", "gpu", "engine", "tp")
METRICS = {"step_s": "step", "tpot_s": "tpot", "ttft_s": "ttft"}
KEYS = (
    *WHOSE,
    *METRICS,
    "concurrency",
    "context_tokens",
    "input_tokens",
    "output_tokens",
    "source",
)
"""What a point may say; a key that is like none of them is another tool's."""


class Lie(NamedTuple):
    """How measurements of a machine may lie from the shipped calibration (logarithms): by ``shared`` at any
    load, by ``near`` more at some loads, and by ``scatter`` from one another at the same load."""

    shared: float
    near: float
    scatter: float


LIES = (
    Lie(0.5, 0.4, 0.1),
    Lie(0.5, 0.0, 0.1),
    Lie(0.5, 0.15, 0.05),
    Lie(0.5, 0.4, 0.3),
    Lie(0.0, 0.4, 0.1),
    Lie(0.0, 0.0, 0.1),
)
"""The first is taken for a single point; of several the one by which each is told best by the others, so that
points which tell nothing of one another move nothing."""
FREEDOM = 4.0
"""Of Student's t: a point far from what others say weighs less (as in ``benchmarks/fitting.py``)."""
WEIGHINGS = 2
MISS = 0.1
"""The miss (a logarithm) at which telling a point begins to count as poor."""
NEAREST = 40
"""Points nearest the load asked that are looked at."""
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
    check_spelling("calibration.times", times, ("points",))
    for point in points:
        _check(point)
    return [
        point
        for point in points
        if point.get("engine") in (None, deployment.engine)
        and point.get("tp") in (None, deployment.layout.tp, str(deployment.layout.tp))
        and (point.get("gpu") is None or _is_card(point["gpu"], deployment.device.name))
        and (point.get("model") in (None, model) or _is_model(point["model"], deployment.model))
    ]


def _check(point: Mapping[str, Any]) -> None:
    """KvroomError where a point says no time, one that cannot be, or a key that is none of its own but is
    like one."""
    for key in point:
        if key not in KEYS and nearest(str(key), KEYS):
            fix = did_you_mean(str(key), KEYS, "")
            raise KvroomError("calibration.times.points", key, "is no key of a point", fix)
    if not any(metric in point for metric in METRICS):
        raise KvroomError("calibration.times.points", point, "says no time", _FIX)
    for metric in METRICS:
        if metric in point:
            _seconds(point, metric)


def _is_card(said: Any, name: str) -> bool:
    try:
        return said == name or hardware.find(said).name == name
    except KvroomError:
        return False


def _is_model(said: Any, spec: ModelSpec) -> bool:
    """Whether the catalogue's model of that name has the shape of ``spec``, under whatever name."""
    try:
        found = models.find(said) if isinstance(said, str) else None
    except KvroomError:
        return False
    return found is not None and replace(found, name=spec.name, source=spec.source) == spec


def unused(value: Any, deployment: Deployment, model: Any) -> str:
    """A warning where a calibration has points and none of them holds here; else nothing."""
    held = points_for(value, deployment, model)
    points = check(value).get("times", {}).get("points", ())
    if held or not points:
        return ""
    of = sorted({" ".join(str(point[key]) for key in WHOSE if key in point) for point in points})
    return f"none of the calibration's times holds here: they are of {'; '.join(of)}"


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
        clock = _scaled(timing.clock, exp(drawn.log))
        timing = _with(timing, clock, ("step", "tpot", "whole"), drawn)
    if firsts:
        drawn = _Drawn.of([(_place(first), _first(timing, first)) for first in firsts], here)
        clock = replace(timing.clock, first_ratio=timing.clock.first_ratio * exp(drawn.log))
        timing = _with(timing, clock, ("ttft",), drawn)
    return timing


def _scaled(clock: Clock, ratio: float) -> Clock:
    """The clock ``ratio`` times as slow, and no quicker than its card can read and compute."""
    slower = replace(clock, k=replace(clock.k, scale=clock.k.scale * ratio))
    return slower.within_peaks(cache=True, hold=min)


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
        """A Gaussian process over loads (Rasmussen and Williams, 2.2), of the kind that tells each point
        best by the others (5.4.2)."""
        if here is not None:
            pairs = sorted(pairs, key=lambda pair: _apart(here, pair[0]))[:NEAREST]
        places, logs = [p for p, _ in pairs], [x for _, x in pairs]
        told = min((_Told.of(lie, places, logs) for lie in LIES), key=lambda told: told.missed)
        at = [[_common(told.lie, place, one_place) for one_place in places] for place in places]
        off = [log - _dot(row, told.weights) for log, row in zip(logs, at, strict=True)]
        if here is None:
            toward = [sum(row) / len(at) for row in zip(*at, strict=True)]
            own = sum(toward) / len(toward)
        else:
            toward = [_common(told.lie, here, place) for place in places]
            own = told.lie.shared**2 + told.lie.near**2
        explained = _dot(toward, [_dot(row, toward) for row in told.inverse])
        return cls(
            log=_dot(toward, told.weights),
            scatter=sqrt(sum(x * x for x in off) / len(off)),
            known=sqrt(max(0.0, own - explained)),
            points=len(logs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Points under one ``lie``: the inverse of their covariance, their weights, and how badly each is told by
    the others."""

    lie: Lie
    inverse: Sequence[Sequence[float]]
    weights: Sequence[float]
    missed: float

    @classmethod
    def of(cls, lie: Lie, places: Sequence[Place], logs: Sequence[float]) -> _Told:
        common = [[_common(lie, place, other) for other in places] for place in places]
        trust = [1.0] * len(logs)
        for turn in range(WEIGHINGS + 1):
            joint = [list(row) for row in common]
            for index, share in enumerate(trust):
                joint[index][index] += lie.scatter**2 / share
            inverse = inverted(joint)
            weights = [_dot(row, logs) for row in inverse]
            if turn < WEIGHINGS:
                off = [log - _dot(row, weights) for log, row in zip(logs, common, strict=True)]
                trust = [(FREEDOM + 1) / (FREEDOM + (x / lie.scatter) ** 2) for x in off]
        misses = [weights[i] / inverse[i][i] for i in range(len(logs))]
        missed = sum(log1p((miss / MISS) ** 2 / FREEDOM) for miss in misses)
        return cls(lie=lie, inverse=inverse, weights=weights, missed=round(missed, 9))


def _apart(place: Place, one_place: Place) -> float:
    return (place[0] - one_place[0]) ** 2 + (place[1] - one_place[1]) ** 2


def _common(lie: Lie, place: Place, one_place: Place) -> float:
    return lie.shared**2 + lie.near**2 * exp(-_apart(place, one_place) / 2)


def _dot(row: Sequence[float], column: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(row, column, strict=True))


def inverted(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """The inverse of a positive definite ``matrix``, by Gauss and Jordan."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for index in range(size):
        pivot = rows[index] = [x / rows[index][index] for x in rows[index]]
        for other in range(size):
            share = rows[other][index]
            if other != index and share:
                rows[other] = [x - share * y for x, y in zip(rows[other], pivot, strict=True)]
    return [row[size:] for row in rows]


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
