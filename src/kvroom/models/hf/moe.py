"""Decoders with grouped attention and routed experts in (nearly) every layer: Mixtral and its kin.

All keep 2 × kv_heads × head_dim numbers a token and layer; they differ in norms, biases and which
layers have experts. Structure and defaults: the classes of transformers 5; module names: the published
checkpoints. MiniMax-M2's published files hold none of the prediction modules that its config counts.
"""

from __future__ import annotations

from typing import Any

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import grouped, layer_kinds, sizes
from kvroom.models.hf.experts import Mixture, decoder, filled, mixture
from kvroom.models.spec import ModelSpec


def _everywhere(config: Config, layers: int) -> list[bool]:
    """A ``sliding_window`` that is a number holds in every layer; null or absent means full."""
    return [config.has("sliding_window")] * layers


def _mistrals(config: Config) -> Mixture:
    """Experts under the names of Mistral's own checkpoints."""
    return mixture(
        config,
        inner=("intermediate_size",),
        name="block_sparse_moe.experts",
        modules=("w1", "w3", "w2"),
        router_name="block_sparse_moe.gate",
    )


def mixtral(config: Config) -> ModelSpec:
    """Mixtral (arXiv 2401.04088): Mistral's attention, each layer 8 experts of which 2 are used."""
    config = filled(
        config,
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    return decoder(
        config,
        dims,
        grouped(dims),
        lambda: _mistrals(config),
        windowed=_everywhere(config, dims.layers),
    )


def phimoe(config: Config) -> ModelSpec:
    """Phi-3.5-MoE (arXiv 2404.14219): LayerNorms with shift, optional biases also at the head."""
    config = filled(
        config,
        num_key_value_heads=8,
        num_local_experts=16,
        num_experts_per_tok=2,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    bias = config.flag("attention_bias")
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias),
        lambda: _mistrals(config),
        windowed=_everywhere(config, dims.layers),
        norm_bias=True,
        final=parts.norm("norm", dims.hidden, bias=True),
        lm_head=parts.lm_head(dims.vocab, dims.hidden, bias=config.flag("lm_head_bias")),
    )


def minimax_m2(config: Config) -> ModelSpec:
    """MiniMax-M2: query and key norms over the whole projection, 256 small experts, none shared."""
    config = filled(
        config,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=1536,
        num_local_experts=256,
        num_experts_per_tok=8,
        max_position_embeddings=196608,
    )
    dims = sizes(config)
    return decoder(
        config,
        dims,
        grouped(dims, qk_norms="width" if config.flag("use_qk_norm", default=True) else "none"),
        lambda: _mistrals(config),
    )


def olmoe(config: Config) -> ModelSpec:
    """OLMoE (arXiv 2409.02060): query and key norms over the whole projection, 64 experts."""
    config = filled(
        config,
        intermediate_size=2048,
        num_experts=64,
        num_experts_per_tok=8,
        max_position_embeddings=4096,
    )
    dims = sizes(config)
    bias = config.flag("attention_bias")
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias, qk_norms="width"),
        lambda: mixture(config, inner=("intermediate_size",)),
    )


def granitemoe(config: Config) -> ModelSpec:
    """Granite 3 MoE: gate and up in one matrix; ``shared_intermediate_size`` adds a shared expert."""
    config = filled(
        config, num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=2048
    )
    dims = sizes(config)
    bias = config.flag("attention_bias")
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias),
        lambda: mixture(
            config,
            inner=("intermediate_size",),
            name="block_sparse_moe",
            modules=("input_linear", "input_linear", "output_linear"),
            router_name="block_sparse_moe.router.layer",
            shared=config.integer("shared_intermediate_size", default=0, low=0),
            shared_name="shared_mlp",
            shared_modules=("input_linear", "input_linear", "output_linear"),
        ),
    )


def dbrx(config: Config) -> ModelSpec:
    """DBRX (Databricks, 2024): fused query-key-value, 16 experts of which 4 are used, LayerNorms."""
    attn = config.sub("attn_config", kv_n_heads=1)
    ffn = config.sub("ffn_config", ffn_hidden_size=3584, moe_num_experts=4, moe_top_k=1)
    dims = sizes(config.with_defaults(num_key_value_heads=attn.integer("kv_n_heads", high=100_000)))
    rows = (dims.heads + 2 * dims.kv_heads) * dims.head_dim
    fused = "norm_attn_norm.attn"
    attention = (
        *parts.linear(
            f"{fused}.Wqkv", rows, dims.hidden, part="attention", split="kv", units=dims.kv_heads
        ),
        *parts.linear(
            f"{fused}.out_proj",
            dims.hidden,
            dims.heads * dims.head_dim,
            part="attention",
            split="row",
            units=dims.heads,
        ),
    )
    return decoder(
        config,
        dims,
        attention,
        lambda: mixture(
            ffn,
            count=("moe_num_experts",),
            active=("moe_top_k",),
            inner=("ffn_hidden_size",),
            name="ffn.experts.mlp",
            modules=("w1", "v1", "w2"),
            router_name="ffn.router.layer",
        ),
        layer_names="transformer.blocks",
    )


def _qwen_sparse(config: Config, layers: int) -> list[bool]:
    """Every ``decoder_sparse_step``-th layer but those in ``mlp_only_layers``; none without experts."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = set(config.integers("mlp_only_layers", default=[]))
    some = config.integer("num_local_experts", "num_experts", default=0, low=0) > 0
    return [some and index not in dense and (index + 1) % step == 0 for index in range(layers)]


def qwen2_moe(config: Config) -> ModelSpec:
    """Qwen1.5/2 MoE: biases on query, key and value; a shared expert behind a gate of its own."""
    config = filled(
        config,
        num_key_value_heads=16,
        num_experts=60,
        num_experts_per_tok=4,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        intermediate_size=5632,
        max_position_embeddings=32768,
        sliding_window=4096,
    )
    dims = sizes(config)
    slides = config.flag("use_sliding_window")
    first_full = config.integer("max_window_layers", default=28, low=0)
    return decoder(
        config,
        dims,
        grouped(dims, qkv_bias=config.flag("qkv_bias", default=True)),
        lambda: mixture(
            config,
            inner=("moe_intermediate_size",),
            shared=config.integer("shared_expert_intermediate_size", low=0),
            shared_name="mlp.shared_expert",
            shared_gate=True,
        ),
        sparse=_qwen_sparse(config, dims.layers),
        windowed=layer_kinds(
            config, dims.layers, lambda i: slides and i < first_full and i % 2 == 0
        ),
    )


def qwen3_moe(config: Config, **outer: Any) -> ModelSpec:
    """Qwen3 MoE (arXiv 2505.09388): query and key norms of a head's width, no shared expert."""
    config = filled(
        config,
        num_key_value_heads=4,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        intermediate_size=6144,
        max_position_embeddings=32768,
        sliding_window=4096,
    )
    dims = sizes(config)
    bias = config.flag("attention_bias")
    return decoder(
        config,
        dims,
        grouped(dims, bias=bias, qk_norms="head"),
        lambda: mixture(config, inner=("moe_intermediate_size",)),
        sparse=_qwen_sparse(config, dims.layers),
        windowed=[config.flag("use_sliding_window") and config.has("sliding_window")] * dims.layers,
        **outer,
    )
