"""Cumulative histograms as Prometheus keeps them: merge, difference, mean, percentiles."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

from kvroom.records import dataclass

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts[i]`` observations were at most ``bounds[i]``; ``total`` is their sum where it is known.

    Bounds rise and end in infinity; counts never fall.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float | None = None

    @classmethod
    def of(cls, buckets: Mapping[float, float], total: float | None = None) -> Histogram | None:
        """From upper bound → cumulative count; None where nothing is left after what cannot be.

        Bounds and counts that are not numbers go. A count below the one before takes that one's value.
        """
        kept = {
            key: value
            for key, value in buckets.items()
            if not math.isnan(key) and 0 <= value < math.inf
        }
        if not kept:
            return None
        bounds = sorted(kept)
        counts = list(accumulate((kept[bound] for bound in bounds), max))
        if bounds[-1] != math.inf:
            bounds.append(math.inf)
            counts.append(counts[-1])
        good = total is not None and math.isfinite(total)
        return cls(tuple(bounds), tuple(counts), total if good else None)

    @property
    def count(self) -> float:
        """How many observations there are."""
        return self.counts[-1]

    @property
    def mean(self) -> float | None:
        """The mean; None without observations or without their sum."""
        return self.total / self.count if self.total is not None and self.count else None

    def since(self, before: Histogram | None) -> Histogram:
        """The observations made after ``before``; all of them where the histogram began anew."""
        if before is None or before.bounds != self.bounds:
            return self
        counts = [
            count - one_count for count, one_count in zip(self.counts, before.counts, strict=True)
        ]
        if any(count < 0 for count in counts):
            return self
        total = None
        if self.total is not None and before.total is not None and self.total >= before.total:
            total = self.total - before.total
        return Histogram(self.bounds, tuple(accumulate(counts, max)), total)

    def percentile(self, percent: float) -> tuple[float, bool] | None:
        """(value, at least): the value interpolated inside its bucket; None without observations.

        In the last bucket, which has no upper bound, the value is its lower bound, and ``at least``.
        """
        if not self.count:
            return None
        rank = self.count * percent / 100
        i = min(bisect_left(self.counts, rank), len(self.counts) - 1)
        lower = self.bounds[i - 1] if i else min(0.0, self.bounds[0])
        upper = self.bounds[i]
        if upper == math.inf:
            return max(lower, 0.0) if lower == -math.inf else lower, True
        if lower == -math.inf:
            return upper, False
        below = self.counts[i - 1] if i else 0.0
        inside = self.counts[i] - below
        share = (rank - below) / inside if inside else 1.0
        return min(upper, lower + (upper - lower) * max(0.0, share)), False

    def spread(self) -> dict[str, Any] | None:
        """``{mean, p50, p90, p95, p99, count, at_least}``; ``at_least`` names percentiles that are only
        bounded from below. None without observations."""
        if not self.count:
            return None
        found: dict[str, Any] = {"mean": self.mean}
        open_ended = []
        for percentile in PERCENTILES:
            told = self.percentile(percentile)
            assert told is not None
            found[f"p{percentile}"] = told[0]
            if told[1]:
                open_ended.append(f"p{percentile}")
        return {**found, "count": self.count, "at_least": open_ended}

    def steps(self) -> list[tuple[float, float, float]]:
        """(lower bound, upper bound, observations) of the buckets that hold any."""
        lows = (min(0.0, self.bounds[0]), *self.bounds)
        befores = (0.0, *self.counts)
        return [
            (low, high, count - before)
            for low, high, count, before in zip(
                lows, self.bounds, self.counts, befores, strict=False
            )
            if count > before
        ]


def merged(parts: Iterable[Histogram]) -> Histogram | None:
    """The histogram of all parts' observations; None without parts.

    Parts of other bounds than the first's are left out: their buckets say nothing about these.
    """
    kept = list(parts)
    if not kept:
        return None
    first = kept[0]
    same = [h for h in kept if h.bounds == first.bounds]
    counts = tuple(sum(column) for column in zip(*(h.counts for h in same), strict=True))
    totals = [h.total for h in same]
    total = None if None in totals else sum(total for total in totals if total is not None)
    return Histogram(first.bounds, counts, total)
