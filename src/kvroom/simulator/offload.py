"""Offload tiers under an engine's own cache: host memory, local NVMe, a store in the network.

There is one tree of prefixes. A page (as many blocks as one name stands for) is looked for in the GPU's
cache, then from the nearest tier to the farthest, and counts once, where it is found first. A tier takes
pages when they are computed (written through) or when the tier above evicts them (written back). An
inclusive tier keeps what is read from it, and pages read from below it pass through it and stay; an
exclusive one gives a page up to the GPU. What is read is decided prefix by prefix: as far as fetching it,
behind what its links carry already, is quicker than computing it. Storage that an engine fetches from while
requests wait (``prefetch``) is read through host memory only.

A tier may keep cache in another width than the GPU, in larger pieces (chunks of pages, of which only whole
ones are there), or only what is used a second time.

Times of writes: what an engine fills and evicts between two admissions is written at the first of them.
Writes hold back no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvroom.kvcache.connector import RemoteHit
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.simulator.offload_level import OffloadLevel
from kvroom.simulator.prefetch import StoragePrefetch
from kvroom.simulator.transfer_queue import READ, WRITE


class PageRun(NamedTuple):
    """Pages ``first … last`` of a request that one level holds: ``blocks`` of them to move, written by
    ``ready_ps``; they end at ``tokens``."""

    level: int
    first: int
    last: int
    blocks: int
    tokens: int
    ready_ps: int


Wanted = dict[int, tuple[int, int]]
"""By level: blocks to read, and when the last of them is written."""


class OffloadConnector:
    """The ``KVConnector`` and ``KVEvents`` of one engine over ``levels``, the nearest first.

    ``layers`` of the model take equally long to come in; ``batch_tokens`` is what a step computes at most.
    ``engine`` of ``engines`` that may share a level keeps its unnamed pages apart from the others'. With
    ``least_tokens`` all that is there is read where it is so much, without weighing it. A prefix comes with
    state of a fixed size, as large as ``state_blocks``. ``prefetch`` brings what the second level holds.
    """

    def __init__(
        self,
        levels: Sequence[OffloadLevel],
        clock: StepClock,
        *,
        block_tokens: int,
        unit: int,
        batch_tokens: int,
        layers: int = 1,
        engine: int = 0,
        engines: int = 1,
        least_tokens: int | None = None,
        state_blocks: int = 0,
        prefetch: StoragePrefetch | None = None,
    ) -> None:
        self.levels = tuple(levels)
        self.prefetch = prefetch
        self._direct = self.levels[:1] if prefetch is not None else self.levels
        self.clock = clock
        self.block_tokens = block_tokens
        self.unit = unit
        self.batch_tokens = batch_tokens
        self.layers = max(1, layers)
        self.least_tokens = least_tokens
        self.state_blocks = state_blocks
        self.gpu_tokens = 0
        self.prompt_tokens = 0
        self.last_ps = 0
        self.count_from = 0
        """Hits are counted from this request on."""
        self._unnamed = -1 - engine  # the name of the next page that nobody can ask for
        self._engines = engines
        self._filled = self._evicted = 0  # unnamed blocks that make no page yet
        self._nothing = clock.mixed_ps(0, 0, 0)
        self.wants_removed = self.levels[0].back

    # Bringing

    def lookup(
        self, request: ServedRequest, now: int, cached_tokens: int, limit_tokens: int
    ) -> RemoteHit | None:
        """As ``KVConnector.lookup``: the pages after those found on the GPU, as far as fetching them pays."""
        runs = self._runs(request, cached_tokens, limit_tokens)
        if not runs:
            return None
        end = runs[-1].tokens
        if self.least_tokens is not None:
            if end - cached_tokens < self.least_tokens:
                return None
            wanted = self._wanted(runs)
            return RemoteHit(end, self._hidden(request, self._ends(wanted, now), now, end), runs)
        best, chosen = self.computing_ps(cached_tokens, end), 0
        ready = now
        for count, run in enumerate(runs, 1):
            wanted = self._wanted(runs[:count])
            waited = self._hidden(request, self._ends(wanted, now), now, run.tokens)
            cost = waited - now + self.computing_ps(run.tokens, end)
            if cost <= best:
                best, chosen, ready = cost, count, waited
        if not chosen:
            return None
        return RemoteHit(runs[chosen - 1].tokens, ready, runs[:chosen])

    def queued(self, request: ServedRequest, now: int, cached_tokens: int) -> None:
        """As ``FetchingConnector.queued``."""
        if self.prefetch is not None:
            self.prefetch.queued(request, now, cached_tokens)

    def fetched(self, request: ServedRequest, now: int) -> int | None:
        """As ``FetchingConnector.fetched``."""
        return None if self.prefetch is None else self.prefetch.fetched(request, now)

    def allocated(
        self, request: ServedRequest, now: int, cached_tokens: int, hit: RemoteHit | None
    ) -> None:
        """As ``KVConnector.allocated``: what was found begins to move."""
        self.last_ps = now
        first = not request.num_preemptions and request.index >= self.count_from
        if first:
            self.gpu_tokens += cached_tokens
            self.prompt_tokens += request.num_prompt_tokens
        if request.extents is None:
            return
        names, size = request.extents.names, self.unit * self.block_tokens
        on_gpu = names[: cached_tokens // size]
        if on_gpu:
            self._through(on_gpu)  # what was evicted there meanwhile is written once more
        if hit is not None and isinstance(hit.note, list):
            ends = self._ends(self._wanted(hit.note), now, begin=True)
            for run in hit.note:
                level = self.levels[run.level]
                level.read_blocks += run.blocks
                if first:
                    self._count_hits(request, run)
                self._moved(run.level, names[run.first : run.last + 1], run.first)
            for place, end in ends.items():
                self.levels[place].waits_ps.append(end - now)

    def _count_hits(self, request: ServedRequest, run: PageRun) -> None:
        """Tokens count where they were found first: what came from storage into host memory counts there."""
        blocks = 0
        if self.prefetch is not None:
            brought = self.prefetch.brought(request, run.first, run.last)
            blocks = min(run.blocks, brought * self.unit)
            self.prefetch.storage.hit_tokens += blocks * self.block_tokens
        self.levels[run.level].hit_tokens += (run.blocks - blocks) * self.block_tokens

    def _wanted(self, runs: Sequence[PageRun]) -> Wanted:
        """What ``runs`` take from each level, and from that of the last the state behind them."""
        wanted: Wanted = {}
        for run in runs:
            blocks, written = wanted.get(run.level, (0, 0))
            wanted[run.level] = (blocks + run.blocks, max(written, run.ready_ps))
        if self.state_blocks:
            blocks, written = wanted[runs[-1].level]
            wanted[runs[-1].level] = (blocks + self.state_blocks, written)
        return wanted

    def _runs(self, request: ServedRequest, cached_tokens: int, limit: int) -> list[PageRun]:
        extents, size = request.extents, self.unit * self.block_tokens
        if extents is None:
            return []
        whole = extents.named // self.unit
        last = min(-(-limit // size), whole)
        runs: list[PageRun] = []
        place = cached_tokens // size
        tokens, blocks = cached_tokens, self.block_tokens
        while place < last and tokens < limit:
            at, end, written = self._nearest(extents.names, place, whole)
            if at < 0:
                break
            upto = min(end * size, limit)
            more = (upto - tokens) // blocks
            if runs and runs[-1].level == at:
                run = runs[-1]
                runs[-1] = PageRun(
                    at, run.first, end - 1, run.blocks + more, upto, max(run.ready_ps, written)
                )
            else:
                runs.append(PageRun(at, place, end - 1, more, upto, written))
            tokens = upto
            place = end
        return runs

    def _nearest(self, names: Sequence[int], page: int, whole: int) -> tuple[int, int, int]:
        """The nearest level that holds the page at ``page``, −1 for none, up to which page it holds the
        chunk that this is of, and when that is written."""
        for place, level in enumerate(self._direct):
            end = page + 1 if level.chunk == 1 else (page // level.chunk + 1) * level.chunk
            if end > whole:
                continue
            written = level.store.ready_ps(names[end - 1])
            if written is not None:
                return place, end, written
        return -1, 0, 0

    def _ends(self, wanted: Wanted, now: int, *, begin: bool = False) -> dict[int, int]:
        """By level, when all that is ``wanted`` of it is there; ``begin``: the transfers are queued."""
        queued: dict[int, int] = {}
        ends: dict[int, int] = {}
        for place, (blocks, written) in wanted.items():
            level, end = self.levels[place], (ready := max(now, written))
            for link in level.links:
                if begin:
                    there = link.carry(READ, ready, blocks, level.width)
                else:
                    free = queued.get(id(link), link.free_ps(READ))
                    spent = link.takes_ps(blocks, level.width)
                    there = queued[id(link)] = max(free, ready) + spent
                end = max(end, there)
            ends[place] = end + level.latency_ps
        return ends

    def _hidden(self, request: ServedRequest, ends: dict[int, int], now: int, tokens: int) -> int:
        """Until when a request waits for what is there at ``ends``: layer by layer, a prompt's first chunk
        is computed while the next layers come in, so of both the shorter part is hidden but for a layer."""
        count = min(self.batch_tokens, request.num_tokens - tokens)
        ready = now
        for place, end in ends.items():
            wait = end - now
            if self.levels[place].layerwise and wait > 0:
                computing = self.computing_ps(tokens, tokens + count)
                layers = self.layers
                wait = max(-(-wait // layers), wait - computing * (layers - 1) // layers)
            ready = max(ready, now + wait)
        return ready

    def alone_ps(self, level: OffloadLevel, tokens: int) -> int:
        """How long ``tokens`` take from ``level`` when nothing else is on its links."""
        blocks = tokens // self.block_tokens
        return level.latency_ps + max(link.takes_ps(blocks, level.width) for link in level.links)

    def computing_ps(self, start: int, end: int) -> int:
        """What computing a prompt's tokens ``start … end`` adds to the steps that do it."""
        count = end - start
        if not count:
            return 0
        clock = self.clock
        return clock.mixed_ps(0, count, 1) - self._nothing + clock.chunk_ps(start, count)

    def _moved(self, place: int, names: Sequence[int], first: int) -> None:
        """Pages of the level at ``place`` are read: where they are from now on."""
        level = self.levels[place]
        if level.inclusive:
            level.store.used(level.own(names, first))
        else:
            level.store.take(level.own(names, first))
        for above in range(place - 1, -1, -1):
            nearer = self.levels[above]
            if nearer.inclusive:
                self._add(above, nearer.store.ordered(nearer.own(names, first)), written=False)

    # What the engine's cache tells

    def stored(self, names: Sequence[int], blocks: int, first: int = 0) -> None:
        """As ``KVEvents.stored``: written through where a level is; nothing is above and in an exclusive
        one."""
        self._filled += blocks
        unnamed = self._pages(self._filled) if self._filled >= self.unit else []
        self._filled %= self.unit
        for level in self.levels:
            if not level.inclusive:
                level.store.take(level.own(names, first))
            elif level.back:
                level.store.used(level.own(names, first))
        self._through(names, first, fresh=True, unnamed=unnamed)

    def _through(
        self,
        names: Sequence[int],
        first: int = 0,
        *,
        fresh: bool = False,
        unnamed: Sequence[int] = (),
    ) -> None:
        """Pages on the GPU are used, or ``fresh``: they are in all levels that are written through, of those
        that want to see a second use only then."""
        for place, level in enumerate(self.levels):
            if level.back or level.follows or (fresh and level.selective):
                continue
            pages = level.own(names, first)
            if unnamed:
                pages = [*pages, *unnamed[:: level.chunk]]
            self._add(place, level.store.ordered(pages))

    def removed(self, names: Sequence[int], blocks: int) -> None:
        """As ``KVEvents.removed``: they go to the first level, which is written back."""
        self._evicted += blocks
        pages = [*names, *self._pages(self._evicted)] if self._evicted >= self.unit else names
        self._evicted %= self.unit
        for page in pages:  # each as it goes, however many are told of at once
            self._add(0, (page,))

    def _pages(self, blocks: int) -> list[int]:
        """Names for the pages that so many unnamed blocks fill."""
        count = blocks // self.unit
        names = [self._unnamed - self._engines * index for index in range(count)]
        self._unnamed -= self._engines * count
        return names

    def _add(
        self, place: int, names: Sequence[int], *, written: bool = True, at_ps: int | None = None
    ) -> None:
        """Put into a level those of ``names`` that it does not hold; the others are used. ``written``: over
        its links, from ``at_ps`` on, not in passing."""
        level, now = self.levels[place], self.last_ps if at_ps is None else at_ps
        below = place + 1
        fresh, gone = level.store.add(names, now)
        if fresh and written:
            # From the tier above only its own link is crossed.
            near = level.back or level.follows
            links = level.links[-1:] if place and near else level.links
            moved = len(fresh) * self.unit * level.chunk
            ends = [link.carry(WRITE, now, moved, level.width) for link in links]
            there = max(ends) + level.latency_ps
            level.store.written(fresh, there)
            if below < len(self.levels) and self.levels[below].follows:
                self._add(below, fresh, at_ps=there)
        level.written_pages += len(fresh) * level.chunk
        if gone and below < len(self.levels) and self.levels[below].back:
            self._add(below, gone)
