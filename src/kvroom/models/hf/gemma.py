"""Gemma 1 to 3: heads wider than hidden / heads, tied embeddings, windows in most layers.

Class defaults matter more here than elsewhere: Gemma 3 4B's published config leaves out its head counts
and its vocabulary. Shapes as in the Gemma reports and the transformers classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvroom.models.config import Config
from kvroom.models.hf.common import Sizes, layer_kinds, model, sizes
from kvroom.models.hf.dense import decoder, head_norms, llama_tensors, sliding_window
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


def gemma(c: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 1: Llama with a head width of 256 and tied embeddings."""
    c = c.of_class(
        num_key_value_heads=16,
        head_dim=256,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    s = sizes(c)
    return decoder(c, s, _biased(c, s, ("input_layernorm", "post_attention_layernorm")), root=root)


def gemma2(c: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 2: norms round both halves; even layers slide a window of 4096, odd ones see all."""
    c = c.of_class(
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=4096,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    s = sizes(c)
    return decoder(
        c,
        s,
        _biased(c, s, SANDWICH),
        window=sliding_window(c),
        sliding=layer_kinds(c, s.layers, lambda i: i % 2 == 0),
        root=root,
    )


def gemma3_text(c: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 3's decoder: Gemma 2 with query and key norms and five windows to one full layer.

    With ``use_bidirectional_attention`` (EmbeddingGemma) it is an encoder and stores nothing.
    """
    c = c.of_class(
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=4096,
        tie_word_embeddings=True,
        max_position_embeddings=131072,
    )
    s = sizes(c)
    tensors = _biased(c, s, SANDWICH, head_norms(s))
    if c.flag("use_bidirectional_attention"):
        return model(
            c,
            [Layer(tensors=tensors)] * s.layers,
            hidden=s.hidden,
            vocab=s.vocab,
            q_heads=s.heads,
            kv_heads=s.kv_heads,
            generates=False,
            root=root,
        )
    every = c.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return decoder(
        c,
        s,
        tensors,
        window=sliding_window(c),
        sliding=layer_kinds(c, s.layers, lambda i: (i + 1) % every != 0),
        root=root,
    )


def _biased(c: Config, s: Sizes, norms: Sequence[str], extra: Tensors = ()) -> Tensors:
    bias = c.flag("attention_bias")
    return llama_tensors(c, s, qkv_bias=bias, o_bias=bias, norms=norms, extra=extra)


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3_text,
}
