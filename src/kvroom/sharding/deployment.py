"""What an engine's rules are asked about: a model in a layout on a device, with all that is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from kvroom.hardware.device import Device, Tier
from kvroom.models.dtypes import Dtype
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.scenario.engine_names import DEFAULT_ENGINE
from kvroom.scenario.offload import OffloadTier
from kvroom.scenario.speculation import Speculation
from kvroom.sharding.extras import Extras
from kvroom.sharding.layout import Layout, Rank, WeightMap


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A model, its weights and cache width, on a device, in a layout, served by an engine.

    ``ranks`` holds one GPU of each pipeline stage, a draft's cache included. ``context_tokens`` is the
    most one request may hold (``context_given``: by the question, not as the model's own limit).
    ``host`` is the machine's host memory (None: it has none of its own).
    ``extras`` are what is loaded beside the model. ``args`` are the engine's own flags, ``known_bytes``
    what was measured on one GPU in place of an estimate. ``kv_asked`` is the cache dtype as asked,
    ``kv_name`` the same with ``auto`` resolved; ``weights_asked`` the weights' (None: the checkpoint's own).
    ``speculation`` is how tokens are drafted, None where
    they are not. ``recipe`` is how the server is set up, as the question says, ``tiers`` the memory below the
    GPUs that keeps cache.
    """

    model: ModelSpec
    weights: WeightMap
    ranks: Sequence[Rank]
    layout: Layout
    device: Device
    host: Tier | None = None
    kv: Dtype
    kv_name: str
    kv_asked: str = "auto"
    weights_asked: str | None = None
    context_tokens: int
    context_given: bool = True
    encoder_tokens: int = 0
    engine: str = DEFAULT_ENGINE
    version: str | None = None
    recipe: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    known_bytes: Mapping[str, int] = field(default_factory=dict)
    concurrency: int | None = None
    extras: Extras = field(default_factory=Extras)
    speculation: Speculation | None = None
    tiers: tuple[OffloadTier, ...] = ()

    @property
    def own_ranks(self) -> Sequence[Rank]:
        """The ranks without a draft's cache, which is no part of the model's own step."""
        return self.weights.ranks(self.layout) if self.extras.draft_layers else self.ranks

    def loaded_bytes(self, rank: Rank) -> int:
        """What lies on ``rank`` before any cache: its weights, and adapters and a draft beside them."""
        return rank.weight_bytes + self.extras.loaded_bytes(rank.stage)

    def request_bytes(self, rank: Rank) -> int:
        """What one request of ``context_tokens`` stores on ``rank``."""
        return rank.request_bytes(self.context_tokens, self.kv, self.encoder_tokens)
