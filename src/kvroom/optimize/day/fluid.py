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

from kvroom.optimize.day.levels import RANKS, Level, LevelCurve
from kvroom.workloads.daily import PART_S

STEPS = 5
"""Steps of a quarter of an hour."""
STEP_S = PART_S / STEPS
HALVINGS = 50


class Moment(NamedTuple):
    """A step of one replica: what came, the level that it was served at, and who waited for how long."""

    requests: float
    level: Level
    waiting: float
    wait_s: float


class Flow:
    """One replica, so many requests ``here`` at first."""

    def __init__(self, here: float = 0.0) -> None:
        self.here = here

    def step(self, rate_per_s: float, curve: LevelCurve, seconds: float = STEP_S) -> Moment:
        """Requests come at a rate for so many seconds."""
        before = self.here
        self.here = curve.after(before, rate_per_s, seconds)
        here = (before + self.here) / 2
        waits = max(0.0, here - curve.counts[-1])
        level = curve.at(curve.leaving_per_s(here))
        return Moment(rate_per_s * seconds, level, waits, waits / curve.most_per_s)


def steps_of(rates: Sequence[float]) -> list[float]:
    """The rate in the middle of every step, of those at the ends of every quarter."""
    return [
        low + (high - low) * (step + 0.5) / STEPS
        for low, high in pairwise(rates)
        for step in range(STEPS)
    ]


def percentile(moments: Iterable[Moment], metric: str, percent: float) -> float:
    """The ``percent``-th percentile of all requests' ``ttft`` or ``tpot``, seconds: those of every step
    together, each as often as it came."""
    ttft = metric == "ttft"
    parts = [
        (m.level.ttft_s if ttft else m.level.tpot_s, m.wait_s if ttft else 0.0, m.requests / RANKS)
        for m in moments
        if m.requests
    ]
    if not parts:
        return 0.0
    wanted = percent / 100 * sum(weight for _, _, weight in parts) * RANKS
    low = min(times[0] + wait for times, wait, _ in parts)
    high = max(times[-1] + wait for times, wait, _ in parts)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sum(w * bisect_right(times, middle - wait) for times, wait, w in parts) < wanted:
            low = middle
        else:
            high = middle
    return high


def mean(moments: Iterable[Moment], metric: str) -> float:
    """The mean of all requests' ``ttft`` or ``tpot``, seconds."""
    total = spent = 0.0
    for moment in moments:
        total += moment.requests
        own = (
            moment.level.ttft_mean_s + moment.wait_s
            if metric == "ttft"
            else moment.level.tpot_mean_s
        )
        spent += moment.requests * own
    return spent / total if total else 0.0
