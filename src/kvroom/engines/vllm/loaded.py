"""Weights as vLLM holds them once loaded, over what the checkpoint's tensors come to.

On top of a checkpoint: rotary tables, a second copy of latent attention's up-projections, four-bit experts
padded to their kernel's tiles. Under it: encoders, which are cut over tensor ranks.

Sources: ``RotaryEmbedding._compute_cos_sin_cache``, ``MLAAttention.process_weights_after_loading``,
``Mxfp4MoEMethod.create_weights`` and ``mm_encoder_tp_mode`` of the releases, held against "Model loading
took" of starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.vllm.platform import HOPPER
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.models.kinds import FullAttention, HeadedAttention, Latent
from kvroom.models.tensors import Tensor
from kvroom.sharding.layout import Rank
from kvroom.units import ceil_div

BAND = (0.999, 1.01)
"""Loaded over reckoned: the 80 % band of starts that print it (0.3 % in the median)."""
MXFP4 = Fraction(17, 32)
"""Bytes a padded number: half a byte, and a scale byte for 32."""
LATENT_ROPE_BYTES, ROPE_BYTES = 4, 2
TWO_BASES = ("gemma3", "gemma4", "mimo", "step3")
"""Models whose windows turn by another base than full attention: a table for each."""
FAR_UNTURNED = ("llama4", "cohere2", "exaone4")
"""Models whose full layers have no rotary positions."""
PARTLY_TURNED = {
    "qwen3_next": "1/4", "qwen3_5": "1/4", "qwen3_5_moe": "1/4", "gpt_neox": "1/4",
    "stablelm": "1/4", "phi": "1/2", "phi-msft": "2/5", "glm": "1/2", "glm4": "1/2",
    "glm4_moe": "1/2", "minimax_m2": "1/2", "nemotron": "1/2", "chatglm": "1/2",
}  # fmt: skip
"""The share of a head that is turned (``partial_rotary_factor``), where not all of it."""
ROCM_GROUPED = Fraction(1, 25)
"""What grouped four-bit experts take on ROCm over their checkpoint: seven starts, 3.7 to 4.3 %."""


def loaded(vllm_setup: VllmSetup, rank: Rank) -> int:
    """Bytes of weights on ``rank`` once loaded."""
    size = rank.weight_bytes
    if vllm_setup.d.model.file_bytes is not None or vllm_setup.platform.cpu:
        return size
    more = (
        rotary(vllm_setup, rank)
        + second_copies(vllm_setup, rank)
        + padding(vllm_setup, rank)
        + _grouped(vllm_setup, rank)
    )
    return size + more - spared(vllm_setup, rank)


def band(size: int) -> tuple[int, int]:
    """The ends of its 80 % band."""
    return round(size * BAND[0]), round(size * BAND[1])


def rotary(vllm_setup: VllmSetup, rank: Rank) -> int:
    """Cosines and sines of every position, a table for each kind of attention on the rank."""
    model = vllm_setup.d.model
    positions = model.max_context_tokens or 0
    if len(model.embedding) > 1:  # a table of learned positions instead
        return 0
    family = model.model_type
    two_bases = family.startswith(TWO_BASES)
    turned = Fraction(PARTLY_TURNED.get(family, 1))
    near = any(kind.window_tokens is not None for kind, _ in model.stores)
    tables: set[tuple[str, int, int]] = set()
    for kind, _ in rank.stores:
        if isinstance(kind, Latent):
            tables.add(("", kind.rope_dim, LATENT_ROPE_BYTES))
        elif isinstance(kind, HeadedAttention) and not kind.fixed_size:
            if near and isinstance(kind, FullAttention) and family.startswith(FAR_UNTURNED):
                continue
            tables.add((kind.kind if two_bases else "", int(kind.k_dim * turned), ROPE_BYTES))
    return sum(positions * width * each for _, width, each in tables)


def second_copies(vllm_setup: VllmSetup, rank: Rank) -> int:
    """Latent attention's up-projections once more, in 16 bits, as decoding multiplies by them."""
    total = 0
    for layer, count in _held(vllm_setup, rank):
        for t in layer:
            if t.name.endswith("kv_b_proj"):
                total += count * ceil_div(t.rows * t.columns, vllm_setup.d.layout.tp) * 2
    return total


