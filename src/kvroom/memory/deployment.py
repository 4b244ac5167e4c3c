"""What an engine's rules are asked about, and what they answer.

An engine is a function ``(Deployment) -> EngineAnswer`` in a module of ``memory/engines``; it turns a
device's bytes and a model's layout into accounts, cache bytes and what that engine would print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvroom.answer import Account, EngineCapacity
from kvroom.machines.spec import Device
from kvroom.memory.extras import Extras
from kvroom.memory.layout import Layout, Rank, WeightMap
from kvroom.models.dtypes import Dtype
from kvroom.models.spec import ModelSpec
from kvroom.speculation import Speculation


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A model, its weights and cache width, on a device, in a layout, served by an engine.

    ``ranks`` holds one GPU of each pipeline stage, a draft's cache included. ``context_tokens`` is the
    most one request may hold (``context_given``: by the question, not as the model's own limit).
    ``extras`` are what is loaded beside the model. ``args`` are the engine's own flags, ``known_bytes``
    what was measured on one GPU in place of an estimate. ``kv_asked`` is the cache dtype as asked,
    ``kv_name`` the same with ``auto`` resolved. ``speculation`` is how tokens are drafted, None where
    they are not.
    """

    model: ModelSpec
    weights: WeightMap
    ranks: Sequence[Rank]
    layout: Layout
    device: Device
    kv: Dtype
    kv_name: str
    kv_asked: str = "auto"
    context_tokens: int
    context_given: bool = True
    encoder_tokens: int = 0
    engine: str = "vllm"
    version: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    known_bytes: Mapping[str, int] = field(default_factory=dict)
    concurrency: int | None = None
    extras: Extras = field(default_factory=Extras)
    speculation: Speculation | None = None

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


@dataclass(frozen=True, kw_only=True)
class EngineAnswer:
    """What an engine makes of a Deployment.

    ``rank`` is the one that binds, ``gpu_bytes`` what the engine counts as one GPU's memory,
    ``accounts`` its shares (they add up to ``gpu_bytes``), ``kv_bytes`` what is left for cache on that
    rank. ``starts`` is whether the engine's own start would succeed; ``reason`` says why not.
    ``cache_given``: the cache's bytes were asked for outright, so the weights were not weighed.
    ``context_tokens``: what the engine shortened requests to, where the question left that to it.
    ``pools``: how many such caches one replica has (attention that is data parallel within it).
    ``limit`` says in a clause what keeps a request out that the bytes alone would admit, ``binding`` is
    the verdict's word for it where it is not the larger share of a request.
    """

    rank: Rank
    gpu_bytes: int
    accounts: tuple[Account, ...]
    kv_bytes: int
    capacity: EngineCapacity | None
    starts: bool = True
    reason: str = ""
    cache_given: bool = False
    context_tokens: int | None = None
    pools: int = 1
    limit: str = ""
    binding: str = ""
    warnings: tuple[str, ...] = ()


Engine = Callable[[Deployment], EngineAnswer]


def account(name: str, size: int, source: str, band: tuple[int, int] | None = None) -> Account:
    """An account of ``size`` bytes; without a ``band`` it is exact."""
    low, high = band or (size, size)
    return Account(name=name, bytes=size, low_bytes=low, high_bytes=high, source=source)


def longest_fit(holds: Callable[[int], bool], limit: int) -> int:
    """The largest n ≤ ``limit`` for which ``holds`` (true up to some n, false after), 0 for none."""
    if holds(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
