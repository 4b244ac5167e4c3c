"""Replacement policies: the hits that a cache of so many blocks would have on a trace's references.

Every block of a prompt is one access, in order; a missed block is taken in, then one leaves if there is
no room. Belady's is the optimum of caches that take every block in. Two here are freer and may beat it
by a little: LFU can turn the newcomer itself away, and ``lru_tail_first`` looks a whole prompt up before
it touches or evicts anything, as engines do.

LRU is a stack algorithm: a block is hit in every cache at least as large as its reuse distance (the
distinct blocks referenced since, itself included), so one pass answers for all sizes (Mattson et al.,
1970).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import accumulate

from kvroom.records import dataclass
from kvroom.simulator.references import References

CHUNK = 512
"""Positions whose flags share one integer in Marks."""


class Marks:
    """Marked positions of a line, counted up to any position in logarithmic time.

    A Fenwick tree over chunks of CHUNK positions, each chunk's flags one integer.
    """

    def __init__(self, positions: int) -> None:
        self._flags = [0] * (positions // CHUNK + 1)
        self._tree = [0] * (len(self._flags) + 1)
        self.total = 0

    def mark(self, first: int, count: int) -> None:
        """Mark ``count`` positions from ``first`` on, none of them marked yet."""
        self.total += count
        while count:
            chunk, offset = divmod(first, CHUNK)
            taken = min(count, CHUNK - offset)
            self._flags[chunk] |= ((1 << taken) - 1) << offset
            node = chunk + 1
            while node < len(self._tree):
                self._tree[node] += taken
                node += node & -node
            first += taken
            count -= taken

    def below(self, position: int) -> int:
        """How many positions before ``position`` are marked."""
        chunk, offset = divmod(position, CHUNK)
        found = (self._flags[chunk] & ((1 << offset) - 1)).bit_count()
        while chunk:
            found += self._tree[chunk]
            chunk &= chunk - 1
        return found


@dataclass(slots=True)
class StackHits:
    """Hits of an LRU cache of every size: ``by_distance[d]`` references are hit from d blocks on."""

    references: int
    by_distance: Counter[int] = field(default_factory=Counter)
    _distances: list[int] = field(default_factory=list)
    _hits: list[int] = field(default_factory=list)

    def curve(self) -> tuple[Sequence[int], Sequence[int]]:
        """Sizes in blocks at which hits grow, ascending, and the hits of a cache of that size."""
        if len(self._distances) != len(self.by_distance):
            self._distances = sorted(self.by_distance)
            self._hits = list(
                accumulate(self.by_distance[distance] for distance in self._distances)
            )
        return self._distances, self._hits

    def hits(self, capacity: int) -> int:
        """Hits of a cache of ``capacity`` blocks."""
        distances, hits = self.curve()
        index = bisect_right(distances, capacity)
        return hits[index - 1] if index else 0

    def ratio(self, capacity: int) -> float:
        """Hits of a cache of ``capacity`` blocks over all references."""
        return self.hits(capacity) / self.references if self.references else 0.0

    def blocks_for(self, hits: int) -> int:
        """The smallest cache, in blocks, with at least so many hits (at most all there are)."""
        distances, reached = self.curve()
        return distances[min(bisect_left(reached, hits), len(distances) - 1)] if hits > 0 else 0


def lru(refs: References) -> StackHits:
    """Every block of a prompt is one access, head to tail; a hit or an insertion makes it newest.

    Blocks that were last referenced one after another and are so again have the same distance, so a
    run of them is counted at once.
    """
    blocks = refs.blocks
    total = len(blocks)
    hits = StackHits(total)
    last = [-1] * refs.unique_blocks
    gone = Marks(total)
    by_distance = hits.by_distance
    now = 0
    while now < total:
        place = last[blocks[now]]
        if place < 0:
            last[blocks[now]] = now
            now += 1
            continue
        start = now
        step = place - now
        while now < total and last[number := blocks[now]] == now + step and now + step < start:
            last[number] = now
            now += 1
        count = now - start
        # What was referenced since, less the references that were repeated later still.
        distance = start - place - (gone.total - gone.below(place))
        by_distance[distance] += count
        gone.mark(place, count)
    return hits


def lru_tail_first(refs: References) -> StackHits:
    """As engines do: look up the leading run first, then touch tail to head, then evict.

    The head of a prompt is then the last of it to go. A block is hit where all before it are, so what
    counts is the largest distance so far.
    """
    blocks = refs.blocks
    hits = StackHits(len(blocks))
    last = [-1] * refs.unique_blocks
    gone = Marks(len(blocks))
    by_distance = hits.by_distance
    now = 0
    for start, end in refs.spans():
        prompt = blocks[start:end]
        _look_up(prompt, last, gone, start, by_distance)
        prompt.reverse()
        run = length = 0
        for number in prompt:
            place = last[number]
            last[number] = now
            now += 1
            if place < 0:
                continue
            if length and place == run + length:
                length += 1
                continue
            if length:
                gone.mark(run, length)
            run, length = place, 1
        if length:
            gone.mark(run, length)
    return hits


def _look_up(
    prompt: array[int], last: list[int], gone: Marks, now: int, by_distance: Counter[int]
) -> None:
    """Count the distances of the leading run of ``prompt``, looked up at position ``now``."""
    worst = depth = 0
    before = -2
    for number in prompt:
        place = last[number]
        if place < 0:
            return
        # Touched tail to head, a prompt's next block lies one place deeper.
        depth = depth + 1 if place == before - 1 else now - place - (gone.total - gone.below(place))
        before = place
        worst = max(worst, depth)
        by_distance[worst] += 1


def fifo_hits(refs: References, capacity: int) -> int:
    """Hits where the block inserted longest ago goes first."""
    inserted = [-capacity - 1] * refs.unique_blocks
    misses = 0
    for number in refs.blocks:
        if inserted[number] < misses - capacity:
            inserted[number] = misses
            misses += 1
    return len(refs.blocks) - misses


def lfu_hits(refs: References, capacity: int) -> int:
    """Hits where the least used block goes first, of equals the one not used for longest.

    Uses are counted while a block stays. A block enters before one leaves, so a full cache always
    holds a block used once: the newcomer, if no other. What was used twice therefore never leaves.
    """
    absent, once, counts = 0, 1, 2
    state = bytearray(refs.unique_blocks)
    queue: deque[int] = deque()  # by last use; those kept meanwhile are passed over
    room = capacity
    used_once = hits = 0
    for number in refs.blocks:
        if state[number]:
            hits += 1
            if state[number] == once:
                state[number] = counts
                used_once -= 1
                room -= 1
            continue
        state[number] = once
        queue.append(number)
        used_once += 1
        if used_once > room:
            while state[victim := queue.popleft()] == counts:
                pass
            state[victim] = absent
            used_once -= 1
    return hits


def next_uses(refs: References) -> array[int]:
    """For every reference the place of the next one to the same block; past the end if there is none."""
    blocks = refs.blocks
    never = len(blocks)
    following = [never] * refs.unique_blocks
    uses = array("Q", bytes(8 * never))
    for place in range(never - 1, -1, -1):
        number = blocks[place]
        uses[place] = following[number]
        following[number] = place
    return uses


def belady_hits(uses: Sequence[int], capacity: int) -> int:
    """Hits where the block whose next use is farthest goes first (``uses``: see ``next_uses``).

    A missed block is always taken in, in place of another. A resident block is known by the place of
    its next use alone, which is a hit if the block stays until then. Places already passed are the
    nearest of all, so the heap's top is always resident.
    """
    never = len(uses)
    hit = bytearray(never)
    heap: list[int] = []
    size = idle = 0  # idle: resident blocks that are never used again
    hits = 0
    for place, use in enumerate(uses):
        if hit[place]:
            hits += 1
        elif size < capacity:
            size += 1
        elif idle:
            idle -= 1
        else:
            hit[-heappop(heap)] = 0
        if use == never:
            idle += 1
        else:
            heappush(heap, -use)
            hit[use] = 1
    return hits
