"""Llama 3.2 Vision: Llama with cross-attention layers that look at the image.

A cross layer keeps the image's keys and values only, so it adds nothing as the text grows. Shapes as in
the published configurations and the transformers class.
"""

from __future__ import annotations

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf import towers
from kvroom.models.hf.common import INNER, around, grouped, sizes, stored
from kvroom.models.hf.dense import llama_tensors
from kvroom.models.kinds import CrossAttention
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

SPARE_TOKENS = 8
"""Rows of the token table beyond the vocabulary (the image token and its neighbours)."""


def mllama(config: Config) -> ModelSpec:
    """Llama 3.2 11B and 90B Vision: ``cross_attention_layers`` lists which layers are cross layers.

    An image makes tiles × (patches + 1) encoder tokens: at most 4 × 1601 at 560 pixels.
    """
    if not config.has("text_config"):
        config.integer("text_config.hidden_size")  # says that it is missing
    t = config.sub("text_config").of_class(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=40,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38],
    )
    v = config.sub("vision_config").with_defaults(
        hidden_size=1280,
        intermediate_size=5120,
        num_hidden_layers=32,
        num_global_layers=8,
        image_size=448,
        patch_size=14,
        max_num_tiles=4,
        vision_output_dim=7680,
    )
    dims = sizes(t)
    crossing = set(t.integers("cross_attention_layers"))
    if crossing and max(crossing) >= dims.layers:
        raise KvroomError(
            t.field("cross_attention_layers"),
            max(crossing),
            f"is no layer of {dims.layers}",
            f"Give indices from 0 to {dims.layers - 1}.",
        )
    own = Layer(stores=(stored(dims),), tensors=llama_tensors(t, dims))
    seen = CrossAttention(
        kv_heads=dims.kv_heads, k_dim=dims.head_dim, v_dim=dims.head_dim, q_heads=dims.heads
    )
    cross = Layer(
        stores=(seen,),
        tensors=(
            *parts.norm("input_layernorm", dims.hidden),
            *grouped(dims, name="cross_attn"),
            *parts.norm("cross_attn.q_norm", dims.head_dim),
            *parts.norm("cross_attn.k_norm", dims.head_dim),
            *parts.vector("cross_attn_attn_gate", 1),
            *parts.norm("post_attention_layernorm", dims.hidden),
            *parts.mlp(dims.hidden, t.integer(*INNER)),
            *parts.vector("cross_attn_mlp_gate", 1),
        ),
    )
    tiles, tokens = v.integer("max_num_tiles", high=1000), _tile_tokens(v)
    return around(
        t,
        dims,
        [cross if index in crossing else own for index in range(dims.layers)],
        embedding=parts.embedding(dims.vocab + SPARE_TOKENS, dims.hidden),
        beside=(
            *_tower(v, tiles, tokens),
            *towers.plain("multi_modal_projector", dims.hidden, v.integer("vision_output_dim") + 1),
        ),
        encoder_tokens=tiles * tokens,
        layer_names="language_model.model.layers",
        root=config,
    )


def _tile_tokens(config: Config) -> int:
    side, patch = (
        config.integer("image_size", high=100_000),
        config.integer("patch_size", high=100_000),
    )
    return (side // patch) ** 2 + 1


def _tower(config: Config, tiles: int, tokens: int) -> Tensors:
    """Two stacks, the second gated, and position tables for patches, tiles and aspect ratios."""
    hidden, inner = config.integer("hidden_size"), config.integer("intermediate_size")
    patch = config.integer("patch_size", high=100_000)
    ratios = len(config.items("supported_aspect_ratios", default=[None] * 8)) + 1
    vectors = inner + hidden + 2 * 2 * hidden  # biases of the feed-forward block, two LayerNorms
    numbers = config.integer("num_channels", default=3, high=1000) * patch * patch
    return (
        *towers.plain("vision_model.patch_embedding", hidden, numbers),
        *towers.plain("vision_model.position_embedding", tokens, hidden),
        *towers.plain("vision_model.tile_position_embedding", ratios, tiles * tokens * hidden),
        *towers.plain("vision_model.tile_embedding", ratios, tiles * hidden, 2),
        *towers.stack(
            "vision_model.transformer",
            config.integer("num_hidden_layers", high=MAX_LAYERS),
            hidden,
            inner,
            vectors=vectors,
        ),
        *towers.stack(
            "vision_model.global_transformer",
            config.integer("num_global_layers", high=MAX_LAYERS),
            hidden,
            inner,
            vectors=vectors + 2,
        ),
        # class embedding, norms before and after, three gates of the position tables
        *towers.plain("vision_model.vectors", hidden + 2 * 2 * hidden + 3),
    )
