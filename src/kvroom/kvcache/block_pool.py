"""The pool of cache blocks: who holds which, in what order free ones are used again.

Blocks are whole numbers; 0 is the null block, which stands for "nothing stored" and is never handed
out. A block is held by as many requests as its count of references says. A free block that still
carries a key may be hit and taken back: such blocks wait in the order in which they were freed and
are given away last (LRU). Free blocks without a key are used again at once, the last freed first, unless
they wait their turn among the others (``in_turn``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class BlockPool:
    """``total`` blocks, the null block among them, and the keys of what is cached in them.

    Keys are whole numbers (``prefix_cache`` makes them of chained hashes and layer groups). Several
    blocks may carry the same key; a lookup gives the one that got it first.
    """

    __slots__ = (
        "_extra_keys",
        "_first",
        "_fresh",
        "_next",
        "_num_cached",
        "_others",
        "_plain",
        "_previous",
        "in_turn",
        "key_tokens",
        "keys",
        "on_cached",
        "on_evicted",
        "references",
        "total",
    )

    def __init__(self, total: int) -> None:
        self.total = total
        self.in_turn = False
        """Whether free blocks without a key wait behind those that were freed before them, cached or not."""
        self.references = [0]
        self.keys: list[int | None] = [None]
        self.key_tokens = [0]
        self._plain: list[int] = []  # free without a key: the next one to use is the last
        self._fresh = 1  # from here on never used: they come after the plain ones
        # Free with a key: a ring through these two lists, block 0 its start and end.
        self._next = [0]
        self._previous = [0]
        self._num_cached = 0
        self._first: dict[int, int] = {}
        self._others: dict[int, list[int]] = {}
        self._extra_keys: dict[int, list[int]] = {}
        self.on_evicted: Callable[[int], None] | None = None
        """Told of each key that no block carries any more because its last one was handed out."""
        self.on_cached: Callable[[int, int], None] | None = None
        """Told of each key that a block is found by from now on, and of how many tokens it stands for."""

    @property
    def free(self) -> int:
        """Blocks that can be handed out now, cached ones that nobody holds among them."""
        return self.total - self._fresh + len(self._plain) + self._num_cached

    @property
    def in_use(self) -> int:
        """Blocks held by requests (the null block is none)."""
        return self._fresh - 1 - len(self._plain) - self._num_cached

    @property
    def cached(self) -> int:
        """Distinct keys that a lookup would find."""
        return len(self._first)

    def free_order(self) -> list[int]:
        """The free blocks as they would be handed out (for tests: it walks the whole pool)."""
        order = self._plain[::-1] + list(range(self._fresh, self.total))
        block = self._next[0]
        while block:
            order.append(block)
            block = self._next[block]
        return order

    def get_new_blocks(self, count: int) -> list[int]:
        """``count`` free blocks, each with one reference; what they cached is forgotten.

        The caller sees to it that so many are free.
        """
        if count <= 0:
            return []
        plain = self._plain
        taken = plain[: -count - 1 : -1]
        del plain[len(plain) - len(taken) :]
        missing = count - len(taken)
        if missing:
            fresh = self._fresh
            new = min(missing, self.total - fresh)
            if new:
                taken.extend(range(fresh, fresh + new))
                self._fresh = fresh + new
                for column in (self.references, self.key_tokens, self._next, self._previous):
                    column.extend([0] * new)
                self.keys.extend([None] * new)
            for _ in range(missing - new):
                block = self._next[0]
                self._unlink(block)
                evicted = self.uncache(block)
                if self.on_evicted is not None:
                    for key in evicted:
                        if key not in self._first:
                            self.on_evicted(key)
                taken.append(block)
        references = self.references
        for block in taken:
            references[block] = 1
        return taken

    def touch(self, block: int) -> None:
        """One more holder of a cached block, free or held; the null block stays as it is."""
        if block:
            if not self.references[block]:
                self._unlink(block)
            self.references[block] += 1

    def free_blocks(self, blocks: Iterable[int]) -> None:
        """One holder less of each block, given in the order in which they are to be used again."""
        references, keys = self.references, self.keys
        following, previous = self._next, self._previous
        last = previous[0]
        plain: list[int] = []
        for block in blocks:
            if not block:
                continue
            left = references[block] - 1
            references[block] = left
            if left:
                continue
            if keys[block] is None and not self.in_turn:
                plain.append(block)
            else:
                following[last] = block
                previous[block] = last
                last = block
                self._num_cached += 1
        following[last] = 0
        previous[0] = last
        plain.reverse()
        self._plain.extend(plain)

    def get_cached_block(self, key: int) -> int:
        """The block that carries ``key`` and got it first, or 0."""
        return self._first.get(key, 0)

    def carries(self, block: int, key: int) -> bool:
        """Whether a lookup of ``key`` can lead to ``block``."""
        return self._first.get(key) == block or block in self._others.get(key, ())

    def cache_block(self, block: int, key: int, tokens: int) -> None:
        """Let ``block`` be found by ``key``, which stands for a prefix of ``tokens`` tokens.

        A block that has a key keeps it as its main one and is found by both.
        """
        if self.keys[block] is None:
            self.keys[block] = key
            self.key_tokens[block] = tokens
        elif self.carries(block, key):
            return
        else:
            self._extra_keys.setdefault(block, []).append(key)
        if self._first.setdefault(key, block) != block:
            self._others.setdefault(key, []).append(block)
        if self.on_cached is not None:
            self.on_cached(key, tokens)

    def cache_blocks(self, new: Iterable[tuple[int, int, int]]) -> None:
        """``cache_block`` of each (block, key, tokens), of blocks without a key."""
        keys, key_tokens, first = self.keys, self.key_tokens, self._first
        for block, key, tokens in new:
            keys[block] = key
            key_tokens[block] = tokens
            if first.setdefault(key, block) != block:
                self._others.setdefault(key, []).append(block)
            if self.on_cached is not None:
                self.on_cached(key, tokens)

    def uncache(self, block: int) -> list[int]:
        """Take all its keys from ``block``; gives them, the main one first."""
        key = self.keys[block]
        if key is None:
            return []
        keys = [key]
        if self._extra_keys:
            keys += self._extra_keys.pop(block, ())
        for each in keys:
            self._remove(each, block)
        self.keys[block] = None
        self.key_tokens[block] = 0
        return keys

    def move_keys(self, block: int, target: int) -> None:
        """Let ``target``, which has none, be found by the keys of ``block``."""
        tokens = self.key_tokens[block]
        for key in self.uncache(block):
            self.cache_block(target, key, tokens)

    def _remove(self, key: int, block: int) -> None:
        others = self._others.get(key)
        if others is None:
            del self._first[key]
            return
        if self._first[key] == block:
            self._first[key] = others.pop(0)
        else:
            others.remove(block)
        if not others:
            del self._others[key]

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._num_cached -= 1
