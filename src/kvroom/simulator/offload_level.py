"""A tier below the GPUs as one engine gets at it: what it holds, the links that lead there, its rules."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import field

from kvroom.records import dataclass
from kvroom.simulator.tier_store import Store
from kvroom.simulator.transfer_queue import SAME, TransferQueue, Width


@dataclass(kw_only=True)
class OffloadLevel:
    """A tier as one engine gets at it.

    ``links`` are what its transfers to and from the GPUs go through, the tier's own last. ``back``: it is
    written when the tier above evicts. ``layerwise``: layers are computed as they come in. ``shared``: other
    engines use ``store`` too. ``chunk``: it keeps and finds so many pages as one, under the name of the last.
    ``selective``: a page is written when it is used again. ``follows``: it is written when the tier above
    was. ``width``: what it stores over what the GPU does. ``block_bytes``: of a block in it.
    """

    name: str
    store: Store
    links: tuple[TransferQueue, ...]
    latency_ps: int = 0
    back: bool = False
    inclusive: bool = True
    layerwise: bool = False
    shared: bool = False
    chunk: int = 1
    selective: bool = False
    follows: bool = False
    width: Width = SAME
    block_bytes: int = 0
    hit_tokens: int = 0
    read_blocks: int = 0
    written_pages: int = 0
    waits_ps: array[int] = field(default_factory=lambda: array("q"))

    def own(self, names: Sequence[int], first: int = 0) -> Sequence[int]:
        """What it calls a prompt's pages from the ``first`` on: of chunks, the whole ones' last pages."""
        return names if self.chunk == 1 else names[-(first + 1) % self.chunk :: self.chunk]
