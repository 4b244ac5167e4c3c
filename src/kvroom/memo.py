"""A cache of results, found by the identity of the objects that they were computed from.

Models and weights are large, frozen and shared: comparing them by value would cost more than computing
the result again. The objects stay alive together with the result, so an identity never comes to mean
another object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """Up to ``most`` results; when there are more, it forgets all of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[tuple[object, ...], tuple[tuple[object, ...], T]] = {}

    def get(
        self, whose: tuple[object, ...], values: tuple[object, ...], make: Callable[[], T]
    ) -> T:
        """The result of ``make`` for exactly these objects ``whose`` and equal ``values``."""
        key = (*map(id, whose), *values)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= self._most:
                self._made.clear()
            found = self._made[key] = (whose, make())
        return found[1]
