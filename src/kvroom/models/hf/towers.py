"""Encoders beside a decoder: vision and audio towers, told in as few tensors as tell the truth.

A decode step reads none of these, so what counts is their bytes: one tensor for all attention
matrices, one for all feed-forward matrices, one for all vectors. Shapes as in the transformers classes.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.parts import Tensors
from kvroom.models.tensors import Tensor


def plain(name: str, rows: int, columns: int = 1, count: int = 1) -> Tensors:
    """``count`` tensors of an encoder, replicated on every rank."""
    return (Tensor(name=name, rows=rows, columns=columns, count=count, part="encoder"),)


def stack(
    name: str,
    layers: int,
    hidden: int,
    inner: int,
    *,
    width: int | None = None,
    matrices: int = 2,
    vectors: int = 0,
) -> Tensors:
    """``layers`` encoder layers.

    Query, key, value and output are hidden × ``width`` (heads × head_dim; None: hidden), the
    feed-forward block has ``matrices`` of hidden × inner (three where gated), and norms, biases and
    gates come to ``vectors`` parameters a layer.
    """
    width = hidden if width is None else width
    return (
        *plain(f"{name}.attention", width, hidden, 4 * layers),
        *plain(f"{name}.mlp", inner, hidden, matrices * layers),
        *(plain(f"{name}.vectors", vectors, count=layers) if vectors else ()),
    )


def biases(hidden: int, inner: int, norms: int = 2) -> int:
    """Vectors of a layer whose matrices all have biases and whose ``norms`` LayerNorms have shifts."""
    return 4 * hidden + inner + hidden + norms * 2 * hidden


def _vit_sizes(config: Config) -> tuple[int, int, int]:
    layers = config.integer("num_hidden_layers", high=MAX_LAYERS)
    return layers, config.integer("hidden_size"), config.integer("intermediate_size")


def _patches(config: Config) -> tuple[int, int]:
    """Patches of one image and numbers in one patch."""
    side, patch = (
        config.integer("image_size", high=100_000),
        config.integer("patch_size", high=100_000),
    )
    return (side // patch) ** 2, config.integer(
        "num_channels", default=3, high=1000
    ) * patch * patch


def siglip(config: Config) -> Tensors:
    """SigLIP: patch and position embeddings, biased layers, a pooling head unless switched off."""
    config = config.with_defaults(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        image_size=224,
        patch_size=16,
    )
    layers, hidden, inner = _vit_sizes(config)
    patches, numbers = _patches(config)
    vectors = biases(hidden, inner)
    head: Tensors = ()
    if config.flag("vision_use_head", default=True):
        head = stack("vision_tower.head", 1, hidden, inner, vectors=vectors - hidden)
    return (
        *plain("vision_tower.patch_embedding", hidden, numbers + 1),
        *plain("vision_tower.position_embedding", patches, hidden),
        *stack("vision_tower.layers", layers, hidden, inner, vectors=vectors),
        *plain("vision_tower.post_layernorm", 2 * hidden),
        *head,
    )


def clip(config: Config) -> Tensors:
    """CLIP's vision transformer: a class embedding before the patches, norms before and after."""
    config = config.with_defaults(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        image_size=224,
        patch_size=32,
    )
    layers, hidden, inner = _vit_sizes(config)
    patches, numbers = _patches(config)
    return (
        *plain("vision_tower.patch_embedding", hidden, numbers),
        *plain("vision_tower.position_embedding", patches + 1, hidden),
        *stack("vision_tower.layers", layers, hidden, inner, vectors=biases(hidden, inner)),
        *plain("vision_tower.vectors", hidden + 2 * 2 * hidden),
    )


def pixtral(config: Config) -> Tensors:
    """Pixtral: rotary positions in two dimensions, RMS norms, gated feed-forward, no biases."""
    config = config.with_defaults(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, patch_size=16
    )
    layers, hidden, inner = _vit_sizes(config)
    patch = config.integer("patch_size", high=100_000)
    channels = config.integer("num_channels", default=3, high=1000)
    return (
        *plain("vision_tower.patch_conv", hidden, channels * patch * patch),
        *plain("vision_tower.ln_pre", hidden),
        *stack("vision_tower.layers", layers, hidden, inner, matrices=3, vectors=2 * hidden),
    )


