"""One engine from event to event: a run of steps in which nothing else happens is one jump.

What ends a jump: an arrival, a finish, blocks that give out, a context that outgrows an attention window.
Steps with prompts or admissions are taken one by one. ``event_scheduler`` decides who runs; here is how long
that takes, what comes of it, and who leaves.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop
from itertools import repeat

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.kvcache.connector import KVConnector, report_left
from kvroom.kvcache.counted_pool import CountedPool
from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.extents import ExtentPool
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PAIRS, StepClock
from kvroom.simulator.decode_batch import steps_until
from kvroom.simulator.event_scheduler import Chunks, EventScheduler
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.stream import FOREVER, Follow


class EventEngine(EventScheduler):
    """An engine: hand it requests in order of arrival (``push``), then let it ``advance``.

    ``decide`` is when the next step is scheduled: when the step before ends, or, with asynchronous
    scheduling, when the step before starts. ``end`` is when the steps scheduled so far end.
    """

    tells_names = True
    """Whether others can see under which names it has blocks cached."""

    __slots__ = ("_decode_ps", "_gap", "_pairs_ps", "parked", "strict")

    def __init__(
        self,
        config: SchedulerConfig,
        pool: ExtentPool | CountedPool,
        clock: StepClock,
        outcome: Outcome,
        *,
        block_tokens: int,
        caching: bool,
        follow: Follow | None = None,
        connector: KVConnector | None = None,
        events: KVEvents | None = None,
    ) -> None:
        super().__init__(
            config,
            pool,
            clock,
            outcome,
            block_tokens=block_tokens,
            caching=caching,
            follow=follow,
            connector=connector,
            events=events,
        )
        self.strict = False
        """Whether no jump goes beyond ``until``, not even while nobody can start."""
        self.parked: set[ServedRequest] = set()  # done, their blocks kept for others to fetch
        self._gap = outcome.gaps.add
        self._decode_ps = clock.decodes
        windows = any(reach.tokens is not None for reach in clock.reaches)
        self._pairs_ps = None if windows else sum(reach.pairs_ps for reach in clock.reaches)

    @property
    def wakes_ps(self) -> int:
        """When it next takes a decision; FOREVER where it has nothing to do."""
        if self.stuck:
            return FOREVER
        busy = self.running or self.leaving or self.waiting or self.loading
        return self.decide if busy else max(self.decide, self.next_ps)

    @property
    def has_prefills(self) -> bool:
        """Whether its next step computes a prompt."""
        return bool(self.prefilling)

    @property
    def stuck(self) -> bool:
        """Whether it can do nothing until other engines have fetched what it keeps for them."""
        if not self.parked or not self.blocked or self.running or self.leaving or self.loading:
            return False
        return bool(self.waiting)

    def advance(self, until: int = FOREVER, events: int = 1 << 60) -> bool:
        """Take all scheduling decisions that fall before ``until``, by when later requests may come.

        False where ``events`` events were not enough.
        """
        for _ in repeat(None, events):
            if self.leaving and self.leaving[0][0] <= self.step:
                self._gone()
            decide = self.decide
            if decide >= until:
                return True
            while self.next_ps <= decide:
                self.enqueue(self.next())
            if self.loading and self.loading[0][0] <= decide:
                self.loaded()
            if self.prefilling or (self.waiting and not self.blocked):
                self._mixed()
            elif self.batch.size:
                self._jump(until)
            elif self.leaving:
                self.decide = max(decide, self.end)
                self._land()
            elif self.loading:
                self.decide = max(self.end, min(self.loading[0][0], self.next_ps))
                self.blocked = ""
            elif self.stuck:
                return True
            elif self.waiting:
                self.drop(self.waiting.popleft())
                self.blocked = ""
            elif self.next_ps < FOREVER:
                self.decide = max(self.end, self.next_ps)
            else:
                return True
        return False

    # Steps

    def _jump(self, until: int) -> None:
        """Steps in which all running requests decode, up to the next event."""
        step, batch, lag = self.step, self.batch, self.lag
        active = batch.size
        if active > self.budget:
            self._each()
            return
        last, steps, first, slope = batch.run_from(step)
        first += self._decode_ps.get(active) or self.clock.decode_ps(active)
        if not self.blocked or self.by_priority:
            coming = self.next_ps if self.next_ps < until else until
        else:
            coming = until if self.strict else FOREVER
        if self.loading and self.loading[0][0] < coming:
            coming = self.loading[0][0]
        if coming < FOREVER:
            wait = coming - self.end
            if wait <= 0:
                steps = lag
            else:
                late = steps - lag
                if late * first + slope * (late * (late - 1) // 2) > wait:
                    steps = steps_until(wait, first, slope) + lag
        if not (steps := self.hold(steps)):
            self._each()
            return
        step = self.step
        longer = slope * (steps - 1)
        spent = steps * first + longer * steps // 2
        self._gap((first, slope, steps, active, spent))
        self.end = end = self.end + spent
        self.decide = end - first - longer if lag else end
        self.step = step = step + steps
        if last < step:
            self._finish(last)

    def hold(self, steps: int) -> int:
        """Give the decoding requests the blocks for so many steps; returns for how many steps the free
        blocks suffice."""
        batch, pool, step, active = self.batch, self.pool, self.step, self.batch.size
        new_blocks, size = batch.new_blocks, self.block_tokens
        place = step % size
        taken = steps // size * active + sum(new_blocks[place : place + steps % size])
        if self.leaving and steps > 1:
            # Those who are done leave within the run: whoever waits may come then.
            if self.waiting or taken > pool.free:
                steps, taken = 1, new_blocks[place]
            else:
                pool.take(new_blocks[place])
                taken -= new_blocks[place]
                self._note_peak()
                self.step = self.leaving[0][0]
                self._gone()
                self.step = step
        if taken > pool.free:
            steps, taken = batch.run_until_full(step, pool.free)
        if taken:
            pool.take(taken)
        if pool.free < self.least_free:  # noqa: PLR1730 (a call costs more)
            self.least_free = pool.free
        return steps

    def _mixed(self) -> None:
        """One step with prompts, and admission."""
        batch, aligned = self.batch, self.aligned
        budget = self.budget - batch.size
        decoding = self.decoding_blocks()
        room = self.pool.free - decoding
        limit = self.prefill_limit() if self.config.long_prefill_token_threshold else 0
        chunks: Chunks = []
        new_blocks: list[int] = []
        for request in self.prefilling:
            tokens = request.num_tokens - request.num_computed_tokens
            if 0 < limit < tokens:
                tokens = limit
            if tokens > budget:
                if request.admission < batch.last_admission:
                    # One behind it decodes: who gets the last tokens is a matter of order.
                    budget = -1
                    break
                tokens = budget
            if tokens <= 0:
                break
            if aligned and not (tokens := self.cut(request, request.num_computed_tokens, tokens)):
                continue
            more = self.blocks_for(request, tokens)
            room -= more
            budget -= tokens
            chunks.append((request, tokens))
            new_blocks.append(more)
        if budget < 0 or room < 0 or not self.commutes(chunks):
            self._each()
            return
        self.take_decoding(decoding)
        for (request, tokens), more in zip(chunks, new_blocks, strict=True):
            self.grow(request, tokens, more)
        if self.waiting:
            self.admit(chunks, budget, limit)
        if chunks or batch.size:
            self._run(chunks)
        elif self.prefilling:
            self.drain()

    def decoding_blocks(self) -> int:
        """How many new blocks the decoding requests need for the next step."""
        return self.batch.new_blocks[self.step % self.block_tokens]

    def take_decoding(self, blocks: int) -> None:
        """Give the decoding requests the blocks of the next step."""
        if blocks:
            self.pool.take(blocks)

    def commutes(self, chunks: Chunks) -> bool:
        """Whether the order does not matter in which decoding requests and prompts get their blocks."""
        return True

    def _each(self) -> None:
        """One step scheduled request by request."""
        chunks, decoding = self.schedule_each()
        if chunks or decoding:
            self._run(chunks)
        else:
            self.drain()

    def drain(self) -> None:
        """Nothing is scheduled before the step in flight is over."""
        if self.lag:
            self.decide = max(self.decide, self.end)
            self._land()

    def _run(self, chunks: Chunks) -> None:
        """One step: a token for each decoding request, and ``chunks`` of prompts."""
        step, batch, clock = self.step, self.batch, self.clock
        active, pairs_ps = batch.size, self._pairs_ps
        spent = batch.attention_ps(step)
        ones, tokens, prompts = active, 0, 0
        for request, count in chunks:
            if count == 1:
                ones += 1
                spent += clock.context_ps(request.num_computed_tokens + 1)
            else:
                prompts += 1
                tokens += count
                if pairs_ps is None:
                    spent += clock.chunk_ps(request.num_computed_tokens, count)
                else:
                    pairs = count * request.num_computed_tokens + count * (count + 1) // 2
                    spent += pairs_ps * pairs // PAIRS
        spent += clock.mixed_ps(ones, tokens, prompts)
        if active:
            self._gap((spent, 0, 1, active, spent))
        if self.pool.free < self.least_free:  # noqa: PLR1730 (a call costs more)
            self.least_free = self.pool.free
        start = self.end if self.end > self.decide else self.decide
        self.end = end = start + spent
        self.decide = start if self.lag else end
        self.step = step + 1
        begun = False
        for request, count in chunks:
            request.num_computed_tokens = computed = request.num_computed_tokens + count
            if computed == request.num_tokens:
                begun = True
                self.begin(request, step)
        if begun and self.prefilling:
            self.prefilling = [r for r in self.prefilling if r.num_computed_tokens < r.num_tokens]
        if batch.finishing and batch.finishing[0][0] <= step:
            self._finish(step)

    def _note_peak(self) -> None:
        if self.pool.free < self.least_free:  # noqa: PLR1730 (a call costs more)
            self.least_free = self.pool.free

    def begin(self, request: ServedRequest, step: int) -> None:
        """``request`` got its next token in ``step`` and decodes from now on."""
        request.alone_preempted = 0
        request.decode_start_tokens = request.num_tokens
        if request.first_token_ps < 0:
            request.first_token_ps = self.end
            self.outcome.first(request)
        else:
            gap = self.end - request.last_token_ps
            self._gap((gap, 0, 1, 1, gap))
        if self.batch.enter(request, step + 1) and request.extents is not None:
            self.generates(request.extents, request)

    # Who leaves

    def _finish(self, step: int) -> None:
        """End the requests whose last token ``step`` computed."""
        finishing = self.batch.finishing
        while finishing and finishing[0][0] <= step:
            last, admission, request = heappop(finishing)
            if request.last_step != last or request.admission != admission:
                continue
            if request.decoding:
                self.stop_decoding(request, step + 1)
            end = self.outcome.done(request, self.end)
            if self.follow:
                self.over(request, self.end)
            if self.lag:
                self.leaving.append((step + 2, request, end))
                if request.extents is not None:
                    computed = max(request.decode_start_tokens, request.final_tokens - 1 - self.lag)
                    self.enter_answer(request, computed // self.block_tokens)
                if self.blocked == "tokens":
                    self.blocked = ""
            else:
                self._leave(request, end)

    def gather(self, now: int) -> None:
        """Queue all requests that have come by ``now``, and let go of those that are done by the next
        step."""
        if self.leaving and self.leaving[0][0] <= self.step:
            self._gone()
        super().gather(now)

    def _gone(self) -> None:
        """Requests whose last output has been taken give back their blocks and places."""
        leaving = self.leaving
        while leaving and leaving[0][0] <= self.step:
            _, request, end = leaving.popleft()
            if request.admission >= 0:
                self._leave(request, end)
            else:  # it was preempted with its last token on its way
                self.outcome.over(request, end)

    def _land(self) -> None:
        """The step in flight is over: finished requests have all their tokens."""
        self.leaving = deque((0, request, end) for _, request, end in self.leaving)

    def _leave(self, request: ServedRequest, end: int | None) -> None:
        self.outcome.over(request, end)
        del self.running[request]
        self.blocked = ""
        if request.keeps_blocks:
            self.parked.add(request)
        else:
            self.give_back(request)

    def release(self, request: ServedRequest, now: int) -> None:
        """Another engine has fetched the cache of ``request``, which is done here: its blocks are free."""
        request.keeps_blocks = False
        if request in self.parked:
            if self.stuck:
                self.decide = max(self.decide, now)
            self.parked.remove(request)
            self.give_back(request)
            self.blocked = ""

    def give_back(self, request: ServedRequest) -> None:
        """``request``, which is done, leaves its blocks."""
        computed, size = request.final_tokens - 1, self.block_tokens
        full, blocks = computed // size, -(-computed // size)
        if self.events is not None and self.caching:
            report_left(self.events, request, full, self.extents.unit)
        if not self.caching:
            self.pool.release(blocks, 0)
        elif request.extents is None:
            self.pool.release(blocks - full, full)
        else:
            self.extents.leave(request.extents, blocks, full, back=False)

    def evacuate(self) -> list[ServedRequest]:
        """All requests that it serves, has queued or would have got, in order, each as the last step
        left it, to start again on another engine. The engine is of no use afterwards. Tokens
        generated so far are computed anew together with the prompts."""
        requests = []
        for _, request, end in self.leaving:
            self.outcome.over(request, end)
        for request in self.running:
            if request.decoding:
                request.num_tokens = self.step - request.base_step + 1
                request.last_token_ps = self.end
            elif request.last_step >= 0:
                continue  # its last token is there
            requests.append(request)
        requests += (request for *_, request in sorted(self.loading, key=lambda each: each[:2]))
        requests += sorted(self.waiting) if self.by_priority else self.waiting
        requests += self.take_coming()
        for request in requests:
            request.restart()
        return requests
