"""Decoders whose first layers are dense and whose later ones share an expert: DeepSeekMoE, GLM, ERNIE.

Grouped attention; n shared experts are stored as one of their summed width. Structure and defaults: the
classes of transformers 5 (DeepSeekMoE and MiMo: their remote code); prediction layers: vLLM's models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import layer_kinds, model, sizes
from kvroom.models.hf.experts import (
    Mixture,
    by_kind,
    check_active,
    decoder,
    filled,
    grouped,
    mixture,
    prediction,
    shared_width,
    sparse_layers,
    stored,
    two_norms,
)
from kvroom.models.kinds import SharedCache
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec


def deepseek(c: Config) -> ModelSpec:
    """DeepSeekMoE 16B (arXiv 2401.06066, its remote code): multi-head attention, shared experts."""
    c = filled(c, max_position_embeddings=2048)
    s = sizes(c)
    bias = c.flag("attention_bias")
    each = c.integer("moe_intermediate_size", default=1407)
    return decoder(
        c,
        s,
        grouped(s, qkv_bias=bias, o_bias=bias),
        lambda: mixture(c, inner=("moe_intermediate_size",), shared=shared_width(c, each)),
        sparse=sparse_layers(c, s.layers) if c.has("n_routed_experts") else [False] * s.layers,
    )


def glm4_moe(c: Config, **outer: Any) -> ModelSpec:
    """GLM-4.5 and 4.6 (arXiv 2508.06471): a head's width that is not hidden / heads, shared expert.

    Biases on query, key and value only; norms on query and key with ``use_qk_norm``.
    """
    c = filled(
        c,
        num_hidden_layers=46,
        hidden_size=4096,
        num_attention_heads=96,
        vocab_size=151552,
        num_key_value_heads=8,
        intermediate_size=10944,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
        max_position_embeddings=131072,
        num_nextn_predict_layers=0 if c.path else 1,
    )
    s = sizes(c)
    each = c.integer("moe_intermediate_size")
    return decoder(
        c,
        s,
        grouped(
            s,
            qkv_bias=c.flag("attention_bias"),
            norms="head" if c.flag("use_qk_norm") else "none",
        ),
        lambda: mixture(c, inner=("moe_intermediate_size",), shared=shared_width(c, each)),
        sparse=sparse_layers(c, s.layers),
        **outer,
    )


def ernie4_5(c: Config) -> ModelSpec:
    """ERNIE 4.5, dense: ``use_bias`` puts biases everywhere but on the head; tied by default."""
    c = filled(
        c,
        num_key_value_heads=2,
        head_dim=128,
        intermediate_size=3072,
        tie_word_embeddings=True,
        max_position_embeddings=131072,
    )
    s = sizes(c)
    bias = c.flag("use_bias")
    return decoder(
        c,
        s,
        grouped(s, qkv_bias=bias, o_bias=bias),
        lambda: mixture(c),
        sparse=[False] * s.layers,
        dense=lambda: parts.mlp(s.hidden, c.integer("intermediate_size"), bias=bias),
    )


def ernie4_5_moe(c: Config) -> ModelSpec:
    """ERNIE 4.5 MoE: experts in every ``moe_layer_interval``-th layer from start to end index.

    The routing bias is a parameter of its class; the shared experts are one of their summed width.
    Its prediction layer is a dense one behind a projection (vLLM's ``ernie_mtp``).
    """
    c = filled(
        c,
        num_key_value_heads=4,
        intermediate_size=12288,
        moe_intermediate_size=1536,
        moe_num_experts=64,
        moe_num_shared_experts=2,
        moe_k=6,
        moe_layer_start_index=1,
        moe_layer_interval=1,
        moe_layer_end_index=-1,
        tie_word_embeddings=True,
        max_position_embeddings=131072,
    )
    s = sizes(c)
    bias = c.flag("use_bias")
    first = c.integer("moe_layer_start_index", low=0)
    last = c.integer("moe_layer_end_index", low=-1)
    last = s.layers - 1 if last == -1 else last
    every = c.integer("moe_layer_interval")
    attention = grouped(s, qkv_bias=bias, o_bias=bias)

    def dense() -> Tensors:
        return parts.mlp(s.hidden, c.integer("intermediate_size"), bias=bias)

    def mix() -> Mixture:
        each = c.integer("moe_intermediate_size")
        return mixture(
            c,
            inner=("moe_intermediate_size",),
            router_bias=True,
            shared=shared_width(c, each, "moe_num_shared_experts"),
            shared_bias=bias,
        )

    layer = Layer(stores=(stored(s),), tensors=(*two_norms(s.hidden), *attention, *dense()))
    return decoder(
        c,
        s,
        attention,
        mix,
        sparse=[(i + 1) % every == 0 and first <= i <= last for i in range(s.layers)],
        dense=dense,
        lm_head=parts.lm_head(s.vocab, s.hidden, bias=bias),
        mtp=prediction(
            c, layer, s.hidden, ("mtp_emb_norm.0", "mtp_hidden_norm.0", "mtp_linear_proj.0")
        ),
    )


def mimo(c: Config) -> ModelSpec:
    """MiMo 7B (arXiv 2505.07608): Qwen 2's decoder with prediction layers of its own form."""
    c = filled(c, intermediate_size=11008, max_position_embeddings=32768)
    s = sizes(c)
    slides = c.flag("use_sliding_window") and c.has("sliding_window")
    first = c.integer("max_window_layers", default=28, low=0)
    spec = decoder(
        c,
        s,
        grouped(s, qkv_bias=c.flag("attention_bias", default=True)),
        lambda: mixture(c),
        sparse=[False] * s.layers,
        windowed=layer_kinds(c, s.layers, lambda i: slides and i >= first),
        mtp=(),
    )
    names = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
    return replace(spec, mtp=prediction(c, spec.layers[0].layer, s.hidden, names))


def hunyuan(c: Config) -> ModelSpec:
    """Hunyuan V1, dense and MoE (arXiv 2411.02265): norms of a head's width after the rotation.

    Lists give expert counts and widths layer by layer; the shared expert has ``num_shared_expert`` ×
    ``intermediate_size``. With ``use_cla`` only every ``cla_share_factor``-th layer keeps keys and
    values, and the next ones attend to those (cross-layer attention, arXiv 2405.12981).
    """
    is_moe = c.text("model_type", default="") == "hunyuan_v1_moe"
    c = filled(
        c,
        head_dim=c.maybe_integer("attention_head_dim", high=100_000),
        max_position_embeddings=2048,
    )
    s = sizes(c)
    bias = c.flag("attention_bias")
    norms: Literal["head", "none"] = "head" if c.flag("use_qk_norm", default=True) else "none"
    own = grouped(
        s,
        qkv_bias=bias,
        o_bias=bias,
        norms=norms,
        norm_names=("query_layernorm", "key_layernorm"),
    )
    kept = stored(s)
    share = c.integer("cla_share_factor", default=1) if c.flag("use_cla") else 1
    has_shared = c.flag("use_mixed_mlp_moe", default=True)
    inner = c.integer("intermediate_size")

    def each(*names: str, default: int) -> list[int]:
        if isinstance(c.get(*names), list):
            return c.integers(*names, length=s.layers)
        return [c.integer(*names, default=default, low=0)] * s.layers

    counts = each("num_experts", default=1) if is_moe else [1] * s.layers
    shapes = zip(
        [i % share == 0 for i in range(s.layers)],
        counts,
        each("moe_topk", "num_experts_per_tok", default=1),
        each("moe_intermediate_size", default=inner),
        each("num_shared_expert", default=1),
        strict=True,
    )

    def build(shape: tuple[bool, int, int, int, int]) -> Layer:
        keeps, count, active, expert, shared = shape
        attention = own if keeps else tuple(t for t in own if not t.name.startswith(_KEYS))
        if is_moe:
            feed = Mixture(
                count=count,
                active=check_active(c, count, active, ("moe_topk",)),
                inner=expert,
                shared=inner * shared if has_shared else 0,
                shared_name="mlp.shared_mlp",
                router_name="mlp.gate.wg",
            ).tensors(s.hidden)
        else:
            feed = parts.mlp(s.hidden, inner, bias=c.flag("mlp_bias"))
        return Layer(
            stores=(kept if keeps else SharedCache(of=kept),),
            tensors=(*two_norms(s.hidden), *attention, *feed),
        )

    return model(
        c,
        by_kind(shapes, build),
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
    )


_KEYS = ("self_attn.k_proj", "self_attn.v_proj", "self_attn.key_layernorm")

READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "deepseek": deepseek,
    "glm4_moe": glm4_moe,
    "ernie4_5": ernie4_5,
    "ernie4_5_moe": ernie4_5_moe,
    "hunyuan_v1_moe": hunyuan,
    "hunyuan_v1_dense": hunyuan,
    "mimo": mimo,
}
