"""What an engine tells of its own prefix cache: blocks stored and removed, as vLLM's KV cache events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class KVEvents(Protocol):
    """Told of an engine's own prefix cache, in pages of as many blocks as one name stands for.

    ``blocks`` counts those beside the names that nobody can ask for by name: answers of which nothing
    is known. What is told of between two admissions comes in the engine's order.
    """

    @property
    def wants_removed(self) -> bool:
        """Whether ``removed`` is wanted: finding out which pages went takes an engine time."""
        ...

    def stored(self, names: Sequence[int], blocks: int, first: int = 0) -> None:
        """Pages that can be found from now on, those from the ``first`` of their request on: a prompt's when
        it is scheduled, an answer's when its request leaves."""
        ...

    def removed(self, names: Sequence[int], blocks: int) -> None:
        """Pages of which the engine no longer has all, in the order in which they went."""
        ...


class EventFanOut:
    """Cache events passed on to several listeners."""

    def __init__(self, *listeners: KVEvents) -> None:
        self.listeners = listeners

    @property
    def wants_removed(self) -> bool:
        """Whether any of the listeners wants to know."""
        return any(each.wants_removed for each in self.listeners)

    def stored(self, names: Sequence[int], blocks: int, first: int = 0) -> None:
        """As ``KVEvents.stored``."""
        for each in self.listeners:
            each.stored(names, blocks, first)

    def removed(self, names: Sequence[int], blocks: int) -> None:
        """As ``KVEvents.removed``."""
        for each in self.listeners:
            if each.wants_removed:
                each.removed(names, blocks)
