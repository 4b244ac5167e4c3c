"""The static part: the share of free memory that SGLang gives to weights and cache together.

Unless ``mem_fraction_static`` is given it is what is left after an estimate, in MiB, of what prefill
chunks and CUDA graphs will need; the estimate is never measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvroom.engines.sglang.resolved_args import KIB, SglangArgs, hopper_qwen3_vl
from kvroom.models.spec import Vision
from kvroom.units import MIB

FLOOR_MIB = 10 * KIB
"""The least that cards above 60 GiB keep free."""
TIERS = ((35, 2.8, 10), (90, 9.5, 2), (160, 12.0, 2))
"""Up to 0.5.2: (card below so many GiB, GiB kept, and one more for so many GPUs of a replica)."""


@dataclass(frozen=True, slots=True)
class StaticShare:
    """``fraction`` of free memory, and what the rest is meant for, in bytes as estimated."""

    fraction: float
    activations: int
    graphs: int
    given: bool


def static_share(s: SglangArgs) -> StaticShare:
    """The share that ``s`` asks for or that SGLang chooses."""
    activations, graphs = _activations_mib(s), _graphs_mib(s)
    given = s.flags.static_share
    if given is not None:
        return StaticShare(given, round(activations * MIB), round(graphs * MIB), given=True)
    mib = s.platform.memory_mib
    if s.rules.reserve_from_chunk:
        reserve = activations + graphs
        if s.rules.prefill_graph_divisor:
            reserve -= _prefill_mib(s)
        if mib > 60 * KIB:
            reserve = max(reserve, FLOOR_MIB)
        if s.rules.prefill_graph_divisor:
            reserve += _prefill_mib(s)
        reserve += _draft_mib(s)
        if s.flags.a2a == "deepep" and (s.flags.decode_graphs or s.rules.graphs_counted_when_off):
            reserve += s.rules.deepep_mib
    else:
        reserve = _tier_mib(s)
    fraction = round((mib - reserve) / mib, 3)
    if s.traits.multimodal and s.traits.vision is not None:
        fraction *= vision_factor(s.traits.vision)
    if s.platform.sm == 0 and s.d.device.vendor.lower() == "amd" and s.d.context_tokens > 8192:
        fraction *= 0.85
    return StaticShare(fraction, round(activations * MIB), round(graphs * MIB), given=False)


def vision_factor(tower: Vision) -> float:
    """What multimodal models scale the share by: 0.95, less for towers above ViT-L/14 (24 × 1024²)."""
    layers, hidden = tower.num_hidden_layers or 24, tower.hidden_size or 1024
    ratio = layers * hidden**2 / (24 * 1024**2)
    adjusted = max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0)))
    return 0.95 * adjusted


def image_reserve_mib(s: SglangArgs) -> int:
    """MiB kept for image features and embeddings, which are allocated after the cache."""
    if not s.traits.multimodal or not s.rules.image_cache_mib:
        return 0
    transport, cache, pool = s.flags.feature_transport, s.rules.image_cache_mib, KIB
    if hopper_qwen3_vl(s):
        cache = 0
        transport = transport or "cuda_ipc"
        if transport == "cuda_ipc" and (s.flags.requests or 0) >= 400:
            pool = 3 * KIB
    return cache + (pool if transport in ("cuda_ipc", "cuda_vmm") else 0)


def _activations_mib(s: SglangArgs) -> float:
    """Prefill's working set: 1.5 MiB a token of the chunk, 512 MiB besides, 128 for each GPU."""
    tokens = s.chunk if s.chunk > 0 else s.flags.prefill_tokens
    gpus = s.d.layout.tp * s.d.layout.pp
    return 512 + max(tokens, 2048) * 1.5 + gpus / 8 * 1024


def _graphs_mib(s: SglangArgs) -> float:
    """CUDA graphs: 2 MiB a request of the largest decode batch, more under data-parallel attention."""
    size, groups = s.graph_size, s.flags.attention_dp
    mib = 0.0
    if s.flags.decode_graphs or s.rules.graphs_counted_when_off:
        mib += size * 2
    if groups > 1:
        mib += size * groups * 3
        if size > 300:
            mib += size * groups * 1.5
    return mib + _prefill_mib(s)


def _prefill_mib(s: SglangArgs) -> float:
    if not s.prefill_graphs:
        return 0.0
    deepep = s.flags.a2a == "deepep" and s.rules.prefill_graphs == "breakable"
    extra = KIB if deepep and s.rules.prefill_graphs_with_latents else 0
    if s.traits.latent and s.rules.prefill_graphs != "asked":
        return 1.5 * KIB + extra
    most = s.flags.prefill_graph_size or _prefill_graph_tokens(s)
    if s.rules.prefill_graph_divisor:
        return float(most // s.rules.prefill_graph_divisor)
    sizes = s.flags.prefill_graph_sizes or prefill_graph_sizes(most)
    return len(sizes) * 8 + extra


def _prefill_graph_tokens(s: SglangArgs) -> int:
    tokens = s.chunk
    if s.rules.prefill_graphs == "asked" and s.traits.latent:
        tokens = 2048
    if s.flags.max_tokens is not None and s.rules.prefill_graphs == "breakable":
        tokens = min(tokens, s.flags.max_tokens)
    return min(tokens, 4096) if "llama-2" in s.d.model.name.lower() else tokens


def prefill_graph_sizes(most: int) -> list[int]:
    """The prefill lengths that graphs are captured for, up to ``most`` tokens."""
    ladder = (
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, most + 1, 512),
    )
    return [n for n in ladder if n <= most]


def _draft_mib(s: SglangArgs) -> int:
    if s.draft is None or s.draft.algorithm == "NGRAM":
        return 0
    return s.rules.standalone_mib if s.draft.algorithm == "STANDALONE" else s.rules.eagle_mib


def _tier_mib(s: SglangArgs) -> float:
    """Up to 0.5.2: by the card's size alone, with 4 GiB more for data-parallel attention."""
    gpus = s.d.layout.tp * s.d.layout.pp
    gib = next(
        (keep + gpus / per for below, keep, per in TIERS if s.platform.memory_mib < below * KIB),
        32.0,
    )
    mib = gib * KIB
    if s.draft is not None:
        mib += s.rules.standalone_mib if s.draft.algorithm == "STANDALONE" else s.rules.eagle_mib
    return mib + (4 * KIB if s.flags.attention_dp > 1 else 0)
