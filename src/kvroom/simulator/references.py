"""A trace as block references, and what a cache without limit would make of it.

Requests are taken in file order; only prompts enter a cache; timing and copies play no part. A
reference is one block of one prompt, the partial block at its end included.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from kvroom.records import dataclass
from kvroom.workloads.requests import Request


@dataclass(frozen=True, slots=True)
class References:
    """A trace as its block references: what every policy is asked about.

    ``blocks`` holds the number of each referenced block, numbered by first appearance; those of
    request i end at ``ends[i]``. Arrays are parallel to the requests otherwise. ``lengths`` counts
    requests by their final length (prompt and answer).
    """

    block_tokens: int
    blocks: array[int]
    ends: array[int]
    input_tokens: array[int]
    arrivals_ps: array[int]
    unique_blocks: int
    lengths: Counter[int]
    unknown_requests: int = 0
    """Requests whose content is not known, which hit and fill nothing."""

    @classmethod
    def of(cls, requests: Iterable[Request], block_tokens: int) -> References:
        """The references of ``requests`` in blocks of ``block_tokens`` tokens."""
        numbers: dict[int, int] = {}
        blocks, ends = array("I"), array("Q")
        inputs, arrivals = array("Q"), array("q")
        lengths: Counter[int] = Counter()
        unknown = 0
        number_of = numbers.setdefault
        for request in requests:
            if request.prefix is None:
                unknown += 1
            else:
                keys = request.prefix.block_keys(block_tokens, request.input_tokens)
                blocks.extend([number_of(key, len(numbers)) for key in keys])
            ends.append(len(blocks))
            inputs.append(request.input_tokens)
            arrivals.append(request.arrival_ps)
            lengths[request.input_tokens + request.output_tokens] += 1
        return cls(block_tokens, blocks, ends, inputs, arrivals, len(numbers), lengths, unknown)

    def spans(self) -> Iterable[tuple[int, int]]:
        """Where each request's references begin and end."""
        return pairwise([0, *self.ends])


@dataclass(frozen=True, slots=True)
class InfiniteCache:
    """What a cache that never evicts would give: leading runs of blocks seen in earlier requests."""

    hit_blocks: int
    hit_tokens: int
    requests_with_hit: int


def infinite_cache(refs: References) -> InfiniteCache:
    """Hits of a cache without limit; a hit on a partial last block counts its real tokens."""
    hit_blocks = hit_tokens = hit_requests = seen = 0
    blocks, size = refs.blocks, refs.block_tokens
    for (start, end), tokens in zip(refs.spans(), refs.input_tokens, strict=True):
        run = start
        highest = seen
        for number in blocks[start:end]:
            if number >= seen:
                break
            run += 1
        for number in blocks[run:end]:
            if number >= highest:
                highest = number + 1
        seen = highest
        hit_blocks += run - start
        hit_tokens += min((run - start) * size, tokens)
        hit_requests += run > start
    return InfiniteCache(hit_blocks, hit_tokens, hit_requests)
