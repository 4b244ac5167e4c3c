"""Gemma 1 to 3: heads wider than hidden / heads, tied embeddings, windows in most layers.

Class defaults matter more here than elsewhere: Gemma 3 4B's published config leaves out its head counts
and its vocabulary. Shapes as in the Gemma reports and the transformers classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.models.config import Config
from kvroom.models.hf.common import Sizes, around, layer_kinds, sizes
from kvroom.models.hf.dense import decoder, llama_tensors, sliding_window
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

SANDWICH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
GEMMA3_TEXT = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
}
"""What a ``text_config`` inside a Gemma 3 config may leave out."""


def gemma(config: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 1: Llama with a head width of 256 and tied embeddings."""
    config = config.of_class(
        num_key_value_heads=16,
        head_dim=256,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    dims = sizes(config)
    return decoder(
        config,
        dims,
        _biased(config, dims, ("input_layernorm", "post_attention_layernorm")),
        root=root,
    )


def gemma2(config: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 2: norms round both halves; even layers slide a window of 4096, odd ones see all."""
    config = config.of_class(
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=4096,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    dims = sizes(config)
    return decoder(
        config,
        dims,
        _biased(config, dims, SANDWICH),
        window=sliding_window(config),
        sliding=layer_kinds(config, dims.layers, lambda i: i % 2 == 0),
        root=root,
    )


def gemma3_text(config: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 3's decoder: Gemma 2 with query and key norms and five windows to one full layer.

    With ``use_bidirectional_attention`` (EmbeddingGemma) it is an encoder and stores nothing.
    """
    config = config.of_class(
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=4096,
        tie_word_embeddings=True,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    tensors = _biased(config, dims, SANDWICH, qk_norms="head")
    if config.flag("use_bidirectional_attention"):
        return around(
            config, dims, [Layer(tensors=tensors)] * dims.layers, generates=False, root=root
        )
    every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return decoder(
        config,
        dims,
        tensors,
        window=sliding_window(config),
        sliding=layer_kinds(config, dims.layers, lambda i: (i + 1) % every != 0),
        root=root,
    )


def _biased(config: Config, dims: Sizes, norms: Sequence[str], **attention: Any) -> Tensors:
    bias = config.flag("attention_bias")
    return llama_tensors(config, dims, bias=bias, norms=norms, **attention)
