"""Attention that reaches back so far and no further, over requests that decode; and sums of steps."""

from __future__ import annotations

from heapq import heappop, heappush
from math import sqrt

from kvroom.simulator.live import FOREVER, Live


class Span:
    """Attention of ``tokens`` back over the requests that decode: of those whose context is still
    shorter, how many and the sum of their bases; and when each outgrows it."""

    __slots__ = ("bases", "context_ps", "crossings", "growing", "tokens")

    def __init__(self, tokens: int, context_ps: int) -> None:
        self.tokens = tokens
        self.context_ps = context_ps
        self.growing = 0
        self.bases = 0
        self.crossings: list[tuple[int, int, Live]] = []

    def enter(self, live: Live, step: int) -> None:
        """``live`` decodes from ``step`` on."""
        if step - live.base < self.tokens:
            self.growing += 1
            self.bases += live.base
            heappush(self.crossings, (live.base + self.tokens, live.number, live))

    def leave(self, live: Live, step: int) -> None:
        """``live``, decoding before ``step``, no longer does."""
        self.cross(step)
        if step - live.base < self.tokens:
            self.growing -= 1
            self.bases -= live.base

    def cross(self, step: int) -> int:
        """Those who have outgrown it at ``step``; gives the next step at which somebody does."""
        while self.crossings:
            at, number, live = self.crossings[0]
            decoding = live.decoding and live.number == number and live.base + self.tokens == at
            if decoding and at > step:
                return at
            heappop(self.crossings)
            if decoding:
                self.growing -= 1
                self.bases -= live.base
        return FOREVER

    def attention(self, step: int, active: int) -> int:
        """Picoseconds of ``step`` for ``active`` requests."""
        read = self.growing * (step + 1) - self.bases + (active - self.growing) * self.tokens
        return self.context_ps * read


def steps_until(wait: int, first: int, slope: int) -> int:
    """The fewest steps that last ``wait`` together, the first ``first`` and each ``slope`` longer."""
    if wait <= 0:
        return 0
    if not slope:
        return -(-wait // first)
    # The root of the sum as a number with rounding errors, then to the exact step.
    linear = first - slope / 2
    steps = int(2 * wait / (linear + sqrt(linear * linear + 2.0 * slope * wait)))
    while steps * first + slope * (steps * (steps - 1) // 2) < wait:
        steps += 1
    while steps and (steps - 1) * first + slope * ((steps - 1) * (steps - 2) // 2) >= wait:
        steps -= 1
    return steps