def gemma4_vision(config: Config) -> Tensors:
    """Gemma 4's vision tower: a table of positions for each axis, Gemma's own layers."""
    config = config.with_defaults(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=16,
        num_attention_heads=12,
        num_key_value_heads=12,
        head_dim=64,
        patch_size=16,
        position_embedding_size=10240,
    )
    layers, hidden, inner = _vit_sizes(config)
    d = config.integer("head_dim", high=100_000)
    q, kv = config.integer("num_attention_heads") * d, config.integer("num_key_value_heads") * d
    vectors = 4 * hidden + 2 * d
    return (
        *plain(
            "vision_tower.position_embedding", config.integer("position_embedding_size"), hidden, 2
        ),
        *plain(
            "vision_tower.input_proj", hidden, 3 * config.integer("patch_size", high=100_000) ** 2
        ),
        *plain("vision_tower.layers.q_and_o", q, hidden, 2 * layers),
        *plain("vision_tower.layers.k_and_v", kv, hidden, 2 * layers),
        *plain("vision_tower.layers.mlp", inner, hidden, 3 * layers),
        *plain("vision_tower.layers.vectors", vectors, count=layers),
    )


def gemma4_audio(config: Config) -> Tensors:
    """Gemma 4's audio tower: a Conformer of two half feed-forward blocks, attention and a convolution."""
    hidden = config.integer("hidden_size", default=1024)
    layers = config.integer("num_hidden_layers", default=12, high=MAX_LAYERS)
    heads = config.integer("num_attention_heads", default=8, high=100_000)
    first, second = config.integers("subsampling_conv_channels", length=2, default=[128, 32], low=1)
    kernel = config.integer("conv_kernel_size", default=5, high=1000)
    out = config.integer("output_proj_dims", default=1536)
    norms = 2 * 2 + 2 + 3  # of the two feed-forward blocks, the convolution and the layer
    return (
        *plain("audio_tower.subsample", first + first * second, 9),
        *plain("audio_tower.subsample.norms", first + second),
        *plain("audio_tower.input_proj_linear", hidden, first // 4 * second),
        *plain("audio_tower.layers.attention", hidden, hidden, 5 * layers),
        *plain("audio_tower.layers.feed_forward", 4 * hidden, hidden, 4 * layers),
        *plain("audio_tower.layers.lconv1d", hidden, hidden, 3 * layers),
        *plain("audio_tower.layers.depthwise", hidden, kernel, layers),
        *plain("audio_tower.layers.vectors", norms * hidden + hidden // heads, count=layers),
        *plain("audio_tower.output_proj", out, hidden + 1),
    )


def by_its_keys(config: Config, name: str, out: int) -> Tensors:
    """A tower of a kind not known here: a transformer of its keys' sizes, and two layers to ``out``.

    Nothing where the level names no layers or no width.
    """
    depth = ("num_hidden_layers", "depth", "num_layers", "layers", "encoder_layers", "n_layers")
    width = ("hidden_size", "embed_dim", "d_model", "width", "hidden_dim", "n_embed")
    if not (config.has(*depth) and config.has(*width)) or not all(
        type(config.get(*keys)) is int for keys in (depth, width)
    ):
        return ()
    layers, hidden = config.integer(*depth, high=MAX_LAYERS), config.integer(*width)
    wide = ("intermediate_size", "encoder_ffn_dim", "mlp_dim", "ffn_dim", "d_ff")
    ratio = config.number("mlp_ratio", default=4.0, high=100)
    inner = config.integer(*wide, default=max(1, int(hidden * ratio)))
    gated = config.get("hidden_act", "activation_function") in ("silu", "swiglu")
    patch, channels = config.get("patch_size"), config.get("num_channels", "in_channels", default=3)
    numbers = channels * patch * patch if type(patch) is int and type(channels) is int else 0
    return (
        *stack(
            f"{name}.layers",
            layers,
            hidden,
            inner,
            matrices=3 if gated else 2,
            vectors=biases(hidden, inner),
        ),
        *(plain(f"{name}.patches", hidden, min(numbers, 10**6)) if numbers > 0 else ()),
        *plain(f"{name}.projector", out, hidden + out),
    )


VISION: dict[str, Callable[[Config], Tensors]] = {
    "siglip_vision_model": siglip,
    "clip_vision_model": clip,
    "pixtral": pixtral,
}


def vision(config: Config, default: str, out: int = 1) -> Tensors:
    """The vision tower of that ``model_type``; one of a type not known here by its keys."""
    kind = config.text("model_type", default=default)
    if kind in VISION:
        return VISION[kind](config)
    tower = by_its_keys(config, "vision_tower", out)
    if not tower:
        fix = did_you_mean(kind, VISION, f"One of: {', '.join(VISION)}.")
        raise KvroomError(config.field("model_type"), kind, "is no known vision tower", fix)
    return tower
