"""The blocks of requests over several layer groups: windows, chunks, recurrent states, full attention.

Requests that share nothing are counted by kind of layer (``kvcache.counted_groups``). A request that may find
something (it names its blocks, or was preempted) gets numbered blocks by the rules themselves
(``kvcache.prefix_cache``) while its prompt is computed; what decoding adds is counted again, and numbered
when somebody may ask for it. ``group_engine`` plays runs of steps over them.
"""

from __future__ import annotations

from itertools import groupby

from kvroom.engines.paged.alignment import aligned_tokens
from kvroom.engines.paged.scheduler_setup import SchedulerSetup
from kvroom.kvcache.counted_groups import CountedKind
from kvroom.kvcache.counted_pool import CountedPool
from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.holding import FAR, Holding
from kvroom.kvcache.prefix_cache import CacheHit
from kvroom.kvcache.request import RequestHashes, ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.event_scheduler import Chunks
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.stream import Follow

GIVEN = -1
"""In place of a number of blocks: they are given already."""


class GroupBlocks(EventEngine):
    """An EventEngine of ``setup``; ``unit`` is how many blocks one name stands for."""

    tells_names = False

    __slots__ = (
        "_drained",
        "_ends_only",
        "_hit",
        "_lacks",
        "_wanted",
        "cache",
        "counted",
        "kinds",
        "numbered",
        "unit",
    )

    def __init__(
        self,
        setup: SchedulerSetup,
        clock: StepClock,
        outcome: Outcome,
        *,
        unit: int = 1,
        follow: Follow | None = None,
    ) -> None:
        self.counted = CountedPool(setup.num_gpu_blocks)
        self.cache = cache = setup.cache(self.counted)
        self.kinds = [
            CountedKind(index, list(alike), cache)
            for index, (_, alike) in enumerate(groupby(cache.groups, key=lambda group: group.kind))
        ]
        growing = self.growing()
        size = growing[0].size if growing else self.kinds[0].size
        super().__init__(
            setup.config,
            self.counted,
            clock,
            outcome,
            block_tokens=size,
            caching=setup.enable_prefix_caching,
            follow=follow,
        )
        self.unit = unit
        self.aligned = bool(cache.aligned)
        full = sum(kind.count for kind in growing if not kind.trims)
        self._most_tokens = self.counted.usable // full * size if full else FAR
        self.numbered = False  # whether the blocks of any request ever had numbers
        self._hit: CacheHit | None = None
        self._lacks = 0  # blocks that whoever was looked at takes in its first step
        self._wanted = 0  # free blocks that whoever waits lacks
        self._drained = -1  # the step before which none was in flight
        # Whether full attention alone caches answers.
        self._ends_only = full > 0 and not any(kind.trims and kind.keeps_all for kind in growing)

    def growing(self) -> list[CountedKind]:
        """The kinds of which a request takes more as it gets longer."""
        return [kind for kind in self.kinds if not kind.still]

    # Admission

    def find(self, request: ServedRequest) -> int:
        """As ``EventScheduler.find``."""
        holding = request.holding
        if holding is None:
            holding = request.holding = Holding(len(self.kinds))
        self._hit = None
        if not self.caching or (request.extents is None and not holding.real):
            return 0
        if not holding.real:
            holding.real = True
            self._number(request)
        request.num_computed_tokens = request.in_flight_tokens = 0
        size, extents, cache = self.block_tokens, request.extents, self.cache
        hit = cache.lookup(request)
        if self._answers and extents is not None:
            whole = (request.num_tokens - 1) // size
            if self._ends_only:
                while self._catch_up(extents, min((hit.junction or hit.tokens) // size, whole)):
                    hit = cache.lookup(request)
            elif self._meet(request, 0, whole):
                hit = cache.lookup(request)
        request.junction = hit.junction
        self._hit = hit
        return hit.tokens

    def _number(self, request: ServedRequest) -> None:
        """Let the blocks of ``request`` have numbers from now on."""
        self.numbered = True
        request.hashes = RequestHashes(request, self.unit)
        self.cache.enter(request)

    def cut(self, request: ServedRequest, start: int, tokens: int) -> int:
        """As ``EventScheduler.cut``."""
        return aligned_tokens(self.cache, self.config, request, start, tokens)

    def has_room(self, request: ServedRequest, found: int, start: int, tokens: int) -> bool:
        """As ``EventScheduler.has_room``; numbered blocks are given at once."""
        holding, hit, end = self._holding(request), self._hit, start + tokens
        headroom = self.watermark_blocks if self.running else 0
        whole = self.config.scheduler_reserve_full_isl
        if hit is not None:
            self._meet(request, start // self.block_tokens, end // self.block_tokens)
            return self.cache.allocate(request, tokens, hit, whole=whole, headroom=headroom)
        lacks = 0
        for kind in self.kinds:
            lacks += kind.need(request, holding, 0, 0, end, whole=False)
        needed = lacks
        if whole:
            known = min(request.num_tokens, self.cache.context_tokens)
            most = 0
            for kind in self.kinds:
                most += kind.need(request, holding, 0, 0, known, whole=True)
            needed = max(needed, most)
        self._lacks, self._wanted = lacks, needed + headroom
        return self._wanted <= self.counted.free

    def adopt(self, request: ServedRequest, end: int) -> int:
        """As ``EventScheduler.adopt``."""
        if self._hit is None:
            request.num_blocks = 0
            return self._lacks
        request.num_blocks = -(-end // self.block_tokens)
        return GIVEN

    def may_need_less(self, request: ServedRequest, chunks: Chunks) -> bool:
        """As ``EventScheduler.may_need_less``: what is found may change in any step."""
        return self._hit is not None and bool(chunks or self.batch.size)

    # Prompts

    def blocks_for(self, request: ServedRequest, tokens: int) -> int:
        """As ``EventScheduler.blocks_for``, what is given back left out."""
        start, table, needed = request.num_computed_tokens, request.num_blocks, 0
        holding = self._holding(request)
        for kind in self.kinds:
            if holding.real and kind.sparse is not None:
                needed += 2 * kind.count
            else:
                needed += kind.need(request, holding, table, start, start + tokens, whole=False)
        return needed

    def grow(self, request: ServedRequest, tokens: int, blocks: int) -> None:
        """As ``EventScheduler.grow``."""
        holding, start = self._holding(request), request.num_computed_tokens
        if not start and not holding.real:
            self.counted.take(blocks)
            for kind in self.kinds:
                if kind.sparse is not None:
                    kind.grow(request, holding, 0, 0, tokens)
            request.num_blocks = -(-tokens // self.block_tokens)
        elif blocks != GIVEN:
            given = self._extend(request, holding, tokens)
            assert given
        holding.chunk_tokens, holding.chunk_step = tokens, self.step

    def _extend(self, request: ServedRequest, holding: Holding, tokens: int) -> bool:
        """Give blocks back, then take those for the next ``tokens`` of a prompt; False where too few are
        free."""
        start = request.num_computed_tokens
        flying = 0
        if self.lag and holding.chunk_step == self.step - 1 != self._drained - 1:
            flying = holding.chunk_tokens
        table, end = request.num_blocks, start + tokens
        if holding.real:
            request.in_flight_tokens = flying
            size = self.block_tokens
            self._meet(request, start // size, end // size)
            if not self.cache.allocate(request, tokens):
                return False
        else:
            needed = 0
            for kind in self.kinds:
                if kind.trims:
                    self._trim(request, holding, kind, min(kind.low(start - flying), table))
            for kind in self.kinds:
                needed += kind.need(request, holding, table, start, end, whole=False)
            if needed > self.counted.free:
                return False
            if needed:
                self.counted.take(needed)
            for kind in self.kinds:
                if kind.sparse is not None:
                    kind.grow(request, holding, table, start, end)
        request.num_blocks = max(table, -(-end // self.block_tokens))
        return True

    def drain(self) -> None:
        """As ``EventEngine.drain``."""
        super().drain()
        self._drained = self.step

    def _trim(self, request: ServedRequest, holding: Holding, kind: CountedKind, low: int) -> None:
        """Give the places of ``kind`` before ``low`` back."""
        before = holding.lows[kind.index]
        if low > before:
            holding.lows[kind.index] = low
            self._drop(request, holding, kind, before, low)
            if kind.sparse is not None and not holding.real:
                held = holding.states.get(kind.index, [])
                holding.states[kind.index] = [place for place in held if place >= low]

    def _drop(
        self, request: ServedRequest, holding: Holding, kind: CountedKind, low: int, high: int
    ) -> None:
        if not holding.real:
            kind.give_back(self.counted, request, holding, low, high)
            return
        pool = self.counted
        for index in range(kind.first, kind.first + kind.count):
            table = request.block_tables[index]
            entry, plain, blocks = len(table), 0, []
            for place in range(high - 1, low - 1, -1):
                if place < entry:
                    blocks.append(table[place])
                    table[place] = 0
                elif kind.keeps_all:
                    blocks += pool.numbers(1)
                else:
                    plain += 1
                if kind.keeps_all and blocks and blocks[-1] and pool.keys[blocks[-1]] is None:
                    self._name(request, kind, index, place, blocks[-1])
            pool.release(plain, 0)
            pool.free_blocks(blocks)

    def _name(
        self, request: ServedRequest, kind: CountedKind, index: int, place: int, block: int
    ) -> None:
        group = self.cache.groups[index]
        key = group.key(request.hashes.first(place + 1), place)
        self.counted.cache_block(block, key, (place + 1) * kind.size)

    def _holding(self, request: ServedRequest) -> Holding:
        assert request.holding is not None
        return request.holding

    # What is given back while decoding

    def _low(self, request: ServedRequest, holding: Holding, kind: CountedKind, step: int) -> int:
        """Places that one which decodes has given back once ``step`` is scheduled."""
        if step == holding.first and self.lag:
            return kind.low(holding.processed)
        return kind.low(step - request.base_step - self.lag)

    def _lows(self, request: ServedRequest, holding: Holding, step: int) -> list[int]:
        """By kind, the places given back once ``step`` is scheduled."""
        lows = holding.lows
        for index in holding.joined:
            lows[index] = max(lows[index], self._low(request, holding, self.kinds[index], step))
        return lows

    def _lows_now(self, request: ServedRequest, holding: Holding) -> list[int]:
        """By kind, the places that ``request`` has given back by now."""
        if holding.first == FAR:
            return holding.lows
        step = self.step if holding.trimmed == self.step else self.step - 1
        return self._lows(request, holding, min(step, request.last_step))

    def _real_low(self, request: ServedRequest, kind: CountedKind) -> int:
        table = request.block_tables[kind.first]
        if kind.sparse is None:
            return table.count(0)
        return next(place for place, block in enumerate(table) if block)

    # Answers that others may begin with

    def _answer_names(self, extents: RequestExtents, request: ServedRequest) -> list[int]:
        first = request.decode_start_tokens // self.block_tokens
        return list(extents.names[first // self.unit : -(-extents.named // self.unit)])

    def generates(self, extents: RequestExtents, request: ServedRequest) -> None:
        """As ``EventScheduler.generates``."""
        if self.caching and extents.named > request.decode_start_tokens // self.block_tokens:
            names = self._answer_names(extents, request)
            self._answers.update(dict.fromkeys(names, request))
            self.blocked = ""

    def _meet(self, request: ServedRequest, first: int, full: int) -> bool:
        """Let others who generate blocks ``first … full`` of ``request`` be found with them first."""
        extents, more = request.extents, False
        if self._answers and extents is not None:
            for place in range(first, full):
                more |= self._catch_up(extents, place, 1, request.admission)
        return more

    def enter_answer(self, request: ServedRequest, full: int) -> bool:
        """As ``EventScheduler.enter_answer``."""
        extents, holding = request.extents, self._holding(request)
        if extents is None or not holding.real:
            return False
        full = min(full, extents.named)
        if full <= holding.registered:
            return False
        lows = self._lows_now(request, holding)
        # A state that is written in this very step is not to be started from.
        written = full * self.block_tokens == self.step + 1 - request.base_step - self.lag
        for kind in self.kinds:
            if kind.keeps_all:
                self._complete(request, holding, kind, lows[kind.index], (full, full))
            if written and kind.keeps_all and kind.sparse is not None:
                for index in range(kind.first, kind.first + kind.count):
                    key = self.counted.keys[request.block_tables[index][full - 1]]
                    if key is not None:
                        kind.members[index - kind.first].step_keys.add(key)
        holding.registered = full
        return True

    # Numbers for what was counted

    def _complete(
        self,
        request: ServedRequest,
        holding: Holding,
        kind: CountedKind,
        low: int,
        upto: tuple[int, int],
    ) -> None:
        """Give numbers to what ``request`` holds of a kind from ``low`` on, and let what is cached of it be
        found; ``upto``: how many places there are, and how many of them are registered."""
        places, registered = upto
        pool, keys = self.counted, self.counted.keys
        for index in range(kind.first, kind.first + kind.count):
            table = request.block_tables[index]
            if kind.trims and (gone := [block for block in table[:low] if block]):
                pool.forget(gone)  # they have been counted as plain since
                table[:low] = [0] * min(low, len(table))
            new = range(max(low, len(table)), places)
            table.extend([0] * (new.start - len(table)))
            table.extend(pool.numbers(len(new)))
            if kind.keeps_all:
                for place in range(max(low, holding.registered), registered):
                    if table[place] and keys[table[place]] is None:
                        self._name(request, kind, index, place, table[place])
            request.cached_blocks[index] = registered

    def _number_all(
        self,
        request: ServedRequest,
        holding: Holding,
        lows: list[int],
        places: int,
        registered: int,
    ) -> None:
        """Give numbers to all that ``request`` holds or left and may ask for."""
        pool = self.counted
        if holding.real:
            for kind in self.kinds:
                self._complete(request, holding, kind, lows[kind.index], (places, registered))
            return
        holding.real = True
        self._number(request)
        for run in pool.named(request):
            where = run.places()
            blocks = pool.numbers(len(where))
            for block, (index, place) in zip(blocks, where, strict=True):
                self._name(request, self._kind_of(index), index, place, block)
            pool.number(run, blocks)
        for kind in self.kinds:
            first, last = kind.cached(request)
            held = kind.places(holding, lows[kind.index], places)
            for index in range(kind.first, kind.first + kind.count):
                table = request.block_tables[index]
                table.extend([0] * places)
                for place, block in zip(held, pool.numbers(len(held)), strict=True):
                    table[place] = block
                    if first <= place < min(last, registered):
                        self._name(request, kind, index, place, block)
                request.cached_blocks[index] = registered

    def _kind_of(self, index: int) -> CountedKind:
        return next(kind for kind in self.kinds if index < kind.first + kind.count)

    # Who leaves

    def give_back(self, request: ServedRequest) -> None:
        """As ``EventEngine.give_back``."""
        holding, computed = self._holding(request), request.final_tokens - 1
        lows = holding.lows
        if holding.first < FAR:
            lows = self._lows(request, holding, request.last_step)
        request.holding = None
        if holding.real:
            if holding.first < FAR:
                size = self.block_tokens
                self._number_all(request, holding, lows, -(-computed // size), computed // size)
            self.cache.free(request)
            return
        plain = dead = 0
        for kind in self.kinds:
            full, table = computed // kind.size, -(-computed // kind.size)
            held, cached = kind.held(request, holding, lows[kind.index], table, full)
            plain += (held - cached) * kind.count
            dead += cached * kind.count
        self.counted.release(plain, dead)

    def take_back(self, request: ServedRequest, blocks: int, cached: int) -> None:
        """As ``EventScheduler.take_back``."""
        holding = self._holding(request)
        request.holding = after = Holding(len(self.kinds))
        lows = self._lows_now(request, holding)
        if not self.caching:
            plain = 0
            for kind in self.kinds:
                places = blocks if kind.size == self.block_tokens else min(1, blocks)
                held, _ = kind.held(request, holding, lows[kind.index], places, 0)
                plain += held * kind.count
            self.counted.release(plain, 0)
            return
        if not holding.real or holding.first < FAR:
            self._number_all(request, holding, lows, blocks, cached)
        self.cache.free(request)
        after.real = True

    def starve(self, request: ServedRequest) -> None:
        """As ``EventScheduler.starve``."""
        holding, size, step = self._holding(request), self.block_tokens, self.step
        computed = step - request.base_step
        lows, places = self._lows(request, holding, step - 1), -(-computed // size)
        if holding.real:
            registered = max(request.decode_start_tokens, computed - self.lag) // size
            self._number_all(request, holding, lows, places, registered)
        else:
            for kind in self.kinds:
                if kind.sparse is not None:
                    held = kind.places(holding, lows[kind.index], places)
                    holding.states[kind.index] = list(held)
        super().starve(request)
        holding.first = holding.entry = FAR
        holding.joined = []
        holding.chunk_step = -2
