"""A tier below the blocks of several layer groups, as vLLM's OffloadingConnector serves them (since 0.21).

Every block of every group that is cached on the GPU is written below it, under its group and hash, least
recently used first out. A prefix is found there as on the GPU: full attention block by block from the left,
a window by its last blocks, recurrent state by the one at its end; all groups have to agree. Full attention
loads every block behind what the GPU has, a window those that it still sees, state its one. Only whole
blocks of all groups are found. Source: ``kv_connector/v1/offloading/scheduler.py`` of 0.33.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvroom.kvcache.connector import RemoteHit
from kvroom.kvcache.groups import FullAttentionGroup
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.simulator.offload import OffloadConnector
from kvroom.simulator.offload_level import OffloadLevel


class FoundBlocks(NamedTuple):
    """Blocks to load, by their keys, and when the last of them is written."""

    keys: list[int]
    ready_ps: int


class GroupOffload(OffloadConnector):
    """The ``KVConnector`` of one engine whose cache has several groups, over one level of blocks."""

    def __init__(self, levels: list[OffloadLevel], clock: StepClock, **more: Any) -> None:
        super().__init__(levels, clock, **more)
        self.wants_removed = False
        self._new: list[int] = []

    def join(self, cache: PrefixCache) -> None:
        """Serve the groups of ``cache``."""
        self.cache = cache
        cache.pool.on_cached = self._cached

    def _cached(self, key: int, tokens: int) -> None:
        """A block can be found on the GPU: it is written, where it is whole."""
        groups = self.cache.groups
        if tokens % groups[key % len(groups)].block_tokens == 0:
            self._new.append(key)

    def _write(self, now: int) -> None:
        self.last_ps = now
        if self._new:
            self._add(0, self.levels[0].store.ordered(self._new))
            self._new.clear()

    def lookup(
        self, request: ServedRequest, now: int, cached_tokens: int, limit_tokens: int
    ) -> RemoteHit | None:
        """As ``KVConnector.lookup``: the longest prefix that all groups have here or there."""
        self._write(now)
        cache, store = self.cache, self.levels[0].store
        if cached_tokens % cache.block_tokens or not len(store):
            return None
        far = cache.lookup_beside(request, lambda key: store.ready_ps(key) is not None)
        if far.tokens <= cached_tokens or far.tokens % cache.block_tokens:
            return None
        hashes = request.hashes.first(far.tokens // cache.hash_tokens)
        keys = [
            group.key(hashes, place)
            for group, column in zip(cache.groups, far.blocks, strict=True)
            for place in range(cached_tokens // group.block_tokens, len(column))
            if column[place]
        ]
        written = max((store.ready_ps(key) or 0 for key in keys), default=0)
        ready = self._ends({0: (len(keys), written)}, now)[0]
        if ready - now > self.computing_ps(cached_tokens, far.tokens):
            return None
        return RemoteHit(far.tokens, ready, FoundBlocks(keys, written))

    def allocated(
        self, request: ServedRequest, now: int, cached_tokens: int, hit: RemoteHit | None
    ) -> None:
        """As ``KVConnector.allocated``: what was found begins to move."""
        self._write(now)
        level = self.levels[0]
        first = not request.num_preemptions and request.index >= self.count_from
        if first:
            self.gpu_tokens += cached_tokens
            self.prompt_tokens += request.num_prompt_tokens
        hashes = request.hashes.first(cached_tokens // self.cache.hash_tokens)
        for group in self.cache.groups:
            if isinstance(group, FullAttentionGroup):
                count = cached_tokens // group.block_tokens
                level.store.used([group.key(hashes, place) for place in range(count)])
        if hit is None or not isinstance(hit.note, FoundBlocks):
            return
        keys, written = hit.note
        end = self._ends({0: (len(keys), written)}, now, begin=True)[0]
        level.read_blocks += len(keys)
        if first:
            level.hit_tokens += hit.tokens - cached_tokens
        level.store.used(keys)
        level.waits_ps.append(end - now)
