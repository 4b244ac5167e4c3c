"""The block pool and prefix cache of one full-attention group, kept as stretches of blocks.

What ``block_pool`` and ``prefix_cache`` do block by block is done here for a stretch at a time: blocks
that one request took one after the other are freed, hit and evicted together. A block's place in its
request is its place in any request that shares it, so a stretch is two numbers and the names of its
blocks. Blocks that nobody can ever ask for again are only counted. The same blocks are given out,
hit and evicted in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence

from kvroom.kvcache.events import KVEvents

Names = Sequence[int]


class Extent:
    """Blocks ``low … high`` of a request, cached under ``names``, one for every ``unit`` blocks.

    ``following`` is what was split off its end; ``queued`` the entry in the queue of free blocks, which
    is evicted from its end.
    """

    __slots__ = ("following", "high", "low", "names", "queued", "references")

    def __init__(self, names: Names, low: int, high: int) -> None:
        self.names = names
        self.low = low
        self.high = high
        self.references = 1
        self.following: Extent | None = None
        self.queued: list[Extent] | None = None


class RequestExtents:
    """What one request holds of the pool.

    ``names`` cover its first ``named`` blocks (prompt, and answer where that is known); all further ones
    are its own. ``shared`` lists the cached extents from its start to ``covered``, each with where its share
    ends. ``own`` is what it left in the cache beyond its names when it was preempted.
    """

    __slots__ = ("covered", "named", "names", "own", "shared")

    def __init__(self, names: Names = (), named: int = 0) -> None:
        self.names = names
        self.named = named
        self.covered = 0
        self.shared: list[tuple[Extent, int]] = []
        self.own: Extent | None = None


Hits = list[tuple[Extent, int, int]]
"""Extents to share, each from one block to another."""


class ExtentPool:
    """``usable`` blocks (without the null block); ``unit`` is how many blocks one name stands for."""

    __slots__ = (
        "_dead",
        "_index",
        "_overlapping",
        "_owed",
        "_plain",
        "_queue",
        "events",
        "free",
        "in_turn",
        "unit",
        "usable",
    )

    def __init__(self, usable: int, unit: int = 1) -> None:
        self.usable = usable
        self.unit = unit
        self.events: KVEvents | None = None
        self.free = usable
        self.in_turn = False
        """As ``BlockPool.in_turn``."""
        self._plain = usable  # never used, or freed without a key: used first
        self._dead = 0  # cached blocks at the head of the queue that nobody can hit
        self._owed = (
            0  # blocks to be taken from the queue: those at its head, whoever joins meanwhile
        )
        self._queue: deque[list[Extent] | int] = deque()  # a number: so many such blocks further on
        self._index: dict[int, Extent | list[Extent]] = {}  # a list: in the order of registration
        self._overlapping: set[int] = set()  # names under which some block is cached twice

    @property
    def in_use(self) -> int:
        """Blocks held by requests."""
        return self.usable - self.free

    @property
    def names(self) -> Container[int]:
        """The names under which blocks are cached, as of the last lookup or ``settle``."""
        return self._index

    def settle(self) -> None:
        """Evict what is due for eviction; the pool puts it off until somebody looks."""
        if self._owed:
            self._evict()

    # Blocks out and in

    def take(self, count: int) -> None:
        """Hand out ``count`` free blocks; the caller makes sure that so many are free."""
        self.free -= count
        left = self._plain - count
        if left >= 0:
            self._plain = left
            return
        self._plain = 0
        if self.events is not None and self._dead:
            self.events.removed((), min(self._dead, -left))
        left += self._dead
        if left >= 0:
            self._dead = left
            return
        self._dead = 0
        self._owed -= left
        if self.events is not None:
            self._evict()  # it is to be known when they went

    def _evict(self) -> None:
        """Take what is owed from the head of the queue: it is put off until somebody looks."""
        queue, count = self._queue, self._owed
        self._owed = 0
        while count:
            entry = queue[0]
            if isinstance(entry, int):
                queue.popleft()
                if self.events is not None:
                    self.events.removed((), min(entry, count))
                if entry > count:
                    self._dead = entry - count
                    return
                count -= entry
            elif not entry:
                queue.popleft()
            else:
                extent = entry[-1]
                high = extent.high - count
                if high > extent.low:
                    self._shorten(extent, high)
                    return
                count = extent.low - high
                self._shorten(extent, extent.low)
                entry.pop()
                extent.queued = None

    def release(self, plain: int, dead: int) -> None:
        """Take back blocks that only one request held and nobody can hit: ``plain`` ones without a
        key, ``dead`` cached ones."""
        self.free += plain + dead
        if self.in_turn:
            plain, dead = 0, plain + dead
        self._plain += plain
        if not self._queue:
            self._dead += dead
        elif dead:
            last = self._queue[-1]
            if isinstance(last, int):
                self._queue[-1] = last + dead
            else:
                self._queue.append(dead)

    def leave(self, request: RequestExtents, blocks: int, registered: int, *, back: bool) -> None:
        """Take back a request's ``blocks``, of which the first ``registered`` are cached.

        ``back``: it was preempted and will ask for its own blocks again.
        """
        if request.covered < request.named:
            self.register(request, registered)
        own = registered - request.covered
        freed = self._let_go(request)
        last = freed[-1] if freed and freed[-1] is request.own else None
        if back:
            if last is not None:
                last.high = registered
            elif own:
                request.own = Extent((), request.covered, registered)
                freed.append(request.own)
            own = 0
        elif last is not None:
            own += last.high - last.low
            freed.pop()
        self.release(blocks - registered, own)
        if freed:
            for extent in freed:
                extent.references = 0
                extent.queued = freed
                self.free += extent.high - extent.low
            self._queue.append(freed)
        request.covered = 0

    def _let_go(self, request: RequestExtents) -> list[Extent]:
        """One holder less of all that it shares; those that nobody holds any more, first to last."""
        freed: list[Extent] = []
        for first, end in request.shared:
            extent: Extent | None = first
            while extent is not None:
                extent.references -= 1
                if not extent.references:
                    freed.append(extent)
                extent = extent.following if extent.high < end else None
        request.shared.clear()
        return freed

    # What is cached and found

    def lookup(self, request: RequestExtents, limit: int) -> tuple[Hits, int, int]:
        """The longest cached prefix of at most ``limit`` blocks: extents, blocks, free ones of them."""
        if self._owed:
            self._evict()
        hits: Hits = []
        names, unit, index = request.names, self.unit, self._index
        place, end = 0, min(limit, request.named)
        while place < end:
            entry = index.get(names[place // unit])
            upto = end
            if isinstance(entry, list):
                upto = min(end, (place // unit + 1) * unit)
                for extent in entry:
                    if extent.low <= place < extent.high:
                        break
                    if extent.low > place:
                        upto = min(
                            upto, extent.low
                        )  # it was cached before the one that is looked for
                else:
                    break
            elif entry is not None and entry.low <= place < entry.high:
                extent = entry
                upto = self._agrees(extent, names, place, min(end, extent.high))
            else:
                break
            upto = min(upto, extent.high)
            if hits and hits[-1][0] is extent and hits[-1][2] == place:
                hits[-1] = (extent, hits[-1][1], upto)
            else:
                hits.append((extent, place, upto))
            place = upto
        own = request.own
        if place == request.named and own is not None and place < min(limit, own.high):
            hits.append((own, place, min(limit, own.high)))
            place = hits[-1][2]
        free = 0
        for extent, start, upto in hits:
            if not extent.references:
                free += upto - start
        return hits, place, free

    def _agrees(self, extent: Extent, names: Names, place: int, end: int) -> int:
        """Up to which block from ``place`` to ``end`` ``extent`` is the one that a lookup finds."""
        unit = self.unit
        first, last = place // unit, (end - 1) // unit
        theirs = extent.names
        if theirs is not names and theirs[last] != names[last]:
            # A name stands for all before it too: once they differ they differ to the end.
            low, high = first, last
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if theirs[middle] == names[middle] else (low, middle)
            last = low
            end = (last + 1) * unit
        if self._overlapping:
            end = min(end, self._first_overlapping(names, first + 1, last + 1) * unit)
        return end

    def _first_overlapping(self, names: Names, first: int, end: int) -> int:
        """The first place from ``first`` on under whose name a block is cached twice, else ``end``: looked
        for in stretches that double, so that what is passed over is looked at once."""
        twice, step = self._overlapping, 1
        while first < end:
            upto = min(end, first + step)
            if twice.isdisjoint(names[first:upto]):
                first, step = upto, step * 2
            elif upto - first == 1:
                break
            else:
                step = (upto - first) // 2
        return first

    def adopt(self, request: RequestExtents, hits: Hits) -> None:
        """Share what a lookup found."""
        for entry, start, end in hits:
            extent = entry
            while extent.high <= start:
                assert extent.following is not None
                extent = extent.following
            if extent.low < start:
                extent = self._split(extent, start)
            if end < extent.high:
                self._split(extent, end)
            if extent.queued is not None:
                extent.queued.remove(extent)
                extent.queued = None
                self.free -= end - start
            extent.references += 1
            request.shared.append((extent, end))
            request.covered = end

    def register(self, request: RequestExtents, blocks: int) -> None:
        """Let those of its first ``blocks`` blocks that have names be found by later requests."""
        start, end = request.covered, min(blocks, request.named)
        if end <= start:
            return
        names, unit = request.names, self.unit
        last = request.shared[-1][0] if request.shared else None
        if (
            last is not None
            and last.names is names
            and last.high == start
            and last.references == 1
            and (start % unit == 0 or self._index.get(names[start // unit]) is last)
        ):
            last.high = end
            request.shared[-1] = (last, end)
        else:
            last = Extent(names, start, end)
            request.shared.append((last, end))
        request.covered = end
        self._enter(last, start // unit, (end - 1) // unit)

    def _enter(self, extent: Extent, first: int, last: int) -> None:
        """Put ``extent`` under its names from the ``first`` to the ``last``."""
        index, names, unit = self._index, extent.names, self.unit
        for place in range(first, last + 1):
            name = names[place]
            entry = index.get(name)
            if entry is None:
                # A cached block has all before it cached, so nothing is under the further names.
                for further in names[place : last + 1]:
                    index[further] = extent
                return
            if entry is extent:
                continue
            others = entry if isinstance(entry, list) else [entry]
            if extent in others:
                continue
            low, high = max(extent.low, place * unit), min(extent.high, (place + 1) * unit)
            if any(low < other.high and other.low < high for other in others):
                self._overlapping.add(name)
            index[name] = [*others, extent]

    def _shorten(self, extent: Extent, high: int) -> None:
        """Forget the blocks of ``extent`` from ``high`` on."""
        before, extent.high = extent.high, high
        unit, names = self.unit, extent.names
        if not names:
            if self.events is not None:
                self.events.removed((), before - high)
            return
        start = high // unit if high == extent.low else -(-high // unit)
        index = self._index
        for name in names[start : (before - 1) // unit + 1]:
            entry = index.pop(name, None)
            if entry is extent or entry is None:
                continue
            if isinstance(entry, list) and extent in entry:
                entry.remove(extent)
                if len(entry) == 1:
                    entry = entry[0]
                    self._overlapping.discard(name)
            index[name] = entry
        if self.events is not None:
            self._note_gone(names, high, before)

    def _note_gone(self, names: Names, low: int, high: int) -> None:
        """Tell of the pages that ended in the blocks ``low … high``, the last first, unless another
        extent still has their ends."""
        assert self.events is not None
        unit = self.unit
        gone = []
        for page in range(high // unit - 1, low // unit - 1, -1):
            last = (page + 1) * unit - 1
            if last < low:
                break
            entry = self._index.get(names[page])
            others = entry if isinstance(entry, list) else [entry] if entry is not None else []
            if not any(other.low <= last < other.high for other in others):
                gone.append(names[page])
        if gone:
            self.events.removed(gone, 0)

    def _split(self, extent: Extent, at: int) -> Extent:
        """Cut ``extent`` at a block; gives the further part, which has the same holders."""
        rest = Extent(extent.names, at, extent.high)
        rest.references = extent.references
        rest.following = extent.following
        extent.following = rest
        if extent.queued is not None:
            rest.queued = extent.queued
            rest.queued.insert(rest.queued.index(extent) + 1, rest)
        unit, index = self.unit, self._index
        first, last = at // unit, (extent.high - 1) // unit
        extent.high = at
        for place, name in enumerate(extent.names[first : last + 1], first):
            entry = index.get(name)
            both = place * unit < at  # the cut is inside what this name stands for
            parts = [extent, rest] if both else [rest]
            if entry is extent:
                index[name] = parts if both else rest
            elif isinstance(entry, list) and extent in entry:
                where = entry.index(extent)
                entry[where : where + 1] = parts
        return rest
