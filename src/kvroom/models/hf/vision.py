"""Vision towers and the models that put one before a decoder.

A tower is counted as few tensors as tell the truth: its patch embedding, the matrices of its blocks
and what joins it to the decoder, vectors lumped together. Structure and defaults: the classes of
transformers 5; Kimi's config uses the names of its remote code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from kvroom.models.config import Config
from kvroom.models.parts import Tensors
from kvroom.models.spec import ModelSpec
from kvroom.models.tensors import Tensor

ASSUMED_TOWER = "The config has no vision_config: the tower is the class default."


TextReader = Callable[..., ModelSpec]
"""Reads a text config; its keywords are what the whole model says (root, layer names, warnings)."""

Tower = Callable[[Config, int, Config], Tensors]
"""(vision config, the decoder's hidden size, outermost config) → the tower's tensors."""


def composite(config: Config, text: TextReader, tower: Tower, *, layer_names: str) -> ModelSpec:
    """A decoder behind a vision tower; the decoder's keys in ``text_config``, or at the top."""
    inner = config.sub("text_config") if config.has("text_config") else config
    spec = text(
        inner,
        root=config,
        layer_names=layer_names,
        warnings=() if config.has("vision_config") else (ASSUMED_TOWER,),
    )
    return replace(spec, beside=tower(config.sub("vision_config"), spec.hidden_size, config))


def _one(name: str, rows: int, columns: int = 1, count: int = 1) -> Tensor:
    return Tensor(name=name, rows=rows, columns=columns, count=count, part="encoder")


def _blocks(
    depth: int,
    width: int,
    inner: int,
    *,
    gated: bool = False,
    vectors: int,
    name: str = "blocks",
) -> Tensors:
    """``depth`` transformer blocks: attention of full width, feed-forward, ``vectors`` for the rest."""
    ups = 2 if gated else 1
    return (
        _one(f"{name}.attn.qkv", 3 * width, width, depth),
        _one(f"{name}.attn.proj", width, width, depth),
        _one(f"{name}.mlp.up", ups * inner, width, depth),
        _one(f"{name}.mlp.down", width, inner, depth),
        _one(f"{name}.vectors", vectors, 1, depth),
    )


def _area(config: Config, key: str, default: int) -> int:
    """The pixels of a square ``key`` (a side) or of a [height, width]."""
    if isinstance(config.get(key), list):
        return prod(config.integers(key, low=1, high=100_000))
    return config.integer(key, default=default, high=100_000) ** 2


def _side(config: Config, key: str, default: int) -> int:
    if isinstance(config.get(key), list):
        return config.integers(key, low=1, high=100_000)[0] if config.items(key) else default
    return config.integer(key, default=default, high=100_000)


def _patch(config: Config, side: int, channels: str = "in_channels", frames: bool = True) -> int:
    """Inputs of a patch embedding: channels × frames × pixels."""
    time = _side(config, "temporal_patch_size", 2) if frames else 1
    return (
        config.integer(channels, "in_chans", default=3, high=10_000)
        * time
        * _area(config, "patch_size", side)
    )


def _merged(config: Config) -> int:
    return config.integer("spatial_merge_size", default=2, high=1000) ** 2


def _merger(
    name: str,
    merged: int,
    out: int,
    *,
    norms: int,
    layers: tuple[str, str] = ("mlp.0", "mlp.2"),
    count: int = 1,
) -> Tensors:
    """Two biased layers from ``merged`` inputs to ``out``, behind norms of ``norms`` numbers."""
    return (
        _one(f"{name}.{layers[0]}", merged, merged, count),
        _one(f"{name}.{layers[1]}", out, merged, count),
        _one(f"{name}.vectors", norms + merged + out, 1, count),
    )


def qwen2_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Qwen2-VL (arXiv 2409.12191): LayerNorms, plain feed-forward, a two-layer merger of 2 × 2."""
    width = config.integer("embed_dim", default=1280)
    inner = width * config.integer("mlp_ratio", default=4, high=1000)
    out, merged = config.integer("hidden_size", default=3584), width * _merged(config)
    return (
        _one("visual.patch_embed.proj", width, _patch(config, 14)),
        *_blocks(
            config.integer("depth", default=32, high=10_000),
            width,
            inner,
            vectors=4 * width + 3 * width + width + inner + width,
            name="visual.blocks",
        ),
        *_merger("visual.merger", merged, out, norms=2 * width),
    )


def qwen2_5_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Qwen2.5-VL (arXiv 2502.13923): RMS norms and a gated feed-forward with biases."""
    width = config.integer("hidden_size", default=3584)
    inner = config.integer("intermediate_size", default=3420)
    out, merged = config.integer("out_hidden_size", default=3584), width * _merged(config)
    return (
        _one("visual.patch_embed.proj", width, _patch(config, 14)),
        *_blocks(
            config.integer("depth", default=32, high=10_000),
            width,
            inner,
            gated=True,
            vectors=2 * width + 3 * width + width + 2 * inner + width,
            name="visual.blocks",
        ),
        *_merger("visual.merger", merged, out, norms=width),
    )


def qwen3_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Qwen3-VL (arXiv 2511.21631): learned positions, and mergers that feed several decoder layers."""
    width = config.integer("hidden_size", default=1152)
    inner = config.integer("intermediate_size", default=4304)
    out, merged = config.integer("out_hidden_size", default=3584), width * _merged(config)
    deep = len(config.items("deepstack_visual_indexes", default=[8, 16, 24]))
    linear = ("linear_fc1", "linear_fc2")
    return (
        _one("visual.patch_embed.proj", width, _patch(config, 16) + 1),  # and its bias
        _one("visual.pos_embed", config.integer("num_position_embeddings", default=2304), width),
        *_blocks(
            config.integer("depth", default=27, high=10_000),
            width,
            inner,
            vectors=4 * width + 3 * width + width + inner + width,
            name="visual.blocks",
        ),
        *_merger("visual.merger", merged, out, norms=2 * width, layers=linear),
        *(
            _merger(
                "visual.deepstack_merger_list",
                merged,
                out,
                norms=2 * merged,
                layers=linear,
                count=deep,
            )
            if deep
            else ()
        ),
    )


def kimi_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Kimi K2.5's MoonViT (arXiv 2504.07491): learned positions, LayerNorms, a 2 × 2 projector."""
    width = config.integer("vt_hidden_size", "hidden_size", default=1152)
    inner = config.integer("vt_intermediate_size", "intermediate_size", default=4304)
    height = config.integer("init_pos_emb_height", "pos_emb_height", default=64, high=100_000)
    across = config.integer("init_pos_emb_width", "pos_emb_width", default=64, high=100_000)
    merge = prod(config.integers("merge_kernel_size", default=[2, 2], low=1, high=1000))
    joined = config.integer(
        "mm_hidden_size", default=root.integer("projection_hidden_size", default=1152)
    )
    merged = width * merge
    return (
        _one("vision_tower.patch_embed.proj", width, _patch(config, 14, frames=False) + 1),
        _one("vision_tower.patch_embed.pos_emb", height * across, width),
        *_blocks(
            config.integer("vt_num_hidden_layers", "num_hidden_layers", default=27, high=10_000),
            width,
            inner,
            vectors=4 * width + 3 * width + width + inner + width,
            name="vision_tower.encoder.blocks",
        ),
        *_merger(
            "mm_projector",
            merged,
            hidden,
            norms=2 * width + 2 * joined,
            layers=("proj.0", "proj.2"),
        ),
    )


def llama4_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Llama 4: a class token and learned positions, then a pixel-shuffle adapter without biases."""
    width = config.integer("hidden_size", default=768)
    inner = config.integer("intermediate_size", default=5632)
    into = config.integer("projector_input_dim", default=4096)
    out = config.integer("projector_output_dim", default=4096)
    patches = _area(config, "image_size", 448) // _area(config, "patch_size", 14)
    return (
        _one(
            "vision_model.patch_embedding.linear",
            width,
            _patch(config, 14, channels="num_channels", frames=False),
        ),
        _one("vision_model.positional_embedding_vlm", patches + 1, width),
        *_blocks(
            config.integer("num_hidden_layers", default=34, high=10_000),
            width,
            inner,
            vectors=4 * width + 4 * width + inner + width,
            name="vision_model.model.layers",
        ),
        _one("vision_model.vectors", 5 * width),  # class token, norms before and after
        _one("vision_model.vision_adapter.mlp.fc1", into, inner),
        _one("vision_model.vision_adapter.mlp.fc2", out, out),
        _one(
            "multi_modal_projector.linear_1",
            hidden,
            config.integer("vision_output_dim", default=7680),
        ),
    )


def step_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """Step-3.7: blocks with layer scales, then two stride-2 convolutions that double the width."""
    width = config.integer("width", "hidden_size", default=1536)
    inner = int(width * config.number("mlp_ratio", default=8960 / 1536, high=1000.0))
    patches = (_side(config, "image_size", 728) // _side(config, "patch_size", 14)) ** 2
    biased = root.flag("projector_bias")
    return (
        _one(
            "vision_model.patch_embedding",
            width,
            _patch(config, 14, channels="num_channels", frames=False),
        ),
        _one("vision_model.position_embedding", patches, width),
        *_blocks(
            config.integer("layers", "num_hidden_layers", default=47, high=10_000),
            width,
            inner,
            vectors=4 * width + 2 * width + 4 * width + inner + width,
            name="vision_model.layers",
        ),
        _one("vision_model.pre_layernorm", 2 * width),
        _one("vision_model.downsampler1", 2 * width, 9 * width + 1),
        _one("vision_model.downsampler2", 4 * width, 18 * width + 1),
        _one("multi_modal_projector", hidden, 4 * width + biased),
    )


def glm_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """GLM-4.5V (arXiv 2507.01006): RMS norms, gated blocks, a strided convolution, a gated merger."""
    width = config.integer("hidden_size", default=1536)
    inner = config.integer("intermediate_size", default=13696)
    out = config.integer("out_hidden_size", default=4096)
    patches = (_side(config, "image_size", 336) // _side(config, "patch_size", 14)) ** 2
    biases = 3 * width if config.flag("attention_bias") else 0
    return (
        _one("visual.patch_embed.proj", width, _patch(config, 14) + 1),
        _one("visual.embeddings.position_embedding", patches, width),
        *_blocks(
            config.integer("depth", default=24, high=10_000),
            width,
            out,
            gated=True,
            vectors=2 * width + biases,
            name="visual.blocks",
        ),
        _one("visual.norms", 2 * width),
        _one("visual.downsample", out, width * _merged(config) + 1),
        _one("visual.merger.proj", out, out),
        _one("visual.merger.gate_up_proj", 2 * inner, out),
        _one("visual.merger.down_proj", out, inner),
        _one("visual.merger.post_projection_norm", 2 * out),
    )


def minimax_tower(config: Config, hidden: int, root: Config) -> Tensors:
    """MiniMax-M3: CLIP-like blocks, a two-layer projector, then a two-layer merger of 2 × 2."""
    width = config.integer("hidden_size", default=1280)
    inner = config.integer("intermediate_size", default=5120)
    middle = root.integer("projector_hidden_size", default=6144)
    return (
        _one("vision_model.patch_embedding", width, _patch(config, 14, channels="num_channels")),
        _one("vision_model.pre_layrnorm", 2 * width),
        *_blocks(
            config.integer("num_hidden_layers", default=32, high=10_000),
            width,
            inner,
            vectors=4 * width + 4 * width + inner + width,
            name="vision_model.layers",
        ),
        _one("multi_modal_projector.linear_1", middle, width + 1),
        _one("multi_modal_projector.linear_2", hidden, middle + 1),
        _one("multi_modal_projector.merge_linear_1", middle, hidden * _merged(config) + 1),
        _one("multi_modal_projector.merge_linear_2", hidden, middle + 1),
    )
