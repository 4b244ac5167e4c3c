"""How much of a trace's prompts a prefix cache of any size would have held already.

One call reads the references, plays the policies and tells how long blocks live; what a hit ratio
costs in bytes is asked of ``Reuse.needs`` and a model's ``Price``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from math import ceil
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.dtypes import Dtype
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.simulator import replacement
from kvroom.simulator.references import InfiniteCache, References, infinite_cache
from kvroom.simulator.replacement import StackHits
from kvroom.units import ceil_div, check_int
from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.statistics import fragmentation, spread, spread_s

BLOCK_TOKENS = 16
"""vLLM's default, where the trace does not say."""
POLICIES = ("lru", "lru-tail", "fifo", "lfu", "belady")
MAX_BLOCK_TOKENS = 2**20
MAX_CAPACITY_BLOCKS = 10**12
SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Of the hits of a cache without limit: what ``needs`` asks the size for."""
PERCENTS_OF_UNIQUE = (1, 5, 10, 25, 50, 100)
WITHIN_S = (1, 10, 60, 600, 3600)


@dataclass(frozen=True, slots=True)
class Need:
    """The smallest LRU cache that reaches ``share`` of the best hit ratio."""

    share: float
    hit_ratio: float
    blocks: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Price:
    """What cached prefixes of a model cost: ``bytes_per_token``, and ``fixed_bytes`` a prefix.

    The latter are windows and recurrent state, kept once for every prompt that is to be continued.
    """

    name: str
    kv: Dtype
    bytes_per_token: Fraction
    fixed_bytes: int

    @classmethod
    def of(cls, model: ModelSpec, kv: Dtype) -> Price:
        """The price for ``model`` with its cache stored as ``kv``, every byte once."""
        growth = sum((kind.growth(kv) * count for kind, count in model.stores), Fraction(0))
        ended = (kind for kind in model.stores if not kind[0].growth(kv))
        fixed = sum(k.stored_bytes(MAX_CAPACITY_BLOCKS, kv) * n for k, n in ended)
        return cls(model.name, kv, growth, fixed)

    def bytes(self, tokens: int) -> int:
        """Bytes of so many cached tokens."""
        return ceil(self.bytes_per_token * tokens)


@dataclass(frozen=True, slots=True)
class TierHits:
    """What one of several tiers adds: ``blocks`` it holds, and the hits that need it, over all
    references. ``total_ratio``: with all tiers above it."""

    tier: str
    bytes: int
    blocks: int
    hit_ratio: float
    total_ratio: float


def placed(size_bytes: int, rooms: Mapping[str, int]) -> dict[str, int]:
    """``size_bytes`` put into the ``rooms`` (bytes by tier, the fastest first); ``missing`` is the rest."""
    by_tier: dict[str, int] = {}
    for name, room in rooms.items():
        by_tier[name] = min(size_bytes, room)
        size_bytes -= by_tier[name]
    return by_tier | {"missing": size_bytes} if size_bytes else by_tier


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """What a trace's prefixes allow a cache.

    ``hit_ratio[policy][capacity]`` are hits over references. ``lru`` holds the hits at every size.
    """

    refs: References
    infinite: InfiniteCache
    lru: StackHits
    hit_ratio: dict[str, dict[str, float]]

    @property
    def token_hit_ratio(self) -> float:
        """Prompt tokens found in a cache without limit, over all prompt tokens."""
        total = sum(self.refs.input_tokens)
        return self.infinite.hit_tokens / total if total else 0.0

    def needs(self, shares: Iterable[float] = SHARES) -> list[Need]:
        """How large an LRU cache must be to reach each share of the best hit ratio."""
        distances, reached = self.lru.curve()
        if not distances:
            return []
        needs: list[Need] = []
        for share in shares:
            blocks = self.lru.blocks_for(-int(-share * reached[-1] // 1))
            ratio = self.lru.ratio(blocks)
            needs.append(Need(share, ratio, blocks, blocks * self.refs.block_tokens))
        return needs

    def by_tier(self, rooms: Mapping[str, int], price: Price) -> list[TierHits]:
        """The hits of each of ``rooms`` (bytes by tier, the fastest first), each block kept once, in the
        nearest tier that holds as many blocks as were used since: from the one pass of reuse distances."""
        rows: list[TierHits] = []
        above = 0
        size = price.bytes(self.refs.block_tokens)
        for name, room in rooms.items():
            blocks = room // size if size else 0
            before, after = self.lru.ratio(above), self.lru.ratio(above + blocks)
            rows.append(TierHits(name, room, blocks, after - before, after))
            above += blocks
        return rows

    def curve(self, points: int) -> list[tuple[int, float]]:
        """(blocks, hit ratio) of LRU caches, sizes evenly spaced on a logarithmic scale."""
        distances, _ = self.lru.curve()
        if not distances:
            return []
        sizes = log_spaced(distances[-1], points)
        return [(size, self.lru.ratio(size)) for size in sizes]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values."""
        refs = self.refs
        return {
            "block_tokens": refs.block_tokens,
            "requests": len(refs.ends),
            "unknown_requests": refs.unknown_requests,
            "references": len(refs.blocks),
            "unique_blocks": refs.unique_blocks,
            "hit_blocks": self.infinite.hit_blocks,
            "token_hit_ratio": self.token_hit_ratio,
            "hit_ratio": self.hit_ratio,
            "fragmentation": fragmentation(refs.lengths),
            "needs": [asdict(need) for need in self.needs()],
            "curve": [{"blocks": b, "hit_ratio": r} for b, r in self.curve(64)],
            **ages(refs),
        }


