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
from kvroom.models.hf.dense import decoder, head_norms, llama_tensors, sliding_window, width_norms
from kvroom.models.spec import ModelSpec

POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


def olmo(c: Config) -> ModelSpec:
    """OLMo 1: Llama whose norms have no parameters."""
    c = c.of_class(max_position_embeddings=2048)
    s = sizes(c)
    bias = c.flag("attention_bias")
    tensors = llama_tensors(c, s, qkv_bias=bias, o_bias=bias, norms=())
    return decoder(c, s, tensors, final=())


def olmo2(c: Config) -> ModelSpec:
    """OLMo 2: norms after attention and feed-forward; queries and keys normed over all heads."""
    return _olmo2(c, {})


def olmo3(c: Config) -> ModelSpec:
    """OLMo 3: OLMo 2 with a window of 4096 in three of four layers."""
    c = c.of_class(sliding_window=4096)
    s = sizes(c)
    sliding = layer_kinds(c, s.layers, lambda i: (i + 1) % 4 != 0)
    return _olmo2(c, {"window": sliding_window(c), "sliding": sliding})


def _olmo2(c: Config, windows: dict[str, Any]) -> ModelSpec:
    c = c.of_class(max_position_embeddings=2048)
    s = sizes(c)
    bias = c.flag("attention_bias")
    tensors = llama_tensors(
        c, s, qkv_bias=bias, o_bias=bias, extra=width_norms(s), norms=POST_NORMS
    )
    return decoder(c, s, tensors, **windows)


def exaone4(c: Config) -> ModelSpec:
    """EXAONE 4: norms after both halves, queries and keys normed over a head.

    ``sliding_window_pattern`` is letters ("LLLG": three local layers, then a global one; the last
    layer is always global) or the period itself; a null window means full attention everywhere.
    """
    c = c.of_class(
        num_key_value_heads=32,
        sliding_window=4096,
        sliding_window_pattern=4,
        max_position_embeddings=2048,
    )
    s = sizes(c)
    tensors = llama_tensors(c, s, extra=head_norms(s), norms=POST_NORMS)
    sliding = layer_kinds(c, s.layers, _exaone_pattern(c, s.layers))
    return decoder(c, s, tensors, window=sliding_window(c), sliding=sliding)


def _exaone_pattern(c: Config, layers: int) -> Callable[[int], bool]:
    pattern = c.get("sliding_window_pattern")
    if not pattern:
        return lambda i: False
    if isinstance(pattern, str):
        if set(pattern) - {"L", "G"}:
            raise KvroomError(
                c.field("sliding_window_pattern"),
                pattern,
                "has letters other than L (local) and G (global)",
                "Write LLLG or its like.",
            )
        return lambda i: pattern[i % len(pattern)] == "L" and i < layers - 1
    every = c.integer("sliding_window_pattern")
    return lambda i: (i + 1) % every != 0


def cohere(c: Config) -> ModelSpec:
    """Command-R and Aya: one LayerNorm without shift before parallel halves, tied embeddings.

    ``use_qk_norm`` (Command-R+) norms queries and keys with a scale of its own for each head.
    """
    return _cohere(c.of_class(use_qk_norm=False), {})


def cohere2(c: Config) -> ModelSpec:
    """Command-R7B and Command-A: Cohere with a window of 4096 in three of four layers."""
    c = c.of_class(sliding_window=4096)
    every = c.integer("sliding_window_pattern", "layer_switch", default=4)
    sliding = layer_kinds(c, sizes(c).layers, lambda i: (i + 1) % every != 0)
    return _cohere(c, {"window": sliding_window(c), "sliding": sliding})


def _cohere(c: Config, windows: dict[str, Any]) -> ModelSpec:
    c = c.of_class(tie_word_embeddings=True, max_position_embeddings=8192)
    s = sizes(c)
    bias = c.flag("attention_bias")
    tensors = llama_tensors(
        c,
        s,
        qkv_bias=bias,
        o_bias=bias,
        extra=width_norms(s) if c.flag("use_qk_norm") else (),
        norms=("input_layernorm",),
    )
    return decoder(c, s, tensors, **windows)


def starcoder2(c: Config) -> ModelSpec:
    """StarCoder 2: LayerNorms, biases everywhere (``use_bias``), a feed-forward block without gate."""
    c = c.of_class(
        num_key_value_heads=2,
        use_bias=True,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    s = sizes(c)
    bias = c.flag("use_bias")
    tensors = llama_tensors(
        c,
        s,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bias,
        norm_bias=True,
        gated=False,
        mlp_names=("c_fc", "c_proj"),
    )
    final = parts.norm("norm", s.hidden, bias=True)
    return decoder(c, s, tensors, window=sliding_window(c), final=final)


def stablelm(c: Config) -> ModelSpec:
    """StableLM: Llama with LayerNorms.

    ``use_parallel_residual`` (StableLM 2 12B) leaves the second norm out, ``qk_layernorm`` norms each
    head of queries and keys with a scale of its own.
    """
    c = c.of_class(max_position_embeddings=4096)
    s = sizes(c)
    norms = ("input_layernorm", "post_attention_layernorm")
    own = (
        *parts.norm("self_attn.q_layernorm", s.heads * s.head_dim),
        *parts.norm("self_attn.k_layernorm", s.kv_heads * s.head_dim),
    )
    tensors = llama_tensors(
        c,
        s,
        qkv_bias=c.flag("use_qkv_bias"),
        extra=own if c.flag("qk_layernorm") else (),
        norms=norms[:1] if c.flag("use_parallel_residual") else norms,
        norm_bias=True,
    )
    return decoder(c, s, tensors, final=parts.norm("norm", s.hidden, bias=True))


def nemotron(c: Config) -> ModelSpec:
    """Nemotron-4 and Minitron: LayerNorms, squared ReLU, so no gate."""
    c = c.of_class(max_position_embeddings=4096)
    s = sizes(c)
    bias = c.flag("attention_bias")
    tensors = llama_tensors(
        c,
        s,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=c.flag("mlp_bias"),
        norm_bias=True,
        gated=False,
    )
    return decoder(c, s, tensors, final=parts.norm("norm", s.hidden, bias=True))


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "exaone4": exaone4,
    "cohere": cohere,
    "cohere2": cohere2,
    "starcoder2": starcoder2,
    "stablelm": stablelm,
    "stablelm_epoch": stablelm,
    "nemotron": nemotron,
}
