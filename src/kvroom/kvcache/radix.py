"""SGLang's radix cache: prefixes as a tree, of which leaves that nobody holds may go.

A node is one stretch of ``stretch_tokens`` tokens, named by a hash that covers all before it. What a
running request holds is locked up to the root. The leaf that was used least recently goes first; a parent
becomes a leaf when its last child goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush


class Node:
    """A cached stretch of tokens behind ``parent``."""

    __slots__ = ("children", "key", "locks", "parent", "used")

    def __init__(self, key: int, parent: Node | None) -> None:
        self.key = key
        self.parent = parent
        self.children = 0
        self.locks = 0
        self.used = 0


class RadixCache:
    """A tree of stretches: ``size`` of them, of which ``evictable`` are locked by nobody."""

    def __init__(self) -> None:
        self.size = 0
        self.evictable = 0
        self.on_evicted: Callable[[int], None] | None = None
        """Called with the key of each stretch that goes."""
        self.version = 0
        """Changes whenever a stretch comes or goes."""
        self._nodes: dict[int, Node] = {}
        self._leaves: list[tuple[int, int, Node]] = []
        self._now = 0

    def match(self, keys: Sequence[int]) -> list[Node]:
        """The nodes of the longest cached prefix of ``keys``, each used now."""
        return self.behind((), keys)

    def touch(self, path: Sequence[Node]) -> None:
        """All of ``path``, which is there, is used now."""
        self.behind(path, ())

    def behind(self, path: Sequence[Node], keys: Sequence[int]) -> list[Node]:
        """``path``, which is there, and the nodes of the longest prefix of ``keys`` behind it, used now."""
        self._now += 1
        now, nodes = self._now, self._nodes
        found = list(path)
        for node in found:
            node.used = now
        for key in keys:
            further = nodes.get(key)
            if further is None:
                break
            further.used = now
            found.append(further)
        if found and not found[-1].children:
            self._offer(found[-1])
        return found

    def unlocked(self, path: Sequence[Node]) -> int:
        """How many of a path from the root nobody holds: its end, since holders hold all before it too."""
        return len(path) - bisect_left(path, True, key=lambda node: not node.locks)

    def insert(self, keys: Sequence[int], path: Sequence[Node] = ()) -> tuple[list[Node], int]:
        """``path``, which is there, and all of ``keys`` behind it as nodes, and how many of them are new."""
        nodes = self.behind(path, keys)
        known = len(nodes) - len(path)
        for key in keys[known:]:
            parent = nodes[-1] if nodes else None
            node = self._nodes[key] = Node(key, parent)
            node.used = self._now
            if parent is not None:
                parent.children += 1
            nodes.append(node)
        new = len(keys) - known
        self.size += new
        self.evictable += new
        if new:
            self.version += 1
            self._offer(nodes[-1])
        return nodes, new

    def lock(self, nodes: Sequence[Node]) -> None:
        """One holder more of a path from the root."""
        for node in nodes:
            self.evictable -= not node.locks
            node.locks += 1

    def unlock(self, nodes: Sequence[Node]) -> None:
        """One holder less."""
        for node in nodes:
            node.locks -= 1
            self.evictable += not node.locks
        if nodes and not nodes[-1].locks and not nodes[-1].children:
            self._offer(nodes[-1])

    def evict(self, count: int) -> int:
        """Let up to ``count`` stretches go; gives how many went."""
        gone = 0
        while gone < count and self._leaves:
            used, _, node = heappop(self._leaves)
            if node.locks or node.children or node.used != used:
                continue
            if self._nodes.get(node.key) is not node:
                continue
            del self._nodes[node.key]
            gone += 1
            if self.on_evicted is not None:
                self.on_evicted(node.key)
            parent = node.parent
            if parent is not None:
                parent.children -= 1
                if not parent.children and not parent.locks:
                    self._offer(parent)
        self.version += gone > 0
        self.size -= gone
        self.evictable -= gone
        return gone

    def _offer(self, node: Node) -> None:
        heappush(self._leaves, (node.used, node.key, node))
