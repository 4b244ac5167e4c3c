"""How one replica answers at a rate: its times as a sample of it is simulated, and between such rates.

Of replicas that take requests in turn from a Poisson process one sees every N-th arrival: gaps of a gamma
distribution whose coefficient of variation is 1/√N. So a replica is sampled by itself, exactly, at the rate
that it gets. Replicas behind a router that looks at them are sampled together, ``TOGETHER`` of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import fsum, sqrt
from typing import Any

from kvroom.distributed.workers import Unit
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.planner.plan import Workings
from kvroom.planner.simulate import Simulated, serve
from kvroom.records import dataclass
from kvroom.workloads.synthetic import Arrivals, Synthetic

TOGETHER = 8
"""Replicas that are sampled together where their router looks at them."""
RANKS = 200
"""Parts of a distribution: it is kept as the middle of each."""
LEAST_CV = 0.01
"""Gaps are made no more even than this."""
WAVES = 8
"""A replica that has enough to do is given so many times the requests that it runs at once, at least."""
LEFT_OUT = 5
"""Of a sample's requests one in so many, the first, is left out of its times."""
MIDDLE = (0.25, 0.75)
"""Between these shares of all answers the rate of a replica that has enough to do is counted."""
FULL = "full"
Times = tuple[float, ...]
"""The middles of RANKS equal parts of a distribution, ascending, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A replica at ``rate_per_s`` requests: its times, their means, and requests there on average."""

    rate_per_s: float
    ttft_s: Times
    tpot_s: Times
    ttft_mean_s: float
    tpot_mean_s: float
    here: float

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Level:
        """The level of a unit's result."""
        keys = {name: tuple(values[name]) for name in ("ttft_s", "tpot_s")}
        return cls(**{**values, **keys})

    def between(self, other: Level, share: float) -> Level:
        """The level that lies ``share`` of the way to ``other``, rank by rank."""

        def mixed(low: float, high: float) -> float:
            return low + share * (high - low)

        return Level(
            rate_per_s=mixed(self.rate_per_s, other.rate_per_s),
            ttft_s=tuple(map(mixed, self.ttft_s, other.ttft_s)),
            tpot_s=tuple(map(mixed, self.tpot_s, other.tpot_s)),
            ttft_mean_s=mixed(self.ttft_mean_s, other.ttft_mean_s),
            tpot_mean_s=mixed(self.tpot_mean_s, other.tpot_mean_s),
            here=mixed(self.here, other.here),
        )


def mean_level(levels: Sequence[Level]) -> Level:
    """The mean of several samples of one level, rank by rank."""
    count = len(levels)

    def mean(values: Sequence[float]) -> float:
        return fsum(values) / count

    return Level(
        rate_per_s=mean([x.rate_per_s for x in levels]),
        ttft_s=tuple(mean(column) for column in zip(*(x.ttft_s for x in levels), strict=True)),
        tpot_s=tuple(mean(column) for column in zip(*(x.tpot_s for x in levels), strict=True)),
        ttft_mean_s=mean([x.ttft_mean_s for x in levels]),
        tpot_mean_s=mean([x.tpot_mean_s for x in levels]),
        here=mean([x.here for x in levels]),
    )


@dataclass(frozen=True)
class LevelCurve:
    """The levels of one replica by rate, ascending; the last has all that it can do."""

    levels: tuple[Level, ...]

    @cached_property
    def rates(self) -> list[float]:
        """The rates of the levels."""
        return [level.rate_per_s for level in self.levels]

    @cached_property
    def counts(self) -> list[float]:
        """Requests there at each level."""
        return [level.here for level in self.levels]

    @property
    def most_per_s(self) -> float:
        """The rate beyond which requests pile up."""
        return self.levels[-1].rate_per_s

    def at(self, rate_per_s: float) -> Level:
        """The level at a rate: the nearest one beyond both ends, else between two."""
        rates = self.rates
        place = bisect_right(rates, rate_per_s)
        if place == 0:
            return self.levels[0]
        if place == len(rates):
            return self.levels[-1]
        low, high = self.levels[place - 1], self.levels[place]
        return low.between(high, (rate_per_s - low.rate_per_s) / (high.rate_per_s - low.rate_per_s))

    def here(self, rate_per_s: float) -> float:
        """Requests there at a rate, in a steady state."""
        first = self.levels[0]
        if rate_per_s < first.rate_per_s:
            return first.here * rate_per_s / first.rate_per_s
        return self.at(rate_per_s).here

    def leaving_per_s(self, here: float) -> float:
        """The rate at which requests leave where so many are there: that of the steady state with as many."""
        place = bisect_right(self.counts, here)
        if place == len(self.counts):
            return self.most_per_s
        low, low_rate = self._before(place)
        high, high_rate = self.counts[place], self.rates[place]
        return low_rate + (here - low) / (high - low) * (high_rate - low_rate)

    def after(self, here: float, rate_per_s: float, seconds: float) -> float:
        """Requests there after so many seconds at a rate: n with n + seconds × leaving(n) = here + seconds ×
        rate (an implicit step). The left side grows with n and is linear between levels."""
        whole = here + seconds * rate_per_s
        sums = [count + seconds * rate for count, rate in zip(self.counts, self.rates, strict=True)]
        place = bisect_right(sums, whole)
        if place == len(sums):
            return whole - seconds * self.most_per_s
        low, low_rate = self._before(place)
        below = low + seconds * low_rate
        return low + (whole - below) / (sums[place] - below) * (self.counts[place] - low)

    def _before(self, place: int) -> tuple[float, float]:
        """Requests and rate of the level before one; nothing before the first."""
        return (self.counts[place - 1], self.rates[place - 1]) if place else (0.0, 0.0)


