"""What a router takes as cached on a replica: what it is told, or what it sent there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence

from kvroom.kvcache.extents import ExtentPool
from kvroom.simulator.event_engine import EventEngine


class RecentNames:
    """Block names of the prompts sent to one replica: the ``most`` latest of them (None: all), each for
    ``ttl_ps`` after it was last sent (None: for ever)."""

    def __init__(self, most: int | None = None, ttl_ps: int | None = None) -> None:
        self.most = most
        self.ttl_ps = ttl_ps
        self._sent_ps: OrderedDict[int, int] = OrderedDict()

    def __contains__(self, name: object) -> bool:
        return name in self._sent_ps

    def __iter__(self) -> Iterator[int]:
        return iter(self._sent_ps)

    def sent(self, names: Sequence[int], now: int = 0) -> None:
        """A prompt of these names goes there; its end is forgotten first."""
        latest = self._sent_ps
        for name in reversed(names):
            latest[name] = now
            latest.move_to_end(name)
        if self.most is not None:
            self.shorten(self.most)

    def shorten(self, most: int) -> None:
        """Forget all but the ``most`` latest."""
        while len(self._sent_ps) > most:
            self._sent_ps.popitem(last=False)

    def expire(self, now: int) -> None:
        """Forget those that were sent too long ago."""
        if self.ttl_ps is None:
            return
        while self._sent_ps:
            name, sent = next(iter(self._sent_ps.items()))
            if sent + self.ttl_ps > now:
                return
            del self._sent_ps[name]

    def sent_ps(self, name: int) -> int:
        """When ``name`` was last sent there."""
        return self._sent_ps[name]

    def clear(self) -> None:
        """The replica is gone."""
        self._sent_ps.clear()


class CachedNames:
    """The block names that a router takes as cached on one replica, as of its last look.

    A router that always looks sees the pool's own index; one that looks now and then (``stale``) hears
    what is cached and evicted (``KVEvents``), and takes it in when it looks. Of an engine that does
    not tell, it takes what it sent there as cached, the ``most`` latest names of it.
    """

    wants_removed = True

    def __init__(self, *, stale: bool, most: int = 0) -> None:
        self.names: Container[int] = set()
        self.stale = stale
        self.most = most
        self._pool: ExtentPool | None = None
        self._news: list[tuple[bool, Sequence[int]]] = []

    def watch(self, server: EventEngine) -> None:
        """See what ``server``, which is new, caches."""
        self._pool = server.extents
        if self.stale:
            server.listen(self)
        else:
            self.names = server.extents.names

    def stored(self, names: Sequence[int], blocks: int, first: int = 0) -> None:
        """The replica has cached these."""
        self._news.append((True, names))

    def removed(self, names: Sequence[int], blocks: int) -> None:
        """The replica no longer has these."""
        self._news.append((False, names))

    def look(self) -> None:
        """Take in what was cached and evicted up to now."""
        if self._pool is None:
            return
        self._pool.settle()
        names = self.names
        if isinstance(names, set):
            for cached, some in self._news:
                if cached:
                    names.update(some)
                else:
                    names.difference_update(some)
            self._news.clear()

    def sent(self, names: Sequence[int]) -> None:
        """A prompt of these names goes to the replica."""
        if self._pool is not None:
            return
        if not isinstance(self.names, RecentNames):
            self.names = RecentNames(self.most)
        self.names.sent(names)

    def clear(self) -> None:
        """The replica is gone, and its cache with it."""
        self.names = set()
        self._pool = None
        self._news = []


def leading(names: Sequence[int], known: Container[int]) -> int:
    """How many leading ones of ``names`` are ``known``, where none is without all before it."""
    low, step, high = 0, 1, len(names)
    while low + step <= high:
        if names[low + step - 1] not in known:
            high = low + step - 1
            break
        low += step
        step *= 2
    while low < high:
        middle = (low + high) // 2
        if names[middle] in known:
            low = middle + 1
        else:
            high = middle
    return low
