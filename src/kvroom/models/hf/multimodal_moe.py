"""Decoders behind a vision tower: Qwen VL, Kimi K2.5, GLM-4.5V, MiniMax-M3.

An image becomes tokens of the decoder, so the cache is the decoder's alone. Structure and defaults:
the classes of transformers 5.
"""

from __future__ import annotations

from typing import Any

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf import vision
from kvroom.models.hf.common import around, grouped, layer_kinds, sizes, stored, two_norms
from kvroom.models.hf.experts import by_kind, decoder, filled, mixture, names_of, sparse_layers
from kvroom.models.hf.latent import deepseek_v3
from kvroom.models.hf.moe import qwen3_moe
from kvroom.models.hf.moe_shared import glm4_moe
from kvroom.models.kinds import Indexer, LayerKind
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec


def qwen2_vl_text(config: Config, **outer: Any) -> ModelSpec:
    """Qwen 2's decoder as Qwen2-VL and Qwen2.5-VL build it (defaults: the 72B's)."""
    config = filled(
        config,
        num_hidden_layers=80,
        hidden_size=8192,
        num_attention_heads=64,
        vocab_size=152064,
        intermediate_size=29568,
        num_key_value_heads=8,
        sliding_window=4096,
        max_position_embeddings=32768,
    )
    dims = sizes(config)
    slides = config.flag("use_sliding_window") and config.has("sliding_window")
    first = config.integer("max_window_layers", default=80, low=0)
    return decoder(
        config,
        dims,
        grouped(dims, qkv_bias=True),
        lambda: mixture(config),
        sparse=[False] * dims.layers,
        windowed=layer_kinds(config, dims.layers, lambda i: slides and i >= first),
        **outer,
    )


def qwen3_vl_text(config: Config, **outer: Any) -> ModelSpec:
    """Qwen 3's decoder as Qwen3-VL builds it."""
    config = filled(
        config,
        num_hidden_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        vocab_size=151936,
        num_key_value_heads=32,
        intermediate_size=22016,
        head_dim=128,
        max_position_embeddings=128000,
    )
    dims = sizes(config)
    bias = config.flag("attention_bias")
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias, qk_norms="head"),
        lambda: mixture(config),
        sparse=[False] * dims.layers,
        **outer,
    )


def qwen3_vl_moe_text(config: Config, **outer: Any) -> ModelSpec:
    """Qwen 3 MoE's decoder as Qwen3-VL builds it: no windows, smaller defaults."""
    config = filled(
        config,
        num_hidden_layers=24,
        hidden_size=2048,
        num_attention_heads=16,
        vocab_size=151936,
        num_key_value_heads=16,
        intermediate_size=5632,
        moe_intermediate_size=1408,
        num_experts=60,
        num_experts_per_tok=4,
        max_position_embeddings=128000,
    )
    # its class knows no windows, whatever the file says
    return qwen3_moe(
        Config({**config.raw, "use_sliding_window": False}, config.defaults, config.path), **outer
    )


def qwen2_vl(config: Config) -> ModelSpec:
    """Qwen2-VL (arXiv 2409.12191); published configs hold the decoder's keys at the top."""
    return vision.composite(config, qwen2_vl_text, vision.qwen2_tower, layer_names="model.layers")


def qwen2_5_vl(config: Config) -> ModelSpec:
    """Qwen2.5-VL (arXiv 2502.13923); published configs hold the decoder's keys at the top."""
    return vision.composite(config, qwen2_vl_text, vision.qwen2_5_tower, layer_names="model.layers")


def qwen3_vl(config: Config) -> ModelSpec:
    """Qwen3-VL, dense (arXiv 2511.21631)."""
    names = "model.language_model.layers"
    return vision.composite(config, qwen3_vl_text, vision.qwen3_tower, layer_names=names)


def qwen3_vl_moe(config: Config) -> ModelSpec:
    """Qwen3-VL with experts (arXiv 2511.21631)."""
    names = "model.language_model.layers"
    return vision.composite(config, qwen3_vl_moe_text, vision.qwen3_tower, layer_names=names)


