"""Offload tiers under an engine's own cache: host memory, local NVMe, a store in the network.

There is one tree of prefixes. A page (as many blocks as one name stands for) is looked for in the GPU's
cache, then from the nearest tier to the farthest, and counts once, where it is found first. A tier takes
pages when they are computed (written through) or when the tier above evicts them (written back). An
inclusive tier keeps what is read from it, and pages read from below it pass through it and stay; an
exclusive one gives a page up to the GPU. What is read is decided prefix by prefix: as far as fetching it,
behind what its links carry already, is quicker than computing it.

Times of writes: what an engine fills and evicts between two admissions is written at the first of them.
Writes hold back no request.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from kvroom.kvcache.connector import RemoteHit
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.records import dataclass
from kvroom.simulator.tier_store import Store
from kvroom.simulator.transfer_queue import READ, WRITE, TransferQueue


@dataclass(kw_only=True)
class OffloadLevel:
    """A tier as one engine gets at it.

    ``links`` are what its transfers to and from the GPUs go through, the tier's own last. ``back``: it is
    written when the tier above evicts. ``layerwise``: layers are computed as they come in. ``shared``: other
    engines use ``store`` too.
    """

    name: str
    store: Store
    links: tuple[TransferQueue, ...]
    latency_ps: int = 0
    back: bool = False
    inclusive: bool = True
    layerwise: bool = False
    shared: bool = False
    hit_tokens: int = 0
    read_blocks: int = 0
    written_pages: int = 0
    waits_ps: array[int] = field(default_factory=lambda: array("q"))


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


def _want(wanted: Wanted, run: PageRun) -> None:
    blocks, written = wanted.get(run.level, (0, 0))
    wanted[run.level] = (blocks + run.blocks, max(written, run.ready_ps))


class OffloadConnector:
    """The ``KVConnector`` and ``KVEvents`` of one engine over ``levels``, the nearest first.

    ``layers`` of the model take equally long to come in; ``batch_tokens`` is what a step computes at most.
    ``engine`` of ``engines`` that may share a level keeps its unnamed pages apart from the others'.
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
    ) -> None:
        self.levels = tuple(levels)
        self.clock = clock
        self.block_tokens = block_tokens
        self.unit = unit
        self.batch_tokens = batch_tokens
        self.layers = max(1, layers)
        self.gpu_tokens = 0
        self.prompt_tokens = 0
        self.last_ps = 0
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
        best, chosen = self.computing_ps(cached_tokens, end), 0
        ready = now
        wanted: Wanted = {}
        for count, run in enumerate(runs, 1):
            _want(wanted, run)
            waited = self._hidden(request, self._ends(wanted, now), now, run.tokens)
            cost = waited - now + self.computing_ps(run.tokens, end)
            if cost <= best:
                best, chosen, ready = cost, count, waited
        if not chosen:
            return None
        return RemoteHit(runs[chosen - 1].tokens, ready, runs[:chosen])

    def allocated(
        self, request: ServedRequest, now: int, cached_tokens: int, hit: RemoteHit | None
    ) -> None:
        """As ``KVConnector.allocated``: what was found begins to move."""
        self.last_ps = now
        first = not request.num_preemptions
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
            wanted: Wanted = {}
            for run in hit.note:
                _want(wanted, run)
            ends = self._ends(wanted, now, begin=True)
            for run in hit.note:
                level = self.levels[run.level]
                level.read_blocks += run.blocks
                if first:
                    level.hit_tokens += run.blocks * self.block_tokens
                self._moved(run.level, names[run.first : run.last + 1])
            for place, end in ends.items():
                self.levels[place].waits_ps.append(end - now)

    def _runs(self, request: ServedRequest, cached_tokens: int, limit: int) -> list[PageRun]:
        extents, size = request.extents, self.unit * self.block_tokens
        if extents is None:
            return []
        last = min(-(-limit // size), extents.named // self.unit)
        runs: list[PageRun] = []
        place = cached_tokens // size
        tokens, blocks = cached_tokens, self.block_tokens
        while place < last and tokens < limit:
            name = extents.names[place]
            at, written = self._nearest(name)
            if at < 0:
                break
            upto = min((place + 1) * size, limit)
            more = (upto - tokens) // blocks
            if runs and runs[-1].level == at:
                run = runs[-1]
                runs[-1] = PageRun(
                    at, run.first, place, run.blocks + more, upto, max(run.ready_ps, written)
                )
            else:
                runs.append(PageRun(at, place, place, more, upto, written))
            tokens = upto
            place += 1
        return runs

    def _nearest(self, name: int) -> tuple[int, int]:
        """The nearest level that holds the page of that name, −1 for none, and when it is written."""
        for place, level in enumerate(self.levels):
            written = level.store.ready_ps(name)
            if written is not None:
                return place, written
        return -1, 0

    def _ends(self, wanted: Wanted, now: int, *, begin: bool = False) -> dict[int, int]:
        """By level, when all that is ``wanted`` of it is there; ``begin``: the transfers are queued."""
        queued: dict[int, int] = {}
        ends: dict[int, int] = {}
        for place, (blocks, written) in wanted.items():
            level, end = self.levels[place], (ready := max(now, written))
            for link in level.links:
                if begin:
                    there = link.carry(READ, ready, blocks)
                else:
                    free = queued.get(id(link), link.free_ps(READ))
                    there = queued[id(link)] = max(free, ready) + link.takes_ps(blocks)
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
        return level.latency_ps + max(link.takes_ps(blocks) for link in level.links)

    def computing_ps(self, start: int, end: int) -> int:
        """What computing a prompt's tokens ``start … end`` adds to the steps that do it."""
        count = end - start
        if not count:
            return 0
        clock = self.clock
        return clock.mixed_ps(0, count, 1) - self._nothing + clock.chunk_ps(start, count)

    def _moved(self, place: int, names: Sequence[int]) -> None:
        """Pages of the level at ``place`` are read: where they are from now on."""
        level = self.levels[place]
        if level.inclusive:
            level.store.used(names)
        else:
            level.store.take(names)
        for above in range(place - 1, -1, -1):
            if self.levels[above].inclusive:
                self._add(above, self.levels[above].store.ordered(names), written=False)

    # What the engine's cache tells

    def stored(self, names: Sequence[int], blocks: int) -> None:
        """As ``KVEvents.stored``: written through where a level is; nothing is above and in an exclusive
        one."""
        self._filled += blocks
        pages = [*names, *self._pages(self._filled)] if self._filled >= self.unit else names
        self._filled %= self.unit
        for level in self.levels:
            if not level.inclusive:
                level.store.take(names)
            elif level.back:
                level.store.used(names)
        self._through(pages)

    def _through(self, names: Sequence[int]) -> None:
        """Pages on the GPU are used: they are in all levels that are written through."""
        for place, level in enumerate(self.levels):
            if not level.back:
                self._add(place, level.store.ordered(names))

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

    def _add(self, place: int, names: Sequence[int], *, written: bool = True) -> None:
        """Put into a level those of ``names`` that it does not hold; the others are used. ``written``: over
        its links, not in passing."""
        level, now = self.levels[place], self.last_ps
        fresh, gone = level.store.add(names, now)
        if fresh and written:
            # From the tier above only its own link is crossed.
            links = level.links if place == 0 or not level.back else level.links[-1:]
            ends = [link.carry(WRITE, now, len(fresh) * self.unit) for link in links]
            level.store.written(fresh, max(ends) + level.latency_ps)
        level.written_pages += len(fresh)
        below = place + 1
        if gone and below < len(self.levels) and self.levels[below].back:
            self._add(below, gone)
