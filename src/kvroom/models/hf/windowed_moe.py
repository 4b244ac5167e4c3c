"""Sparse decoders whose layers differ in what they see: gpt-oss, Llama 4, MiMo-V2, Step-3.5.

Most layers keep a sliding window (Llama 4: the current chunk), every few one keeps all tokens.
Structure and defaults: the classes of transformers 5; module names: the published checkpoints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf import vision
from kvroom.models.hf.common import (
    Sizes,
    around,
    check_groups,
    grouped,
    layer_kinds,
    model,
    sizes,
    stored,
    two_norms,
)
from kvroom.models.hf.experts import (
    by_kind,
    filled,
    mixture,
    prediction,
    shared_width,
    sparse_layers,
)
from kvroom.models.kinds import ChunkedAttention, LayerKind
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.units import check_int


def _sinks(name: str, heads: int) -> Tensors:
    """A learned logit for each head that attention may fall into."""
    return parts.vector(f"self_attn.{name}", heads, part="attention", split="column")


def gpt_oss(config: Config) -> ModelSpec:
    """gpt-oss (arXiv 2508.10925): windows in every other layer from the first, sinks, biases all over."""
    config = filled(
        config,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=2880,
        num_local_experts=128,
        num_experts_per_tok=4,
        sliding_window=128,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    bias = config.flag("attention_bias", default=True)
    mix = mixture(
        config,
        inner=("intermediate_size",),
        bias=True,
        modules=("gate_up_proj", "gate_up_proj", "down_proj"),
        router_name="mlp.router",
        router_bias=True,
    )
    tensors = (
        *two_norms(dims.hidden),
        *grouped(dims, bias=bias),
        *_sinks("sinks", dims.heads),
        *mix.tensors(dims.hidden),
    )
    near = layer_kinds(config, dims.layers, lambda i: i % 2 == 0)
    window = config.integer("sliding_window", high=10**9) if any(near) else None
    return around(
        config,
        dims,
        by_kind(
            near, lambda n: Layer(stores=(stored(dims, window if n else None),), tensors=tensors)
        ),
    )


def llama4_text(config: Config, **outer: Any) -> ModelSpec:
    """Llama 4 text: rotary layers attend within a chunk, every fourth (no positions) to all tokens.

    Experts in every ``interleave_moe_layer_step``-th layer, each with a shared one of equal width;
    the dense layers between them are ``intermediate_size_mlp`` wide.
    """
    config = filled(
        config,
        num_hidden_layers=48,
        hidden_size=5120,
        num_attention_heads=40,
        vocab_size=202048,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=8192,
        intermediate_size_mlp=16384,
        num_local_experts=16,
        num_experts_per_tok=1,
        attention_chunk_size=8192,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    chunk = config.maybe_integer("attention_chunk_size", high=10**9)
    bias = config.flag("attention_bias")
    attention = grouped(dims, bias=bias)

    def kept(chunked: bool) -> LayerKind:
        if not chunked or chunk is None:
            return stored(dims)
        return ChunkedAttention(
            kv_heads=dims.kv_heads,
            k_dim=dims.head_dim,
            v_dim=dims.head_dim,
            q_heads=dims.heads,
            chunk=chunk,
        )

    def build(kind: tuple[bool, bool]) -> Layer:
        chunked, has_experts = kind
        inner = config.integer("intermediate_size")
        feed = (
            mixture(
                config,
                inner=("intermediate_size",),
                name="feed_forward.experts",
                modules=("gate_up_proj", "gate_up_proj", "down_proj"),
                router_name="feed_forward.router",
                shared=inner,
                shared_name="feed_forward.shared_expert",
            ).tensors(dims.hidden)
            if has_experts
            else parts.mlp(
                dims.hidden, config.integer("intermediate_size_mlp"), name="feed_forward"
            )
        )
        return Layer(stores=(kept(chunked),), tensors=(*two_norms(dims.hidden), *attention, *feed))

    every = config.integer("no_rope_layer_interval", default=4)
    rotary = (
        config.integers("no_rope_layers", length=dims.layers)
        if config.get("no_rope_layers")
        else [(index + 1) % every for index in range(dims.layers)]
    )
    step = config.integer("interleave_moe_layer_step", default=1)
    sparse = set(config.integers("moe_layers", default=list(range(step - 1, dims.layers, step))))
    kinds = zip(
        layer_kinds(config, dims.layers, lambda i: rotary[i] != 0),
        (index in sparse for index in range(dims.layers)),
        strict=True,
    )
    return around(config, dims, by_kind(kinds, build), **outer)


def llama4(config: Config) -> ModelSpec:
    """Llama 4 Scout and Maverick: the text decoder with its vision tower."""
    return vision.composite(
        config, llama4_text, vision.llama4_tower, layer_names="language_model.model.layers"
    )


def mimo_v2_flash(config: Config) -> ModelSpec:
    """MiMo-V2-Flash: window layers with heads of their own and sinks; keys wider than values.

    ``hybrid_layer_pattern`` holds 1 for a window; without it every sixth layer and the first are full.
    """
    config = filled(
        config,
        num_key_value_heads=4,
        head_dim=192,
        v_head_dim=128,
        intermediate_size=16384,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        num_experts_per_tok=8,
        sliding_window=config.integer("sliding_window_size", default=128, high=10**9),
        max_position_embeddings=131072,
    )
    full = sizes(config)
    near = replace(
        full,
        heads=config.integer("swa_num_attention_heads", default=full.heads, high=100_000),
        kv_heads=config.integer("swa_num_key_value_heads", default=2 * full.kv_heads, high=100_000),
        head_dim=config.integer("swa_head_dim", default=full.head_dim, high=100_000),
    )
    _check_swa_groups(config, near)
    v_full = config.integer("v_head_dim", high=100_000)
    v_near = config.integer("swa_v_head_dim", default=v_full, high=100_000)
    window = config.integer("sliding_window", high=10**9)
    sinks = {
        True: config.flag("add_swa_attention_sink_bias", default=True),
        False: config.flag("add_full_attention_sink_bias", default=False),
    }

    def build(kind: tuple[bool, bool]) -> Layer:
        windowed, has_experts = kind
        s, v = (near, v_near) if windowed else (full, v_full)
        each = config.integer("moe_intermediate_size")
        feed = (
            mixture(
                config, inner=("moe_intermediate_size",), shared=shared_width(config, each)
            ).tensors(s.hidden)
            if has_experts
            else parts.mlp(s.hidden, config.integer("intermediate_size"))
        )
        return Layer(
            stores=(stored(s, window if windowed else None, v_dim=v),),
            tensors=(
                *two_norms(s.hidden),
                *grouped(s, qkv_bias=config.flag("attention_bias"), v_dim=v),
                *(_sinks("attention_sink_bias", s.heads) if sinks[windowed] else ()),
                *feed,
            ),
        )

    windowed = (
        [
            integer == 1
            for integer in config.integers("hybrid_layer_pattern", length=full.layers, high=1)
        ]
        if config.has("hybrid_layer_pattern")
        else layer_kinds(config, full.layers, lambda i: i > 0 and (i + 1) % 6 != 0)
    )
    sparse = sparse_layers(config, full.layers, first_dense=1)
    return model(
        config,
        by_kind(zip(windowed, sparse, strict=True), build),
        hidden=full.hidden,
        vocab=full.vocab,
        q_heads=full.heads,
        kv_heads=max(full.kv_heads, near.kv_heads),
        mtp=prediction(config, build((True, False)), full.hidden),
    )


def _check_swa_groups(config: Config, near: Sizes) -> None:
    if near.heads % near.kv_heads:
        raise KvroomError(
            config.field("swa_num_key_value_heads"),
            near.kv_heads,
            f"does not divide {near.heads} attention heads",
            f"Give a divisor of {near.heads}.",
        )


def step3p5(config: Config, **outer: Any) -> ModelSpec:
    """Step-3.5-Flash: a gate for each head, more query heads in window layers, one shared expert.

    ``attention_other_setting`` gives the window layers' heads; ``moe_layers_enum`` lists the layers
    with experts (those from the fourth on where absent). Prediction layers are dense window layers.
    """
    config = filled(
        config,
        num_hidden_layers=45,
        hidden_size=4096,
        num_attention_heads=64,
        vocab_size=128815,
        num_key_value_heads=config.integer("num_attention_groups", default=8, high=100_000),
        head_dim=128,
        intermediate_size=11264,
        moe_intermediate_size=1280,
        share_expert_dim=config.integer(
            "share_expert_dims", "share_expert_dim", default=1280, low=0
        ),
        n_routed_experts=288,
        num_experts_per_tok=8,
        max_position_embeddings=128000,
    )
    full = sizes(config)
    other = config.sub("attention_other_setting")
    near = replace(
        full,
        heads=other.integer(
            "num_attention_heads",
            default=config.integer("num_sliding_attention_heads", default=full.heads, high=100_000),
            high=100_000,
        ),
        kv_heads=other.integer("num_attention_groups", default=full.kv_heads, high=100_000),
        head_dim=other.integer("head_dim", default=full.head_dim, high=100_000),
    )
    check_groups(config, near.heads, near.kv_heads)
    bias, mlp_bias = config.flag("attention_bias"), config.flag("mlp_bias")

    def build(kind: tuple[bool, bool]) -> Layer:
        windowed, has_experts = kind
        s = near if windowed else full
        window = config.integer("sliding_window", high=10**9) if windowed else None
        feed = (
            mixture(
                config,
                count=("moe_num_experts", "n_routed_experts", "num_local_experts", "num_experts"),
                active=("moe_top_k", "num_experts_per_tok"),
                inner=("moe_intermediate_size",),
                name="moe",
                router_name="moe.gate",
                shared=config.integer("share_expert_dim", low=0),
                shared_name="share_expert",
                shared_bias=mlp_bias,
            ).tensors(s.hidden)
            if has_experts
            else parts.mlp(s.hidden, config.integer("intermediate_size"), bias=mlp_bias)
        )
        gate = parts.linear(
            "self_attn.g_proj", s.heads, s.hidden, part="attention", split="column", units=s.heads
        )
        return Layer(
            stores=(stored(s, window),),
            tensors=(
                *two_norms(s.hidden),
                *grouped(s, bias=bias, qk_norms="head"),
                *(gate if config.flag("use_head_wise_attn_gate", default=True) else ()),
                *feed,
            ),
        )

    windowed = layer_kinds(config, full.layers, lambda i: False)
    return model(
        config,
        by_kind(zip(windowed, _step_sparse(config, full.layers), strict=True), build),
        hidden=full.hidden,
        vocab=full.vocab,
        q_heads=max(full.heads, near.heads),
        kv_heads=max(full.kv_heads, near.kv_heads),
        mtp=prediction(config, build((config.has("sliding_window"), False)), full.hidden),
        **outer,
    )


def _step_sparse(config: Config, layers: int) -> list[bool]:
    listed = config.get("moe_layers_enum")
    if listed is None or config.has("mlp_layer_types"):
        return sparse_layers(config, layers, first_dense=3)
    if isinstance(listed, str):
        words = [part.strip() for part in listed.split(",") if part.strip()]
        listed = [int(word) if word.isdecimal() and len(word) < 9 else word for word in words]
    elif not isinstance(listed, list):
        listed = config.items("moe_layers_enum")
    field = config.field("moe_layers_enum")
    sparse = {check_int(field, i, low=0, high=10**9) for i in listed}
    return [index in sparse for index in range(layers)]


def step3p7(config: Config) -> ModelSpec:
    """Step-3.7-Flash: Step-3.5's decoder with a vision tower; the text keys may lie at the top."""
    return vision.composite(config, step3p5, vision.step_tower, layer_names="model.layers")
