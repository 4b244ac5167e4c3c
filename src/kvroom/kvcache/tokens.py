"""Token ids as runs, and the chained hashes of their blocks.

A run ``(first, count)`` stands for the ids first, first + 1, …: long prompts stay short, and a block
inside a run is hashed without writing its ids out. A block's hash covers all tokens up to its end, so
that equal hashes mean equal prefixes (64 bits: among 100 million blocks the chance of any two wrongly
equal is about 1 in 3,700).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from kvroom.workloads.requests import joined

Run = tuple[int, int]

_MASK = (1 << 64) - 1
_SEED = 0x9E3779B97F4A7C15
_CHAIN, _FIRST, _LAST = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93


def length(runs: Iterable[Run]) -> int:
    """Tokens in ``runs``."""
    return sum(count for _, count in runs)


class BlockHashes:
    """The hash of every full block of ``block_tokens`` ids, each chained to the one before.

    They are made when first asked for: a request that is never served costs nothing.
    """

    __slots__ = ("_hashes", "_runs", "_source")

    def __init__(self, runs: Iterable[Run], block_tokens: int) -> None:
        self._hashes: list[int] = []
        self._runs = tuple(runs)
        self._source = _chained(self._runs, block_tokens)

    def runs(self, block_tokens: int) -> tuple[Run, ...]:
        """The ids themselves."""
        return self._runs

    def first(self, count: int) -> list[int]:
        """At least the first ``count`` hashes, as far as there are tokens (not to be changed)."""
        hashes = self._hashes
        if len(hashes) < count:
            hashes.extend(islice(self._source, count - len(hashes)))
        return hashes


def _chained(runs: Iterable[Run], block_tokens: int) -> Iterator[int]:
    chain, filled = _SEED, 0
    for start, ids in joined(runs):
        first, left = start, ids
        while left:
            piece = min(block_tokens - filled, left)
            mixed = (chain * _CHAIN + first * _FIRST + piece) & _MASK
            mixed = (mixed ^ (mixed >> 31)) * _LAST & _MASK
            chain = mixed ^ (mixed >> 29)
            first += piece
            left -= piece
            filled += piece
            if filled == block_tokens:
                yield chain
                filled = 0
