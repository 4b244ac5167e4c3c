"""The event engine over several layer groups: runs of steps in which all decode are sums there too.

A window that is full takes a block and gives one back from block to block; so does a recurrent state. What
does not go in turn (what a long prompt leaves behind, a chunk's end) and what is cached of a window is kept
in two heaps by the step in which it goes. Where the order within a step decides what is evicted, those whom
it concerns are looked at one by one.

``step_engine`` over ``engines.paged.scheduler`` gives the same block for block.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from kvroom.engines.paged.scheduler_setup import SchedulerSetup
from kvroom.kvcache.counted_groups import CountedKind
from kvroom.kvcache.counted_pool import FreeRun
from kvroom.kvcache.holding import FAR, Holding
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.simulator.event_scheduler import Chunks
from kvroom.simulator.group_blocks import GroupBlocks
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.stream import Follow

Due = tuple[int, int, int, ServedRequest, int, int, int]
"""(step, admission, kind or −1, request, its base step, place, up to where the next go block by block)"""


class GroupEngine(GroupBlocks):
    """An engine of ``setup``, used like an EventEngine; ``unit`` is how many blocks one name stands for."""

    __slots__ = ("_at", "_cached", "_frees", "_grows", "_once", "_steady")

    def __init__(
        self,
        setup: SchedulerSetup,
        clock: StepClock,
        outcome: Outcome,
        *,
        unit: int = 1,
        follow: Follow | None = None,
    ) -> None:
        super().__init__(setup, clock, outcome, unit=unit, follow=follow)
        size, growing = self.block_tokens, self.growing()
        self._grows = sum(kind.count for kind in growing)
        self._frees = [0] * 2 * size  # by step modulo the size of a block: what windows give back
        self._at: list[dict[ServedRequest, None]] = [
            {} for _ in range(size)
        ]  # by when they take one
        self._once: list[Due] = []  # a heap: who gives blocks back out of turn, and when
        self._cached: list[Due] = []  # a heap: what leaves a window and is cached
        # Whether whoever gives a block back in a step takes at least as many in it.
        self._steady = all(
            kind.chunk or (kind.reach is not None and (kind.reach - 1 + self.lag) % size == 0)
            for kind in growing
            if kind.trims
        )

    # Decoding

    def begin(self, request: ServedRequest, step: int) -> None:
        """As ``EventEngine.begin``."""
        super().begin(request, step)
        if request.decoding:
            self._enter(request, step + 1)

    def _enter(self, request: ServedRequest, step: int) -> None:
        """``request`` decodes from ``step`` on."""
        holding = self._holding(request)
        known = step - request.base_step
        holding.first, holding.entry = step, request.num_blocks
        holding.processed = known - holding.chunk_tokens if self.lag else known
        holding.registered = known // self.block_tokens
        holding.joined = []
        self._at[request.base_step % self.block_tokens][request] = None
        settled, last = step + self.lag, request.last_step
        before = False
        for kind in self.kinds:
            if not kind.trims:
                continue
            if holding.real:
                holding.lows[kind.index] = self._real_low(request, kind)
            low = holding.lows[kind.index]
            if self.lag and kind.low(holding.processed) > low:
                before = True
            at = settled
            if kind.reach is not None:
                gone = kind.low(known)
                turn = request.base_step + self.lag + kind.reach - 1
                if gone == low and turn + (gone + 1) * kind.size > last:
                    continue  # nothing of it goes
                at = max(at, turn)
            elif kind.chunk and kind.low(known) <= low:
                at = self._chunk_step(request, kind, known)
            if at <= last:
                heappush(
                    self._once,
                    (at, request.admission, kind.index, request, request.base_step, 0, 0),
                )
        if before:
            heappush(self._once, (step, request.admission, -1, request, request.base_step, 0, 0))

    def _chunk_step(self, request: ServedRequest, kind: CountedKind, known: int) -> int:
        """The step before which the chunk after ``known`` tokens is settled."""
        ends = (known // kind.chunk + 1) * kind.chunk
        return request.base_step + self.lag + ends

    def stop_decoding(self, request: ServedRequest, step: int) -> None:
        """As ``EventScheduler.stop_decoding``."""
        self.batch.leave(request, step)
        size, frees, holding = self.block_tokens, self._frees, self._holding(request)
        del self._at[request.base_step % size][request]
        for index in holding.joined:
            kind = self.kinds[index]
            place = self._turn(request, kind)
            frees[place] -= kind.count
            frees[place + size] -= kind.count
        if self._answers and request.extents is not None:
            for name in self._answer_names(request.extents, request):
                self._answers.pop(name, None)

    def _turn(self, request: ServedRequest, kind: CountedKind) -> int:
        """Modulo the size of a block, the steps in which a full window gives a block back."""
        assert kind.reach is not None
        return (request.base_step + kind.reach - 1 + self.lag) % self.block_tokens

    def _join(self, request: ServedRequest, holding: Holding, index: int, step: int) -> None:
        """From ``step`` on the blocks of a kind go in turn, or another chunk at once."""
        kind, base, size = self.kinds[index], request.base_step, self.block_tokens
        if kind.chunk:
            at = self._chunk_step(request, kind, step - 1 - base - self.lag)
            if at <= request.last_step:
                heappush(self._once, (at, request.admission, index, request, base, 0, 0))
            return
        holding.joined.append(index)
        place = self._turn(request, kind)
        self._frees[place] += kind.count
        self._frees[place + size] += kind.count
        self._await_cached(request, holding, kind, holding.lows[index])

    def _await_cached(
        self, request: ServedRequest, holding: Holding, kind: CountedKind, low: int
    ) -> None:
        """Note when the next cached place from ``low`` on leaves its window."""
        if not kind.caching:
            return
        end = 0
        if kind.keeps_all:
            place, end = low, FAR
        elif holding.real:
            table, keys = request.block_tables[kind.first], self.counted.keys
            place = low
            while place < len(table) and keys[table[place]] is None:
                place += 1
            if place >= len(table):
                return
        else:
            first, end = kind.cached(request)
            place = max(first, low)
            if place >= end:
                return
        assert kind.reach is not None
        base = request.base_step
        at = base + self.lag + kind.reach - 1 + (place + 1) * kind.size
        if at <= request.last_step:
            heappush(self._cached, (at, request.admission, kind.index, request, base, place, end))

    def _due_once(self, step: int) -> list[tuple[ServedRequest, int]]:
        """(request, kind) of those who give blocks back out of turn in ``step``, taken out."""
        due, heap = [], self._once
        while heap and heap[0][0] <= step:
            _, admission, index, request, base, *_ = heappop(heap)
            if request.decoding and request.admission == admission and request.base_step == base:
                due.append((request, index))
        return due

    def _due_cached(self, step: int) -> list[tuple[ServedRequest, int, int]]:
        """(request, kind, place) of what is cached and leaves a window up to ``step``, in order; what comes
        next is noted."""
        due, heap = [], self._cached
        while heap and heap[0][0] <= step:
            at, admission, index, request, base, place, last = heap[0]
            if not (
                request.decoding and request.admission == admission and request.base_step == base
            ):
                heappop(heap)
                continue
            due.append((request, index, place))
            place += 1
            at += self.block_tokens
            if place < last and at <= request.last_step:
                heapreplace(heap, (at, admission, index, request, base, place, last))
            else:
                heappop(heap)
                if not last:
                    self._await_cached(request, self._holding(request), self.kinds[index], place)
        return due

    def _next_once(self) -> int:
        """The next step in which somebody gives blocks back out of turn."""
        heap = self._once
        while heap:
            at, admission, _, request, base, *_ = heap[0]
            if request.decoding and request.admission == admission and request.base_step == base:
                return at
            heappop(heap)
        return FAR

    # Runs of steps

    def hold(self, steps: int) -> int:
        """As ``EventEngine.hold``."""
        step = self.step
        if self.leaving and steps > 1:
            if self.waiting:
                steps = 1
            else:
                if not self._run_of(step, 1):
                    return 0
                self.step = self.leaving[0][0]
                self._gone()
                steps = 1 + self._run_of(step + 1, steps - 1)
                self.step = step
                return steps
        return self._run_of(step, steps)

    def _run_of(self, step: int, steps: int) -> int:
        """Blocks for so many steps from ``step`` on; in how many they suffice and nobody can start."""
        at, end = step, step + steps
        blocked = bool(self.waiting) and self.blocked == "room"
        while at < end:
            once = self._next_once()
            if once > at:
                upto = min(end, once)
                at += self._stretch(at, upto, blocked)
                if at < upto:
                    break
            else:
                taken = self._grows * self.batch.new_blocks[at % self.block_tokens]
                if blocked or taken > self.counted.free:
                    break
                self._one(at)
                self._note_peak()
                at += 1
        self.step = step
        return at - step

    def _stretch(self, step: int, end: int, blocked: bool) -> int:
        """The same up to ``end``, where nothing is given back out of turn."""
        pool, size, grows = self.counted, self.block_tokens, self._grows
        new_blocks, frees = self.batch.new_blocks, self._frees
        place, (turns, left) = step % size, divmod(end - step, size)
        taken = sum(new_blocks[place : place + left])
        back = sum(frees[place : place + left])
        if turns:
            taken += turns * self.batch.size
            back += turns * sum(frees[:size])
        taken *= grows
        steady = self._steady or not back
        if blocked and not steady and pool.free + back >= self._wanted:
            return 0
        if (taken <= pool.front and pool.free - taken >= self.least_free) or (
            steady and taken <= pool.free
        ):
            self._turn_over(end - 1, taken, back)
            self._note_peak()
            return end - step
        for at in range(step, end):
            taken = grows * new_blocks[at % size]
            if not taken and not frees[at % size]:
                continue
            if taken > pool.free:
                return at - step
            self._one(at)
            self._note_peak()
        return end - step

    def _turn_over(self, step: int, taken: int, back: int) -> None:
        """Up to ``step`` so many blocks are taken and given back, in an order that does not matter."""
        gone = self._due_cached(step)
        for _, index, _ in gone:
            back -= self.kinds[index].count
        if taken > back:
            self.counted.take(taken - back)
        else:
            self.counted.release(back - taken, 0)
        for request, index, place in gone:
            holding, kind = self._holding(request), self.kinds[index]
            if holding.real:
                self._drop(request, holding, kind, place, place + 1)
            else:
                self.counted.leave(FreeRun(request, kind.first, kind.count, (place,)))

    def _one(self, step: int) -> None:
        """What becomes of the blocks of those who decode in ``step``; enough are free."""
        pool, place = self.counted, step % self.block_tokens
        taken, back = self._grows * self.batch.new_blocks[place], self._frees[place]
        if self._next_once() > step and (taken <= pool.front or self._steady or not back):
            self._turn_over(step, taken, back)
            return
        self.step = step
        once, cached = self._due_once(step), self._due_cached(step)
        concerned = set(self._at[place])
        concerned.update(request for request, *_ in once)
        concerned.update(request for request, *_ in cached)
        if back and not self._steady:
            for kind in self.kinds:
                if kind.reach is not None:
                    place = (step - kind.reach + 1 - self.lag) % self.block_tokens
                    concerned.update(self._at[place])
        for request in sorted(concerned, key=lambda each: each.admission):
            self.give(request, 1)
        self._go_on(step, once)

    def _go_on(self, step: int, once: list[tuple[ServedRequest, int]]) -> None:
        """Those ``once`` due in ``step`` have given back: from now on they do so in turn."""
        for request, index in once:
            if index >= 0:
                self._join(request, self._holding(request), index, step + 1)

    # Single steps

    def _mixed(self) -> None:
        if self.numbered:
            self.cache.begin_step()
        super()._mixed()

    def _each(self) -> None:
        if self.numbered:
            self.cache.begin_step()
        super()._each()

    def schedule_each(self) -> tuple[Chunks, bool]:
        """As ``EventScheduler.schedule_each``."""
        scheduled = super().schedule_each()
        step = self.step
        self._due_cached(step)
        self._go_on(step, self._due_once(step))
        return scheduled

    def decoding_blocks(self) -> int:
        """As ``EventEngine.decoding_blocks``."""
        return self._grows * super().decoding_blocks()

    def take_decoding(self, blocks: int) -> None:
        """As ``EventEngine.take_decoding``."""
        if self.batch.size:
            self._one(self.step)

    def commutes(self, chunks: Chunks) -> bool:
        """As ``EventEngine.commutes``."""
        if not self.caching or not chunks or not self.batch.size:
            return True
        return chunks[0][0].admission > self.batch.last_admission

    def give(self, request: ServedRequest, tokens: int) -> bool:
        """As ``EventScheduler.give``."""
        holding = self._holding(request)
        if not request.decoding:
            if not self._extend(request, holding, tokens):
                return False
            holding.chunk_tokens, holding.chunk_step = tokens, self.step
            return True
        self._trim_decoding(request, holding)
        if (self.step - request.base_step) % self.block_tokens == 0:
            if self._grows > self.counted.free:
                return False
            self.counted.take(self._grows)
        return True

    def _trim_decoding(self, request: ServedRequest, holding: Holding) -> None:
        """Give back what is to go in this step, as for a step scheduled request by request."""
        step = self.step
        if holding.trimmed == step:
            return
        lows = self._lows(request, holding, step - 1)
        holding.trimmed = step
        for kind in self.kinds:
            if kind.trims:
                low = self._low(request, holding, kind, step)
                if low > lows[kind.index]:
                    self._trim(request, holding, kind, low)
