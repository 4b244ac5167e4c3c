"""What an engine answers.

An engine is a function ``(Deployment) -> EngineAnswer``; it turns a device's bytes and a model's layout
into accounts, cache bytes and what that engine would print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvroom.answer.plan import Account, EngineCapacity
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRefusal:
    """Why an engine would refuse to start: ``rule`` names it, ``fix`` is what would do instead, ``source``
    where that is known from. ``unsupported``: it does not run so at all."""

    rule: str
    message: str
    fix: str
    source: str
    unsupported: bool = False
    args: Mapping[str, Any] = field(default_factory=dict)
    """Flags that would do."""

    @property
    def sentence(self) -> str:
        """Message and fix as one clause."""
        return f"{self.message}: {self.fix}" if self.fix else self.message


@dataclass(frozen=True, kw_only=True)
class EngineAnswer:
    """What an engine makes of a Deployment.

    ``rank`` is the one that binds, ``gpu_bytes`` what the engine counts as one GPU's memory,
    ``accounts`` its shares (they add up to ``gpu_bytes``), ``kv_bytes`` what is left for cache on that
    rank. ``starts`` is whether the engine's own start would succeed; ``reason`` says why not, ``refusals``
    are the start rules that say so.
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
    refusals: tuple[StartRefusal, ...] = ()
    warnings: tuple[str, ...] = ()


Engine = Callable[[Deployment], EngineAnswer]


def account(name: str, size: int, source: str, band: tuple[int, int] | None = None) -> Account:
    """An account of ``size`` bytes; without a ``band`` it is exact."""
    low, high = band or (size, size)
    return Account(name=name, bytes=size, low_bytes=low, high_bytes=high, source=source)
