"""Gated delta networks with full attention at every fourth layer: Qwen3-Next, Qwen3.5, Olmo Hybrid.

A linear layer keeps, for each value head, a matrix of key × value width (the *delta rule* rewrites it
token by token), and a short convolution over its queries, keys and values. Full attention doubles its
query projection for an output gate and norms queries and keys. Sources: arXiv:2412.06464, transformers'
``qwen3_next`` and ``qwen3_5`` classes, vLLM's ``qwen3_next_mtp`` for multi-token prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.dtypes import Dtype
from kvroom.models.hf.common import INNER, Sizes, around, grouped, sizes
from kvroom.models.hf.experts import by_kind, filled, prediction
from kvroom.models.hf.hybrid import attention, block
from kvroom.models.hf.recurrent import Mixer, conv1d, grouped_vector, layer_types, state_dtype
from kvroom.models.hf.vision import composite, qwen3_tower
from kvroom.models.kinds import ConvState, RecurrentState
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Split

BEHIND_TOWER = "model.language_model.layers"
PREDICTION = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
NORMS = ("input_layernorm", "post_attention_layernorm")


def qwen3_next(config: Config) -> ModelSpec:
    """Qwen3-Next: experts but for ``mlp_only_layers``; the linear layers' projections are fused."""
    config = filled(
        config,
        intermediate_size=5632,
        num_key_value_heads=2,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        num_experts=512,
        num_experts_per_tok=10,
    )
    every = config.integer("decoder_sparse_step", default=1, high=100_000)
    dense = set(config.integers("mlp_only_layers", default=[], high=100_000))
    sparse = config.integer("num_experts", low=0, high=100_000) > 0
    return _qwen(
        config, moe=lambda i: sparse and i not in dense and (i + 1) % every == 0, style="qwen3_next"
    )


