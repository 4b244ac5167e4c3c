"""The static part: the share of free memory that SGLang gives to weights and cache together.

Unless ``mem_fraction_static`` is given it is what is left after an estimate, in MiB, of what prefill
chunks and CUDA graphs will need; the estimate is never measured.
"""

from __future__ import annotations

from kvroom.engines.sglang.resolved_args import KIB, SglangArgs, hopper_qwen3_vl
from kvroom.models.spec import Vision
from kvroom.records import dataclass
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


def static_share(args: SglangArgs) -> StaticShare:
    """The share that ``s`` asks for or that SGLang chooses."""
    activations, graphs = _activations_mib(args), _graphs_mib(args)
    given = args.flags.static_share
    if given is not None:
        return StaticShare(given, round(activations * MIB), round(graphs * MIB), given=True)
    mib = args.platform.memory_mib
    if args.rules.reserve_from_chunk:
        reserve = activations + graphs
        if args.rules.prefill_graph_divisor:
            reserve -= _prefill_mib(args)
        if mib > 60 * KIB:
            reserve = max(reserve, FLOOR_MIB)
        if args.rules.prefill_graph_divisor:
            reserve += _prefill_mib(args)
        reserve += _draft_mib(args)
        if args.flags.a2a == "deepep" and (
            args.flags.decode_graphs or args.rules.graphs_counted_when_off
        ):
            reserve += args.rules.deepep_mib
    else:
        reserve = _tier_mib(args)
    fraction = round((mib - reserve) / mib, 3)
    if args.traits.multimodal and args.traits.vision is not None:
        fraction *= vision_factor(args.traits.vision)
    if (
        args.platform.sm == 0
        and args.d.device.vendor.lower() == "amd"
        and args.d.context_tokens > 8192
    ):
        fraction *= 0.85
    return StaticShare(fraction, round(activations * MIB), round(graphs * MIB), given=False)


def vision_factor(tower: Vision) -> float:
    """What multimodal models scale the share by: 0.95, less for towers above ViT-L/14 (24 × 1024²)."""
    layers, hidden = tower.num_hidden_layers or 24, tower.hidden_size or 1024
    ratio = layers * hidden**2 / (24 * 1024**2)
    adjusted = max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0)))
    return 0.95 * adjusted


def image_reserve_mib(args: SglangArgs) -> int:
    """MiB kept for image features and embeddings, which are allocated after the cache."""
    if not args.traits.multimodal or not args.rules.image_cache_mib:
        return 0
    transport, cache, pool = args.flags.feature_transport, args.rules.image_cache_mib, KIB
    if hopper_qwen3_vl(args):
        cache = 0
        transport = transport or "cuda_ipc"
        if transport == "cuda_ipc" and (args.flags.requests or 0) >= 400:
            pool = 3 * KIB
    return cache + (pool if transport in ("cuda_ipc", "cuda_vmm") else 0)


def _activations_mib(args: SglangArgs) -> float:
    """Prefill's working set: 1.5 MiB a token of the chunk, 512 MiB besides, 128 for each GPU."""
    tokens = args.chunk if args.chunk > 0 else args.flags.prefill_tokens
    gpus = args.d.layout.tp * args.d.layout.pp
    return 512 + max(tokens, 2048) * 1.5 + gpus / 8 * 1024


def _graphs_mib(args: SglangArgs) -> float:
    """CUDA graphs: 2 MiB a request of the largest decode batch, more under data-parallel attention."""
    size, groups = args.graph_size, args.flags.attention_dp
    mib = 0.0
    if args.flags.decode_graphs or args.rules.graphs_counted_when_off:
        mib += size * 2
    if groups > 1:
        mib += size * groups * 3
        if size > 300:
            mib += size * groups * 1.5
    return mib + _prefill_mib(args)


def _prefill_mib(args: SglangArgs) -> float:
    if not args.prefill_graphs:
        return 0.0
    deepep = args.flags.a2a == "deepep" and args.rules.prefill_graphs == "breakable"
    extra = KIB if deepep and args.rules.prefill_graphs_with_latents else 0
    if args.traits.latent and args.rules.prefill_graphs != "asked":
        return 1.5 * KIB + extra
    most = args.flags.prefill_graph_size or _prefill_graph_tokens(args)
    if args.rules.prefill_graph_divisor:
        return float(most // args.rules.prefill_graph_divisor)
    sizes = args.flags.prefill_graph_sizes or prefill_graph_sizes(most)
    return len(sizes) * 8 + extra


def _prefill_graph_tokens(args: SglangArgs) -> int:
    tokens = args.chunk
    if args.rules.prefill_graphs == "asked" and args.traits.latent:
        tokens = 2048
    if args.flags.max_tokens is not None and args.rules.prefill_graphs == "breakable":
        tokens = min(tokens, args.flags.max_tokens)
    return min(tokens, 4096) if "llama-2" in args.d.model.name.lower() else tokens


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


def _draft_mib(args: SglangArgs) -> int:
    if args.draft is None or args.draft.algorithm == "NGRAM":
        return 0
    return (
        args.rules.standalone_mib if args.draft.algorithm == "STANDALONE" else args.rules.eagle_mib
    )


def _tier_mib(args: SglangArgs) -> float:
    """Up to 0.5.2: by the card's size alone, with 4 GiB more for data-parallel attention."""
    gpus = args.d.layout.tp * args.d.layout.pp
    gib = next(
        (keep + gpus / per for below, keep, per in TIERS if args.platform.memory_mib < below * KIB),
        32.0,
    )
    mib = gib * KIB
    if args.draft is not None:
        mib += (
            args.rules.standalone_mib
            if args.draft.algorithm == "STANDALONE"
            else args.rules.eagle_mib
        )
    return mib + (4 * KIB if args.flags.attention_dp > 1 else 0)
