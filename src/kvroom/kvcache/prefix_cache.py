"""Prefix cache and blocks of all layer groups together: what hits, what fits, what is given back.

The longest hit is the longest prefix that every group can resume from. Full attention is asked first;
each other kind may only shorten the candidate, until all agree. Rules of vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, lcm

from kvroom.kvcache.block_pool import BlockPool
from kvroom.kvcache.groups import FullAttentionGroup, KVCacheGroup
from kvroom.kvcache.mamba_groups import AlignedMambaGroup
from kvroom.kvcache.request import ServedRequest
from kvroom.records import dataclass


@dataclass(frozen=True, slots=True)
class CacheHit:
    """Cached blocks by group for the first ``tokens`` of a request.

    ``junction``: a longer prefix that only some groups have cached, or 0: worth keeping in the others.
    """

    blocks: tuple[Sequence[int], ...]
    tokens: int = 0
    junction: int = 0


class PrefixCache:
    """Blocks of one engine: a pool, its layer groups, and (with ``caching``) what can be reused.

    ``context_tokens`` is the longest request, ``in_flight_tokens`` the most that can be scheduled
    and not yet processed, ``interval`` the retention interval (None: cache every block), ``pool`` an empty
    one of ``num_blocks``.
    """

    def __init__(
        self,
        groups: Sequence[KVCacheGroup],
        num_blocks: int,
        *,
        caching: bool,
        context_tokens: int,
        in_flight_tokens: int,
        interval: int | None = 0,
        pool: BlockPool | None = None,
    ) -> None:
        self.pool = BlockPool(num_blocks) if pool is None else pool
        self.keeps_in_flight = True
        """Whether windows keep what steps in flight read; else they end where the next step begins."""
        self.groups = tuple(groups)
        self.caching = caching
        self.context_tokens = context_tokens
        sizes = [group.block_tokens for group in groups]
        self.block_tokens = lcm(*sizes)
        self.hash_tokens = gcd(*sizes) if caching else self.block_tokens
        self.aligned = [group for group in self.groups if isinstance(group, AlignedMambaGroup)]
        self.inside_blocks = (
            len(sizes) > 1
            and any(g.block_tokens > self.hash_tokens for g in self.aligned)
            and all(
                group.finds_inside_blocks or group.block_tokens == self.hash_tokens
                for group in groups
            )
        )
        self.hit_tokens = self.hash_tokens if self.inside_blocks else self.block_tokens
        for group in self.groups:
            hash_tokens = self.hash_tokens if caching else group.block_tokens
            group.join(self.pool, len(sizes), hash_tokens, self.hit_tokens, interval)
            group.most_blocks = group.bound(in_flight_tokens, context_tokens)
        self.rereads = False  # whether the last block of a hit is computed anew
        self._none = CacheHit(tuple(() for _ in groups))
        self._kinds = self._by_kind()
        self._copies: list[int] = []
        # Where a prompt's end is cached inside a block, that is looked at again and again.
        self.quiet = not any(
            isinstance(group, FullAttentionGroup) and group.hashes_per_block > 1 for group in groups
        )
        self._plain = self.quiet and all(isinstance(group, FullAttentionGroup) for group in groups)

    def _by_kind(self) -> list[tuple[KVCacheGroup, list[int]]]:
        kinds: dict[tuple[object, ...], tuple[KVCacheGroup, list[int]]] = {}
        for group in self.groups:
            kinds.setdefault(group.kind, (group, []))[1].append(group.index)
        return sorted(kinds.values(), key=lambda kind: not isinstance(kind[0], FullAttentionGroup))

    def enter(self, request: ServedRequest) -> None:
        """Give a new request its empty tables."""
        request.clear_blocks(len(self.groups))

    def fits_ever(self, request: ServedRequest) -> bool:
        """False where the prompt alone is more than an empty pool holds."""
        full = (
            group.block_tokens for group in self.groups if isinstance(group, FullAttentionGroup)
        )
        return sum(-(-request.num_prompt_tokens // size) for size in full) < self.pool.total

    def begin_step(self) -> None:
        """A scheduling step starts."""
        for group in self.aligned:
            group.begin_step()

    def end_step(self) -> None:
        """A scheduling step is over: let go of both ends of the copies that it asked for."""
        if self._copies:
            self.pool.free_blocks(self._copies)
            self._copies.clear()

    def lookup(self, request: ServedRequest) -> CacheHit:
        """The longest cached prefix of a request, short of its last known token (which must be
        computed for the next one).
        """
        if not self.caching:
            return self._none
        hit = self._lookup(request, request.num_tokens - 1)
        return self._lookup(request, hit.tokens - 1) if self.rereads and hit.tokens else hit

    def lookup_beside(self, request: ServedRequest, held: Callable[[int], bool]) -> CacheHit:
        """The longest prefix of a request whose blocks are cached or ``held`` elsewhere, by their keys
        (``groups.ELSEWHERE`` in place of a block)."""
        for group in self.groups:
            group.held = held
        try:
            return self.lookup(request)
        finally:
            for group in self.groups:
                group.held = None

    def _lookup(self, request: ServedRequest, limit: int) -> CacheHit:
        hashes = request.hashes.first(limit // self.hash_tokens)
        if len(self.groups) == 1:
            blocks, tokens = self.groups[0].longest_hit(hashes, limit, (0,))
            return CacheHit(tuple(blocks), tokens)
        return self._common_hit(hashes, limit)

    def _common_hit(self, hashes: list[int], limit: int) -> CacheHit:
        kinds = self._kinds
        blocks_of: dict[int, list[int]] = {}
        full_tokens: dict[int, int] = {}
        tokens, longest = limit, 0
        while True:
            candidate = tokens
            for group, members in kinds:
                if group.index in full_tokens:
                    # Whatever full attention has cached it has cached from the start.
                    candidate = min(candidate, full_tokens[group.index])
                    continue
                blocks, candidate = group.longest_hit(hashes, candidate, members)
                blocks_of.update(zip(members, blocks, strict=True))
                if isinstance(group, FullAttentionGroup):
                    full_tokens[group.index] = candidate
                longest = max(longest, candidate)
            shorter = candidate < tokens
            tokens = min(tokens, candidate)
            if not shorter or (len(kinds) == 2 and full_tokens):
                break
        for group, members in kinds:
            if isinstance(group, FullAttentionGroup):
                for member in members:
                    del blocks_of[member][-(-tokens // group.block_tokens) :]
        junction = longest if longest > tokens else 0
        return CacheHit(tuple(blocks_of[group.index] for group in self.groups), tokens, junction)

    def allocate(
        self,
        request: ServedRequest,
        new_tokens: int,
        hit: CacheHit | None = None,
        *,
        brought: int = 0,
        ahead: int = 0,
        whole: bool = False,
        headroom: int = 0,
        stored: bool = True,
        fits: Callable[[], None] | None = None,
    ) -> bool:
        """Give a request the blocks for ``new_tokens`` more, a ``hit`` shared first; False: no room.

        Behind the hit so many tokens are ``brought`` from elsewhere. ``ahead`` is how many tokens beyond all
        of them it gets room for. ``whole`` asks that all its known tokens
        fit, ``headroom`` that so many blocks stay free.
        What is not ``stored`` by the end of the step is on its way from elsewhere: nobody finds it yet.
        ``fits`` is called when there is room, before any block is taken.
        """
        if hit is None and request.num_computed_tokens + new_tokens + ahead <= request.quiet_tokens:
            return True
        blocks = self._none.blocks if hit is None else hit.blocks
        computed = request.num_computed_tokens + (0 if hit is None else hit.tokens) + brought
        free = self.pool.free - headroom
        if whole:
            known = min(request.num_tokens, self.context_tokens)
            if self._need(request, known, blocks, computed, brought, capped=True) > free:
                return False
        tokens = min(computed + new_tokens + ahead, self.context_tokens)
        flying = request.in_flight_tokens if self.keeps_in_flight else 0
        processed = max(0, computed - flying)
        for group in self.groups:
            group.trim(request, processed)
        if (
            self._need(request, tokens, blocks, computed, brought, capped=False)
            > self.pool.free - headroom
        ):
            return False
        if fits is not None:
            fits()
        if any(blocks) or brought:
            for group, shared in zip(self.groups, blocks, strict=True):
                group.adopt(request, shared, computed, brought)
        for group in self.groups:
            group.grow(request, tokens, self._copies)
        # Tokens count as cached once scheduled: a request later in the same step may hit them.
        if stored:
            self.register(request, min(computed + new_tokens, request.num_tokens))
        if self.quiet and (self._plain or computed + new_tokens >= request.num_prompt_tokens):
            request.quiet_tokens = min(
                [group.quiet_until(request, processed, self.caching) for group in self.groups]
            )
        return True

    def _need(
        self,
        request: ServedRequest,
        tokens: int,
        blocks: Sequence[Sequence[int]],
        computed: int,
        brought: int,
        *,
        capped: bool,
    ) -> int:
        return sum(
            group.need(request, tokens, shared, computed, capped=capped, brought=brought)
            for group, shared in zip(self.groups, blocks, strict=True)
        )

    def register(self, request: ServedRequest, tokens: int) -> None:
        """Cache the whole blocks of a request's first ``tokens`` tokens."""
        if not self.caching:
            return
        if len(self.groups) > 1 and not self.inside_blocks:
            tokens -= tokens % self.block_tokens  # no later hit could end between
        for group in self.groups:
            group.register(request, tokens)

    def free(self, request: ServedRequest) -> None:
        """Give all its blocks back, group after group, the last first: they are reused first."""
        for table in request.block_tables:
            self.pool.free_blocks(reversed(table))
        request.clear_blocks(len(self.groups))
