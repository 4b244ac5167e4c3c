"""What a GPU holds beside weights and cache: the compute buffer and the driver's context, estimated.

llama.cpp reserves the compute buffer once, for the widest step at a full cache, and its allocator
(``ggml-alloc.c``) gives a tensor's place to the next as soon as nothing reads it. What counts is the moment
that holds most: attention (the mask, and without flash attention the scores of every head), the feed-forward
block (the mask, what goes in, what it makes), or the end (logits; the mask is gone). Hidden vectors live
beside each. Bands cover the compute buffers of public logs with one device; what a library of v0.5.0
reserves on a CPU for models of heads (``tests/golden/llama_cpp.json``) is within 2 % of the estimate.
"""

from __future__ import annotations

from kvroom.engines.llama_cpp.cells import is_windowed, window_cells
from kvroom.engines.llama_cpp.context import Context
from kvroom.engines.llama_cpp.setup import LlamaCppSetup
from kvroom.models.kinds import ChunkedAttention, HeadedAttention, Latent, SlidingWindow
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.units import MIB

Band = tuple[int, int, int]
"""(estimate, low, high) in bytes."""

DRIVER: Band = (300 * MIB, 150 * MIB, 500 * MIB)
"""CUDA's context; what others take is less."""
NONE: Band = (0, 0, 0)
AT_ATTENTION = 4
"""Hidden vectors beside scores and mask: the residual, its norm, queries, what attention gives."""


def compute_band(setup: LlamaCppSetup, model: ModelSpec, context: Context, output: bool) -> Band:
    """The compute buffer of a device that holds layers and, with ``output``, the output projection."""
    tokens = min(setup.flags.ubatch, context.tokens)
    hidden = tokens * model.hidden_size * 4
    row = model.vocab_size * 4 if output else 0
    few = tokens if setup.rules.outputs == "batch" else min(context.slots, tokens)
    scores = 0 if setup.flash else context.cells * tokens * model.q_heads * 4
    mask = 0
    if not all(kind.recurrent for kind, _ in model.stores):
        mask = context.cells * tokens * (2 if setup.flash else 4)
    wide = widest(model) * tokens * 4
    attention, inner = mask + scores + AT_ATTENTION * hidden, mask + 2 * hidden + wide
    if setup.rules.gated_apart and _headed(model):
        masks = mask + _window_cells(setup, model, context) * tokens * (2 if setup.flash else 4)
        queries, keys = (numbers * tokens * 4 for numbers in _headed(model))
        attention = masks + scores + 2 * hidden + 3 * queries + 2 * keys
        inner = masks + 3 * hidden + queries + _gated(model) * tokens * 4
        if setup.flash:
            attention = inner
    if setup.rules.latent != "heads" and not setup.expanded:
        absorbed = _absorbed(model) * tokens * 4
        attention = max(attention, mask + scores + absorbed + 4 * hidden) if absorbed else attention
    middle = max(attention, inner, few * row + 2 * hidden)
    low = max(scores, wide // 2, few * row)
    at_once = mask + scores + max(tokens * row, wide) + 2 * hidden  # nothing gives its place away
    return middle, min(low, middle), round(1.25 * max(middle, at_once))


def widest(model: ModelSpec) -> int:
    """Numbers a token of the widest layer."""
    return max((_width(run.layer) for run in model.layers), default=0)


def _width(layer: Layer) -> int:
    """Numbers a token that the layer's feed-forward block holds at once."""
    return sum(_rows(tensor) for tensor in layer.tensors if _is_inner(tensor))


def _is_inner(tensor: Tensor) -> bool:
    return tensor.part in ("mlp", "expert") and tensor.is_matrix


def _rows(tensor: Tensor) -> int:
    return tensor.rows * (tensor.active if tensor.part == "expert" else 1)


def _gated(model: ModelSpec) -> int:
    """The same where the gate, what it lets through and their product each have a place
    (``ggml_swiglu_split`` and its like); a block without a gate has one."""
    most = 0
    for run in model.layers:
        wide = [
            tensor
            for tensor in run.layer.tensors
            if _is_inner(tensor)
            and tensor.columns == model.hidden_size
            and "down" not in tensor.name
        ]
        gated = any("gate" in tensor.name for tensor in wide)
        rows = sum(map(_rows, wide))
        most = max(most, rows * 3 // 2 if gated else rows)
    return most


def _headed(model: ModelSpec) -> tuple[int, int] | tuple[()]:
    """Numbers a token of the widest layer's queries and keys; () where layers keep other than heads."""
    kinds = [kind for kind, _ in model.stores]
    if not kinds or not all(isinstance(kind, HeadedAttention) for kind in kinds):
        return ()
    heads = [kind for kind in kinds if isinstance(kind, HeadedAttention)]
    return (
        max(kind.q_heads * kind.k_dim for kind in heads),
        max(kind.kv_heads * kind.k_dim for kind in heads),
    )


def _absorbed(model: ModelSpec) -> int:
    """Numbers a token of the queries where they are taken into the latents' space: those of each head and
    a latent beside them, each twice."""
    return max(
        (
            2 * kind.q_heads * (kind.latent_dim + kind.k_dim)
            for kind, _ in model.stores
            if isinstance(kind, Latent)
        ),
        default=0,
    )


def _window_cells(setup: LlamaCppSetup, model: ModelSpec, context: Context) -> int:
    """Cells of the mask that windowed layers have beside the full one."""
    windows = {kind.window for kind, _ in model.stores if isinstance(kind, SlidingWindow)}
    windows |= {kind.chunk for kind, _ in model.stores if isinstance(kind, ChunkedAttention)}
    if not windows or not setup.rules.windows or not is_windowed(model):
        return 0
    return max(window_cells(setup, context, window) for window in windows)
