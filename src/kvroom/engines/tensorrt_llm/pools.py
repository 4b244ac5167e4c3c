"""Pools of blocks: how many tokens a budget holds, and how many requests those.

Sources: ``KvCacheCreator`` (``_util.py``), ``KVCacheManager`` and ``MambaHybridCacheManager``
(``resource_manager.py``) of the PyTorch backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kvroom.engines.tensorrt_llm.flags import TensorrtLlmFlags
from kvroom.engines.tensorrt_llm.versions import TensorrtLlmRules
from kvroom.models.dtypes import BF16
from kvroom.models.kinds import (
    CrossAttention,
    FullAttention,
    HeadedAttention,
    LayerKind,
    SharedCache,
    SlidingWindow,
)
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank
from kvroom.sharding.ledger import LONGEST
from kvroom.units import ceil_div, longest_fit

OLD_BLOCK, BLOCK = 64, 32
V2_SHARE = Fraction(95, 100)
"""Part of its quota by which the cache manager V2 agrees on tokens among ranks."""


@dataclass(frozen=True)
class TensorrtLlmSetup:
    """One question with what its release makes of the flags."""

    d: Deployment
    rules: TensorrtLlmRules
    flags: TensorrtLlmFlags
    ranks: Sequence[Rank]
    uncut: Sequence[Rank]
    """The same stages with every head on them."""

    @property
    def pytorch(self) -> bool:
        """Whether the PyTorch backend runs it."""
        if self.flags.backend is None:
            return self.rules.pytorch
        return self.flags.backend not in ("tensorrt", "trt")

    @property
    def block_tokens(self) -> int:
        """Tokens of one block."""
        return self.flags.block_tokens or (BLOCK if self.pytorch else OLD_BLOCK)

    @property
    def length(self) -> int:
        """The longest request (max_seq_len)."""
        return self.flags.length or self.d.context_tokens

    @property
    def second_manager(self) -> bool:
        """Whether the cache manager V2 is used."""
        if self.flags.second_manager is not None:
            return self.flags.second_manager
        return self.d.model.model_type.startswith(self.rules.second_manager or ("-",))

    @property
    def attention_tp(self) -> int:
        """Tensor ranks that share a request's heads."""
        return 1 if self.flags.attention_dp else self.d.layout.tp

    @property
    def slots(self) -> int:
        """Slots of recurrent state."""
        return self.flags.requests * self.d.layout.pp + 1

    def window_of(self, kind: LayerKind) -> int:
        """Tokens back that a layer's cache is kept for (0: all)."""
        if not isinstance(kind, SlidingWindow):
            return 0
        own = kind.window
        if self.flags.windows:
            return own if own in self.flags.windows else 0
        mixed = any(isinstance(kind, FullAttention) for kind, _ in self.d.model.stores)
        return own if self.rules.windows_derived and mixed else 0


@dataclass(frozen=True)
class WindowPool:
    """The layers of one window (0: full attention) on one rank, and the tokens there is room for.

    ``each``: tokens that a request takes whatever its length (an encoder's output).
    """

    window: int
    token_bytes: Fraction
    tokens: int
    each: int = 0


@dataclass(frozen=True)
class WindowPools:
    """All pools of the rank with least room."""

    s: TensorrtLlmSetup
    stage: int
    pools: tuple[WindowPool, ...]
    cache_bytes: int
    state_bytes: int

    @property
    def main(self) -> WindowPool:
        """The pool of full attention, or else the widest window's."""
        return next(
            (pool for pool in self.pools if not pool.window),
            max(self.pools, key=lambda p: p.window),
        )

    @property
    def blocks(self) -> int:
        """Blocks of the main pool."""
        return self.main.tokens // self.s.block_tokens

    @property
    def tokens(self) -> int:
        """Tokens of the main pool: whole blocks."""
        return self.blocks * self.s.block_tokens

    def concurrency(self, tokens: int) -> float:
        """Requests of ``tokens`` that the pools hold at once."""
        block = self.s.block_tokens
        beams = self.s.flags.beams
        held = min(
            pool.tokens // block / (ceil_div(_kept(pool, tokens), block) * beams)
            for pool in self.pools
        )
        return min(held, float(self.s.flags.requests)) if self.state_bytes else held

    def longest(self) -> int:
        """The longest request that one block more would not fit (what max_seq_len is cut to)."""
        main = self.main
        if main.window:
            return longest_fit(lambda n: self.concurrency(n) >= 1, LONGEST)
        return max(0, self.tokens - self.s.block_tokens + 1)


