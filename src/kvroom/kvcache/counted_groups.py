"""Layer groups as numbers: what requests that share nothing hold of each kind, without a block table.

Groups of equal kind hold the same places of a request, so one is looked at and all are counted. What a kind
keeps, skips and caches it says itself (``groups``, ``mamba_groups``); here is how many blocks that makes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.kvcache.counted_pool import CountedPool, FreeRun
from kvroom.kvcache.groups import (
    ChunkedLocalGroup,
    FullAttentionGroup,
    KVCacheGroup,
    SlidingWindowGroup,
)
from kvroom.kvcache.holding import FAR, Holding
from kvroom.kvcache.mamba_groups import AlignedMambaGroup, MambaGroup
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import ServedRequest


class CountedKind:
    """``count`` groups from ``first`` on that are alike.

    ``reach``: so many tokens back are kept (a state: two), or the current ``chunk``; None and 0: all.
    ``still``: its one block lasts a request's life. ``sparse`` (one of ``members``): only states where steps
    ended are held. ``keeps_all``: every block is cached, not only the last ``keeps`` full ones of a prompt.
    """

    __slots__ = (
        "caching",
        "chunk",
        "count",
        "first",
        "group",
        "index",
        "keeps",
        "keeps_all",
        "members",
        "most_blocks",
        "reach",
        "size",
        "sparse",
        "still",
        "trims",
    )

    def __init__(self, index: int, groups: Sequence[KVCacheGroup], cache: PrefixCache) -> None:
        group = groups[0]
        self.index = index
        self.group = group
        self.first = group.index
        self.count = len(groups)
        self.size = group.block_tokens
        self.most_blocks = FAR if group.most_blocks is None else group.most_blocks
        self.members = [each for each in groups if isinstance(each, AlignedMambaGroup)]
        self.sparse = self.members[0] if self.members else None
        self.reach: int | None = None
        self.chunk = 0
        if isinstance(group, SlidingWindowGroup):
            self.reach = group.window
        elif isinstance(group, MambaGroup):
            self.reach = 2
        elif isinstance(group, ChunkedLocalGroup):
            self.chunk = group.chunk
        self.still = self.size >= cache.context_tokens
        self.trims = not isinstance(group, FullAttentionGroup) and not self.still
        self.caching = cache.caching
        self.keeps = group.needed_blocks if isinstance(group, SlidingWindowGroup) else 1
        self.keeps_all = cache.caching and not _keeps_ends(group)

    def low(self, processed: int) -> int:
        """Leading places that nothing after ``processed`` tokens looks at."""
        if self.reach is not None:
            return max(0, processed - self.reach + 1) // self.size
        if self.chunk:
            return processed // self.chunk * self.chunk // self.size
        return 0

    def cached(self, request: ServedRequest) -> tuple[int, int]:
        """From where to where places of ``request``, which shares nothing, are cached once they are full."""
        if self.keeps_all:
            return 0, FAR
        last = (request.num_prompt_tokens - 1) // self.size if self.caching else 0
        first = last - self.keeps
        return (first if first > 0 else 0), last

    def need(
        self,
        request: ServedRequest,
        holding: Holding,
        table: int,
        start: int,
        end: int,
        *,
        whole: bool,
    ) -> int:
        """Blocks that it takes to compute from ``start`` to ``end``, ``table`` places being there."""
        places = -(-end // self.size)
        if self.sparse is not None:
            new = max(0, places - table)
            return min(new, 1 + self.saves(request, holding, start, end)) * self.count
        if whole and places > self.most_blocks:
            places = self.most_blocks
        return max(0, places - table) * self.count

    def saves(self, request: ServedRequest, holding: Holding, start: int, end: int) -> bool:
        """Whether a state is saved on the way from ``start`` to ``end``, in a block of its own."""
        group = self.sparse
        if group is None or not group.checkpoint_tokens:
            return False
        if group.interval == 0 and end < request.prefill_end:
            return False
        place = -(-end // self.size) - 2
        if place < 0 or place in holding.states.get(self.index, ()):
            return False
        return group.saves(start, max(0, end - 1) // group.hit_tokens * group.hit_tokens, end)

    def grow(
        self, request: ServedRequest, holding: Holding, table: int, start: int, end: int
    ) -> int:
        """Add what it takes from ``start`` to ``end``; gives the blocks."""
        places = -(-end // self.size)
        if self.sparse is None:
            return max(0, places - table) * self.count
        held = holding.states.setdefault(self.index, [])
        new = range(max(table, places - 1 - self.saves(request, holding, start, end)), places)
        held += new
        return len(new) * self.count

    def held(
        self, request: ServedRequest, holding: Holding, low: int, table: int, high: int
    ) -> tuple[int, int]:
        """(blocks, cached ones of them) of its ``table`` places from ``low`` on in one group, those below
        ``high`` being full."""
        first, last = self.cached(request)
        last = min(last, high)
        if self.sparse is not None:
            places = self.places(holding, low, table)
            return len(places), sum(1 for place in places if first <= place < last)
        return max(0, table - low), max(0, last - max(first, low))

    def places(self, holding: Holding, low: int, table: int) -> Sequence[int]:
        """Which of its ``table`` places from ``low`` on are held."""
        if self.sparse is None:
            return range(low, table)
        held = [place for place in holding.states.get(self.index, ()) if low <= place < table]
        return held + list(range(max(low, holding.entry), table))

    def give_back(
        self, pool: CountedPool, request: ServedRequest, holding: Holding, low: int, high: int
    ) -> None:
        """Places ``low … high`` go, which are full where they are cached."""
        first, last = self.cached(request)
        if self.sparse is not None:
            places = self.places(holding, low, high)
            kept = [place for place in reversed(places) if first <= place < last]
            pool.release((len(places) - len(kept)) * self.count, 0)
            if kept:
                pool.leave(FreeRun(request, self.first, self.count, kept))
            return
        first, last = max(first, low), min(last, high)
        if first < last:
            pool.release((high - low - last + first) * self.count, 0)
            pool.leave(FreeRun(request, self.first, self.count, range(last - 1, first - 1, -1)))
        else:
            pool.release((high - low) * self.count, 0)


def _keeps_ends(group: KVCacheGroup) -> bool:
    """Whether only what lies near the end of a prompt is cached."""
    if isinstance(group, SlidingWindowGroup):
        return group.interval == 0
    return isinstance(group, AlignedMambaGroup) and group.interval == 0
