"""Results kept by the identity of what they were made from.

Models and weights are large, frozen and shared: comparing them by value would cost more than what is made
from them. What a result was made from stays alive with it, so an identity never stands for another thing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """Up to ``most`` results; when there are more, all are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[tuple[object, ...], tuple[tuple[object, ...], T]] = {}

    def get(
        self, whose: tuple[object, ...], values: tuple[object, ...], make: Callable[[], T]
    ) -> T:
        """What ``make`` gives for these very objects ``whose`` and equal ``values``."""
        key = (*map(id, whose), *values)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= self._most:
                self._made.clear()
            found = self._made[key] = (whose, make())
        return found[1]
