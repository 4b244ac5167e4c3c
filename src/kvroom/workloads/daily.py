"""A day's curve: how many requests come at each time of a day, in one region or in several.

A region's curve repeats every 24 hours of its own time. It is a raised cosine whose busiest hour has
``peak`` times the mean (at ``at`` o'clock), or 24 weights of one's own, one at each full hour; between them
it is linear. Regions are shares of all requests, each so many hours ahead of the clock that the day is told
by. Arrivals are a Poisson process of that rate, drawn by inverting its integral (Çinlar 1975), with
operations that IEEE 754 fixes: the same on every platform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from math import sqrt

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.units import check_float, number
from kvroom.workloads.draws import Draws

HOURS = 24
DAY_S = 86_400.0
PARTS = 96
"""Of a day: quarters of an hour, between which the rate is linear."""
PART_S = DAY_S / PARTS
PS_PER_NS = 10**3
ROUNDED = 0.01
"""By so much the shares of regions may miss 1, as rounded ones do."""
PEAK, AT = 1.5, 15.0
"""The busiest time over the mean, and when it is, where nothing is said: assumed."""
_COSINES = (
    1.0,
    0.9659258262890683,
    0.8660254037844386,
    0.7071067811865476,
    0.5,
    0.25881904510252074,
    0.0,
)
"""Of 0 to 6 hours: ``math.cos`` differs in its last bit from one C library to the next."""
EXAMPLE = "day:1e9/day:peak=1.6:at=15:regions=0.5@-6+0.3@1+0.2@8"
KEYS = ("peak", "at", "curve", "regions")


@dataclass(frozen=True, slots=True)
class Region:
    """A ``share`` of all requests, whose clock is ``ahead_h`` hours ahead."""

    share: float
    ahead_h: float


@dataclass(frozen=True)
class DailyCurve:
    """``weights`` at the full hours of a region's day (their mean is 1), and the regions."""

    weights: tuple[float, ...]
    regions: tuple[Region, ...] = (Region(1.0, 0.0),)

    def at(self, hour: float) -> float:
        """The rate at an ``hour`` of a region's own day, over the mean."""
        whole = int(hour // 1)
        part = hour - whole
        low, high = self.weights[whole % HOURS], self.weights[(whole + 1) % HOURS]
        return low + part * (high - low)

    def region(self, index: int) -> tuple[float, ...]:
        """The rates of one region at each quarter of an hour, over the mean of all; PARTS + 1 of them."""
        region = self.regions[index]
        step = HOURS / PARTS
        return tuple(
            region.share * self.at((part * step + region.ahead_h) % HOURS)
            for part in range(PARTS + 1)
        )

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The rates of all regions together at each quarter of an hour, over their mean."""
        each = [self.region(index) for index in range(len(self.regions))]
        return tuple(sum(rates) for rates in zip(*each, strict=True))

    @property
    def busiest(self) -> float:
        """The highest rate over the mean."""
        return max(self.rates)

    def times_ps(self, rate_per_s: float, draws: Draws) -> Iterator[int]:
        """Arrivals from the day's first moment on, day after day; whole nanoseconds apart."""
        nodes = [rate_per_s * rate for rate in self.rates]
        sums = [(low + high) / 2 * PART_S for low, high in pairwise(nodes)]
        start_s, part, within = 0.0, 0, 0.0
        while True:
            within += draws.exponential()
            while within > sums[part]:
                within -= sums[part]
                part += 1
                start_s += PART_S
                part %= PARTS
            low = nodes[part]
            slope = (nodes[part + 1] - low) / PART_S
            root = low * low + 2.0 * slope * within
            bottom = low + sqrt(root if root > 0.0 else 0.0)
            spent_s = min(2.0 * within / bottom, PART_S) if bottom else PART_S
            yield int((start_s + spent_s) * 1e9 + 0.5) * PS_PER_NS


def raised_cosine(peak: float, at: float) -> tuple[float, ...]:
    """Weights of a day whose busiest time, ``at`` o'clock, has ``peak`` times the mean, and whose quietest,
    twelve hours off, as much less."""
    swing = peak - 1.0

    def cosine(hours: float) -> float:
        hours %= HOURS
        hours = min(hours, HOURS - hours)
        sign = 1.0 if hours <= 6 else -1.0
        near = hours if hours <= 6 else 12 - hours
        whole = min(int(near), 5)
        low, high = _COSINES[whole], _COSINES[whole + 1]
        return sign * (low + (near - whole) * (high - low))

    return _scaled([1.0 + swing * cosine(hour - at) for hour in range(HOURS)])


def _scaled(weights: Sequence[float]) -> tuple[float, ...]:
    mean = sum(weights) / len(weights)
    return tuple(weight / mean for weight in weights)


def parse_curve(field: str, words: dict[str, str]) -> DailyCurve:
    """The curve of ``peak=``, ``at=``, ``curve=`` and ``regions=``; KvroomError names what is wrong."""
    fix = f"Write it like {EXAMPLE}."
    if "curve" in words:
        for key in ("peak", "at"):
            if key in words:
                raise KvroomError(f"{field} {key}", words[key], "and curve are two curves", fix)
        weights = _weights(f"{field} curve", words["curve"])
    else:
        peak = number(f"{field} peak", words.get("peak", str(PEAK)), fix)
        at = number(f"{field} at", words.get("at", str(AT)).removesuffix("h"), fix)
        weights = raised_cosine(
            check_float(f"{field} peak", peak, low=1.0, high=2.0),
            check_float(f"{field} at", at, low=0.0, high=24.0, unit="hours"),
        )
    if "regions" not in words:
        return DailyCurve(weights)
    return DailyCurve(weights, _regions(f"{field} regions", words["regions"]))


def _weights(field: str, text: str) -> tuple[float, ...]:
    parts = text.split("+")
    fix = "Write 24 weights, one an hour from midnight on: 3+2+2+…+5."
    if len(parts) != HOURS:
        raise KvroomError(field, text, f"has {len(parts)} weights and no 24", fix)
    weights = [check_float(field, number(field, part, fix), low=0.0, high=1e12) for part in parts]
    if not sum(weights):
        raise KvroomError(field, text, "has no request in all the day", fix)
    return _scaled(weights)


def _regions(field: str, text: str) -> tuple[Region, ...]:
    fix = "Write shares and hours ahead of UTC: 0.5@-6+0.3@1+0.2@8."
    regions: list[Region] = []
    for part in text.split("+"):
        share, sign, ahead = part.partition("@")
        if not sign:
            raise KvroomError(field, part, "is no share@hours", fix)
        regions.append(
            Region(
                check_float(field, number(field, share, fix), low=1e-6, high=1e12),
                check_float(field, number(field, ahead, fix), low=-12.0, high=14.0, unit="hours"),
            )
        )
    hours = [region.ahead_h for region in regions]
    for hour in hours:
        if hours.count(hour) > 1:
            why = f"names the region at {hour:+g} hours twice"
            raise KvroomError(field, text, why, "Add their shares up.")
    total = sum(region.share for region in regions)
    if abs(total - 1.0) > ROUNDED:
        whole = "+".join(f"{r.share / total:.3g}@{r.ahead_h:g}" for r in regions)
        why = f"has shares that add up to {total:.4g} and not to 1"
        raise KvroomError(field, text, why, f"Write {whole}, or add the region that is left out.")
    return tuple(Region(region.share / total, region.ahead_h) for region in regions)
