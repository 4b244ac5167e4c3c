"""Weight tensors: their shapes, which part of a model they are, how ranks share them out."""

from __future__ import annotations

from typing import Literal

from kvroom.records import dataclass

Part = Literal[
    "embedding",  # looked-up rows: token and position tables
    "head",  # the output projection to the vocabulary
    "attention",
    "mlp",
    "expert",  # routed experts
    "shared_expert",
    "router",
    "norm",  # norms and other vectors that stay small
    "state",  # projections, convolutions and vectors of recurrent layers
    "encoder",  # encoder stacks, vision and audio towers, their projectors
]
Split = Literal[
    "column",  # the output rows are cut over tensor-parallel ranks
    "row",  # the input columns are cut
    "kv",  # as column, but cut at KV heads: replicated where there are more ranks than heads
    "expert",  # whole experts over expert-parallel ranks, each cut over the tensor ranks left
    "vocab",  # rows of the vocabulary
    "replicated",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """``count`` equal weight tensors of shape ``rows`` × ``columns``.

    ``name`` is the module's name inside its layer as in the published checkpoint (``self_attn.q_proj``),
    by which quantisation configs speak of it. ``units`` is how many heads a cut may separate (0:
    anywhere). ``active`` is how many of ``count`` experts one token uses.
    """

    name: str
    rows: int
    columns: int = 1
    count: int = 1
    part: Part
    split: Split = "replicated"
    units: int = 0
    active: int = 0

    @property
    def elements(self) -> int:
        """Parameters in all ``count`` tensors."""
        return self.rows * self.columns * self.count

    @property
    def is_matrix(self) -> bool:
        """Whether it is a linear layer's matrix (what quantisation touches), not a vector or bias."""
        return self.columns > 1
