"""Drive an engine's rules pass by pass on a clock of picoseconds: the plain loop.

It serves any rule set, at the cost of a pass a step; ``server.Server`` jumps from event to event and
gives the same, block for block and tick for tick.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

from kvroom.engines.scheduler import Pass, RuleSet
from kvroom.engines.vllm.scheduler import Scheduler
from kvroom.kvcache.connector import Bringer, Brought, Notices
from kvroom.kvcache.request import Sequence
from kvroom.latency.clock import StepClock
from kvroom.simulator.decode_run import Glide
from kvroom.simulator.feed import PLACE_BITS, PLACES
from kvroom.simulator.live import FOREVER, Arrivals, Follow, Live
from kvroom.simulator.metrics import Outcome


class Carried:
    """The ``Seam`` of vLLM's rules with one full-attention group: from sequences to requests, and from the
    keys of ``feed.LiveHashes`` (one a block) to pages of ``unit`` blocks."""

    def __init__(
        self,
        stepper: Stepper,
        rules: Scheduler,
        unit: int,
        bringer: Bringer | None,
        notices: Notices | None,
    ) -> None:
        self.now = 0
        self.stepper = stepper
        self.unit = unit
        self.bringer = bringer
        self.notices = notices
        if notices is not None and notices.hears_evictions:
            rules.cache.pool.on_gone = self._gone

    def offer(self, sequence: Sequence, found: int, limit: int) -> Brought | None:
        """What is brought to the request of ``sequence``."""
        if self.bringer is None:
            return None
        live = self.stepper.running[sequence.index]
        live.known = sequence.known
        return self.bringer.offer(live, self.now, found, limit)

    def admitted(self, sequence: Sequence, found: int, brought: Brought | None) -> None:
        """It has its place."""
        live = self.stepper.running[sequence.index]
        size = self.stepper.block_tokens
        live.noted = (brought.tokens if brought else found) // size // self.unit
        if self.bringer is not None:
            self.bringer.admitted(live, self.now, found, brought)

    def stored(self, sequence: Sequence, blocks: int, *, left: bool = False) -> None:
        """Tell of pages among the first ``blocks`` that nobody was told of yet."""
        live, notices = self.stepper.running[sequence.index], self.notices
        if notices is None:
            return
        held = live.held
        named = held.named if held is not None else 0
        pages = min(blocks, named) // self.unit
        if held is not None and pages > live.noted:
            notices.filled(held.names[live.noted : pages], 0)
            live.noted = pages
        if left and blocks > named:
            notices.filled((), blocks - named)

    def _gone(self, key: int) -> None:
        assert self.notices is not None
        if key < 0:
            self.notices.evicted((), 1)
        elif ((key & PLACES) + 1) % self.unit == 0:
            self.notices.evicted((key >> PLACE_BITS,), 0)


class Stepper(Arrivals):
    """One engine, used like ``server.Server``; ``sequence`` makes what its rules take of a request.

    What has come by the time of a scheduling pass is queued before it. Where two passes may be in
    flight the next is scheduled when the one before starts. ``bringer`` and ``notices`` (vLLM's rules with
    one group only) as in ``Server``; ``unit`` is how many blocks one name stands for. ``clock`` is that of
    passes with all their drafts, ``clocks`` those with fewer, by how many.
    """

    def __init__(
        self,
        rules: RuleSet,
        clock: StepClock,
        outcome: Outcome,
        sequence: Callable[[Live], Sequence],
        *,
        follow: Follow | None = None,
        clocks: Mapping[int, StepClock] | None = None,
        unit: int = 1,
        bringer: Bringer | None = None,
        notices: Notices | None = None,
    ) -> None:
        super().__init__(follow)
        self.rules = rules
        self.clock = clock
        self.clocks = clocks or {}
        self.outcome = outcome
        self.sequence = sequence
        self.strict = True
        self.end = 0
        self.peak_blocks = 0
        self.running: dict[int, Live] = {}  # by index: those that the rules know
        self.sequences: dict[int, Sequence] = {}  # the same as the rules take them
        # Where drafts are kept or not, no two passes are alike.
        self.glides = rules if isinstance(rules, Scheduler) and rules.drafts is None else None
        self._flying: deque[tuple[Pass, int]] = deque()
        self._carried: Carried | None = None
        self._loading: list[tuple[int, int, Sequence]] = []
        self.block_tokens = 0
        if bringer is not None or notices is not None:
            assert isinstance(rules, Scheduler)
            self._carried = rules.seam = Carried(self, rules, unit, bringer, notices)
            self._loading = rules.loading
            self.glides = None  # what is brought and told of goes pass by pass
            self.block_tokens = rules.cache.block_tokens

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
            if self.glides is not None and len(flying) == rules.passes_in_flight - 1:
                events -= self._glide(self.glides, until, events)
                if self.decide >= until or self.next_ps <= self.decide:
                    continue
            if self._carried is not None:
                self._carried.now = self.decide
            made = rules.schedule()
            self._scheduled(made)
            if len(flying) == rules.passes_in_flight or (flying and not made.work):
                done, over = flying.popleft()
                self.decide = max(self.decide, over)
                self.delivered(done, rules.deliver(done), over)
            elif not made.work and not made.preempted and not made.dropped:
                if self._loading:
                    self.decide = max(self.decide, min(self._loading[0][0], self.next_ps))
                    continue
                self.drop_stuck()
        return True

    def _glide(self, rules: Scheduler, until: int, events: int) -> int:
        """Passes in which all running requests decode, up to the next event; gives how many."""
        flying = self._flying
        glide = Glide.start(rules, flying[0][0] if flying else None, self.clock)
        if glide is None:
            return 0
        lives = [self.running[sequence.index] for sequence in rules.running]
        over = self.end if flying else 0
        told = lives[0].token_ps
        if any(live.token_ps != told for live in lives):
            return 0
        most = min(glide.most, events)
        while glide.done < most and self.decide < until and self.next_ps > self.decide:
            spent = glide.spent_ps()
            if not glide.step():
                break
            self.end = max(self.decide, self.end) + spent
            if not flying:
                over = self.end
            self.decide = max(self.decide, over)
            self.outcome.gaps.add((over - told, 0, 1, len(lives), over - told))
            told, over = over, self.end
            self.peak_blocks = max(self.peak_blocks, rules.blocks_in_use)
        glide.settle()
        if glide.done:
            for live in lives:
                live.token_ps = told
            if flying:
                flying[0] = (glide.last(), self.end)
        return glide.done

    def land(self) -> None:
        """Let the passes in flight come to their end."""
        while self._flying:
            done, over = self._flying.popleft()
            self.delivered(done, self.rules.deliver(done), over)

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

    def drop_stuck(self) -> None:
        """Drop whoever keeps the rest waiting though nothing runs."""
        stuck = self.rules.drop_stuck()
        if stuck is not None:
            self._drop(stuck.index)

    def note(self, made: Pass) -> None:
        """Report who was admitted, preempted and dropped in a pass."""
        for sequence, cached, _ in made.admitted:
            self.outcome.admitted(self.running[sequence.index], cached)
        for sequence in made.preempted:
            self.running[sequence.index].preemptions += 1
        self.outcome.preempted += len(made.preempted)
        for sequence in made.dropped:
            self._drop(sequence.index)
        if made.work:
            self.peak_blocks = max(self.peak_blocks, self.rules.blocks_in_use)

    def spent_ps(self, made: Pass) -> int:
        """How long a pass takes. Whoever decodes costs as much as all that are drafted in it."""
        clock = self.clock if made.drafted is None else self.clocks.get(made.drafted, self.clock)
        return clock.ps([(w.sequence.computed - w.tokens, w.tokens - w.drafts) for w in made.work])

    def _scheduled(self, made: Pass) -> None:
        self.note(made)
        if made.work:
            self.end = max(self.decide, self.end) + self.spent_ps(made)
            self._flying.append((made, self.end))

    def delivered(self, done: Pass, finished: list[Sequence], over: int) -> None:
        """Report the output of a pass that ended at ``over``."""
        gaps: Counter[int] = Counter()
        for sequence, _, samples, drafts in done.work:
            live = self.running.get(sequence.index)
            if not samples or live is None:
                continue
            if live.first_ps < 0:
                live.first_ps = over
                self.outcome.first(live)
            else:
                gaps[over - live.token_ps] += 1
            live.token_ps = over
            if drafts:
                self.outcome.verified(drafts, sequence.gained)
        for gap, count in gaps.items():
            self.outcome.gaps.add((gap, 0, 1, count, gap))
        for sequence in finished:
            live = self.running.pop(sequence.index)
            del self.sequences[sequence.index]
            self.outcome.done(live, over)
            if self.follow:
                self.over(live, over)
