"""A replica through a day, as a fluid: requests come at a rate that changes, and leave as in a steady state.

The pointwise stationary fluid flow approximation (Wang, Tipper and Banerjee, INFOCOM 1996): with ``n``
requests there, dn/dt is what comes less what leaves, and what leaves is the rate of the steady state that has
``n`` there on average. Beyond the most that a replica can do, the rest waits, and is let in at that rate.
Steps are implicit (backward Euler), so that they may be longer than a request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kvroom.optimize.day.levels import RANKS, Level, LevelCurve, Times
from kvroom.workloads.daily import PART_S

STEPS = 5
"""Steps of a quarter of an hour."""
STEP_S = PART_S / STEPS
HALVINGS = 40


class FlowStep(NamedTuple):
    """A step of one replica: what came, the level that it was served at, and who waited for how long."""

    requests: float
    level: Level
    waiting: float
    wait_s: float


class Flow:
    """One replica, so many requests ``here`` at first."""

    def __init__(self, here: float = 0.0) -> None:
        self.here = here

    def step(self, rate_per_s: float, curve: LevelCurve, seconds: float = STEP_S) -> FlowStep:
        """Requests come at a rate for so many seconds."""
        before = self.here
        self.here = curve.after(before, rate_per_s, seconds)
        here = (before + self.here) / 2
        waits = max(0.0, here - curve.counts[-1])
        level = curve.at(curve.leaving_per_s(here))
        return FlowStep(rate_per_s * seconds, level, waits, waits / curve.most_per_s)


def steps_of(rates: Sequence[float]) -> list[float]:
    """The rate in the middle of every step, of those at the ends of every quarter."""
    return [
        low + (high - low) * (step + 0.5) / STEPS
        for low, high in pairwise(rates)
        for step in range(STEPS)
    ]


def percentile(steps: Iterable[FlowStep], metric: str, percent: float) -> float:
    """The ``percent``-th percentile of all requests' ``ttft`` or ``tpot``, seconds: those of every step
    together, each as often as it came."""
    parts = _parts(steps, metric)
    if not parts:
        return 0.0
    low = min(times[0] + wait for times, wait, _ in parts)
    high = max(times[-1] + wait for times, wait, _ in parts)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _within(parts, middle) < percent / 100:
            low = middle
        else:
            high = middle
    return high


def within(steps: Iterable[FlowStep], metric: str, limit_s: float) -> float:
    """The share of all requests whose ``ttft`` or ``tpot`` is at most ``limit_s``."""
    parts = _parts(steps, metric)
    return _within(parts, limit_s) if parts else 1.0


def _parts(steps: Iterable[FlowStep], metric: str) -> list[tuple[Times, float, float]]:
    """Of each step the times, what is waited on top of them, and requests."""
    if metric == "ttft":
        return [(s.level.ttft_s, s.wait_s, s.requests) for s in steps if s.requests]
    return [(s.level.tpot_s, 0.0, s.requests) for s in steps if s.requests]


def _within(parts: Sequence[tuple[Times, float, float]], limit_s: float) -> float:
    under = total = 0.0
    for times, wait, requests in parts:
        under += requests * bisect_right(times, limit_s - wait)
        total += requests
    return under / (RANKS * total)


def mean(steps: Iterable[FlowStep], metric: str) -> float:
    """The mean of all requests' ``ttft`` or ``tpot``, seconds."""
    total = spent = 0.0
    for step in steps:
        total += step.requests
        own = step.level.ttft_mean_s + step.wait_s if metric == "ttft" else step.level.tpot_mean_s
        spent += step.requests * own
    return spent / total if total else 0.0
