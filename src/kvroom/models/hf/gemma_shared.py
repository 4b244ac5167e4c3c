"""Gemma 3n and 4: the last layers read what earlier ones stored, and tokens have an embedding for each
layer.

A layer of the shared tail has no key and value projections of its own: it attends to the cache of the
last layer before the tail with the same attention type. Shapes as in the transformers classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import (
    Sizes,
    around,
    check_groups,
    grouped,
    layer_kinds,
    model,
    sizes,
    stored,
)
from kvroom.models.hf.dense import sliding_window
from kvroom.models.hf.gemma import SANDWICH
from kvroom.models.kinds import LayerKind, SharedCache
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

GEMMA3N_TEXT = {
    "vocab_size": 262400,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
}
GEMMA4_TEXT = {
    "vocab_size": 262144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
}


def gemma3n_text(config: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 3n's decoder: four windows to one full layer, a shared tail, AltUp streams and LAuReL.

    AltUp keeps ``altup_num_inputs`` hidden states side by side, LAuReL adds a low-rank residual (the
    MatFormer and AltUp papers); ``intermediate_size`` may be a list.
    """
    config = config.of_class(
        num_key_value_heads=2,
        head_dim=256,
        sliding_window=512,
        tie_word_embeddings=True,
        max_position_embeddings=32768,
        num_kv_shared_layers=15,
        vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256,
        altup_num_inputs=4,
        laurel_rank=64,
    )
    dims = sizes(config)
    sliding = layer_kinds(config, dims.layers, lambda i: (i + 1) % 5 != 0)
    first = _first_shared(config, sliding)
    streams = config.integer("altup_num_inputs", high=1000)
    inner = config.get("intermediate_size")
    widths = (
        config.integers("intermediate_size", length=dims.layers, low=1)
        if isinstance(inner, list)
        else [config.integer("intermediate_size")] * dims.layers
    )
    beside = (*_altup(dims.hidden, streams), *_laurel(dims.hidden, config.integer("laurel_rank")))
    window = sliding_window(config)
    layer_of: dict[Any, Layer] = {}
    each = []
    for index, (slides, width) in enumerate(zip(sliding, widths, strict=True)):
        key = (slides, index >= first, width)
        if key not in layer_of:
            kind = stored(dims, window if slides else None)
            tensors = (
                *_attention(config, dims, shared=index >= first),
                *parts.mlp(dims.hidden, width),
                *beside,
                *_per_layer_input(config, dims),
            )
            stores = SharedCache(of=kind) if index >= first else kind
            layer_of[key] = Layer(stores=(stores,), tensors=tensors)
        each.append(layer_of[key])
    square = [
        t
        for number in range(streams - 1)
        for t in parts.linear(f"altup_projections.{number}", dims.hidden, dims.hidden, part="mlp")
    ]
    back = [replace(t, name=t.name.replace("projections", "unembed_projections")) for t in square]
    return around(
        config,
        dims,
        each,
        embedding=(
            *parts.embedding(dims.vocab, dims.hidden),
            *_per_layer_tables(config, dims),
            *square,
        ),
        final=(*parts.norm("norm", dims.hidden), *back),
        root=root,
    )


def _altup(hidden: int, streams: int) -> Tensors:
    return (
        *parts.vector("altup.correct_output_scale", hidden),
        *parts.linear("altup.correction_coefs", streams, streams, part="norm"),
        *parts.linear("altup.prediction_coefs", streams * streams, streams, part="norm"),
        *parts.linear("altup.modality_router", streams, hidden, part="norm"),
        *parts.norm("altup.router_norm", hidden),
    )


def _laurel(hidden: int, rank: int) -> Tensors:
    return (
        *parts.linear("laurel.linear_left", rank, hidden, part="mlp", split="column"),
        *parts.linear("laurel.linear_right", hidden, rank, part="mlp", split="row"),
        *parts.norm("laurel.post_laurel_norm", hidden),
    )


