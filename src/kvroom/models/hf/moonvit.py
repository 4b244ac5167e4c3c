"""Kimi-K3's vision tower."""

from __future__ import annotations

from math import prod

from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.parts import Tensors
from kvroom.models.tensors import Tensor


def moonvit3d(config: Config, hidden: int, root: Config) -> Tensors:
    """Kimi-K3's MoonViT3D and its projector, all without biases (structure: the published checkpoint).

    Learned positions over ``init_pos_emb_height`` × ``width`` (time is fixed), attention wider than the
    hidden size, ``sd2_tpool`` merging, and a two-layer projector with a norm after it.
    """
    config = config.of_class(
        vt_hidden_size=1024,
        vt_intermediate_size=4096,
        vt_num_hidden_layers=27,
        patch_size=14,
        init_pos_emb_height=64,
        init_pos_emb_width=64,
        text_hidden_size=hidden,
    )
    depth = config.integer("vt_num_hidden_layers", high=MAX_LAYERS)
    width = config.integer("vt_hidden_size")
    inner = config.integer("vt_intermediate_size")
    wide = config.integer("qkv_hidden_size", default=width)
    text = config.integer("text_hidden_size")
    merge = prod(config.integers("merge_kernel_size", default=[2, 2], low=1, high=1000))
    joined = merge * config.integer("mm_hidden_size", default=width)
    norm = 2 if config.text("norm_type", default="rmsnorm") == "layernorm" else 1
    vectors = 2 * norm * width
    if config.flag("attn_bias"):
        vectors += 3 * wide + width
    if config.flag("linear_bias"):
        vectors += inner + width
    loose = norm * width + (width if config.flag("patch_embed_proj_bias") else 0)
    positions = config.integer("init_pos_emb_height") * config.integer("init_pos_emb_width")
    return (
        _matrix("vision_tower.patch_embed.proj", width, 3 * config.integer("patch_size") ** 2),
        _matrix("vision_tower.patch_embed.pos_emb", positions, width),
        _matrix("vision_tower.encoder.blocks.wqkv", 3 * wide, width, depth),
        _matrix("vision_tower.encoder.blocks.wo", width, wide, depth),
        _matrix("vision_tower.encoder.blocks.mlp.fc0", inner, width, depth),
        _matrix("vision_tower.encoder.blocks.mlp.fc1", width, inner, depth),
        _vectors("vision_tower.encoder.blocks.vectors", vectors, depth),
        _vectors("vision_tower.encoder.final_layernorm", loose),
        _matrix("mm_projector.proj.0", joined, joined),
        _matrix("mm_projector.proj.2", text, joined),
        _vectors("mm_projector.post_norm", text),
    )


def _matrix(name: str, rows: int, columns: int, count: int = 1) -> Tensor:
    return Tensor(name=name, rows=rows, columns=columns, count=count, part="encoder")


def _vectors(name: str, size: int, count: int = 1) -> Tensor:
    return Tensor(name=name, rows=size, count=count, part="encoder")
