"""A Spec: what vLLM keeps of one layer (its ``KVCacheSpec``).

The type of cache, tokens in a block, bytes of one block, and what must be equal for two layers to
share a group. A layer with two caches (an indexer beside its latent, state beside attention) has two.
"""

from __future__ import annotations

from typing import Literal

from kvroom.records import dataclass

Type = Literal["full", "latent", "window", "chunked", "state", "cross"]
FULL: tuple[Type, ...] = ("full", "latent")
"""Types that keep every token."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What is kept of one layer.

    ``shape`` is what else must be equal to share a group. ``window`` is a window's or a chunk's
    tokens. Of state a request holds ``blocks``, and where ``grows`` one for each block of tokens too;
    where its kernels save a state within a step, that lies at a multiple of ``checkpoint_tokens``.
    """

    type: Type
    block_tokens: int
    page_bytes: int
    shape: tuple[int, ...]
    window: int = 0
    blocks: int = 0
    grows: bool = False
    checkpoint_tokens: int = 0

    @property
    def shardable(self) -> bool:
        """Whether decode-context ranks share its tokens out among them."""
        return self.type in FULL


LayerSpec = tuple[int, Spec]
"""A layer's index and what is kept of it."""
