"""An allocation that a GPU had no room for, as an engine's log tells it: when, how much, of how much."""

from __future__ import annotations

from kvroom.records import dataclass
from kvroom.units import MIB

WHEN = {
    "load": "as it loaded the weights",
    "profile": "in its profiling run",
    "sampler": "as it warmed up its sampler",
    "buffers": "as it made its compute buffers",
    "cache": "as it made its cache",
    "graphs": "as it captured its graphs",
    "serve": "while it served",
    "": "as it started",
}
"""Stages of a start, in words."""
INNER = ("serve", "cache", "graphs", "profile", "load", "buffers", "sampler")
"""Of stages that a traceback names one within the other, the later here is the one that counts."""
OTHERS_BYTES = 512 * MIB
"""Less than this beside a process is its own context, or the driver's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """One failed allocation. Bytes are None where the message does not say them; ``held_bytes`` is what
    the process had already, ``text`` the message."""

    stage: str
    tried_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    held_bytes: int | None = None
    text: str = ""

    @property
    def short_bytes(self) -> int:
        """By how much the one allocation was too large; 0 where that is not told."""
        if self.tried_bytes is None or self.free_bytes is None:
            return 0
        return max(0, self.tried_bytes - self.free_bytes)

    @property
    def others_bytes(self) -> int:
        """What other processes held of the card; 0 where that is not told or next to nothing."""
        if self.total_bytes is None or self.free_bytes is None or self.held_bytes is None:
            return 0
        if self.held_bytes > self.total_bytes:  # a container without the host's processes
            return 0
        rest = self.total_bytes - self.free_bytes - self.held_bytes
        return rest if rest > OTHERS_BYTES else 0


def inner(before: str, now: str) -> str:
    """The stage that a traceback means which names ``now`` within ``before``."""
    ranks = {name: rank for rank, name in enumerate(INNER)}
    return now if ranks.get(now, -1) >= ranks.get(before, -1) else before
