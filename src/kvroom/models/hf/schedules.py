"""What each layer of a model is, from the words that its config has for it.

A list with a word for each layer, the older keys that say the same by a period or by indices, and how
often a token passes each layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.models.config import Config
from kvroom.models.hf.experts import sparse_layers
from kvroom.models.hf.states import heads_of, recurs

LABELS = {
    "full_attention": "full", "attention": "full", "full": "full", "global": "full",
    "global_attention": "full", "indexed_attention": "full", "*": "full", "dense_attention": "full",
    "attn": "full", "minicpm4": "full", "sparse_attention": "full", "hybrid": "both",
    "hybrid_sliding": "both window",
    "sliding_attention": "window", "sliding": "window", "local": "window", "local_attention": "window",
    "window_attention": "window", "swa": "window", "reference_sliding_attention": "window",
    "chunked_attention": "chunk", "chunked": "chunk",
    "linear_attention": "state", "mamba": "state", "mamba2": "state", "recurrent": "state",
    "kda": "state", "gdn": "state", "gated_deltanet": "state", "lightning": "state", "M": "state",
    "lightning-attn": "state", "linear": "state", "rglru": "state", "mamba1": "state",
    "conv": "conv", "short_conv": "conv",
    "mlp": "none", "moe": "none", "ffn": "none", "-": "none", "E": "none", "no_op": "none",
}  # fmt: skip
"""What configs call a layer's mixer, and what that keeps."""

NAMES = ("layer_types", "layers_block_type", "layer_type_list", "block_types", "attn_type_list")
"""Keys of lists with a word for each layer."""

SCHEDULES: dict[str, tuple[str, ...]] = {
    "layer_types": (
        "sliding_window_pattern", "full_attention_interval", "global_attn_every_n_layers",
        "attn_layer_indices", "full_attn_idxs", "layer_group_size", "hybrid_override_pattern",
        "attention_layers_idx", "no_rope_layers", "use_sliding_window",
    ),
    "mlp_layer_types": (
        "first_k_dense_replace", "moe_layer_freq", "num_dense_layers", "decoder_sparse_step",
        "mlp_only_layers", "interleave_moe_layer_step", "n_dense_first_layers",
        "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval",
    ),
}  # fmt: skip
"""A list that newer configs have → the keys from which older ones have it follow."""


def labels_of(config: Config, count: int) -> tuple[list[str], tuple[str, ...]]:
    """A word of ``LABELS``' values for each layer, and what is to be said of how it was told."""
    for key in NAMES:
        said = config.get(key)
        if isinstance(said, list):
            mixers = [v for v in said if not isinstance(v, str) or LABELS.get(v) != "none"]
            if len(said) >= 2 * count == 2 * len(mixers):  # blocks counted on their own
                return _known(mixers, key)
            return _known(config.items(key, length=count), key)
    made = schedule(config, "layer_types", count)
    if made is not None:
        return _known(made, "layer_types")
    if recurs(config) and not heads_of(config):
        return ["state"] * count, ()
    if config.has("sliding_window") and config.flag("use_sliding_window", default=True):
        return ["window"] * count, ()
    if config.has("attention_chunk_size") and not config.has("no_rope_layers"):
        return ["chunk"] * count, ()
    return ["full"] * count, ()


def _known(values: Sequence[Any], key: str) -> tuple[list[str], tuple[str, ...]]:
    odd = sorted(
        {str(value) for value in values if not isinstance(value, str) or value not in LABELS}
    )
    labels = [LABELS.get(value, "full") if isinstance(value, str) else "full" for value in values]
    said = ", ".join(odd[:4])
    return labels, ((f"{key} {said}: counted as full attention",) if odd else ())


def schedule(config: Config, key: str, count: int) -> list[Any] | None:
    """The list called ``key`` as older configs say it; None where nothing says it."""
    if key == "mlp_layer_types":
        return _feeds(config, count)
    if key not in NAMES:
        return None
    near = "sliding_attention" if config.has("sliding_window") else "linear_attention"
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) >= count:
        return list(pattern[:count])
    for name in ("attn_layer_indices", "full_attn_idxs", "attention_layers_idx"):
        if isinstance(config.get(name), list):
            full = set(config.integers(name))
            other = "linear_attention" if recurs(config) else "conv"
            return ["full_attention" if index in full else other for index in range(count)]
    every = next(
        (
            n
            for n in ("full_attention_interval", "global_attn_every_n_layers", "layer_group_size",
                      "sliding_window_pattern", "_sliding_window_pattern")
            if type(config.get(n)) is int and config.get(n) > 0
        ),
        None,
    )  # fmt: skip
    if every is None:
        return None
    n = config.integer(every, high=10_000)
    if "sliding" not in every and "global" not in every:
        near = "linear_attention"
    return [near if (index + 1) % n else "full_attention" for index in range(count)]


def _feeds(config: Config, count: int) -> list[Any] | None:
    if config.has("num_dense_layers", "n_dense_first_layers"):
        first = config.integer("num_dense_layers", "n_dense_first_layers", low=0)
        return ["dense" if index < first else "sparse" for index in range(count)]
    if config.has("decoder_sparse_step", "mlp_only_layers"):
        step = config.integer("decoder_sparse_step", default=1)
        dense = set(config.integers("mlp_only_layers", default=[]))
        return [
            "dense" if index in dense or (index + 1) % step else "sparse" for index in range(count)
        ]
    if config.has("interleave_moe_layer_step"):
        step = config.integer("interleave_moe_layer_step")
        return ["dense" if (index + 1) % step else "sparse" for index in range(count)]
    if config.has("moe_layer_start_index"):
        starts = config.get("moe_layer_start_index")
        first = (
            min(config.integers("moe_layer_start_index"), default=0)
            if isinstance(starts, list)
            else (config.integer("moe_layer_start_index", low=0))
        )
        step = config.integer("moe_layer_interval", default=1)
        return [
            "sparse" if index >= first and (index + 1) % step == 0 else "dense"
            for index in range(count)
        ]
    if config.has("first_k_dense_replace", "moe_layer_freq"):
        return [
            "sparse" if sparse_layer else "dense" for sparse_layer in sparse_layers(config, count)
        ]
    return None


def passes_of(config: Config, count: int) -> list[int]:
    """How often a token passes each layer: looped models keep a cache for each pass."""
    if config.has("loop_num_passes"):
        first = config.integer("loop_layer_index_start", default=0, low=0)
        last = config.integer("loop_layer_index_end", default=count, low=0)
        times = config.integer("loop_num_passes", high=1000)
        return [times if first <= index < last else 1 for index in range(count)]
    if config.has("n_recurrent_loops", "n_recurrent_layers"):
        labels = config.get("layer_types")
        every = max(1, len(labels) // count) if isinstance(labels, list) else 1
        first = config.integer("n_input_layers", default=0, low=0) // every
        last = first + config.integer("n_recurrent_layers") // every
        times = config.integer("n_recurrent_loops", high=1000)
        return [times if first <= index < last else 1 for index in range(count)]
    if config.has("num_layers_per_stack"):
        total = config.integer("num_hidden_layers", high=10_000)
        return [max(1, total // config.integer("num_layers_per_stack"))] * count
    return [1] * count