def _kept(pool: WindowPool, tokens: int) -> int:
    if pool.each:
        return pool.each
    return min(tokens, pool.window) if pool.window else tokens


def growing(kind: LayerKind) -> bool:
    """Whether a store takes blocks (recurrent state takes slots, cross attention a pool of its own,
    a shared cache nothing)."""
    return not (kind.fixed_size or isinstance(kind, SharedCache))


def state_bytes(rank: Rank) -> int:
    """One slot of recurrent state on ``rank``."""
    return sum(kind.stored_bytes(1, BF16) * count for kind, count in rank.stores if kind.recurrent)


def estimated_token_bytes(setup: TensorrtLlmSetup, stage: int) -> Fraction:
    """Bytes a token as the estimate divides them: heads by ranks, even below one head."""
    total = Fraction(0)
    for kind, count in setup.uncut[stage].stores:
        if growing(kind):
            shared = setup.attention_tp if isinstance(kind, HeadedAttention) else 1
            total += Fraction(kind.block_bytes(1, setup.d.kv) * count, shared)
    return total


def pools_of(
    setup: TensorrtLlmSetup, budgets: Sequence[int], frees: Sequence[int]
) -> WindowPools | None:
    """The pools of the rank with least room; None where nothing is stored. ``budgets`` are bytes for
    cache by the estimate, ``frees`` bytes free as the pools are made, rank by rank."""
    made = [
        _rank_pools(setup, index, rank, budgets[index], frees[index])
        for index, rank in enumerate(setup.ranks)
        if any(growing(kind) for kind, _ in rank.stores)
    ]
    return min(made, key=lambda p: (p.concurrency(setup.length), p.stage), default=None)


def _rank_pools(
    setup: TensorrtLlmSetup, stage: int, rank: Rank, budget: int, free: int
) -> WindowPools:
    state = state_bytes(rank)
    if state:
        budget -= state * setup.flags.requests * setup.d.layout.pp
    groups: dict[int, int] = {}
    for kind, count in rank.stores:
        if growing(kind):
            window = setup.window_of(kind)
            groups[window] = groups.get(window, 0) + kind.block_bytes(1, setup.d.kv) * count
    budget = max(0, budget)
    crossed = sum(
        kind.block_bytes(1, setup.d.kv) * count
        for kind, count in rank.stores
        if isinstance(kind, CrossAttention)
    )
    cross = (
        int(Fraction(setup.flags.cross_share) * budget) if crossed and setup.d.encoder_tokens else 0
    )
    budget -= cross
    if setup.second_manager:
        pools = _coalesced(setup, groups, budget)
    elif len(groups) > 1:
        share = Fraction(budget, len(groups))
        pools = [WindowPool(key, Fraction(size), int(share / size)) for key, size in groups.items()]
    else:
        ((window, size),) = groups.items()
        rate = estimated_token_bytes(setup, stage)
        if state and setup.flags.state_interval:
            rate += state // setup.flags.state_interval
            size += state // setup.flags.state_interval
        tokens = int(budget / rate) if rate else 0
        if setup.flags.max_tokens is not None:
            tokens = min(tokens, setup.flags.max_tokens)
        taken = state * setup.flags.requests * setup.d.layout.pp
        again = int(Fraction(setup.flags.share) * max(0, free - taken) / size)
        pools = [WindowPool(window, Fraction(size), min(tokens, again))]
    if cross:
        pools.append(WindowPool(0, Fraction(crossed), cross // crossed, setup.d.encoder_tokens))
    block = setup.block_tokens
    held = sum(int(pool.tokens // block * block * pool.token_bytes) for pool in pools)
    return WindowPools(setup, stage, tuple(pools), held, state * setup.slots if state else 0)


def _coalesced(setup: TensorrtLlmSetup, groups: dict[int, int], budget: int) -> list[WindowPool]:
    """V2's pools: sized for each other by what one longest request needs of each."""
    block = setup.block_tokens

    def need(window: int) -> int:
        return ceil_div(min(setup.length, window) if window else setup.length, block) * block

    whole = sum(size * need(key) for key, size in groups.items())
    requests = budget * V2_SHARE / whole if whole else Fraction(0)
    if setup.flags.max_tokens is not None:
        requests = min(requests, Fraction(setup.flags.max_tokens, need(0)))
    return [
        WindowPool(key, Fraction(size), int(requests * need(key))) for key, size in groups.items()
    ]
