"""A simulation as pictures: after each step, which request holds which block, and who came, ran, waited
and finished.

Frames are differences from the frame before, read off the block pool and the queues themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from kvroom.engines.paged.scheduler import Scheduler
from kvroom.engines.scheduler import SchedulerOutput
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S, StepClock
from kvroom.records import dataclass
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.step_engine import StepEngine
from kvroom.simulator.stream import Follow

FREE, KEPT, SHARED = 0, -1, -2
"""Owners that are no request: nobody; nobody, but its tokens can still be found; more than one request.
A request is its number, from 1."""


@dataclass(slots=True)
class Frame:
    """What changed until a step was scheduled, and when that step runs.

    ``blocks``: runs of changed blocks as first block, how many, their owner. Requests are told by number:
    ``came`` to the queue, ``admitted`` from it, ``preempted`` back to it, ``done``, ``dropped`` (they can
    never be served). ``first``: (request, its client's wait for the first token); ``gaps``: (time between
    two tokens of a request, how many such). Times in picoseconds.
    """

    start_ps: int = 0
    end_ps: int = 0
    blocks: list[int] = field(default_factory=list)
    held: int = 0
    shared: int = 0
    kept: int = 0
    free: int = 0
    running: int = 0
    waiting: int = 0
    preempted_waiting: int = 0
    came: list[int] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    first: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in seconds to the microsecond; lists that are empty are left out."""
        values: dict[str, Any] = {
            "start_s": _seconds(self.start_ps),
            "held": self.held,
            "shared": self.shared,
            "kept": self.kept,
            "free": self.free,
            "running": self.running,
            "waiting": self.waiting,
            "preempted_waiting": self.preempted_waiting,
        }
        lists = {
            "blocks": self.blocks,
            "came": self.came,
            "admitted": self.admitted,
            "preempted": self.preempted,
            "done": self.done,
            "dropped": self.dropped,
            "first": [(number, _seconds(ps)) for number, ps in self.first],
            "gaps": [(_seconds(ps), count) for ps, count in self.gaps],
        }
        return values | {name: value for name, value in lists.items() if value}


def _seconds(ps: int) -> float:
    """As fine as a picture shows; finer digits would be most of what is sent."""
    return round(ps / PS_PER_S, 6)


class FrameRecorder(StepEngine):
    """A StepEngine over vLLM's rules that tells a Frame a step, and a last one when it has come to rest."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: StepClock,
        outcome: Outcome,
        *,
        follow: Follow | None = None,
        clocks: Mapping[int, StepClock] | None = None,
        unit: int = 1,
        depth: int = 0,
        tell: Callable[[Frame], None],
    ) -> None:
        super().__init__(
            scheduler, clock, outcome, follow=follow, clocks=clocks, unit=unit, depth=depth
        )
        self.decode_runs = False  # every step is a picture
        self.tell = tell
        self._scheduler = scheduler
        self._owners = [FREE] * scheduler.cache.pool.total
        self._frame = Frame()
        self._again: set[int] = set()  # indices of the preempted, while they wait

    def rest(self) -> None:
        """Tell what has changed since the last step."""
        self._frame.start_ps = self._frame.end_ps = max(self.end, self.decide)
        self._tell()

    def enqueue(self, request: ServedRequest) -> None:
        """Note who comes."""
        self._frame.came.append(request.index + 1)
        super().enqueue(request)

    def drop(self, request: ServedRequest) -> None:
        """Note who can never be served."""
        self._frame.dropped.append(request.index + 1)
        self._again.discard(request.index)
        super().drop(request)

    def schedule(self) -> SchedulerOutput:
        """Note who is admitted and preempted."""
        frame, output = self._frame, super().schedule()
        frame.admitted += [request.index + 1 for request, _, _ in output.admitted]
        frame.preempted += [request.index + 1 for request in output.preempted]
        self._again.difference_update(request.index for request, _, _ in output.admitted)
        self._again.update(request.index for request in output.preempted)
        return output

    def begin(self, output: SchedulerOutput, start: int, end: int) -> None:
        """Tell how things stand in a step."""
        super().begin(output, start, end)
        self._frame.start_ps, self._frame.end_ps = start, end
        self._tell()

    def report(self, output: SchedulerOutput, finished: list[ServedRequest], end: int) -> None:
        """Note who got a token in a step, and who is done."""
        frame = self._frame
        gaps: Counter[int] = Counter()
        first: list[ServedRequest] = []
        for request, _, samples, _ in output.scheduled:
            if not samples or request.index not in self.requests:
                continue
            if request.first_token_ps < 0:
                first.append(request)
            else:
                gaps[end - request.last_token_ps] += 1
        frame.gaps += sorted(gaps.items())
        frame.done += [request.index + 1 for request in finished]
        self._again.difference_update(request.index for request in finished)
        super().report(output, finished, end)
        frame.first += [(r.index + 1, r.first_token_ps - r.arrival + r.outside_ps) for r in first]

    def _tell(self) -> None:
        frame, scheduler = self._frame, self._scheduler
        owners = self._read()
        frame.blocks = _changes(self._owners, owners)
        self._owners = owners
        frame.held = scheduler.blocks_in_use
        frame.shared = owners.count(SHARED)
        frame.kept = owners.count(KEPT)
        frame.free = len(owners) - 1 - frame.held - frame.kept
        frame.running, frame.waiting = scheduler.running_count, scheduler.waiting_count
        frame.preempted_waiting = len(self._again)
        self._frame = Frame()
        self.tell(frame)

    def _read(self) -> list[int]:
        """The owner of every block, the null block a free one."""
        pool = self._scheduler.cache.pool
        references = pool.references
        owners = [FREE if key is None else KEPT for key in pool.keys]
        owners += [FREE] * (pool.total - len(owners))
        for request in self._scheduler.running:
            number = request.index + 1
            for table in request.block_tables:
                for block in table:
                    if block:
                        owners[block] = number if references[block] == 1 else SHARED
        return owners


def _changes(before: list[int], now: list[int]) -> list[int]:
    """Runs of blocks whose owner changed: first block, how many, owner."""
    runs: list[int] = []
    for block, (old, new) in enumerate(zip(before, now, strict=True)):
        if old == new:
            continue
        if runs and runs[-3] + runs[-2] == block and runs[-1] == new:
            runs[-2] += 1
        else:
            runs += (block, 1, new)
    return runs
