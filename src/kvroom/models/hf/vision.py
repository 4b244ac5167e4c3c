"""Vision towers, as few tensors as tell the truth: what lies beside the decoder.

``c`` is the level of the config that describes the tower (``vision_config``).
"""

from __future__ import annotations

from kvroom.models.hf.config import MAX_LAYERS, Config
from kvroom.models.tensors import Tensor


def encoder_matrix(name: str, rows: int, columns: int, count: int = 1) -> Tensor:
    """``count`` equal matrices of a tower."""
    return Tensor(name=name, rows=rows, columns=columns, count=count, part="encoder")


def encoder_vectors(name: str, size: int, count: int = 1) -> Tensor:
    """All biases and norms of one of ``count`` equal layers together."""
    return Tensor(name=name, rows=size, count=count, part="encoder")


def qwen3_vision(c: Config) -> tuple[Tensor, ...]:
    """The tower of Qwen3-VL and Qwen3.5 (transformers' ``Qwen3VLVisionModel``).

    Patches of pixels over two frames, learned positions, ViT blocks with biases everywhere, and a merger
    of ``spatial_merge_size``² patches into one token. ``deepstack_visual_indexes`` adds a merger for
    each block whose output is fed to the decoder (none in Qwen3.5).
    """
    c = c.of_class(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        in_channels=3,
        patch_size=16,
        temporal_patch_size=2,
        spatial_merge_size=2,
        num_position_embeddings=2304,
        out_hidden_size=3584,
    )
    depth = c.integer("depth", "num_hidden_layers", high=MAX_LAYERS)
    hidden = c.integer("hidden_size")
    inner = c.integer("intermediate_size")
    out = c.integer("out_hidden_size")
    patch = c.integer("in_channels", high=1000) * c.integer("patch_size", high=1000) ** 2
    patch *= c.integer("temporal_patch_size", high=1000)
    wide = hidden * c.integer("spatial_merge_size", high=1000) ** 2
    deep = len(c.items("deepstack_visual_indexes", default=[]))
    return (
        encoder_matrix("visual.patch_embed.proj", hidden, patch),
        encoder_matrix("visual.pos_embed", c.integer("num_position_embeddings"), hidden),
        encoder_matrix("visual.blocks.attn.qkv", 3 * hidden, hidden, depth),
        encoder_matrix("visual.blocks.attn.proj", hidden, hidden, depth),
        encoder_matrix("visual.blocks.mlp.linear_fc1", inner, hidden, depth),
        encoder_matrix("visual.blocks.mlp.linear_fc2", hidden, inner, depth),
        # biases 3h + h + inner + h, two LayerNorms 4h
        encoder_vectors("visual.blocks.vectors", 9 * hidden + inner, depth),
        encoder_matrix("visual.merger.linear_fc1", wide, wide),
        encoder_matrix("visual.merger.linear_fc2", out, wide),
        # patch bias, the merger's LayerNorm before patches are joined, and its biases
        encoder_vectors("visual.merger.vectors", 3 * hidden + wide + out),
        *(
            (
                encoder_matrix("visual.deepstack_merger_list.linear_fc1", wide, wide, deep),
                encoder_matrix("visual.deepstack_merger_list.linear_fc2", out, wide, deep),
                # here the norm is over the joined patches
                encoder_vectors("visual.deepstack_merger_list.vectors", 3 * wide + out, deep),
            )
            if deep
            else ()
        ),
    )
