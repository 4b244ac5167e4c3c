"""Decoders whose first layers are dense and whose later ones share an expert: DeepSeekMoE, GLM, ERNIE.

Grouped attention; n shared experts are stored as one of their summed width. Structure and defaults: the
classes of transformers 5 (DeepSeekMoE and MiMo: their remote code); prediction layers: vLLM's models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import around, grouped, layer_kinds, sizes, stored, two_norms
from kvroom.models.hf.experts import (
    Mixture,
    by_kind,
    check_active,
    decoder,
    filled,
    mixture,
    prediction,
    shared_width,
    sparse_layers,
)
from kvroom.models.kinds import SharedCache
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec


def deepseek(config: Config) -> ModelSpec:
    """DeepSeekMoE 16B (arXiv 2401.06066, its remote code): multi-head attention, shared experts."""
    config = filled(config, max_position_embeddings=2048)
    dims = sizes(config)
    bias = config.flag("attention_bias")
    each = config.integer("moe_intermediate_size", default=1407)
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias),
        lambda: mixture(
            config, inner=("moe_intermediate_size",), shared=shared_width(config, each)
        ),
        sparse=sparse_layers(config, dims.layers)
        if config.has("n_routed_experts")
        else [False] * dims.layers,
    )


def glm4_moe(config: Config, **outer: Any) -> ModelSpec:
    """GLM-4.5 and 4.6 (arXiv 2508.06471): a head's width that is not hidden / heads, shared expert.

    Biases on query, key and value only; norms on query and key with ``use_qk_norm``.
    """
    config = filled(
        config,
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
        num_nextn_predict_layers=0 if config.path else 1,
    )
    dims = sizes(config)
    each = config.integer("moe_intermediate_size")
    return decoder(
        config,
        dims,
        grouped(
            dims,
            qkv_bias=config.flag("attention_bias"),
            qk_norms="head" if config.flag("use_qk_norm") else "none",
        ),
        lambda: mixture(
            config, inner=("moe_intermediate_size",), shared=shared_width(config, each)
        ),
        sparse=sparse_layers(config, dims.layers),
        **outer,
    )


def ernie4_5(config: Config) -> ModelSpec:
    """ERNIE 4.5, dense: ``use_bias`` puts biases everywhere but on the head; tied by default."""
    config = filled(
        config,
        num_key_value_heads=2,
        head_dim=128,
        intermediate_size=3072,
        tie_word_embeddings=True,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    bias = config.flag("use_bias")
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias),
        lambda: mixture(config),
        sparse=[False] * dims.layers,
        dense=lambda: parts.mlp(dims.hidden, config.integer("intermediate_size"), bias=bias),
    )


def ernie4_5_moe(config: Config) -> ModelSpec:
    """ERNIE 4.5 MoE: experts in every ``moe_layer_interval``-th layer from start to end index.

    The routing bias is a parameter of its class; the shared experts are one of their summed width.
    Its prediction layer is a dense one behind a projection (vLLM's ``ernie_mtp``).
    """
    config = filled(
        config,
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
    dims = sizes(config)
    bias = config.flag("use_bias")
    first = config.integer("moe_layer_start_index", low=0)
    last = config.integer("moe_layer_end_index", low=-1)
    last = dims.layers - 1 if last == -1 else last
    every = config.integer("moe_layer_interval")
    attention = grouped(dims, bias=bias)

    def dense() -> Tensors:
        return parts.mlp(dims.hidden, config.integer("intermediate_size"), bias=bias)

    def mix() -> Mixture:
        each = config.integer("moe_intermediate_size")
        return mixture(
            config,
            inner=("moe_intermediate_size",),
            router_bias=True,
            shared=shared_width(config, each, "moe_num_shared_experts"),
            shared_bias=bias,
        )

    layer = Layer(stores=(stored(dims),), tensors=(*two_norms(dims.hidden), *attention, *dense()))
    return decoder(
        config,
        dims,
        attention,
        mix,
        sparse=[
            (index + 1) % every == 0 and first <= index <= last for index in range(dims.layers)
        ],
        dense=dense,
        lm_head=parts.lm_head(dims.vocab, dims.hidden, bias=bias),
        mtp=prediction(
            config, layer, dims.hidden, ("mtp_emb_norm.0", "mtp_hidden_norm.0", "mtp_linear_proj.0")
        ),
    )


def mimo(config: Config) -> ModelSpec:
    """MiMo 7B (arXiv 2505.07608): Qwen 2's decoder with prediction layers of its own form."""
    config = filled(config, intermediate_size=11008, max_position_embeddings=32768)
    dims = sizes(config)
    slides = config.flag("use_sliding_window") and config.has("sliding_window")
    first = config.integer("max_window_layers", default=28, low=0)
    spec = decoder(
        config,
        dims,
        grouped(dims, qkv_bias=config.flag("attention_bias", default=True)),
        lambda: mixture(config),
        sparse=[False] * dims.layers,
        windowed=layer_kinds(config, dims.layers, lambda i: slides and i >= first),
        mtp=(),
    )
    names = ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
    return replace(spec, mtp=prediction(config, spec.layers[0].layer, dims.hidden, names))


def hunyuan(config: Config) -> ModelSpec:
    """Hunyuan V1, dense and MoE (arXiv 2411.02265): norms of a head's width after the rotation.

    Lists give expert counts and widths layer by layer; the shared expert has ``num_shared_expert`` ×
    ``intermediate_size``. With ``use_cla`` only every ``cla_share_factor``-th layer keeps keys and
    values, and the next ones attend to those (cross-layer attention, arXiv 2405.12981).
    """
    is_moe = config.text("model_type", default="") == "hunyuan_v1_moe"
    config = filled(
        config,
        head_dim=config.maybe_integer("attention_head_dim", high=100_000),
        max_position_embeddings=2048,
    )
    dims = sizes(config)
    bias = config.flag("attention_bias")
    norms: Literal["head", "none"] = "head" if config.flag("use_qk_norm", default=True) else "none"
    own = grouped(dims, bias=bias, qk_norms=norms, norm_names=("query_layernorm", "key_layernorm"))
    kept = stored(dims)
    share = config.integer("cla_share_factor", default=1) if config.flag("use_cla") else 1
    has_shared = config.flag("use_mixed_mlp_moe", default=True)
    inner = config.integer("intermediate_size")

    def each(*names: str, default: int) -> list[int]:
        if isinstance(config.get(*names), list):
            return config.integers(*names, length=dims.layers)
        return [config.integer(*names, default=default, low=0)] * dims.layers

    counts = each("num_experts", default=1) if is_moe else [1] * dims.layers
    shapes = zip(
        [index % share == 0 for index in range(dims.layers)],
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
                active=check_active(config, count, active, ("moe_topk",)),
                inner=expert,
                shared=inner * shared if has_shared else 0,
                shared_name="mlp.shared_mlp",
                router_name="mlp.gate.wg",
            ).tensors(dims.hidden)
        else:
            feed = parts.mlp(dims.hidden, inner, bias=config.flag("mlp_bias"))
        return Layer(
            stores=(kept if keeps else SharedCache(of=kept),),
            tensors=(*two_norms(dims.hidden), *attention, *feed),
        )

    return around(config, dims, by_kind(shapes, build))


_KEYS = ("self_attn.k_proj", "self_attn.v_proj", "self_attn.key_layernorm")