def log_spaced(largest: int, points: int) -> list[int]:
    """At most ``points`` whole numbers from 1 to ``largest``, each about the same multiple on."""
    if points < 2 or largest < 2:
        return [largest]
    steps = (round(largest ** (index / (points - 1))) for index in range(points))
    return sorted({*steps, largest})


def reuse(
    requests: Iterable[Request],
    block_tokens: int,
    policies: Sequence[str] = ("lru",),
    capacities: Sequence[int] = (),
) -> Reuse:
    """Read ``requests`` once, in their order, and play each policy at each capacity (in blocks).

    Without capacities, at PERCENTS_OF_UNIQUE of the distinct blocks.
    Raises KvroomError for an unknown policy or a size out of range.
    """
    check_int("--block-tokens", block_tokens, low=1, high=MAX_BLOCK_TOKENS, unit="tokens")
    for capacity in capacities:
        check_int("--capacity", capacity, low=1, high=MAX_CAPACITY_BLOCKS, unit="blocks")
    for policy in policies:
        if policy not in POLICIES:
            fix = did_you_mean(policy, POLICIES, f"One of: {', '.join(POLICIES)}.")
            raise KvroomError("--policy", policy, "is no policy that kvroom plays", fix)
    refs = References.of(requests, block_tokens)
    stack = replacement.lru(refs)
    total = len(refs.blocks)
    if not capacities:
        unique = refs.unique_blocks
        capacities = sorted({ceil_div(unique * p, 100) for p in PERCENTS_OF_UNIQUE} - {0})
    ratios: dict[str, dict[str, float]] = {}
    for policy in dict.fromkeys(policies):
        hits = stack.hits if policy == "lru" else player(policy, refs)
        ratios[policy] = {
            str(capacity): hits(capacity) / total if total else 0.0 for capacity in capacities
        }
    return Reuse(refs=refs, infinite=infinite_cache(refs), lru=stack, hit_ratio=ratios)


def player(policy: str, refs: References) -> Callable[[int], int]:
    """The function capacity → hits of ``policy`` on ``refs``."""
    match policy:
        case "lru":
            return replacement.lru(refs).hits
        case "lru-tail":
            return replacement.lru_tail_first(refs).hits
        case "fifo":
            play: Callable[[int], int] = lambda size: replacement.fifo_hits(refs, size)  # noqa: E731
        case "lfu":
            play = lambda size: replacement.lfu_hits(refs, size)  # noqa: E731
        case _:
            uses = replacement.next_uses(refs)
            play = lambda size: replacement.belady_hits(uses, size)  # noqa: E731
    unique = refs.unique_blocks
    never_full = len(refs.blocks) - unique
    return lambda size: play(size) if size < unique else never_full


def ages(refs: References) -> dict[str, Any]:
    """How soon blocks are used again, how long they live, and how uses spread over blocks.

    ``reuse_time_s``: from one reference of a block to the next; ``reuse_within_s``: the share of those
    by a time. ``lifetime_s``: from a block's first reference to its last, of blocks used again.
    ``never_reused_ratio``: blocks referenced once. ``top_tenth_ratio``: the share of all hits that the
    most used tenth of the blocks gives. Times are arrivals; one out of order counts as 0.
    """
    unique = refs.unique_blocks
    first, latest = array("q", bytes(8 * unique)), array("q", bytes(8 * unique))
    uses = array("Q", bytes(8 * unique))
    gaps = array("q")
    for (start, end), arrival in zip(refs.spans(), refs.arrivals_ps, strict=True):
        for number in refs.blocks[start:end]:
            if uses[number]:
                gaps.append(max(0, arrival - latest[number]))
            else:
                first[number] = arrival
            uses[number] += 1
            latest[number] = arrival
    lives = [max(0, b - a) for a, b, use in zip(first, latest, uses, strict=True) if use > 1]
    repeats = sorted((use - 1 for use in uses), reverse=True)
    hits = sum(repeats)
    within = {
        str(limit): sum(gap <= limit * PS_PER_S for gap in gaps) / len(gaps) if gaps else 0.0
        for limit in WITHIN_S
    }
    return {
        "reuse_time_s": spread_s(gaps),
        "reuse_within_s": within,
        "lifetime_s": spread_s(lives),
        "uses_per_block": {key: value for key, value in spread(uses).items() if key != "sum"},
        "never_reused_ratio": sum(use == 1 for use in uses) / unique if unique else 0.0,
        "top_tenth_ratio": sum(repeats[: ceil_div(unique, 10)]) / hits if hits else 0.0,
    }
