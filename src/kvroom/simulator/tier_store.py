"""What one tier below the GPUs holds: pages of cache under their names, within its room.

Replacement: ``lru``, pages in the order of use, a prompt's first page first, so that a chain loses its
head before its tail (as a store that knows of keys only); ``lru-tail``, the same with a prompt's last
page first, so that what is left of a chain can still be hit (vLLM frees a request's blocks so);
``lfu-da``, the least often used with dynamic aging: a page's priority is its uses plus the priority of
the last one evicted (Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating Content Management
Techniques for Web Proxy Caches", Performance Evaluation Review 27(4), 2000).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

POLICIES = ("lru", "lru-tail", "lfu-da")


class Store:
    """At most ``room`` pages (None: no limit). Every page put in is there, was evicted or was taken out."""

    def __init__(self, room: int | None, policy: str = "lru") -> None:
        self.room = room
        self.policy = policy
        self.put = self.evicted = self.taken = 0
        self._ready: OrderedDict[int, int] = OrderedDict()  # by name: when it is written (ps)
        self._uses: dict[int, int] = {}
        self._ranks: dict[int, int] = {}  # lfu-da: a page's priority, and the heap of them
        self._heap: list[tuple[int, int, int]] = []
        self._age = self._turn = 0
        self._by_use = policy == "lfu-da"
        self._use = self._count if self._by_use else self._ready.move_to_end

    def __len__(self) -> int:
        return len(self._ready)

    def names(self) -> Iterable[int]:
        """The pages that are held."""
        return self._ready

    def ready_ps(self, name: int) -> int | None:
        """When the page of that name is written, or None where it is not held."""
        return self._ready.get(name)

    def used(self, names: Sequence[int]) -> None:
        """Those of a prompt's pages, first to last, that are held are used."""
        for name in self.ordered(names):
            if name in self._ready:
                self._use(name)

    def ordered(self, names: Sequence[int]) -> Sequence[int]:
        """A prompt's pages, first to last, in the order in which the policy takes them in."""
        return names[::-1] if self.policy == "lru-tail" else names

    def add(self, names: Sequence[int], ready_ps: int) -> tuple[list[int], list[int]]:
        """Use pages in this order, each put in where it is not held, to be there at ``ready_ps``.

        Gives those put in and those evicted for them, in that order.
        """
        fresh: list[int] = []
        gone: list[int] = []
        if self.room == 0:
            return fresh, gone
        ready, room, use = self._ready, self.room, self._use
        for name in names:
            if name in ready:
                use(name)
                continue
            if room is not None and len(ready) >= room:
                gone.append(self._evict())
            ready[name] = ready_ps  # as the last one used
            fresh.append(name)
            if self._by_use:
                use(name)
        self.put += len(fresh)
        return fresh, gone

    def written(self, names: Sequence[int], ready_ps: int) -> None:
        """Those of ``names`` that are held are written by ``ready_ps``."""
        for name in names:
            if name in self._ready:
                self._ready[name] = ready_ps

    def take(self, names: Iterable[int]) -> None:
        """Take those of ``names`` out that are held."""
        for name in names:
            if self._ready.pop(name, None) is not None:
                self._forget(name)
                self.taken += 1

    def _count(self, name: int) -> None:
        self._uses[name] = self._uses.get(name, 0) + 1
        self._ranks[name] = rank = self._uses[name] + self._age
        heappush(self._heap, (rank, self._turn, name))
        self._turn += 1

    def _forget(self, name: int) -> None:
        self._uses.pop(name, None)
        self._ranks.pop(name, None)

    def _evict(self) -> int:
        self.evicted += 1
        if not self._by_use:
            return self._ready.popitem(last=False)[0]
        while True:
            rank, _, name = heappop(self._heap)
            if self._ranks.get(name) == rank:
                break
        self._age = rank
        del self._ready[name]
        self._forget(name)
        return name
