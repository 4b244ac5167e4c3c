"""Measurements of one's own: the ``times`` part of a calibration file, which later plans are drawn to.

``{"kvroom_calibration": 1, "times": {"points": [{…}]}}``. A point says what was measured, ``step_s`` (with
``concurrency`` and ``context_tokens``) or ``tpot_s`` and ``ttft_s`` (with ``concurrency``,
``input_tokens``, ``output_tokens``), and may say of which ``engine``, ``gpu``, ``model`` and ``tp``; it
holds for plans that agree. The more points, the nearer the plan comes to them and the narrower its band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, inf, log, sqrt
from typing import Any

from kvroom.engines.corrections import check
from kvroom.errors import KvroomError
from kvroom.latency.estimate import CHUNK_TOKENS, Timing
from kvroom.latency.load import Load, served
from kvroom.sharding.deployment import Deployment
from kvroom.units import check_float, check_int, parse_tokens

METRICS = {"step_s": "step", "tpot_s": "tpot", "ttft_s": "ttft"}
DRAW = 0.15
"""Of a point's weight, what the shipped calibration keeps: (0.1 / 0.25)², scatter over spread."""
MOST = 2**30
_FIX = "Write points with step_s, or tpot_s and ttft_s, and what they were measured at."


def points_for(value: Any, d: Deployment, model: Any) -> list[Mapping[str, Any]]:
    """The points of a calibration's content that hold for ``d`` (``model`` as the Scenario names it)."""
    times = check(value).get("times", {})
    points = times.get("points", []) if isinstance(times, Mapping) else None
    if not isinstance(points, list | tuple) or not all(isinstance(p, Mapping) for p in points):
        raise KvroomError("calibration.times", times, "holds no list of points", _FIX)
    for point in points:
        if not any(metric in point for metric in METRICS):
            raise KvroomError("calibration.times.points", point, "says no time", _FIX)
    own = {"engine": d.engine, "gpu": d.device.name, "model": model, "tp": d.layout.tp}
    return [p for p in points if all(p[k] == v for k, v in own.items() if p.get(k) is not None)]


def drawn_to(timing: Timing, points: Sequence[Mapping[str, Any]]) -> Timing:
    """``timing`` with its steps, then its first tokens, scaled towards the measured ones."""
    steps = [p for p in points if "step_s" in p or "tpot_s" in p]
    firsts = [p for p in points if "ttft_s" in p]
    if steps:
        factor, spread = _drawn([log(m / t) for p in steps for m, t in _steps(timing, p)])
        k = timing.clock.k
        timing = _with(
            timing, replace(k, scale=k.scale * factor), ("step", "tpot", "whole"), spread, steps
        )
    if firsts:
        factor, spread = _drawn([_first(timing, p) for p in firsts])
        k = timing.clock.k
        k = replace(k, first_s=k.first_s * factor, first_scale=k.first_scale * factor)
        timing = _with(timing, k, ("ttft",), spread, firsts)
    return timing


def _drawn(logs: Sequence[float]) -> tuple[float, float]:
    """The factor that draws predictions to measurements, and how far these scatter round it."""
    middle = sum(logs) / (len(logs) + DRAW)
    return exp(middle), sqrt(sum((x - middle) ** 2 for x in logs) / len(logs))


def _with(
    timing: Timing, k: Any, metrics: Sequence[str], spread: float, points: Sequence[Any]
) -> Timing:
    own = dict(timing.own_bands)
    for metric in metrics:
        known = timing.table["bands"][f"{metric} {timing.kind}"]["known"]
        own[metric] = hypot(known / sqrt(len(points) + 1), spread)
    return replace(timing, clock=replace(timing.clock, k=k), own_bands=own)


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
    return Load(
        input_tokens=entering,
        output_tokens=leaving,
        users=users,
        cache_slots=inf,
        most=inf,
        chunk_tokens=CHUNK_TOKENS,
    )
