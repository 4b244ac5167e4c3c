"""Layer groups: which blocks of a request a kind of attention needs, keeps, caches and finds again.

One pool serves all groups; a block belongs to one group at a time. Each group has its own table of
blocks per request, position by position, with the null block (0) where nothing is kept. Rules of
vLLM 0.33 (blocks of each type, hits, sparse retention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvroom.kvcache.block_pool import BlockPool
from kvroom.kvcache.request import ServedRequest

ELSEWHERE = -1
"""A block that lies below the GPU."""
FAR = 1 << 60


class KVCacheGroup:
    """What all kinds have in common.

    ``block_tokens`` per block; ``hash_tokens``, a divisor of it, is how finely hashes are taken;
    hits end at multiples of ``hit_tokens``; ``most_blocks`` bounds what admission reserves for one
    request (None: no bound); ``interval`` is the retention interval (None: cache all).
    """

    finds_inside_blocks = True

    def __init__(self, index: int, block_tokens: int) -> None:
        self.index = index
        self.block_tokens = block_tokens
        self.most_blocks: int | None = None
        self.held: Callable[[int], bool] | None = None
        """Whether a block of that key, which the pool has not, lies elsewhere (None: nothing does)."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Groups of equal kind are looked up together."""
        return (type(self), self.block_tokens)

    def join(
        self,
        pool: BlockPool,
        groups: int,
        hash_tokens: int,
        hit_tokens: int,
        interval: int | None,
    ) -> None:
        """Take a place among ``groups`` groups of one ``pool``."""
        self.pool = pool
        self.groups = groups
        self.hash_tokens = hash_tokens
        self.hashes_per_block = self.block_tokens // hash_tokens
        self.hit_tokens = hit_tokens
        self.interval = interval

    # What a request needs and holds

    def bound(self, in_flight_tokens: int, context_tokens: int) -> int | None:
        """Most blocks that one request ever holds at once, where old ones are given back."""
        return None

    def skipped_tokens(self, computed: int) -> int:
        """Leading tokens that the next token no longer attends to."""
        return 0

    def skips_until(self, computed: int) -> int:
        """The most tokens with which no more blocks are skipped than with ``computed``."""
        return FAR

    def quiet_until(self, request: ServedRequest, processed: int, caching: bool) -> int:
        """Up to how many tokens nothing is taken, given back or cached, ``processed`` being settled."""
        size = self.block_tokens
        upto = min(len(request.block_tables[self.index]) * size, self.skips_until(processed))
        return min(upto, (request.cached_blocks[self.index] + 1) * size - 1) if caching else upto

    def need(
        self,
        request: ServedRequest,
        tokens: int,
        hits: Sequence[int],
        computed: int,
        *,
        capped: bool,
        brought: int = 0,
    ) -> int:
        """Free blocks that are needed to hold ``tokens``, of which ``computed`` are computed (hits
        included, and those that are ``brought`` from elsewhere behind them).

        ``hits`` are cached blocks about to be shared: those that no request holds count as taken from
        the free ones. ``capped`` asks for admission, which counts on old blocks being given back.
        """
        blocks = -(-tokens // self.block_tokens)
        if capped and self.most_blocks is not None:
            blocks = min(blocks, self.most_blocks)
        num_blocks = len(request.block_tables[self.index])
        skipped = self.skipped_tokens(computed) // self.block_tokens
        new = max(blocks - max(skipped, num_blocks + len(hits)), 0)
        if not hits:
            return new
        references = self.pool.references
        new += sum(1 for hit in hits[max(0, skipped - num_blocks) :] if hit and not references[hit])
        return new + (1 if (computed - brought) % self.block_tokens else 0)

    def adopt(
        self, request: ServedRequest, hits: Sequence[int], computed: int, brought: int = 0
    ) -> None:
        """Put the cached blocks ``hits`` at the head of its table: of a prefix of ``computed`` tokens all but
        those that are ``brought`` behind them."""
        skipped = max(0, self.skipped_tokens(computed)) // self.block_tokens
        shared = hits[skipped:]
        for block in shared:
            self.pool.touch(block)
        table = request.block_tables[self.index]
        table.extend([0] * skipped)
        table.extend(shared)
        request.cached_blocks[self.index] = len(table)
        found = computed - brought
        if shared and found % self.block_tokens:
            place = found // self.block_tokens
            request.partial_hits[self.index] = (place, shared[-1])
            request.cached_blocks[self.index] = place

    def grow(self, request: ServedRequest, tokens: int, copies: list[int]) -> None:
        """Add blocks until the table holds ``tokens``.

        A block shared in part is replaced by a private copy; source and copy stay held for the step
        (appended to ``copies``).
        """
        table = request.block_tables[self.index]
        if self.index in request.partial_hits:
            place, source = request.partial_hits.pop(self.index)
            table[place] = self.private_copy(source, copies)
        table.extend(self.pool.get_new_blocks(-(-tokens // self.block_tokens) - len(table)))

    def private_copy(self, source: int, copies: list[int]) -> int:
        """A block of its own with what ``source`` stores, held twice until it is copied."""
        (copy,) = self.pool.get_new_blocks(1)
        self.pool.touch(copy)
        copies += (source, copy)
        return copy

    def trim(self, request: ServedRequest, processed: int) -> None:
        """Give back the blocks that nothing after ``processed`` tokens attends to, the last first."""
        table = request.block_tables[self.index]
        last = min(self.skipped_tokens(processed) // self.block_tokens, len(table))
        dropped: list[int] = []
        for place in range(last - 1, -1, -1):
            if not table[place]:
                break
            dropped.append(table[place])
            table[place] = 0
        if dropped:
            self.pool.free_blocks(dropped)

    # What is cached and found

    def key(self, hashes: list[int], block: int) -> int:
        """The key of its ``block``-th block of a request with these hashes."""
        return hashes[(block + 1) * self.hashes_per_block - 1] * self.groups + self.index

    def register(self, request: ServedRequest, tokens: int) -> None:
        """Let the blocks that ``tokens`` fill be found by later requests."""
        start, end = request.cached_blocks[self.index], tokens // self.block_tokens
        if start < end:
            table, pool = request.block_tables[self.index], self.pool
            hashes = request.hashes.first(end * self.hashes_per_block)
            places = self.cacheable(request, start, end)
            keys, size, step = pool.keys, self.block_tokens, self.hashes_per_block
            groups, index = self.groups, self.index
            new = []
            for place in range(start, end) if places is None else places:
                block = table[place]
                if block:
                    if keys[block] is not None:
                        pool.uncache(block)  # it was found by a part of itself until now
                    key = (
                        hashes[(place + 1) * step - 1] * groups + index
                    )  # self.key: a call costs more
                    new.append((block, key, (place + 1) * size))
            pool.cache_blocks(new)
            request.cached_blocks[self.index] = end

    def cacheable(self, request: ServedRequest, start: int, end: int) -> Sequence[int] | None:
        """Which of the blocks ``start … end`` are worth caching (None: all)."""
        return None

    def register_part(self, request: ServedRequest, block: int, boundary: int) -> int | None:
        """Let ``block`` be found by the prefix of ``boundary`` tokens that ends inside it."""
        if not block:
            return None
        pool = self.pool
        part = boundary // self.hash_tokens
        key = request.hashes.first(part)[part - 1] * self.groups + self.index
        if (
            pool.keys[block] is not None
            and pool.key_tokens[block] < boundary
            and not pool.carries(block, key)
        ):
            pool.uncache(block)
        pool.cache_block(block, key, boundary)
        return key

    def cached(self, hash_: int, members: Sequence[int]) -> list[int] | None:
        """The blocks that hold the prefix of ``hash_``, one for each of the groups, or None."""
        cached_blocks = [
            self.pool.get_cached_block(hash_ * self.groups + member) for member in members
        ]
        if self.held is not None:
            for place, member in enumerate(members):
                if not cached_blocks[place] and self.held(hash_ * self.groups + member):
                    cached_blocks[place] = ELSEWHERE
        return cached_blocks if all(cached_blocks) else None

    def longest_hit(
        self, hashes: list[int], limit: int, members: Sequence[int]
    ) -> tuple[list[list[int]], int]:
        """The longest cached prefix of at most ``limit`` tokens: blocks by member group, and tokens."""
        raise NotImplementedError


class FullAttentionGroup(KVCacheGroup):
    """Full attention (a latent, or MLA, cache alike): every token is kept to the end."""

    def register(self, request: ServedRequest, tokens: int) -> None:
        super().register(request, tokens)
        if self.hashes_per_block > 1:
            self._register_tail(request, tokens)

    def _register_tail(self, request: ServedRequest, tokens: int) -> None:
        """Let the block in which the prompt ends be found by the prompt's last whole hash."""
        boundary = (request.num_prompt_tokens - 1) // self.hash_tokens * self.hash_tokens
        place = boundary // self.block_tokens
        table = request.block_tables[self.index]
        if not 0 < boundary <= tokens or boundary % self.block_tokens == 0 or place >= len(table):
            return
        self.register_part(request, table[place], boundary)

    def longest_hit(
        self, hashes: list[int], limit: int, members: Sequence[int]
    ) -> tuple[list[list[int]], int]:
        # Every block from the left; where hits may end inside a block, the longest part of the next.
        blocks: list[list[int]] = [[] for _ in members]
        size, step = self.block_tokens, self.hashes_per_block
        for place in range(limit // size):
            cached_blocks = self.cached(hashes[(place + 1) * step - 1], members)
            if cached_blocks is None:
                break
            for column, block in zip(blocks, cached_blocks, strict=True):
                column.append(block)
        tokens = len(blocks[0]) * size
        if self.hit_tokens < size and size % self.hit_tokens == 0:
            first = len(blocks[0]) * step
            last = min(first + step - 1, limit // self.hit_tokens)
            for part in range(last - 1, first - 1, -1):
                cached_blocks = self.cached(hashes[part], members)
                if cached_blocks is not None:
                    for column, block in zip(blocks, cached_blocks, strict=True):
                        column.append(block)
                    tokens = (part + 1) * self.hit_tokens
                    break
        tokens -= tokens % self.hit_tokens
        for column in blocks:
            del column[-(-tokens // size) :]
        return blocks, tokens


class SlidingWindowGroup(KVCacheGroup):
    """Sliding-window attention: a token attends to the last ``window`` tokens, itself included."""

    finds_inside_blocks = False

    def __init__(self, index: int, block_tokens: int, window: int) -> None:
        super().__init__(index, block_tokens)
        self.window = window
        self.needed_blocks = -(-(window - 1) // block_tokens)  # a hit needs so many in a row

    @property
    def kind(self) -> tuple[object, ...]:
        return (*super().kind, self.window)

    def bound(self, in_flight_tokens: int, context_tokens: int) -> int | None:
        # One more: the window may begin in the middle of a block.
        tokens = min(self.window - 1 + in_flight_tokens, context_tokens)
        return -(-tokens // self.block_tokens) + 1

    def skipped_tokens(self, computed: int) -> int:
        return max(0, computed - self.window + 1)

    def skips_until(self, computed: int) -> int:
        size = self.block_tokens
        return (self.skipped_tokens(computed) // size + 1) * size + self.window - 2

    def cacheable(self, request: ServedRequest, start: int, end: int) -> Sequence[int] | None:
        if self.hit_tokens % self.block_tokens:
            return None
        need, places = self.needed_blocks, set[int]()
        if self.interval != 0:
            segment = (self.interval or self.hit_tokens) // self.block_tokens
            if need >= segment:
                return None
            places.update(index for index in range(start, end) if index % segment >= segment - need)
        if self.interval is not None:
            for boundary in reachable(request):
                last = boundary // self.hit_tokens * self.hit_tokens // self.block_tokens
                places.update(range(max(start, last - need), min(end, last)))
        return sorted(places)

    def longest_hit(
        self, hashes: list[int], limit: int, members: Sequence[int]
    ) -> tuple[list[list[int]], int]:
        # From the right: the first run as long as the window; one that reaches the start may be shorter.
        size, step = self.block_tokens, self.hashes_per_block
        blocks = [[0] * (limit // size) for _ in members]
        run, end = 0, 0
        for place in range(limit // size - 1, -1, -1):
            cached_blocks = self.cached(hashes[(place + 1) * step - 1], members)
            if cached_blocks is None:
                run = 0
                continue
            if run == 0:
                if (place + 1) * size % self.hit_tokens:
                    continue
                end = place + 1
            for column, block in zip(blocks, cached_blocks, strict=True):
                column[place] = block
            run += 1
            if run >= self.needed_blocks:
                break
        else:
            end = run
            while end * size % self.hit_tokens:
                end -= 1
        for column in blocks:
            del column[end:]
        return blocks, end * size


class ChunkedLocalGroup(KVCacheGroup):
    """Chunked local attention: a token attends to its own chunk of ``chunk`` tokens only."""

    finds_inside_blocks = False

    def __init__(self, index: int, block_tokens: int, chunk: int) -> None:
        super().__init__(index, block_tokens)
        self.chunk = chunk

    @property
    def kind(self) -> tuple[object, ...]:
        return (*super().kind, self.chunk)

    def bound(self, in_flight_tokens: int, context_tokens: int) -> int | None:
        return -(-min(self.chunk + in_flight_tokens, context_tokens) // self.block_tokens)

    def skipped_tokens(self, computed: int) -> int:
        return computed // self.chunk * self.chunk

    def skips_until(self, computed: int) -> int:
        size = self.block_tokens
        more = (self.skipped_tokens(computed) // size + 1) * size
        return -(-more // self.chunk) * self.chunk - 1

    def longest_hit(
        self, hashes: list[int], limit: int, members: Sequence[int]
    ) -> tuple[list[list[int]], int]:
        # Blocks of earlier chunks are not needed: they count as found.
        size, step = self.block_tokens, self.hashes_per_block
        place = limit // self.chunk * self.chunk // size
        blocks = [[0] * place for _ in members]
        while place < limit // size:
            cached_blocks = self.cached(hashes[(place + 1) * step - 1], members)
            if cached_blocks is None:
                break
            for column, block in zip(blocks, cached_blocks, strict=True):
                column.append(block)
            place += 1
        return blocks, place * size


def reachable(request: ServedRequest) -> list[int]:
    """Tokens at which later requests may resume: the prompt short of its last, a shared junction."""
    replay = request.num_prompt_tokens - 1
    return [replay, request.junction] if request.junction else [replay]
