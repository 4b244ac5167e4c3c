"""Lightning attention with full attention at every eighth layer: MiniMax-Text-01 and MiniMax-M1.

A linear layer keeps a matrix of head_dim × head_dim for each head and no convolution. Sources:
arXiv:2501.08313, transformers' ``minimax`` class, MiniMax's published code (``attn_type_list``, and the
shared block that a non-zero ``shared_intermediate_size`` adds), vLLM's ``minimax_text_01``.
"""

from __future__ import annotations

from typing import Any

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, around, sizes
from kvroom.models.hf.experts import filled
from kvroom.models.hf.hybrid import attention, block
from kvroom.models.hf.recurrent import LAYER_TYPES, Mixer, grouped_vector, layer_types, state_dtype
from kvroom.models.kinds import RecurrentState
from kvroom.models.spec import ModelSpec

KNOWN: dict[Any, str] = {**LAYER_TYPES, 0: "state", 1: "full"}


def minimax(config: Config) -> ModelSpec:
    """MiniMax-Text-01 and M1; experts in every layer."""
    config = filled(
        config,
        intermediate_size=14336,
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
    )
    dims = sizes(config)
    count = config.integer("num_local_experts", "num_experts", high=100_000)
    forward = (
        *parts.router(dims.hidden, count, name="block_sparse_moe.gate"),
        *parts.experts(
            dims.hidden,
            config.integer(*INNER),
            count,
            config.integer("num_experts_per_tok", high=count),
            name="block_sparse_moe.experts",
            names=("w1", "w3", "w2"),
        ),
    )
    shared = config.integer("shared_intermediate_size", default=0, low=0)
    if shared:
        forward += (
            *parts.mlp(dims.hidden, shared, name="shared_mlp", part="shared_expert"),
            *parts.router(dims.hidden, 1, name="coefficient"),
        )
    types = layer_types(
        config,
        "attn_type_list",
        "layer_types",
        length=dims.layers,
        allowed=("state", "full"),
        default=["state" if index % 2 else "full" for index in range(dims.layers)],
        known=KNOWN,
    )
    norms = ("input_layernorm", "post_attention_layernorm")
    layer_of = {
        "full": block(dims.hidden, attention(dims), forward, norms),
        "state": block(dims.hidden, _lightning(config, dims), forward, norms),
    }
    return around(config, dims, [layer_of[kind] for kind in types])


def _lightning(config: Config, dims: Sizes) -> Mixer:
    wide = dims.heads * dims.head_dim
    return Mixer(
        stores=(
            RecurrentState(
                heads=dims.heads,
                head_elements=dims.head_dim * dims.head_dim,
                form="lightning",
                dtype=state_dtype(config),
            ),
        ),
        tensors=(
            *(
                t
                for module, rows in (("qkv_proj", 3 * wide), ("output_gate", wide))
                for t in parts.linear(
                    f"self_attn.{module}",
                    rows,
                    dims.hidden,
                    part="state",
                    split="column",
                    units=dims.heads,
                )
            ),
            *grouped_vector("self_attn.norm", wide, dims.heads),
            *parts.linear(
                "self_attn.out_proj", dims.hidden, wide, part="state", split="row", units=dims.heads
            ),
        ),
    )