def curve_of(levels: Sequence[Level]) -> LevelCurve:
    """The curve of levels as they were sampled: times and numbers that grow with the rate.

    The last one had all its requests at once: how long their first tokens took is not told by it, but by the
    level before it. A sample with fewer there than at a lower rate is raised to that: it is chance.
    """
    *below, full = levels
    curve: list[Level] = []
    for level in sorted(below, key=lambda one: one.rate_per_s):
        least = curve[-1].here * (1 + 1e-9) if curve else 1e-9
        if level.rate_per_s < full.rate_per_s:
            curve.append(replace(level, here=max(level.here, least)))
    last = curve[-1]
    here = max(full.here, last.here * (1 + 1e-9))
    top = replace(full, ttft_s=last.ttft_s, ttft_mean_s=last.ttft_mean_s, here=here)
    return LevelCurve((*curve, top))


@dataclass(frozen=True, kw_only=True)
class LevelSamples:
    """A replica (or ``TOGETHER``) as workers sample it; first tokens are those that a client sees."""

    workings: Workings
    source: Synthetic
    replicas: int

    def __call__(self, unit: Unit) -> dict[str, Any]:
        """The level of one unit: a rate of sessions a replica, the replicas of its fleet, a seed."""
        count, full = unit["requests"], unit["rate_per_s"] == FULL
        if full:
            arrivals = Arrivals("once")
        else:
            cv = max(LEAST_CV, sqrt(self.replicas / unit["replicas"]))
            arrivals = Arrivals("gamma", unit["rate_per_s"] * self.replicas, cv=cv)
        while True:
            rows, run = self._served(arrivals, count, unit["seed"])
            most = max((moment.running for moment in run.line), default=0)
            if not full or count >= WAVES * most:
                break
            count = 2 * WAVES * most
        return self._level(
            rows if full else rows[count // LEFT_OUT :], outside_of_sample(run), full=full
        )

    def _served(
        self, arrivals: Arrivals, count: int, seed: int
    ) -> tuple[list[tuple[int, int, int, int]], Simulated]:
        """When each request came, had its first token and its last, and its answer's tokens, by arrival."""
        rows: dict[int, tuple[int, int, int, int]] = {}

        def over(request: ServedRequest, end_ps: int | None) -> None:
            if end_ps is not None:
                tokens = request.final_tokens - request.num_prompt_tokens
                rows[request.index] = (request.arrival, request.first_token_ps, end_ps, tokens)

        workload = replace(self.source, arrivals=arrivals, requests=count, seed=seed)
        run = serve(self.workings, workload, on_over=over, warmup=0)
        return [rows[index] for index in sorted(rows)], run

    def _level(
        self, rows: list[tuple[int, int, int, int]], outside_s: float, *, full: bool
    ) -> dict[str, Any]:
        ends = sorted(end for _, _, end, _ in rows)
        if full:
            low, high = (int(share * (len(ends) - 1)) for share in MIDDLE)
            window = (ends[low], ends[high])
            rate = (high - low) * PS_PER_S / max(1, window[1] - window[0])
            rows = [row for row in rows if window[0] <= row[2] <= window[1]]
        else:
            first, last = min(row[0] for row in rows), max(row[0] for row in rows)
            rate = (len(rows) - 1) * PS_PER_S / max(1, last - first)
        ttft = sorted((first - arrival) / PS_PER_S + outside_s for arrival, first, _, _ in rows)
        tpot = sorted(
            (end - first) / (tokens - 1) / PS_PER_S for _, first, end, tokens in rows if tokens > 1
        )
        # Of requests that were all there at once only the time since they were let in counts as being served.
        spent = [end - (first if full else arrival) for arrival, first, end, _ in rows]
        here = rate * fsum(spent) / len(spent) / PS_PER_S
        return {
            "rate_per_s": rate / self.replicas,
            "ttft_s": ranks(ttft),
            "tpot_s": ranks(tpot),
            "ttft_mean_s": fsum(ttft) / len(ttft),
            "tpot_mean_s": fsum(tpot) / len(tpot) if tpot else 0.0,
            "here": here / self.replicas,
        }


def outside_of_sample(run: Simulated) -> float:
    """Seconds that a client waits for a first token outside of the engine, at the sample's load."""
    return run.front_end_s + run.start_s


def ranks(ordered: Sequence[float]) -> list[float]:
    """The middles of RANKS equal parts of ascending values; zeros of none."""
    count = len(ordered)
    if not count:
        return [0.0] * RANKS
    return [ordered[min(count - 1, (2 * rank + 1) * count // (2 * RANKS))] for rank in range(RANKS)]