def kimi_k25(config: Config) -> ModelSpec:
    """Kimi K2.5: Kimi K2's decoder (DeepSeek-V3's structure) behind MoonViT."""
    names = "language_model.model.layers"
    return vision.composite(config, deepseek_v3, vision.kimi_tower, layer_names=names)


def glm4v_moe_text(config: Config, **outer: Any) -> ModelSpec:
    """GLM-4.5-Air's decoder as GLM-4.5V builds it: biases by default, no query and key norms."""
    config = filled(config, vocab_size=151424, attention_bias=True, max_position_embeddings=65536)
    return glm4_moe(config, **outer)


def glm4v_moe(config: Config) -> ModelSpec:
    """GLM-4.5V and 4.6V (arXiv 2507.01006)."""
    names = "model.language_model.layers"
    return vision.composite(config, glm4v_moe_text, vision.glm_tower, layer_names=names)


def minimax_m3_text(config: Config, **outer: Any) -> ModelSpec:
    """MiniMax-M3: grouped attention that reads only blocks which an indexer picks, in most layers.

    Beside its keys and values a sparse layer keeps one index key a token, in the cache's own width.
    The config's prediction modules are left out: the published files hold none.
    """
    picks = config.sub("sparse_attention_config")
    config = filled(
        config,
        num_hidden_layers=60,
        hidden_size=6144,
        num_attention_heads=64,
        vocab_size=200064,
        num_key_value_heads=4,
        head_dim=128,
        intermediate_size=3072,
        dense_intermediate_size=12288,
        shared_intermediate_size=3072,
        num_local_experts=128,
        num_experts_per_tok=4,
        max_position_embeddings=524288,
    )
    dims = sizes(config)

    def said(nested: str, flat: str, default: int) -> int:
        return picks.integer(nested, default=config.integer(flat, default=default), high=10**6)

    dim = said("sparse_index_dim", "index_head_dim", 128)
    scorers = said("sparse_num_index_heads", "index_n_heads", 4)
    read = said("sparse_topk_blocks", "index_topk_blocks", 16)
    read *= said("sparse_block_size", "index_block_size", 128)
    name = "self_attn.indexer"
    indexer: Tensors = (
        *parts.linear(f"{name}.q_proj", scorers * dim, dims.hidden, part="attention"),
        *parts.linear(f"{name}.k_proj", dim, dims.hidden, part="attention"),
        *parts.norm(f"{name}.q_norm", dim),
        *parts.norm(f"{name}.k_norm", dim),
    )
    attention = grouped(
        dims, qk_norms="head" if config.flag("use_qk_norm", default=True) else "none"
    )

    def build(kind: tuple[bool, bool]) -> Layer:
        picked, has_experts = kind
        stores: tuple[LayerKind, ...] = (stored(dims, sparse_read=read if picked else None),)
        if picked:
            stores = (*stores, Indexer(dim=dim, heads=scorers))
        feed = (
            mixture(
                config,
                inner=("intermediate_size",),
                shared=config.integer("shared_intermediate_size", low=0),
            ).tensors(dims.hidden)
            if has_experts
            else parts.mlp(dims.hidden, config.integer("dense_intermediate_size"))
        )
        return Layer(
            stores=stores,
            tensors=(*two_norms(dims.hidden), *attention, *(indexer if picked else ()), *feed),
        )

    kinds = zip(
        _picked(config, picks, dims.layers), sparse_layers(config, dims.layers), strict=True
    )
    return around(config, dims, by_kind(kinds, build), **outer)


def _picked(config: Config, picks: Config, layers: int) -> list[bool]:
    if not picks.flag("use_sparse_attention", default=True):
        return [False] * layers
    if config.has("layer_types"):
        known = ("full_attention", "minimax_m3_sparse")
        return [t == known[1] for t in names_of(config, "layer_types", layers, known)]
    if not picks.has("sparse_attention_freq"):
        return [False] * layers
    return [integer > 0 for integer in picks.integers("sparse_attention_freq", length=layers)]


def minimax_m3(config: Config) -> ModelSpec:
    """MiniMax-M3: the decoder alone, or behind its tower where the config has a ``vision_config``."""
    if not config.has("vision_config", "text_config"):
        return minimax_m3_text(config)
    names = "language_model.model.layers"
    return vision.composite(config, minimax_m3_text, vision.minimax_tower, layer_names=names)