def qwen3_5_text(config: Config, **outer: Any) -> ModelSpec:
    """The dense decoder of Qwen3.5 and 3.6."""
    config = filled(
        config,
        vocab_size=248320,
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=32,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    return _qwen(config, moe=lambda i: False, style="qwen3_5", **outer)


def qwen3_5_moe_text(config: Config, **outer: Any) -> ModelSpec:
    """The decoder of Qwen3.5 and 3.6 with experts in every layer."""
    config = filled(
        config,
        vocab_size=248320,
        hidden_size=2048,
        num_hidden_layers=40,
        num_attention_heads=16,
        num_key_value_heads=2,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        num_experts=256,
        num_experts_per_tok=8,
    )
    return _qwen(config, moe=lambda i: True, style="qwen3_5", **outer)


def qwen3_5(config: Config) -> ModelSpec:
    """Qwen3.5 and 3.6: the dense decoder behind its vision tower."""
    return composite(config, qwen3_5_text, _tower, layer_names=BEHIND_TOWER)


def qwen3_5_moe(config: Config) -> ModelSpec:
    """Qwen3.5 and 3.6: the decoder with experts behind its vision tower."""
    return composite(config, qwen3_5_moe_text, _tower, layer_names=BEHIND_TOWER)


def _tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Qwen3-VL's tower, but nothing feeds the decoder's deeper layers unless the config says so."""
    return qwen3_tower(config.of_class(deepstack_visual_indexes=[]), hidden, root)


def _qwen(config: Config, *, moe: Callable[[int], bool], style: str, **outer: Any) -> ModelSpec:
    config = config.of_class(
        head_dim=256,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
    )
    dims = sizes(config)
    every = config.integer("full_attention_interval", default=4, high=100_000)
    types = layer_types(
        config,
        "layer_types",
        length=dims.layers,
        allowed=("state", "full"),
        default=["state" if (index + 1) % every else "full" for index in range(dims.layers)],
    )
    mixers = {"full": _attention(config, dims), "state": _linear(config, dims, style)}

    def build(kind: tuple[str, bool]) -> Layer:
        forward = (
            _experts(config, dims) if kind[1] else parts.mlp(dims.hidden, config.integer(*INNER))
        )
        return block(dims.hidden, mixers[kind[0]], forward, NORMS)

    ahead = build(("full", moe(dims.layers - 1)))
    return around(
        config,
        dims,
        by_kind(((kind, moe(index)) for index, kind in enumerate(types)), build),
        mtp=prediction(config, ahead, dims.hidden, PREDICTION),
        **outer,
    )


def olmo_hybrid(config: Config) -> ModelSpec:
    """Olmo Hybrid: full attention normed over its whole width, its norms behind the blocks.

    Linear heads are as many as attention heads; their keys take 3/4 of the hidden width together, and
    values are twice as wide as keys, unless the config says otherwise.
    """
    config = filled(config, intermediate_size=11008, linear_conv_kernel_dim=4)
    dims = sizes(config)
    keys = config.integer("linear_num_key_heads", default=dims.heads, high=100_000)
    k_dim = config.integer("linear_key_head_dim", default=max(1, int(0.75 * dims.hidden / keys)))
    config = config.with_defaults(
        linear_num_key_heads=keys,
        linear_num_value_heads=dims.heads,
        linear_key_head_dim=k_dim,
        linear_value_head_dim=2 * k_dim,
    )
    pattern = ["full" if index % 4 == 3 else "state" for index in range(dims.layers)]
    if "full" not in pattern:
        pattern[-1] = "full"
    types = layer_types(
        config, "layer_types", length=dims.layers, allowed=("state", "full"), default=pattern
    )
    bias = config.flag("attention_bias")
    full = Mixer(stores=attention(dims).stores, tensors=grouped(dims, bias=bias, qk_norms="width"))
    forward = parts.mlp(dims.hidden, config.integer(*INNER))
    behind = ("post_attention_layernorm", "post_feedforward_layernorm")
    layers = {
        "full": block(dims.hidden, full, forward, behind),
        "state": block(dims.hidden, _linear(config, dims, "olmo"), forward, NORMS),
    }
    return around(config, dims, [layers[kind] for kind in types])


def _attention(config: Config, dims: Sizes) -> Mixer:
    bias = config.flag("attention_bias")
    return Mixer(
        stores=attention(dims).stores,
        tensors=(
            *grouped(dims, bias=bias, q_gate=config.flag("attn_output_gate", default=True)),
            *parts.norm("self_attn.q_norm", dims.head_dim),
            *parts.norm("self_attn.k_norm", dims.head_dim),
        ),
    )


def _linear(config: Config, dims: Sizes, style: str) -> Mixer:
    keys = config.integer("linear_num_key_heads", high=100_000)
    values = config.integer("linear_num_value_heads", high=100_000)
    if values % keys:
        raise KvroomError(
            config.field("linear_num_key_heads"),
            keys,
            f"does not divide {values} value heads",
            f"Give a divisor of {values}.",
        )
    return gated_delta(
        dims.hidden,
        keys=keys,
        k_dim=config.integer("linear_key_head_dim", high=100_000),
        values=values,
        v_dim=config.integer("linear_value_head_dim", high=100_000),
        kernel=config.integer("linear_conv_kernel_dim", high=1000),
        style=style,
        dtype=state_dtype(config),
    )


def gated_delta(
    hidden: int,
    *,
    keys: int,
    k_dim: int,
    values: int,
    v_dim: int,
    kernel: int,
    style: str,
    dtype: Dtype,
    name: str = "linear_attn",
) -> Mixer:
    """A gated delta network: ``keys`` query and key heads, each shared by values / keys value heads.

    ``style`` is whose module names and cuts it has: query, key, value, gate, and the two small
    projections b and a lie in two matrices (``qwen3_next``), four (``qwen3_5``) or six (``olmo``).
    """
    k, v = keys * k_dim, values * v_dim
    column: Split = "column"
    shapes = {
        "qwen3_next": {"in_proj_qkvz": 2 * k + 2 * v, "in_proj_ba": 2 * values},
        "qwen3_5": {
            "in_proj_qkv": 2 * k + v,
            "in_proj_z": v,
            "in_proj_b": values,
            "in_proj_a": values,
        },
        "olmo": {
            "q_proj": k,
            "k_proj": k,
            "v_proj": v,
            "g_proj": v,
            "b_proj": values,
            "a_proj": values,
        },
    }[style]
    norm, out = ("o_norm", "o_proj") if style == "olmo" else ("norm", "out_proj")
    channels = ((keys, k_dim), (keys, k_dim), (values, v_dim))
    return Mixer(
        stores=(
            RecurrentState(heads=values, head_elements=k_dim * v_dim, form="gdn", dtype=dtype),
            ConvState(channels=channels, columns=kernel - 1),
        ),
        tensors=(
            *(
                t
                for module, rows in shapes.items()
                for t in parts.linear(
                    f"{name}.{module}", rows, hidden, part="state", split=column, units=keys
                )
            ),
            *conv1d(f"{name}.conv1d", [(keys, 2 * k_dim), (values, v_dim)], kernel, bias=False),
            *grouped_vector(f"{name}.dt_bias", values, values),
            *grouped_vector(f"{name}.A_log", values, values),
            *parts.norm(f"{name}.{norm}", v_dim),
            *parts.linear(f"{name}.{out}", hidden, v, part="state", split="row", units=keys),
        ),
    )


def _experts(config: Config, dims: Sizes) -> Tensors:
    """Routed experts and one shared expert behind a gate of its own."""
    count = config.integer("num_experts", "num_local_experts", high=100_000)
    shared = config.integer("shared_expert_intermediate_size")
    return (
        *parts.router(dims.hidden, count),
        *parts.experts(
            dims.hidden,
            config.integer("moe_intermediate_size"),
            count,
            config.integer("num_experts_per_tok", high=count),
        ),
        *parts.mlp(dims.hidden, shared, name="mlp.shared_expert", part="shared_expert"),
        *parts.router(dims.hidden, 1, name="mlp.shared_expert_gate"),
    )
