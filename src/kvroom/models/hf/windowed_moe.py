"""Sparse decoders whose layers differ in what they see: gpt-oss, Llama 4, MiMo-V2, Step-3.5.

Most layers keep a sliding window (Llama 4: the current chunk), every few one keeps all tokens.
Structure and defaults: the classes of transformers 5; module names: the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf import vision
from kvroom.models.hf.common import Sizes, check_groups, layer_kinds, model, sizes
from kvroom.models.hf.experts import (
    by_kind,
    filled,
    grouped,
    mixture,
    prediction,
    shared_width,
    sparse_layers,
    stored,
    two_norms,
)
from kvroom.models.kinds import ChunkedAttention, LayerKind
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.units import check_int


def _sinks(name: str, heads: int) -> Tensors:
    """A learned logit for each head that attention may fall into."""
    return parts.vector(f"self_attn.{name}", heads, part="attention", split="column")


def gpt_oss(c: Config) -> ModelSpec:
    """gpt-oss (arXiv 2508.10925): windows in every other layer from the first, sinks, biases all over."""
    c = filled(
        c,
        num_key_value_heads=8,
        head_dim=64,
        intermediate_size=2880,
        num_local_experts=128,
        num_experts_per_tok=4,
        sliding_window=128,
        max_position_embeddings=131072,
    )
    s = sizes(c)
    bias = c.flag("attention_bias", default=True)
    mix = mixture(
        c,
        inner=("intermediate_size",),
        bias=True,
        modules=("gate_up_proj", "gate_up_proj", "down_proj"),
        router_name="mlp.router",
        router_bias=True,
    )
    tensors = (
        *two_norms(s.hidden),
        *grouped(s, qkv_bias=bias, o_bias=bias),
        *_sinks("sinks", s.heads),
        *mix.tensors(s.hidden),
    )
    near = layer_kinds(c, s.layers, lambda i: i % 2 == 0)
    window = c.integer("sliding_window", high=10**9) if any(near) else None
    return model(
        c,
        by_kind(near, lambda n: Layer(stores=(stored(s, window if n else None),), tensors=tensors)),
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
    )


def llama4_text(c: Config, **outer: Any) -> ModelSpec:
    """Llama 4 text: rotary layers attend within a chunk, every fourth (no positions) to all tokens.

    Experts in every ``interleave_moe_layer_step``-th layer, each with a shared one of equal width;
    the dense layers between them are ``intermediate_size_mlp`` wide.
    """
    c = filled(
        c,
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
    s = sizes(c)
    chunk = c.maybe_integer("attention_chunk_size", high=10**9)
    bias = c.flag("attention_bias")
    attention = grouped(s, qkv_bias=bias, o_bias=bias)

    def kept(chunked: bool) -> LayerKind:
        if not chunked or chunk is None:
            return stored(s)
        return ChunkedAttention(
            kv_heads=s.kv_heads, k_dim=s.head_dim, v_dim=s.head_dim, q_heads=s.heads, chunk=chunk
        )

    def build(kind: tuple[bool, bool]) -> Layer:
        chunked, has_experts = kind
        inner = c.integer("intermediate_size")
        feed = (
            mixture(
                c,
                inner=("intermediate_size",),
                name="feed_forward.experts",
                modules=("gate_up_proj", "gate_up_proj", "down_proj"),
                router_name="feed_forward.router",
                shared=inner,
                shared_name="feed_forward.shared_expert",
            ).tensors(s.hidden)
            if has_experts
            else parts.mlp(s.hidden, c.integer("intermediate_size_mlp"), name="feed_forward")
        )
        return Layer(stores=(kept(chunked),), tensors=(*two_norms(s.hidden), *attention, *feed))

    every = c.integer("no_rope_layer_interval", default=4)
    rotary = (
        c.integers("no_rope_layers", length=s.layers)
        if c.get("no_rope_layers")
        else [(i + 1) % every for i in range(s.layers)]
    )
    step = c.integer("interleave_moe_layer_step", default=1)
    sparse = set(c.integers("moe_layers", default=list(range(step - 1, s.layers, step))))
    kinds = zip(
        layer_kinds(c, s.layers, lambda i: rotary[i] != 0),
        (i in sparse for i in range(s.layers)),
        strict=True,
    )
    return model(
        c,
        by_kind(kinds, build),
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
        **outer,
    )


def llama4(c: Config) -> ModelSpec:
    """Llama 4 Scout and Maverick: the text decoder with its vision tower."""
    return vision.composite(
        c, llama4_text, vision.llama4_tower, layer_names="language_model.model.layers"
    )


def mimo_v2_flash(c: Config) -> ModelSpec:
    """MiMo-V2-Flash: window layers with heads of their own and sinks; keys wider than values.

    ``hybrid_layer_pattern`` holds 1 for a window; without it every sixth layer and the first are full.
    """
    c = filled(
        c,
        num_key_value_heads=4,
        head_dim=192,
        v_head_dim=128,
        intermediate_size=16384,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        num_experts_per_tok=8,
        sliding_window=c.integer("sliding_window_size", default=128, high=10**9),
        max_position_embeddings=131072,
    )
    full = sizes(c)
    near = replace(
        full,
        heads=c.integer("swa_num_attention_heads", default=full.heads, high=100_000),
        kv_heads=c.integer("swa_num_key_value_heads", default=2 * full.kv_heads, high=100_000),
        head_dim=c.integer("swa_head_dim", default=full.head_dim, high=100_000),
    )
    _check_swa_groups(c, near)
    v_full = c.integer("v_head_dim", high=100_000)
    v_near = c.integer("swa_v_head_dim", default=v_full, high=100_000)
    window = c.integer("sliding_window", high=10**9)
    sinks = {
        True: c.flag("add_swa_attention_sink_bias", default=True),
        False: c.flag("add_full_attention_sink_bias", default=False),
    }

    def build(kind: tuple[bool, bool]) -> Layer:
        windowed, has_experts = kind
        s, v = (near, v_near) if windowed else (full, v_full)
        each = c.integer("moe_intermediate_size")
        feed = (
            mixture(c, inner=("moe_intermediate_size",), shared=shared_width(c, each)).tensors(
                s.hidden
            )
            if has_experts
            else parts.mlp(s.hidden, c.integer("intermediate_size"))
        )
        return Layer(
            stores=(stored(s, window if windowed else None, v_dim=v),),
            tensors=(
                *two_norms(s.hidden),
                *grouped(s, qkv_bias=c.flag("attention_bias"), v_dim=v),
                *(_sinks("attention_sink_bias", s.heads) if sinks[windowed] else ()),
                *feed,
            ),
        )

    windowed = (
        [p == 1 for p in c.integers("hybrid_layer_pattern", length=full.layers, high=1)]
        if c.has("hybrid_layer_pattern")
        else layer_kinds(c, full.layers, lambda i: i > 0 and (i + 1) % 6 != 0)
    )
    sparse = sparse_layers(c, full.layers, first_dense=1)
    return model(
        c,
        by_kind(zip(windowed, sparse, strict=True), build),
        hidden=full.hidden,
        vocab=full.vocab,
        q_heads=full.heads,
        kv_heads=max(full.kv_heads, near.kv_heads),
        mtp=prediction(c, build((True, False)), full.hidden),
    )


def _check_swa_groups(c: Config, near: Sizes) -> None:
    if near.heads % near.kv_heads:
        raise KvroomError(
            c.field("swa_num_key_value_heads"),
            near.kv_heads,
            f"does not divide {near.heads} attention heads",
            f"Give a divisor of {near.heads}.",
        )


def step3p5(c: Config, **outer: Any) -> ModelSpec:
    """Step-3.5-Flash: a gate for each head, more query heads in window layers, one shared expert.

    ``attention_other_setting`` gives the window layers' heads; ``moe_layers_enum`` lists the layers
    with experts (those from the fourth on where absent). Prediction layers are dense window layers.
    """
    c = filled(
        c,
        num_hidden_layers=45,
        hidden_size=4096,
        num_attention_heads=64,
        vocab_size=128815,
        num_key_value_heads=c.integer("num_attention_groups", default=8, high=100_000),
        head_dim=128,
        intermediate_size=11264,
        moe_intermediate_size=1280,
        share_expert_dim=c.integer("share_expert_dims", default=1280, low=0),
        n_routed_experts=288,
        num_experts_per_tok=8,
        max_position_embeddings=128000,
    )
    full = sizes(c)
    other = c.sub("attention_other_setting")
    near = replace(
        full,
        heads=other.integer(
            "num_attention_heads",
            default=c.integer("num_sliding_attention_heads", default=full.heads, high=100_000),
            high=100_000,
        ),
        kv_heads=other.integer("num_attention_groups", default=full.kv_heads, high=100_000),
        head_dim=other.integer("head_dim", default=full.head_dim, high=100_000),
    )
    check_groups(c, near.heads, near.kv_heads)
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")

    def build(kind: tuple[bool, bool]) -> Layer:
        windowed, has_experts = kind
        s = near if windowed else full
        window = c.integer("sliding_window", high=10**9) if windowed else None
        feed = (
            mixture(
                c,
                count=("moe_num_experts", "n_routed_experts", "num_local_experts", "num_experts"),
                active=("moe_top_k", "num_experts_per_tok"),
                inner=("moe_intermediate_size",),
                name="moe",
                router_name="moe.gate",
                shared=c.integer("share_expert_dim", low=0),
                shared_name="share_expert",
                shared_bias=mlp_bias,
            ).tensors(s.hidden)
            if has_experts
            else parts.mlp(s.hidden, c.integer("intermediate_size"), bias=mlp_bias)
        )
        gate = parts.linear(
            "self_attn.g_proj", s.heads, s.hidden, part="attention", split="column", units=s.heads
        )
        return Layer(
            stores=(stored(s, window),),
            tensors=(
                *two_norms(s.hidden),
                *grouped(s, qkv_bias=bias, o_bias=bias, norms="head"),
                *(gate if c.flag("use_head_wise_attn_gate", default=True) else ()),
                *feed,
            ),
        )

    windowed = layer_kinds(c, full.layers, lambda i: False)
    return model(
        c,
        by_kind(zip(windowed, _step_sparse(c, full.layers), strict=True), build),
        hidden=full.hidden,
        vocab=full.vocab,
        q_heads=max(full.heads, near.heads),
        kv_heads=max(full.kv_heads, near.kv_heads),
        mtp=prediction(c, build((c.has("sliding_window"), False)), full.hidden),
        **outer,
    )


def _step_sparse(c: Config, layers: int) -> list[bool]:
    listed = c.get("moe_layers_enum")
    if listed is None or c.has("mlp_layer_types"):
        return sparse_layers(c, layers, first_dense=3)
    if isinstance(listed, str):
        words = [w.strip() for w in listed.split(",") if w.strip()]
        listed = [int(w) if w.isdecimal() and len(w) < 9 else w for w in words]
    elif not isinstance(listed, list):
        listed = c.items("moe_layers_enum")
    field = c.field("moe_layers_enum")
    sparse = {check_int(field, i, low=0, high=10**9) for i in listed}
    return [i in sparse for i in range(layers)]


def step3p7(c: Config) -> ModelSpec:
    """Step-3.7-Flash: Step-3.5's decoder with a vision tower; the text keys may lie at the top."""
    return vision.composite(c, step3p5, vision.step_tower, layer_names="model.layers")


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "gpt_oss": gpt_oss,
    "llama4": llama4,
    "llama4_text": llama4_text,
    "mimo_v2_flash": mimo_v2_flash,
    "step3p5": step3p5,
    "step3p7": step3p7,
}
