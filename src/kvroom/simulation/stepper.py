"""Drive an engine's rules pass by pass on a clock of picoseconds: the plain loop.

It serves any rule set, at the cost of a pass a step; ``server.Server`` jumps from event to event and
gives the same, block for block and tick for tick.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from kvroom.simulation.live import FOREVER, Arrivals, Follow, Live
from kvroom.simulation.outcome import Outcome
from kvroom.simulation.rules import Pass, RuleSet
from kvroom.simulation.sequence import Sequence
from kvroom.timing.ticks import StepClock


class Stepper(Arrivals):
    """One engine, used like ``server.Server``; ``sequence`` makes what its rules take of a request.

    What has come by the time of a scheduling pass is queued before it. Where two passes may be in
    flight the next is scheduled when the one before starts.
    """

    def __init__(
        self,
        rules: RuleSet,
        clock: StepClock,
        outcome: Outcome,
        sequence: Callable[[Live], Sequence],
        *,
        follow: Follow | None = None,
    ) -> None:
        super().__init__(follow)
        self.rules = rules
        self.clock = clock
        self.outcome = outcome
        self.sequence = sequence
        self.strict = True
        self.end = 0
        self.peak_blocks = 0
        self.running: dict[int, Live] = {}  # by index: those that the rules know
        self.sequences: dict[int, Sequence] = {}  # the same as the rules take them
        self._flying: deque[tuple[Pass, int]] = deque()

    @property
    def wakes_ps(self) -> int:
        """When it next decides anything; FOREVER where it has nothing to do."""
        busy = self.running or self._flying
        return self.decide if busy else max(self.decide, self.next_ps)

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        return len(self.running) - self.rules.waiting_count

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return self.rules.waiting_count

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests."""
        return self.rules.blocks_in_use

    def advance(self, until: int = FOREVER, events: int = FOREVER) -> bool:
        """Take all scheduling decisions that fall before ``until``, by when later requests may come.

        False where ``events`` passes were not enough.
        """
        rules, flying = self.rules, self._flying
        while self.decide < until:
            if not events:
                return False
            events -= 1
            while self.next_ps <= self.decide:
                self._queue(self.next())
            if not rules.running_count and not rules.waiting_count and not flying:
                if self.next_ps == FOREVER:
                    return True
                self.decide = max(self.end, self.next_ps)
                continue
            made = rules.schedule()
            self._scheduled(made)
            if len(flying) == rules.passes_in_flight or (flying and not made.work):
                done, over = flying.popleft()
                self.decide = max(self.decide, over)
                self._delivered(done, rules.deliver(done), over)
            elif not made.work and not made.preempted and not made.dropped:
                stuck = rules.drop_stuck()
                if stuck is not None:
                    self._drop(stuck.index)
        return True

    def land(self) -> None:
        """Let the passes in flight come to their end."""
        while self._flying:
            done, over = self._flying.popleft()
            self._delivered(done, self.rules.deliver(done), over)

    def _queue(self, live: Live) -> None:
        self.running[live.index] = live
        self.sequences[live.index] = sequence = self.sequence(live)
        if not self.rules.add(sequence):
            self._drop(live.index)
        live.total = live.prompt + max(1, sequence.output_tokens)

    def _drop(self, index: int) -> None:
        live = self.running.pop(index)
        del self.sequences[index]
        self.outcome.drop(live, self.decide)
        if self.follow:
            self.over(live, self.decide)

    def _scheduled(self, made: Pass) -> None:
        rules = self.rules
        for sequence, cached, _ in made.admitted:
            self.outcome.admitted(self.running[sequence.index], cached)
        for sequence in made.preempted:
            self.running[sequence.index].preemptions += 1
        self.outcome.preempted += len(made.preempted)
        for sequence in made.dropped:
            self._drop(sequence.index)
        if made.work:
            work = [(w.sequence.computed - w.tokens, w.tokens) for w in made.work]
            self.end = max(self.decide, self.end) + self.clock.ps(work)
            self._flying.append((made, self.end))
            self.peak_blocks = max(self.peak_blocks, rules.blocks_in_use)

    def _delivered(self, done: Pass, finished: list[Sequence], over: int) -> None:
        gaps: Counter[int] = Counter()
        for sequence, _, samples in done.work:
            live = self.running.get(sequence.index)
            if not samples or live is None:
                continue
            if live.first_ps < 0:
                live.first_ps = over
                self.outcome.first(live)
            else:
                gaps[over - live.token_ps] += 1
            live.token_ps = over
        for gap, count in gaps.items():
            self.outcome.gaps.add(gap, 0, 1, count, gap)
        for sequence in finished:
            live = self.running.pop(sequence.index)
            del self.sequences[sequence.index]
            self.outcome.done(live, over)
            if self.follow:
                self.over(live, over)