def gemma4_text(config: Config, root: Config | None = None) -> ModelSpec:
    """Gemma 4's decoder: full layers have heads of ``global_head_dim``, and may use keys as values.

    ``attention_k_eq_v`` leaves the value projection of full layers out and gives them
    ``num_global_key_value_heads``; engines still store keys and values apart. The last layer is always
    full. With ``enable_moe_block`` experts run beside the dense block. ``use_double_wide_mlp`` doubles
    the feed-forward width of the shared tail.
    """
    config = config.of_class(
        num_key_value_heads=4,
        head_dim=256,
        global_head_dim=512,
        sliding_window=512,
        tie_word_embeddings=True,
        max_position_embeddings=131072,
        vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256,
    )
    near = sizes(config)
    k_eq_v = config.flag("attention_k_eq_v")
    kv_heads = near.kv_heads
    if k_eq_v:
        kv_heads = config.integer("num_global_key_value_heads", default=kv_heads, high=100_000)
        check_groups(config, near.heads, kv_heads, "num_global_key_value_heads")
    far = replace(near, kv_heads=kv_heads, head_dim=config.integer("global_head_dim", default=512))
    sliding = layer_kinds(config, near.layers, lambda i: (i + 1) % 6 != 0)
    sliding[-1] = False
    first = _first_shared(config, sliding)
    kinds = {True: stored(near, sliding_window(config)), False: stored(far)}

    def layer(slides: bool, shared: bool) -> Layer:
        s = near if slides else far
        inner = config.integer("intermediate_size")
        wide = shared and config.flag("use_double_wide_mlp")
        store: LayerKind = SharedCache(of=kinds[slides]) if shared else kinds[slides]
        tensors = (
            *_attention(config, s, shared=shared, values=slides or not k_eq_v),
            *parts.mlp(s.hidden, inner * 2 if wide else inner),
            *(_gemma4_experts(config, s.hidden) if config.flag("enable_moe_block") else ()),
            *_per_layer_input(config, s),
        )
        return Layer(stores=(store,), tensors=tensors)

    layer_of = {(a, b): layer(a, b) for a in (True, False) for b in (True, False)}
    return model(
        config,
        [layer_of[slides, index >= first] for index, slides in enumerate(sliding)],
        hidden=near.hidden,
        vocab=near.vocab,
        q_heads=near.heads,
        kv_heads=max(near.kv_heads, far.kv_heads),
        embedding=(*parts.embedding(near.vocab, near.hidden), *_per_layer_tables(config, near)),
        root=root,
    )


def _gemma4_experts(config: Config, hidden: int) -> Tensors:
    count = config.integer("num_experts", high=100_000)
    return (
        *parts.router(hidden, count, name="router.proj"),
        *parts.vector("router.scale", hidden),
        *parts.vector("router.per_expert_scale", count),
        *parts.experts(
            hidden,
            config.integer("moe_intermediate_size"),
            count,
            config.integer("top_k_experts", high=count),
            name="experts",
        ),
        *parts.norm("post_feedforward_layernorm_1", hidden),
        *parts.norm("post_feedforward_layernorm_2", hidden),
        *parts.norm("pre_feedforward_layernorm_2", hidden),
    )


def _first_shared(config: Config, sliding: Sequence[bool]) -> int:
    """Index of the first layer that stores nothing; every type that reads must have been stored."""
    layers = len(sliding)
    shared = config.integer("num_kv_shared_layers", default=0, low=0)
    first = layers - shared
    if shared and (first < 1 or set(sliding[:first]) != set(sliding)):
        raise KvroomError(
            config.field("num_kv_shared_layers"),
            shared,
            f"leaves no layer of each attention type to store what the others of {layers} read",
            "Give a smaller number.",
        )
    return first


def _attention(config: Config, dims: Sizes, *, shared: bool, values: bool = True) -> Tensors:
    """Norms and attention of one layer; a ``shared`` one has no keys and values of its own."""
    bias = config.flag("attention_bias")
    left_out = set() if values else {"self_attn.v_proj"}
    if shared:
        left_out = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm"}
    tensors = (
        *(t for name in SANDWICH for t in parts.norm(name, dims.hidden)),
        *grouped(dims, bias=bias, qk_norms="head"),
    )
    return tuple(tensor for tensor in tensors if tensor.name.removesuffix(".bias") not in left_out)


def _per_layer_input(config: Config, dims: Sizes) -> Tensors:
    width = config.integer("hidden_size_per_layer_input", default=256, low=0)
    if not width:
        return ()
    return (
        *parts.linear("per_layer_input_gate", width, dims.hidden, part="mlp"),
        *parts.linear("per_layer_projection", dims.hidden, width, part="mlp"),
        *parts.norm("post_per_layer_input_norm", dims.hidden),
    )


def _per_layer_tables(config: Config, dims: Sizes) -> Tensors:
    """The embedding of every token for every layer, and its projection from the first embedding."""
    width = config.integer("hidden_size_per_layer_input", default=256, low=0)
    if not width:
        return ()
    rows = config.integer("vocab_size_per_layer_input")
    return (
        *parts.embedding(rows, dims.layers * width, "embed_tokens_per_layer"),
        *parts.linear("per_layer_model_projection", dims.layers * width, dims.hidden, part="mlp"),
        *parts.norm("per_layer_projection_norm", width),
    )
