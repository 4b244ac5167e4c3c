"""Cells: what a slot of so many tokens takes of each layer's cache.

Sources: ``llama_kv_cache``, ``llama_kv_cache_iswa`` and ``llama_memory_recurrent`` of llama.cpp's
``src/``; every size here is one that its start-up log prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvroom.engines.llama_cpp.versions import BuildRules
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
from kvroom.units import ceil_div

if TYPE_CHECKING:
    from kvroom.engines.llama_cpp.setup import LlamaCppSetup

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


def padded(tokens: int, to: int = 256) -> int:
    """``tokens`` rounded up to a multiple of ``to``."""
    return ceil_div(tokens, to) * to


@dataclass(frozen=True, slots=True)
class Context:
    """``streams`` rows of ``cells`` cells for ``slots`` slots, of which one request may use ``limit``."""

    slots: int
    streams: int
    cells: int
    limit: int

    @property
    def tokens(self) -> int:
        """Tokens of all slots together (what is printed as n_ctx)."""
        return self.cells * self.streams

    @property
    def slots_a_stream(self) -> int:
        """Slots that share a row of cells."""
        return self.slots // self.streams


def context_of(rules: BuildRules, slots: int, total: int, unified: bool) -> Context:
    """The cells of ``slots`` slots that share ``total`` tokens (-c)."""
    total = padded(total, rules.padding)
    if rules.streams and not unified:
        cells = padded(max(1, total // slots), rules.padding)
        return Context(slots, slots, cells, cells)
    return Context(slots, 1, total, total if unified else max(1, total // slots))


def window_cells(s: LlamaCppSetup, c: Context, window: int) -> int:
    """Cells a stream of a layer that sees ``window`` tokens back."""
    if s.flags.swa_full or not s.rules.windows:
        return c.cells
    added = s.flags.ubatch if s.rules.window_adds == "ubatch" else s.flags.batch
    step = 256 if s.rules.window_padding or s.flash else 32
    return padded(min(c.cells, window * c.slots_a_stream + added), step)


def is_windowed(model: ModelSpec) -> bool:
    """Whether llama.cpp follows the model's windows."""
    return not model.model_type.startswith(UNWINDOWED)


def store_bytes(
    s: LlamaCppSetup, kind: LayerKind, c: Context, windowed: bool, value_floor: int = 0
) -> int:
    """Bytes that one layer's store of ``kind`` takes for all slots.

    ``value_floor``: elements that every layer's values take at least (without flash attention they
    are as wide in every layer as in the widest).
    """
    key, value = s.key.bytes_for, s.value.bytes_for
    match kind:
        case TiedWindow():
            row = key(kind.kv_heads * kind.k_dim)
            own = Context(c.slots, c.slots, c.limit, c.limit)  # never shared
            return window_cells(s, own, kind.window) * c.slots * row
        case HeadedAttention():
            if isinstance(kind, SlidingWindow) and windowed:
                cells = window_cells(s, c, kind.window)
            elif isinstance(kind, ChunkedAttention) and windowed:
                cells = window_cells(s, c, kind.chunk)
            elif isinstance(kind, SlidingWindow | ChunkedAttention | FullAttention):
                cells = c.cells
            else:
                return 0  # cross attention is computed anew
            row = key(kind.kv_heads * kind.k_dim)
            row += value(max(kind.kv_heads * kind.v_dim, value_floor))
            return cells * c.streams * row
        case Latent():
            return c.tokens * _latent_row(s, kind)
        case Compressed():
            return padded(c.limit // kind.ratio) * c.slots * key(kind.dim)
        case Indexer():
            if not s.rules.indexer:
                return 0
            if kind.ratio > 1:
                return padded(c.limit // kind.ratio) * c.slots * key(kind.dim)
            return c.tokens * key(kind.dim)
        case RecurrentState() | ConvState():
            elements = kind.entry_bytes(FP32) * 8 // kind.dtype.bits
            return elements * 4 * c.slots * (1 + s.flags.drafted)
    return 0


def _latent_row(s: LlamaCppSetup, kind: Latent) -> int:
    key, value = s.key.bytes_for, s.value.bytes_for
    if s.expanded or s.rules.latent == "heads":
        return key(kind.q_heads * kind.k_dim) + value(kind.q_heads * kind.v_dim)
    row = key(kind.latent_dim + kind.rope_dim)
    return row + (value(kind.latent_dim) if s.rules.latent == "latent and values" else 0)


def layer_cache_bytes(s: LlamaCppSetup, model: ModelSpec, c: Context) -> tuple[int, ...]:
    """Cache bytes of every layer, in order."""
    windowed = is_windowed(model)
    floor = _value_floor(model) if not s.flash else 0
    made: list[int] = []
    for run in model.layers:
        size = sum(store_bytes(s, k, c, windowed, floor) for k in run.layer.stores)
        made += [size] * run.count
    return tuple(made)


def state_bytes(s: LlamaCppSetup, layer: Layer, c: Context) -> int:
    """What of one layer's cache is recurrent state."""
    kinds = (k for k in layer.stores if k.recurrent)
    return sum(store_bytes(s, k, c, windowed=False) for k in kinds)


def _value_floor(model: ModelSpec) -> int:
    heads = (FullAttention, SlidingWindow, ChunkedAttention)
    return max((k.kv_heads * k.v_dim for k, _ in model.stores if isinstance(k, heads)), default=0)
