"""Cells: what a slot of so many tokens takes of each layer's cache.

Sources: ``llama_kv_cache``, ``llama_kv_cache_iswa`` and ``llama_memory_recurrent`` of llama.cpp's
``src/``; every size here is one that its start-up log prints.
"""

from __future__ import annotations

from kvroom.engines.llama_cpp.context import Context, padded
from kvroom.engines.llama_cpp.setup import LlamaCppSetup
from kvroom.models.dtypes import FP32
from kvroom.models.kinds import (
    ChunkedAttention,
    Compressed,
    ConvState,
    FullAttention,
    HeadedAttention,
    Indexer,
    Latent,
    LayerKind,
    RecurrentState,
    SlidingWindow,
    TiedWindow,
)
from kvroom.models.spec import Layer, ModelSpec

UNWINDOWED = (
    "mistral",
    "mixtral",
    "ministral",
    "phi3",
    "phimoe",
    "phi4",
    "starcoder2",
    "qwen2",
    "qwen3",
    "minimax",
    "hunyuan",
)
"""Models whose windows llama.cpp does not follow, by the beginning of their type: every layer is full."""


def window_cells(setup: LlamaCppSetup, context: Context, window: int) -> int:
    """Cells a stream of a layer that sees ``window`` tokens back."""
    if setup.flags.swa_full or not setup.rules.windows:
        return context.cells
    added = setup.flags.ubatch if setup.rules.window_adds == "ubatch" else setup.flags.batch
    step = 256 if setup.rules.window_padding or setup.flash else 32
    return padded(min(context.cells, window * context.slots_a_stream + added), step)


def is_windowed(model: ModelSpec) -> bool:
    """Whether llama.cpp follows the model's windows."""
    return not model.model_type.startswith(UNWINDOWED)


def store_bytes(
    setup: LlamaCppSetup, kind: LayerKind, context: Context, windowed: bool, value_floor: int = 0
) -> int:
    """Bytes that one layer's store of ``kind`` takes for all slots.

    ``value_floor``: elements that every layer's values take at least (without flash attention they
    are as wide in every layer as in the widest).
    """
    key, value = setup.key.bytes_for, setup.value.bytes_for
    match kind:
        case TiedWindow():
            row = key(kind.kv_heads * kind.k_dim)
            own = Context(
                context.slots, context.slots, context.limit, context.limit
            )  # never shared
            return window_cells(setup, own, kind.window) * context.slots * row
        case HeadedAttention():
            if isinstance(kind, SlidingWindow) and windowed:
                cells = window_cells(setup, context, kind.window)
            elif isinstance(kind, ChunkedAttention) and windowed:
                cells = window_cells(setup, context, kind.chunk)
            elif isinstance(kind, SlidingWindow | ChunkedAttention | FullAttention):
                cells = context.cells
            else:
                return 0  # cross attention is computed anew
            row = key(kind.kv_heads * kind.k_dim)
            row += value(max(kind.kv_heads * kind.v_dim, value_floor))
            return cells * context.streams * row
        case Latent():
            return context.tokens * _latent_row(setup, kind)
        case Compressed():
            return padded(context.limit // kind.ratio) * context.slots * key(kind.dim)
        case Indexer():
            if not setup.rules.indexer:
                return 0
            if kind.ratio > 1:
                return padded(context.limit // kind.ratio) * context.slots * key(kind.dim)
            return context.tokens * key(kind.dim)
        case RecurrentState() | ConvState():
            elements = kind.entry_bytes(FP32) * 8 // kind.dtype.bits
            return elements * 4 * context.slots * (1 + setup.flags.drafted)
    return 0


def _latent_row(setup: LlamaCppSetup, kind: Latent) -> int:
    key, value = setup.key.bytes_for, setup.value.bytes_for
    if setup.expanded or setup.rules.latent == "heads":
        return key(kind.q_heads * kind.k_dim) + value(kind.q_heads * kind.v_dim)
    row = key(kind.latent_dim + kind.rope_dim)
    return row + (value(kind.latent_dim) if setup.rules.latent == "latent and values" else 0)


def layer_cache_bytes(setup: LlamaCppSetup, model: ModelSpec, context: Context) -> tuple[int, ...]:
    """Cache bytes of every layer, in order."""
    windowed = is_windowed(model)
    floor = _value_floor(model) if not setup.flash else 0
    made: list[int] = []
    for run in model.layers:
        size = sum(store_bytes(setup, kind, context, windowed, floor) for kind in run.layer.stores)
        made += [size] * run.count
    return tuple(made)


def state_bytes(setup: LlamaCppSetup, layer: Layer, context: Context) -> int:
    """What of one layer's cache is recurrent state."""
    kinds = (kind for kind in layer.stores if kind.recurrent)
    return sum(store_bytes(setup, kind, context, windowed=False) for kind in kinds)


def _value_floor(model: ModelSpec) -> int:
    heads = (FullAttention, SlidingWindow, ChunkedAttention)
    return max(
        (kind.kv_heads * kind.v_dim for kind, _ in model.stores if isinstance(kind, heads)),
        default=0,
    )