def padding(vllm_setup: VllmSetup, rank: Rank) -> int:
    """What MXFP4 experts take beyond their own bytes: their sides are padded to whole tiles."""
    layout, hidden = vllm_setup.d.layout, vllm_setup.d.model.hidden_size
    rule = vllm_setup.d.weights.quantisation
    if not rule.linear.name.startswith("mxfp4"):
        return 0
    more = Fraction(0)
    tile, wide_tile = _tiles(vllm_setup)
    for layer, count in _held(vllm_setup, rank):
        for t in layer:
            if t.part != "expert" or not t.is_matrix:
                continue
            experts = ceil_div(t.count, layout.ep)
            inner = t.columns if "down" in t.name else t.rows
            own = Fraction(inner, layout.expert_cut) * hidden
            padded = _up(ceil_div(inner, layout.expert_cut), tile) * _up(hidden, wide_tile)
            more += count * experts * (padded - own) * MXFP4
    return int(more)


def _grouped(vllm_setup: VllmSetup, rank: Rank) -> int:
    """What four-bit experts with groups of scales take more on ROCm, whose kernels are not Marlin's."""
    linear = vllm_setup.d.weights.quantisation.linear
    if (
        not vllm_setup.platform.hip
        or linear.bits != 4
        or linear.name.startswith(("mxfp4", "nvfp4"))
    ):
        return 0
    return int(sum(size for size, _, _ in rank.experts) * ROCM_GROUPED)


def _tiles(vllm_setup: VllmSetup) -> tuple[int, int]:
    """(what an expert's inner side is a multiple of, what its hidden side is).

    The kernels that the release takes on this card: Triton on Hopper while it was the default, TRT-LLM
    on data-centre Blackwell, AITER or Triton on ROCm, else Marlin.
    """
    if vllm_setup.platform.hip or vllm_setup.platform.cuda == HOPPER + 1:
        return 256, 256
    if vllm_setup.platform.cuda == HOPPER and vllm_setup.rules.triton_mxfp4:
        return 256, 1
    return 128, 256


def spared(vllm_setup: VllmSetup, rank: Rank) -> int:
    """What a rank does not hold of encoders: their matrices are cut over tensor ranks by default."""
    model, tp = vllm_setup.d.model, vllm_setup.d.layout.tp
    if tp == 1 or rank.stage or not model.beside:
        return 0
    if _text_only(vllm_setup.d.args):
        return 0
    mode = _arg(vllm_setup.d.args, "mm_encoder_tp_mode")
    if isinstance(mode, str) and mode.strip().lower() == "data":
        return 0
    weights, layout = vllm_setup.d.weights, vllm_setup.d.layout
    whole = sum(
        weights.bytes_on(t, None, layout)
        for t in model.beside
        if t.is_matrix and t.split == "replicated" and t.rows % tp == 0
    )
    return whole - whole // tp


def _held(vllm_setup: VllmSetup, rank: Rank) -> list[tuple[tuple[Tensor, ...], int]]:
    """The tensors of each kind of layer on ``rank``, with how many such layers it has."""
    made, first = [], 0
    for run in vllm_setup.d.model.layers:
        held = min(first + run.count, rank.layers.stop) - max(first, rank.layers.start)
        if held > 0:
            made.append((run.layer.tensors, held))
        first += run.count
    return made


def _up(n: int, tile: int) -> int:
    return ceil_div(n, tile) * tile


def _text_only(args: Mapping[str, Any]) -> bool:
    value = _arg(args, "language_model_only")
    return value is not None and read.switch("engine_args.language_model_only", value)


def _arg(args: Mapping[str, Any], name: str) -> Any:
    return next((value for key, value in args.items() if read.plain_name(key) == name), None)
