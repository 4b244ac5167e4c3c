"""The stages of a pipeline, through which steps pass one behind another.

A stage computes one step at a time, in order. A step enters the first one once that is free, and once the
step ``depth`` before it has left the last: its requests' tokens are known then. So a request gains a token in
the sum of the stages' times, and the slowest stage bounds how many steps there are in a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvroom.latency.clock import StepClock

StepWork = tuple[StepClock, Sequence[tuple[int, int]]]
"""A rank's clock and the work of its requests (``StepClock.ps``)."""


class StagePipeline:
    """The stages of one engine, or of ranks that step together."""

    def __init__(self, depth: int) -> None:
        self._left: deque[int] = deque([0] * depth, maxlen=depth)
        """When each of the last steps leaves the last stage."""
        self._free: list[int] = []
        """When each stage is done with what it has."""

    @property
    def end(self) -> int:
        """When the last step leaves."""
        return self._left[-1]

    def idle(self) -> None:
        """A step passes in which nothing is computed."""
        self._left.append(self.end)

    def run(self, now: int, works: Sequence[StepWork], wait_ps: int = 0) -> tuple[int, int]:
        """When the step that is decided ``now`` begins and ends; it waits for cache for ``wait_ps``."""
        first, work = works[0]
        count = len(first.parts)
        if len(works) == 1:
            each = first.each_ps(work)
        else:
            each = [
                part.joint_ps([(clock.parts[stage], w) for clock, w in works])
                for stage, part in enumerate(first.parts)
            ]
        free = self._free or [0] * count
        tokens = max(clock.tokens_of(work) for clock, work in works)
        handover = first.handover_ps + first.handover_token_ps * tokens
        start = at = max(now, free[0], self._left[0])
        at += wait_ps
        for stage in range(count):
            at = free[stage] = max(at, free[stage]) + each[stage]
            at += handover
        end = free[-1]
        self._free = free
        self._left.append(end)
        return start, end
