"""vLLM's scheduler over sums: who runs, who waits and which blocks they hold, at the cost of what happens.

The rules are those of ``engines.paged.scheduler``, and what follows from settings alone is read from the
same ``SchedulerConfig``. Requests that decode are kept as sums (``decode_batch``), blocks as extents
(``kvcache.extents``), so that a step in which nobody comes, leaves or is preempted is never scheduled here;
``event_engine`` jumps over it. Only a step in which blocks or tokens give out looks at each running request.

Restricted to one full-attention group; other groups are stepped (``step_engine``).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from kvroom.engines.paged.scheduler_config import SchedulerConfig, never_fits
from kvroom.kvcache.connector import KVConnector, report_stored
from kvroom.kvcache.counted_pool import CountedPool
from kvroom.kvcache.events import EventFanOut, KVEvents
from kvroom.kvcache.extents import ExtentPool, Hits, RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.simulator.decode_batch import DecodeBatch
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.stream import Follow, RequestStream

NOTHING: tuple[Hits, int, int] = ([], 0, 0)
Chunks = list[tuple[ServedRequest, int]]
"""Requests whose prompts are computed in a step, each with how many tokens of it."""


class EventScheduler(RequestStream):
    """One engine's requests and blocks, before step ``step``, which is decided at ``decide``.

    ``connector`` may bring requests part of their cache from elsewhere, ``events`` hears what the pool holds.
    """

    __slots__ = (
        "_admissions",
        "_answers",
        "_found",
        "_loads",
        "_most_tokens",
        "aligned",
        "batch",
        "block_tokens",
        "blocked",
        "budget",
        "by_priority",
        "caching",
        "clock",
        "config",
        "connector",
        "end",
        "events",
        "extents",
        "lag",
        "least_free",
        "leaving",
        "loading",
        "outcome",
        "pool",
        "prefilling",
        "running",
        "step",
        "waiting",
        "watermark_blocks",
    )

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
        super().__init__(follow)
        self.config = config
        self.connector = connector
        self.events: KVEvents | None = None
        self.pool = pool
        pool.in_turn = config.in_turn
        self.extents = pool if isinstance(pool, ExtentPool) else ExtentPool(0)
        self.clock = clock
        self.outcome = outcome
        self.block_tokens = block_tokens
        self.budget = config.max_num_batched_tokens
        self.caching = caching
        self.lag = config.steps_in_flight - 1
        self.by_priority = config.by_priority
        self.watermark_blocks = config.watermark_blocks(pool.usable + 1)
        self._most_tokens = pool.usable * block_tokens
        self.least_free = pool.free
        self.step = 0
        self.end = 0
        self.running: dict[ServedRequest, None] = {}  # in order of admission
        self.prefilling: list[ServedRequest] = []  # those whose prompt is not computed yet
        self.waiting = config.waiting_queue()
        self.loading: list[
            tuple[int, int, ServedRequest]
        ] = []  # a heap: when its cache is there, order
        self.batch = DecodeBatch(clock.reaches, block_tokens)
        self.leaving: deque[tuple[int, ServedRequest, int | None]] = deque()
        """Those who are done, with the step at which they are gone and the end of ``Outcome.over``."""
        self.blocked = ""  # why the head of the queue has to wait, until that changes
        self._answers: dict[int, ServedRequest] = {}  # by the names of blocks being generated
        self.aligned = False
        """Whether prompts' steps end where layers ask for it (``cut``)."""
        self._found = NOTHING
        self._admissions = 0
        self._loads = 0
        if events is not None:
            self.listen(events)

    def listen(self, events: KVEvents) -> None:
        """Add one more listener to what the pool holds."""
        both = events if self.events is None else EventFanOut(self.events, events)
        self.events = both
        self.extents.events = both if both.wants_removed else None

    @property
    def running_count(self) -> int:
        """Requests that hold blocks and are not done."""
        count = len(self.running) + len(self.loading)
        for _, request, _ in self.leaving:
            count -= request.admission >= 0
        return count

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def peak_blocks(self) -> int:
        """The most blocks that were held at once."""
        return self.pool.usable - self.least_free

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests."""
        return self.pool.in_use

    # The queue

    def enqueue(self, request: ServedRequest) -> None:
        """Queue ``request``; one whose prompt is too long is dropped."""
        if request.num_prompt_tokens > self._most_tokens or not self.config.accepts(request):
            self.drop(request)
            return
        self.waiting.append(request)
        if self.by_priority and self.waiting[0] is request:
            self.blocked = ""

    def drop(self, request: ServedRequest) -> None:
        """``request`` can never be served."""
        self.outcome.drop(request, self.decide)
        if self.follow:
            self.over(request, self.decide)

    # Admission

    def prefill_limit(self) -> int:
        """The most tokens of a prompt that one step computes; 0 for no such limit."""
        return self.config.prefill_limit(len(self.running) + len(self.loading) + len(self.waiting))

    def admit(self, chunks: Chunks, budget: int, limit: int) -> None:
        """Start waiting requests as far as blocks, places and tokens allow, which adds to ``chunks``."""
        config, size, waiting = self.config, self.block_tokens, self.waiting
        connector = self.connector
        while waiting:
            if len(self.running) + len(self.loading) >= config.max_num_seqs:
                self.blocked = "places"
                return
            if budget <= 0:
                # Next step prompts may leave more; those who decode will not.
                self.blocked = "" if chunks else "tokens"
                return
            request = waiting[0]
            found = start = self.find(request)
            late, remote = False, None
            if connector is not None:
                whole = (request.num_tokens - 1) // size
                remote = connector.lookup(request, self.decide, start, whole * size)
                if remote is not None:
                    start, late = remote.tokens, remote.ready_ps > self.decide
            tokens = 0 if late else request.num_tokens - start
            if limit or tokens > budget:
                tokens = config.chunk_tokens(tokens, limit, budget)
            if tokens < 0:
                # What is brought of it may be more another time.
                again = chunks or (self.batch.size and connector is not None)
                self.blocked = "" if again else "tokens"
                return
            if self.aligned:
                tokens = self.cut(request, start, tokens)
                if not tokens:
                    self.blocked = "" if chunks or self.may_need_less(request, chunks) else "tokens"
                    return
            if not self.has_room(request, found, start, tokens):
                self.blocked = "" if self.may_need_less(request, chunks) else "room"
                return
            waiting.popleft()
            more = self.adopt(request, start + tokens)
            if connector is not None:
                connector.allocated(request, self.decide, found, remote)
            if self.events is not None:
                request.reported_pages = start // size // self.extents.unit
            request.num_computed_tokens = start
            self.outcome.admitted(request, start)
            self.blocked = ""
            if remote is not None and late:
                self.pool.take(more)
                request.num_blocks += more
                heappush(self.loading, (remote.ready_ps, self._loads, request))
                self._loads += 1
                continue
            self.grow(request, tokens, more)
            self._start(request)
            if start + tokens < request.num_tokens:
                self.prefilling.append(request)
            chunks.append((request, tokens))
            budget -= tokens

    def find(self, request: ServedRequest) -> int:
        """How many tokens of a waiting request are cached; ``has_room`` and ``adopt`` use the same
        finding."""
        extents = request.extents
        if extents is None:
            self._found = NOTHING
            return 0
        whole = (request.num_tokens - 1) // self.block_tokens
        found = self.extents.lookup(extents, whole)
        while self._answers and self._catch_up(extents, min(found[1], whole)):
            found = self.extents.lookup(extents, whole)
        self._found = found
        return found[1] * self.block_tokens

    def has_room(self, request: ServedRequest, found: int, start: int, tokens: int) -> bool:
        """Whether blocks are free for ``tokens`` from ``start`` on, ``found`` tokens being cached."""
        size, (_, cached, unheld) = self.block_tokens, self._found
        room = self.pool.free - unheld - (self.watermark_blocks if self.running else 0)
        if -(-(start + tokens) // size) - cached > room:
            return False
        whole = self.config.scheduler_reserve_full_isl
        return not whole or -(-request.num_tokens // size) - cached <= room

    def adopt(self, request: ServedRequest, end: int) -> int:
        """Give ``request`` the cached blocks that were found; returns how many blocks it still lacks up
        to ``end`` tokens."""
        hits, cached, _ = self._found
        if hits:
            assert request.extents is not None
            self.extents.adopt(request.extents, hits)
        request.num_blocks = cached
        return -(-end // self.block_tokens) - cached

    def cut(self, request: ServedRequest, start: int, tokens: int) -> int:
        """``tokens`` from ``start`` on, or fewer where layers ask for it."""
        return tokens

    def may_need_less(self, request: ServedRequest, chunks: Chunks) -> bool:
        """Whether the next step may need fewer blocks although none are given back until then."""
        if self.connector is not None and not self.config.scheduler_reserve_full_isl:
            # What is brought takes more at once than a chunk, or less.
            return bool(self.batch.size or chunks)
        # Another may have generated more of what it begins with.
        extents, cached = request.extents, self._found[1]
        return bool(self._answers and extents is not None and self._generating(extents, cached))

    def _start(self, request: ServedRequest) -> None:
        """``request`` runs from now on, behind those that do."""
        request.admission = self._admissions
        self._admissions += 1
        self.running[request] = None

    def loaded(self) -> None:
        """Requests whose cache has arrived go on as if it had been found here."""
        loading = self.loading
        while loading and loading[0][0] <= self.decide:
            request = heappop(loading)[2]
            if request.extents is not None:
                self._register(request, request.num_computed_tokens // self.block_tokens, ahead=0)
            self._start(request)
            self.prefilling.append(request)
        self.blocked = ""

    # Blocks

    def blocks_for(self, request: ServedRequest, tokens: int) -> int:
        """How many more blocks the next ``tokens`` of a prompt need."""
        end = request.num_computed_tokens + tokens
        return -(-end // self.block_tokens) - request.num_blocks

    def grow(self, request: ServedRequest, tokens: int, blocks: int) -> None:
        """Give ``request`` more blocks for the next ``tokens`` of its prompt; the full ones are cached."""
        self.pool.take(blocks)
        request.num_blocks += blocks
        if request.extents is not None:
            full = (request.num_computed_tokens + tokens) // self.block_tokens
            if self._answers:
                self._register(request, full)
            else:
                self.extents.register(request.extents, full)
            if self.events is not None:
                prompt = request.num_prompt_tokens // self.block_tokens
                report_stored(self.events, request, min(full, prompt), self.extents.unit)

    # Answers known beforehand: others may begin with what is generated just now. Blocks of an answer are
    # entered in the pool only when somebody asks for them, as far as they are computed by then.

    def generates(self, extents: RequestExtents, request: ServedRequest) -> None:
        """``request`` decodes from now on: blocks of its answer that have names can be asked for."""
        if extents.named > extents.covered:
            names = extents.names[extents.covered : extents.named]
            self._answers.update(dict.fromkeys(names, request))
            self.blocked = ""  # whoever waits may begin like it

    def stop_decoding(self, request: ServedRequest, step: int) -> None:
        """``request`` no longer decodes from ``step`` on."""
        self.batch.leave(request, step)
        extents = request.extents
        if self._answers and extents is not None:
            first = request.decode_start_tokens // self.block_tokens
            for name in extents.names[first : extents.named]:
                self._answers.pop(name, None)

    def _generating(self, asker: RequestExtents, place: int) -> ServedRequest | None:
        """The request that is generating the block ``wanted`` at ``place``."""
        if place >= asker.named:
            return None
        return self._answers.get(asker.names[place // self.extents.unit])

    def _catch_up(
        self, asker: RequestExtents, place: int, ahead: int = 1, admission: int = -1
    ) -> bool:
        """Let what a decoding request has generated so far be found, if it gets to what ``wanted`` misses at
        ``place``; whether there is more to find now. ``ahead`` is 0 before the next step, 1 in its midst.
        ``admission``: the place of the one that asks among those who run, of whom only those before it got
        their token of this step by now."""
        request = self._generating(asker, place)
        if request is None or request.extents is None:
            return False
        behind = -1 < admission < request.admission
        computed = self.step + ahead - request.base_step - self.lag - behind
        full = max(request.decode_start_tokens, computed) // self.block_tokens
        return self.enter_answer(request, full)

    def enter_answer(self, request: ServedRequest, full: int) -> bool:
        """Let the first ``full`` blocks of one that decodes be found; whether there are more than before."""
        extents = request.extents
        assert extents is not None
        before = extents.covered
        self.extents.register(extents, full)
        return extents.covered > before

    def _register(self, request: ServedRequest, full: int, ahead: int = 1) -> None:
        """Let the first ``full`` blocks of ``request`` be found; ``ahead`` as in ``_catch_up``."""
        extents = request.extents
        assert extents is not None
        for place in range(extents.covered, full):
            # Who got there first is found first.
            self._catch_up(extents, place, ahead, request.admission)
        self.extents.register(extents, full)

    # Steps in which blocks or tokens give out

    def schedule_each(self) -> tuple[Chunks, bool]:
        """One step request by request: who gets no block preempts, and tokens may not last. Gives the
        prompts that are computed, and whether anybody decodes."""
        step, aligned = self.step, self.aligned
        budget, limit = self.budget, self.prefill_limit()
        tokens_of: dict[ServedRequest, int] = {}
        order = list(self.running)
        preempted = False
        place = 0
        while place < len(order) and budget > 0:
            request = order[place]
            tokens = _wanted(request, budget, limit)
            if aligned and not request.decoding and tokens:
                tokens = self.cut(request, request.num_computed_tokens, tokens)
            if not tokens:
                place += 1
                continue
            while not (given := self.give(request, tokens)):
                where = self.config.victim(order)
                victim = order.pop(where)
                if where < place:
                    place -= 1
                budget += tokens_of.get(victim, 0)
                preempted |= self._preempt(victim, tokens_of.pop(victim, 0))
                if victim is request:
                    break
            if given:
                tokens_of[request] = tokens
                budget -= tokens
                place += 1
            elif not self.config.goes_on:
                break
        for request in order[place:]:
            if request.decoding and request.last_step >= step:
                self.starve(request)
        chunks = [(request, value) for request, value in tokens_of.items() if not request.decoding]
        if preempted:
            self.blocked = ""
        else:
            self.admit(chunks, budget, limit)
        return chunks, any(request.decoding for request in tokens_of)

    def give(self, request: ServedRequest, tokens: int) -> bool:
        """Give a running request the blocks for its next ``tokens``; False where too few are free."""
        size, pool = self.block_tokens, self.pool
        if request.decoding:
            if (self.step - request.base_step) % size:
                return True
            if not pool.free:
                return False
            pool.take(1)
            return True
        more = self.blocks_for(request, tokens)
        if more > pool.free:
            return False
        self.grow(request, tokens, more)
        return True

    def _preempt(self, request: ServedRequest, tokens: int) -> bool:
        """Take all its blocks from ``request``, which has ``tokens`` of this step already.

        False where it has to be dropped.
        """
        step, size = self.step, self.block_tokens
        del self.running[request]
        decoding = request.decoding
        finishing = not decoding and request.last_step >= 0
        if decoding:
            known = step - request.base_step
            computed = known + tokens
            # With a step in flight the newest token is not known yet, and not cached.
            cached = max(request.decode_start_tokens, computed - self.lag) // size
            blocks = -(-computed // size)
            self.stop_decoding(request, step)
            request.num_tokens = known + 1
            request.last_token_ps = self.end
        elif finishing:
            computed = request.final_tokens - 1
            cached = max(request.decode_start_tokens, computed - self.lag) // size
            blocks = -(-computed // size)
        else:
            self.prefilling.remove(request)
            cached = (request.num_computed_tokens + tokens) // size
            blocks = request.num_blocks
        request.admission = -1
        self.take_back(request, blocks, cached)
        if not finishing:
            request.last_step = -1
            if decoding and self.lag:
                request.alone_preempted = 0
            elif never_fits(request, alone=not self.running and not self.loading):
                self.drop(request)
                return False
        request.num_preemptions += 1
        self.outcome.preempted += 1
        if not finishing:
            self.waiting.appendleft(request)
        return True

    def take_back(self, request: ServedRequest, blocks: int, cached: int) -> None:
        """A preempted request loses its ``blocks``, of which the first ``cached`` are registered."""
        if self.events is not None:
            report_stored(self.events, request, cached, self.extents.unit)
        if request.extents is None and self.caching:
            request.extents = RequestExtents()
        if request.extents is None:
            self.pool.release(blocks, 0)
        else:
            self.extents.leave(request.extents, blocks, cached, back=True)

    def starve(self, request: ServedRequest) -> None:
        """There is no token left for ``request`` in this step; it computes one when there is."""
        self.stop_decoding(request, self.step)
        request.last_step = -1
        request.num_computed_tokens = self.step - request.base_step
        request.num_blocks = -(-request.num_computed_tokens // self.block_tokens)
        request.num_tokens = request.num_computed_tokens + 1
        request.last_token_ps = self.end
        self.prefilling.append(request)
        self.prefilling.sort(key=lambda each: each.admission)


def _wanted(request: ServedRequest, budget: int, limit: int) -> int:
    """Tokens that a running request has to compute."""
    if request.decoding:
        return 1
    if request.last_step >= 0:
        return 0  # its last token is on its way
    tokens = request.num_tokens - request.num_computed_tokens
    if 0 < limit < tokens:
        tokens = limit
    return min(tokens, budget)
