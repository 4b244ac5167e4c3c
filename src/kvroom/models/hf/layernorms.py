"""Decoders of Llama's plan that norm elsewhere or otherwise.

LayerNorms with or without a shift, one norm before both halves (parallel blocks), norms after instead
of before, norms of queries and keys over all heads. Shapes and class defaults as in their transformers
classes and published configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import layer_kinds, sizes
from kvroom.models.hf.dense import decoder, llama_tensors, sliding_window
from kvroom.models.spec import ModelSpec

POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


def olmo(config: Config) -> ModelSpec:
    """OLMo 1: Llama whose norms have no parameters."""
    config = config.of_class(max_position_embeddings=2048)
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(config, dims, bias=bias, norms=())
    return decoder(config, dims, tensors, final=())


def olmo2(config: Config) -> ModelSpec:
    """OLMo 2: norms after attention and feed-forward; queries and keys normed over all heads."""
    return _olmo2(config, {})


def olmo3(config: Config) -> ModelSpec:
    """OLMo 3: OLMo 2 with a window of 4096 in three of four layers."""
    config = config.of_class(sliding_window=4096)
    dims = sizes(config)
    sliding = layer_kinds(config, dims.layers, lambda i: (i + 1) % 4 != 0)
    return _olmo2(config, {"window": sliding_window(config), "sliding": sliding})


def _olmo2(config: Config, windows: dict[str, Any]) -> ModelSpec:
    config = config.of_class(max_position_embeddings=2048)
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(config, dims, bias=bias, qk_norms="width", norms=POST_NORMS)
    return decoder(config, dims, tensors, **windows)


def exaone4(config: Config) -> ModelSpec:
    """EXAONE 4: norms after both halves, queries and keys normed over a head.

    ``sliding_window_pattern`` is letters ("LLLG": three local layers, then a global one; the last
    layer is always global) or the period itself; a null window means full attention everywhere.
    """
    config = config.of_class(
        num_key_value_heads=32,
        sliding_window=4096,
        sliding_window_pattern=4,
        max_position_embeddings=2048,
    )
    dims = sizes(config)
    tensors = llama_tensors(config, dims, qk_norms="head", norms=POST_NORMS)
    sliding = layer_kinds(config, dims.layers, _exaone_pattern(config, dims.layers))
    return decoder(config, dims, tensors, window=sliding_window(config), sliding=sliding)


def _exaone_pattern(config: Config, layers: int) -> Callable[[int], bool]:
    pattern = config.get("sliding_window_pattern")
    if not pattern:
        return lambda i: False
    if isinstance(pattern, str):
        if set(pattern) - {"L", "G"}:
            raise KvroomError(
                config.field("sliding_window_pattern"),
                pattern,
                "has letters other than L (local) and G (global)",
                "Write LLLG or its like.",
            )
        return lambda i: pattern[i % len(pattern)] == "L" and i < layers - 1
    every = config.integer("sliding_window_pattern")
    return lambda i: (i + 1) % every != 0


def cohere(config: Config) -> ModelSpec:
    """Command-R and Aya: one LayerNorm without shift before parallel halves, tied embeddings.

    ``use_qk_norm`` (Command-R+) norms queries and keys with a scale of its own for each head.
    """
    return _cohere(config.of_class(use_qk_norm=False), {})


def cohere2(config: Config) -> ModelSpec:
    """Command-R7B and Command-A: Cohere with a window of 4096 in three of four layers."""
    config = config.of_class(sliding_window=4096)
    every = config.integer("sliding_window_pattern", "layer_switch", default=4)
    sliding = layer_kinds(config, sizes(config).layers, lambda i: (i + 1) % every != 0)
    return _cohere(config, {"window": sliding_window(config), "sliding": sliding})


def _cohere(config: Config, windows: dict[str, Any]) -> ModelSpec:
    config = config.of_class(tie_word_embeddings=True, max_position_embeddings=8192)
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(
        config,
        dims,
        bias=bias,
        qk_norms="width" if config.flag("use_qk_norm") else "none",
        norms=("input_layernorm",),
    )
    return decoder(config, dims, tensors, **windows)


def starcoder2(config: Config) -> ModelSpec:
    """StarCoder 2: LayerNorms, biases everywhere (``use_bias``), a feed-forward block without gate."""
    config = config.of_class(
        num_key_value_heads=2,
        use_bias=True,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    dims = sizes(config)
    bias = config.flag("use_bias")
    tensors = llama_tensors(
        config,
        dims,
        bias=bias,
        mlp_bias=bias,
        norm_bias=True,
        gated=False,
        mlp_names=("c_fc", "c_proj"),
    )
    final = parts.norm("norm", dims.hidden, bias=True)
    return decoder(config, dims, tensors, window=sliding_window(config), final=final)


def stablelm(config: Config) -> ModelSpec:
    """StableLM: Llama with LayerNorms.

    ``use_parallel_residual`` (StableLM 2 12B) leaves the second norm out, ``qk_layernorm`` norms each
    head of queries and keys with a scale of its own.
    """
    config = config.of_class(max_position_embeddings=4096)
    dims = sizes(config)
    norms = ("input_layernorm", "post_attention_layernorm")
    own = (
        *parts.norm("self_attn.q_layernorm", dims.heads * dims.head_dim),
        *parts.norm("self_attn.k_layernorm", dims.kv_heads * dims.head_dim),
    )
    tensors = llama_tensors(
        config,
        dims,
        qkv_bias=config.flag("use_qkv_bias"),
        extra=own if config.flag("qk_layernorm") else (),
        norms=norms[:1] if config.flag("use_parallel_residual") else norms,
        norm_bias=True,
    )
    return decoder(config, dims, tensors, final=parts.norm("norm", dims.hidden, bias=True))


def nemotron(config: Config) -> ModelSpec:
    """Nemotron-4 and Minitron: LayerNorms, squared ReLU, so no gate."""
    config = config.of_class(max_position_embeddings=4096)
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(
        config, dims, bias=bias, mlp_bias=config.flag("mlp_bias"), norm_bias=True, gated=False
    )
    return decoder(config, dims, tensors, final=parts.norm("norm", dims.hidden, bias=True))
