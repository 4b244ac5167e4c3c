"""Llama 3.2 Vision: Llama with cross-attention layers that look at the image.

A cross layer keeps the image's keys and values only, so it adds nothing as the text grows. Shapes as in
the published configurations and the transformers class.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf import towers
from kvroom.models.hf.common import INNER, model, sizes
from kvroom.models.hf.dense import kind_of, llama_tensors
from kvroom.models.kinds import CrossAttention
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

SPARE_TOKENS = 8
"""Rows of the token table beyond the vocabulary (the image token and its neighbours)."""


def mllama(c: Config) -> ModelSpec:
    """Llama 3.2 11B and 90B Vision: ``cross_attention_layers`` lists which layers are cross layers.

    An image makes tiles × (patches + 1) encoder tokens: at most 4 × 1601 at 560 pixels.
    """
    if not c.has("text_config"):
        c.integer("text_config.hidden_size")  # says that it is missing
    t = c.sub("text_config").of_class(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=40,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38],
    )
    v = c.sub("vision_config").with_defaults(
        hidden_size=1280,
        intermediate_size=5120,
        num_hidden_layers=32,
        num_global_layers=8,
        image_size=448,
        patch_size=14,
        max_num_tiles=4,
        vision_output_dim=7680,
    )
    s = sizes(t)
    crossing = set(t.integers("cross_attention_layers"))
    if crossing and max(crossing) >= s.layers:
        raise KvroomError(
            t.field("cross_attention_layers"),
            max(crossing),
            f"is no layer of {s.layers}",
            f"Give indices from 0 to {s.layers - 1}.",
        )
    own = Layer(stores=(kind_of(s),), tensors=llama_tensors(t, s))
    seen = CrossAttention(kv_heads=s.kv_heads, k_dim=s.head_dim, v_dim=s.head_dim, q_heads=s.heads)
    cross = Layer(
        stores=(seen,),
        tensors=(
            *parts.norm("input_layernorm", s.hidden),
            *parts.attention(s.hidden, s.heads, s.kv_heads, s.head_dim, name="cross_attn"),
            *parts.norm("cross_attn.q_norm", s.head_dim),
            *parts.norm("cross_attn.k_norm", s.head_dim),
            *parts.vector("cross_attn_attn_gate", 1),
            *parts.norm("post_attention_layernorm", s.hidden),
            *parts.mlp(s.hidden, t.integer(*INNER)),
            *parts.vector("cross_attn_mlp_gate", 1),
        ),
    )
    tiles, tokens = v.integer("max_num_tiles", high=1000), _tile_tokens(v)
    return model(
        t,
        [cross if i in crossing else own for i in range(s.layers)],
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
        embedding=parts.embedding(s.vocab + SPARE_TOKENS, s.hidden),
        beside=(
            *_tower(v, tiles, tokens),
            *towers.plain("multi_modal_projector", s.hidden, v.integer("vision_output_dim") + 1),
        ),
        encoder_tokens=tiles * tokens,
        layer_names="language_model.model.layers",
        root=c,
    )


def _tile_tokens(v: Config) -> int:
    side, patch = v.integer("image_size", high=100_000), v.integer("patch_size", high=100_000)
    return (side // patch) ** 2 + 1


def _tower(v: Config, tiles: int, tokens: int) -> Tensors:
    """Two stacks, the second gated, and position tables for patches, tiles and aspect ratios."""
    hidden, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    patch = v.integer("patch_size", high=100_000)
    ratios = len(v.items("supported_aspect_ratios", default=[None] * 8)) + 1
    vectors = inner + hidden + 2 * 2 * hidden  # biases of the feed-forward block, two LayerNorms
    numbers = v.integer("num_channels", default=3, high=1000) * patch * patch
    return (
        *towers.plain("vision_model.patch_embedding", hidden, numbers),
        *towers.plain("vision_model.position_embedding", tokens, hidden),
        *towers.plain("vision_model.tile_position_embedding", ratios, tiles * tokens * hidden),
        *towers.plain("vision_model.tile_embedding", ratios, tiles * hidden, 2),
        *towers.stack(
            "vision_model.transformer",
            v.integer("num_hidden_layers", high=MAX_LAYERS),
            hidden,
            inner,
            vectors=vectors,
        ),
        *towers.stack(
            "vision_model.global_transformer",
            v.integer("num_global_layers", high=MAX_LAYERS),
            hidden,
            inner,
            vectors=vectors + 2,
        ),
        # class embedding, norms before and after, three gates of the position tables
        *towers.plain("vision_model.vectors", hidden + 2 * 2 * hidden + 3),
    )


READERS: dict[str, Callable[[Config], ModelSpec]] = {"mllama": mllama}
