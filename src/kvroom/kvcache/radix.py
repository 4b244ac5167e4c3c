"""SGLang's radix cache: prefixes as a tree of stretches of any length, of which leaves nobody holds may go.

A node is a stretch of token ids behind its parent's, kept as runs (``kvcache.tokens``). Where a request
turns off inside one it is split there; what a running request holds is locked up to the root. A leaf goes
whole: the one used least recently first, and its parent after it once it has no other child. Matches and
leaves end with whole pages.

When each node counts as used follows SGLang 0.5.23 (``mem_cache/unified_cache``): a match uses its path, the
deepest node last; an insertion uses each node on its way; of a split the lower part is the later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from itertools import accumulate

from kvroom.kvcache.tokens import Run, length
from kvroom.workloads.requests import joined

DEEPEST = 1 << 32
"""Uses of one match are told apart by the depth of their nodes, which is less than this."""


class TokenText:
    """Token ids as runs, to be looked at from any place."""

    __slots__ = ("ends", "runs")

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = joined(runs)
        self.ends = list(accumulate(count for _, count in self.runs))

    def part(self, low: int, high: int) -> tuple[Run, ...]:
        """The ids from place ``low`` to ``high``, in as few runs as possible."""
        runs: list[Run] = []
        number = bisect_right(self.ends, low)
        while low < high:
            first, count = self.runs[number]
            begin = self.ends[number] - count
            end = min(high, self.ends[number])
            runs.append((first + low - begin, end - low))
            low, number = end, number + 1
        return tuple(runs)

    def shared(self, low: int, runs: tuple[Run, ...], limit: int) -> int:
        """How many ids from ``low`` on are those of ``runs``, up to ``limit``."""
        same = 0
        for (first, count), (other, known) in zip(self.part(low, low + limit), runs, strict=False):
            if first != other:
                break
            same += min(count, known)
            if count != known:
                break
        return min(same, limit)


class Node:
    """A cached stretch of token ids behind ``parent``."""

    __slots__ = ("children", "key", "locks", "parent", "runs", "tokens", "used")

    def __init__(self, parent: Node | None, key: Hashable, runs: tuple[Run, ...]) -> None:
        self.parent, self.key, self.runs = parent, key, runs
        self.tokens = length(runs)
        self.children: dict[Hashable, Node] = {}
        self.locks = self.used = 0


class RadixTree:
    """A tree that holds ``size`` tokens, of which ``evictable`` are locked by nobody."""

    def __init__(self, page: int = 1) -> None:
        self.page = page
        self.size = self.evictable = 0
        self.on_evicted: Callable[[tuple[Run, ...]], None] | None = None
        """Called with the ids of each leaf that goes."""
        self.root = Node(None, None, ())
        self._leaves: list[tuple[int, int, Node]] = []
        self._now = self._number = 0

    def match(self, text: TokenText, tokens: int) -> tuple[Node, int]:
        """Where the longest cached prefix of the first ``tokens`` ids ends, and how long it is."""
        tokens -= tokens % self.page
        node, place = self.root, 0
        while place < tokens:
            child = node.children.get(self._key(text, place))
            if child is None:
                break
            same = self._same(text, place, child, tokens)
            place += same
            if same < child.tokens:
                node = self._split(child, same)
                break
            node = child
        self._now += 1
        used, at = self._now * DEEPEST, node
        while at.parent is not None:
            self._use(at, used)
            used, at = used - 1, at.parent
        return node, place

    def insert(self, text: TokenText, tokens: int) -> tuple[Node, int]:
        """Store the first ``tokens`` ids, in whole pages. Returns the node where they end, and how many
        of them the tree had before."""
        tokens -= tokens % self.page
        node, place = self.root, 0
        while place < tokens:
            key = self._key(text, place)
            child = node.children.get(key)
            if child is None:
                break
            self._use(child)
            same = self._same(text, place, child, tokens)
            place += same
            node = child if same == child.tokens else self._split(child, same)
        if place == tokens:
            return node, place
        leaf = Node(node, key, text.part(place, tokens))
        node.children[key] = leaf
        self.size += leaf.tokens
        self.evictable += leaf.tokens
        self._use(leaf)
        return leaf, place

    def lock(self, node: Node) -> None:
        """Count one more holder on a path from the root."""
        while node.parent is not None:
            if not node.locks:
                self.evictable -= node.tokens
            node.locks += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Count one holder less."""
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                self.evictable += node.tokens
                self._offer(node)
            node = node.parent

    def evict(self, tokens: int) -> int:
        """Evict leaves until ``tokens`` or more are gone; returns how many went."""
        gone = 0
        while gone < tokens and self._leaves:
            used, _, node = heappop(self._leaves)
            parent = node.parent
            if node.used != used or node.locks or node.children or parent is None:
                continue
            if parent.children.get(node.key) is not node:
                continue
            del parent.children[node.key]
            gone += node.tokens
            if self.on_evicted is not None:
                self.on_evicted(node.runs)
            self._offer(parent)
        self.size -= gone
        self.evictable -= gone
        return gone

    def _key(self, text: TokenText, place: int) -> Hashable:
        """What tells a child from its siblings: its first page."""
        return text.part(place, place + self.page)

    def _same(self, text: TokenText, place: int, child: Node, tokens: int) -> int:
        same = text.shared(place, child.runs, min(tokens - place, child.tokens))
        return same - same % self.page

    def _split(self, child: Node, tokens: int) -> Node:
        """The first ``tokens`` of ``child`` as a node of their own before it."""
        parent = child.parent
        assert parent is not None
        text = TokenText(child.runs)
        upper = Node(parent, child.key, text.part(0, tokens))
        upper.locks = child.locks
        parent.children[child.key] = upper
        child.parent, child.key = upper, self._key(text, tokens)
        child.runs, child.tokens = text.part(tokens, child.tokens), child.tokens - tokens
        upper.children[child.key] = child
        self._use(upper)
        self._use(child)
        return upper

    def _use(self, node: Node, used: int = 0) -> None:
        """``node`` is used now."""
        if not used:
            self._now += 1
            used = self._now * DEEPEST
        node.used = used
        self._offer(node)

    def _offer(self, node: Node) -> None:
        if not node.children and not node.locks and node.parent is not None:
            self._number += 1
            heappush(self._leaves, (node.used, self._number, node))
