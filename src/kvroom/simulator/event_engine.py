"""vLLM's scheduler between events: the rules of ``scheduler.Scheduler`` at the cost of what happens.

Requests that decode all do the same thing each step, so they are kept as sums: how many there are, how
long their contexts are together, at which steps they need their next blocks. A run of steps in which
nothing else happens is one jump. What ends a jump: an arrival, a finish, blocks that give out, a context
that outgrows an attention window. Steps with prompts or admissions are taken one by one, and
only a step in which blocks or tokens give out looks at each running request.

Restricted to one full-attention group; other rule sets are stepped (``stepper.Stepper``).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import repeat

from kvroom.engines.vllm.scheduler import Settings
from kvroom.kvcache.connector import Bringer, Notices, Several
from kvroom.kvcache.extents import ExtentPool
from kvroom.latency.clock import PAIRS, StepClock
from kvroom.simulator.admission import admit
from kvroom.simulator.growing import register
from kvroom.simulator.live import FOREVER, Arrivals, Follow, Live
from kvroom.simulator.loading import Loading, arrived, left, noted
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.preemption import crowded
from kvroom.simulator.windows import Span, steps_until


class Server(Arrivals):
    """One engine: hand it requests in order of arrival (``push``), then let it ``advance``.

    ``bringer`` may bring requests part of their cache from elsewhere, ``notices`` hears what the pool holds.
    ``decide`` is when the next step is scheduled: when the step before ends, or, with asynchronous
    scheduling, when the step before starts. ``end`` is when the steps scheduled so far end.
    """

    def __init__(
        self,
        settings: Settings,
        pool: ExtentPool,
        clock: StepClock,
        outcome: Outcome,
        *,
        block_tokens: int,
        caching: bool,
        follow: Follow | None = None,
        bringer: Bringer | None = None,
        notices: Notices | None = None,
    ) -> None:
        super().__init__(follow)
        self.settings = settings
        self.bringer = bringer
        self.notices: Notices | None = None
        self.pool = pool
        self.clock = clock
        self.outcome = outcome
        self.block_tokens = block_tokens
        self.budget = settings.max_num_batched_tokens
        self._gap = outcome.gaps.add
        self._fixed = clock.decodes
        self.caching = caching
        self.lag = 1 if settings.async_scheduling else 0
        self.by_priority = settings.policy == "priority"
        self.watermark_blocks = int(settings.watermark * (pool.usable + 1))
        self.least_free = pool.free
        self.strict = (
            False  # whether no jump goes beyond ``until``, not even while nobody can start
        )
        self.step = 0
        self.end = 0
        self.running: dict[Live, None] = {}  # in order of admission
        self.filling: list[Live] = []  # those whose prompt is not computed yet
        self.waiting: deque[Live] = deque()
        self.queue: list[Live] = []  # the same by priority, as a heap
        self.leaving: deque[tuple[int, Live]] = (
            deque()
        )  # done, with the step at which they are gone
        self.parked: set[Live] = set()  # done, their blocks kept for others to fetch
        self.loading: Loading = []
        self.loads = 0
        self.active = 0
        self._bases = 0
        self._phases = [0] * 2 * block_tokens  # by step: how many then need a block; twice over
        self._finishing: list[tuple[int, int, Live]] = []
        self.growing: dict[int, Live] = {}  # by the names of answers that are being generated
        self.blocked = ""  # why the head of the queue has to wait, until that changes
        self._numbers = 0
        self._last_decoding = -1
        self._context_ps = sum(r.context_ps for r in clock.reaches if r.tokens is None)
        self._pairs_ps = sum(r.pairs_ps for r in clock.reaches if r.tokens is None)
        self._spans = [Span(r.tokens, r.context_ps) for r in clock.reaches if r.tokens is not None]
        if notices is not None:
            self.tell(notices)

    @property
    def wakes_ps(self) -> int:
        """When it next decides anything; FOREVER where it has nothing to do."""
        if self.stuck:
            return FOREVER
        busy = self.running or self.leaving or self.waiting or self.queue or self.loading
        return self.decide if busy else max(self.decide, self.next_ps)

    @property
    def stuck(self) -> bool:
        """Whether it can do nothing until others have fetched what it keeps for them."""
        if not self.parked or not self.blocked or self.running or self.leaving or self.loading:
            return False
        return bool(self.waiting or self.queue)

    @property
    def running_count(self) -> int:
        """Requests that hold blocks and are not done."""
        going = sum(live.number >= 0 for _, live in self.leaving)
        return len(self.running) + len(self.loading) - going

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting) + len(self.queue)

    @property
    def peak_blocks(self) -> int:
        """The most blocks that were held at once."""
        return self.pool.usable - self.least_free

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests."""
        return self.pool.in_use

    def tell(self, notices: Notices) -> None:
        """Let one more hear what the pool holds."""
        both = notices if self.notices is None else Several(self.notices, notices)
        self.notices = both
        self.pool.notices = both if both.hears_evictions else None

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
                self._queue(self.next())
            if self.loading and self.loading[0][0] <= decide:
                arrived(self)
            if self.filling or ((self.waiting or self.queue) and not self.blocked):
                self._mixed()
            elif self.active:
                self._jump(until)
            elif self.leaving:
                self.decide = max(decide, self.end)
                self.leaving = deque((0, live) for _, live in self.leaving)
            elif self.loading:
                self.decide = max(self.end, min(self.loading[0][0], self.next_ps))
                self.blocked = ""
            elif self.stuck:
                return True
            elif self.waiting or self.queue:
                self.drop(self.pop())
                self.blocked = ""
            elif self.next_ps < FOREVER:
                self.decide = max(self.end, self.next_ps)
            else:
                return True
        return False

    # The queue

    def _queue(self, live: Live) -> None:
        room = self.settings.max_model_len - live.prompt
        if room <= 0 or -(-live.prompt // self.block_tokens) > self.pool.usable:
            self.drop(live)
            return
        live.total = min(live.total, self.settings.max_model_len)
        if self.by_priority:
            heappush(self.queue, live)
            if self.queue[0] is live:
                self.blocked = ""
        else:
            self.waiting.append(live)

    def pop(self) -> Live:
        """Take who is next out of the queue."""
        return heappop(self.queue) if self.by_priority else self.waiting.popleft()

    def drop(self, live: Live) -> None:
        """``live`` can never be served."""
        self.outcome.drop(live, self.decide)
        if self.follow:
            self.over(live, self.decide)

    def gather(self, now: int) -> None:
        """Queue all who have come by ``now``, and let go of those who are done by the next step."""
        if self.leaving and self.leaving[0][0] <= self.step:
            self._gone()
        super().gather(now)

    def _gone(self) -> None:
        """Those whose last output has been taken give back their blocks and places."""
        leaving = self.leaving
        while leaving and leaving[0][0] <= self.step:
            live = leaving.popleft()[1]
            if live.number >= 0:
                self._leave(live)

    def _leave(self, live: Live) -> None:
        del self.running[live]
        self.blocked = ""
        if live.kept:
            self.parked.add(live)
        else:
            self._give_back(live)

    def release(self, live: Live, now: int) -> None:
        """Whoever fetched the cache of ``live``, which is done here, has it: its blocks are free."""
        live.kept = False
        if live in self.parked:
            if self.stuck:
                self.decide = max(self.decide, now)
            self.parked.remove(live)
            self._give_back(live)
            self.blocked = ""

    def _give_back(self, live: Live) -> None:
        computed = live.total - 1
        full = computed // self.block_tokens
        blocks = full + (computed % self.block_tokens > 0)
        if self.notices is not None and self.caching:
            left(self, live, full)
        if not self.caching:
            self.pool.release(blocks, 0)
        elif live.held is None:
            self.pool.release(blocks - full, full)
        else:
            self.pool.leave(live.held, blocks, full, back=False)

    # Steps

    def _jump(self, until: int) -> None:  # noqa: PLR0915 (calls would cost more than the steps)
        """Steps in which all running requests decode, up to the next event."""
        step, active, pool, lag = self.step, self.active, self.pool, self.lag
        if active > self.budget:
            crowded(self)
            return
        last, number, live = self._finishing[0]
        if live.last != last or live.number != number:
            last = self._next_finish()
        steps = last - step + 1
        slope = self._context_ps * active
        first = self._context_ps * (active * (step + 1) - self._bases)
        first += self._fixed.get(active) or self.clock.decode_ps(active)
        for span in self._spans:
            steps = min(steps, span.cross(step) - step)
            slope += span.context_ps * span.growing
            first += span.attention(step, active)
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
                    steps = min(steps, steps_until(wait, first, slope) + lag)
        phases, size = self._phases, self.block_tokens
        start = step % size
        taken = steps // size * active + sum(phases[start : start + steps % size])
        if self.leaving and steps > 1:
            # Those who are done leave within the run: whoever waits may come then.
            if self.waiting or self.queue or taken > pool.free:
                steps = 1
                taken = phases[start]
            else:
                pool.take(phases[start])
                taken -= phases[start]
                self._note_peak()
                self.step = self.leaving[0][0]
                self._gone()
        if taken > pool.free:
            steps, taken = self._until_full()
            if not steps:
                crowded(self)
                return
        if taken:
            pool.take(taken)
        if pool.free < self.least_free:  # noqa: PLR1730 (a call costs more)
            self.least_free = pool.free
        longer = slope * (steps - 1)
        spent = steps * first + longer * steps // 2
        self._gap((first, slope, steps, active, spent))
        self.end = end = self.end + spent
        self.decide = end - first - longer if lag else end
        self.step = step = step + steps
        if last < step:
            self._finish(last)

    def _next_finish(self) -> int:
        """The step that computes the next last token."""
        finishing = self._finishing
        last, number, live = finishing[0]
        while live.last != last or live.number != number:
            heappop(finishing)
            last, number, live = finishing[0]
        return last

    def _note_peak(self) -> None:
        if self.pool.free < self.least_free:  # noqa: PLR1730 (a call costs more)
            self.least_free = self.pool.free

    def _until_full(self) -> tuple[int, int]:
        """(steps, blocks) until the next step would need more blocks than are free."""
        periods, left = divmod(self.pool.free, self.active)
        steps = periods * self.block_tokens
        taken = periods * self.active
        while (need := self._phases[(self.step + steps) % self.block_tokens]) <= left:
            left -= need
            taken += need
            steps += 1
        return steps, taken

    def _mixed(self) -> None:
        """One step with prompts, and admission."""
        budget = self.budget - self.active
        need = self._phases[self.step % self.block_tokens]
        room = self.pool.free - need
        longest = self.longest() if self.settings.long_prefill_token_threshold else 0
        chunks: list[tuple[Live, int]] = []
        grown: list[int] = []
        for live in self.filling:
            tokens = live.known - live.computed
            if 0 < longest < tokens:
                tokens = longest
            if tokens > budget:
                if live.number < self._last_decoding:
                    budget = (
                        -1
                    )  # one behind it decodes: who gets the last tokens is a matter of order
                    break
                tokens = budget
            if tokens <= 0:
                break
            more = -(-(live.computed + tokens) // self.block_tokens) - live.blocks
            room -= more
            budget -= tokens
            chunks.append((live, tokens))
            grown.append(more)
        if budget < 0 or room < 0:
            crowded(self)
            return
        if need:
            self.pool.take(need)
        for (live, tokens), more in zip(chunks, grown, strict=True):
            self.grow(live, tokens, more)
        if self.waiting or self.queue:
            admit(self, chunks, budget, longest)
        if chunks or self.active:
            self.run(chunks)

    def longest(self) -> int:
        """What a prompt computes in one step at most, 0 for no such limit."""
        longest = self.settings.long_prefill_token_threshold
        if longest and len(self.running) + len(self.loading) + self.waiting_count > 1:
            return longest
        return 0

    def grow(self, live: Live, tokens: int, blocks: int) -> None:
        """Give ``live`` more blocks for the next ``tokens`` of its prompt; the full ones are cached."""
        self.pool.take(blocks)
        live.blocks += blocks
        if live.held is not None:
            full = (live.computed + tokens) // self.block_tokens
            if self.growing:
                register(self, live, full)
            else:
                self.pool.register(live.held, full)
            if self.notices is not None:
                noted(self, live, min(full, live.prompt // self.block_tokens))

    def start(self, live: Live) -> None:
        """``live`` runs from now on, behind those that do."""
        live.number = self._numbers
        self._numbers += 1
        self.running[live] = None

    def run(self, chunks: list[tuple[Live, int]]) -> None:
        """One step: all decoding requests a token each, and ``chunks`` of prompts."""
        step, active, clock = self.step, self.active, self.clock
        spent = self._context_ps * (active * (step + 1) - self._bases)
        for span in self._spans:
            span.cross(step)
            spent += span.attention(step, active)
        ones, tokens, prompts = active, 0, 0
        for live, count in chunks:
            if count == 1:
                ones += 1
                spent += clock.context_ps(live.computed + 1)
            else:
                prompts += 1
                tokens += count
                if self._spans:
                    spent += clock.chunk_ps(live.computed, count)
                else:
                    pairs = count * live.computed + count * (count + 1) // 2
                    spent += self._pairs_ps * pairs // PAIRS
        spent += clock.mixed_ps(ones, tokens, prompts)
        if active:
            self._gap((spent, 0, 1, active, spent))
        self._note_peak()
        start = max(self.end, self.decide)
        self.end = start + spent
        self.decide = start if self.lag else self.end
        self.step = step + 1
        begun = False
        for live, count in chunks:
            live.computed += count
            if live.computed == live.known:
                begun = True
                self._begin(live, step)
        if begun and self.filling:
            self.filling = [live for live in self.filling if live.computed < live.known]
        if self._finishing and self._finishing[0][0] <= step:
            self._finish(step)

    def _count(self, base: int, more: int) -> None:
        """One request more or less that needs a block at every ``block_tokens``-th step from ``base``."""
        phases, place = self._phases, base % self.block_tokens
        phases[place] = phases[place + self.block_tokens] = phases[place] + more

    def _begin(self, live: Live, step: int) -> None:
        """``live`` got its next token in ``step`` and decodes from now on."""
        live.alone = 0
        computed = live.resumed_at = live.known
        live.last = step + live.total - computed - 1
        heappush(self._finishing, (live.last, live.number, live))
        if live.first_ps < 0:
            live.first_ps = self.end
            self.outcome.first(live)
        else:
            gap = self.end - live.token_ps
            self._gap((gap, 0, 1, 1, gap))
        if live.last == step:
            return
        live.decoding = True
        live.base = base = step + 1 - computed
        self.active += 1
        self._bases += base
        self._count(base, 1)
        for span in self._spans:
            span.enter(live, step + 1)
        held = live.held
        if held is not None and held.named > held.covered:  # its answer is known too
            self.growing.update(dict.fromkeys(held.names[held.covered : held.named], live))
            self.blocked = ""  # whoever waits may begin like it
        if live.number > self._last_decoding:  # noqa: PLR1730
            self._last_decoding = live.number

    def stop(self, live: Live, step: int) -> None:
        """``live`` no longer decodes from ``step`` on."""
        for span in self._spans:
            span.leave(live, step)
        held = live.held
        if self.growing and held is not None:
            for name in held.names[live.resumed_at // self.block_tokens : held.named]:
                self.growing.pop(name, None)
        live.decoding = False
        self.active -= 1
        self._bases -= live.base
        self._count(live.base, -1)

    def _finish(self, step: int) -> None:
        """Those whose last token ``step`` computed."""
        finishing = self._finishing
        while finishing and finishing[0][0] <= step:
            last, number, live = heappop(finishing)
            if live.number != number or live.last != last:
                continue
            if live.decoding:
                self.stop(live, step + 1)
            self.outcome.done(live, self.end)
            if self.follow:
                self.over(live, self.end)
            if self.lag:
                self.leaving.append((step + 2, live))
                held = live.held
                if held is not None and held.covered < held.named:
                    computed = max(live.resumed_at, live.total - 1 - self.lag)
                    self.pool.register(held, computed // self.block_tokens)
                if self.blocked == "tokens":
                    self.blocked = ""
            else:
                self._leave(live)
