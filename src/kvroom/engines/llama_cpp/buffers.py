"""What a GPU holds beside weights and cache: the compute buffer and the driver's context, estimated.

llama.cpp reserves the compute buffer once, for the widest step at a full cache, and its allocator
(``ggml-alloc.c``) gives a tensor's place to the next as soon as nothing reads it. What counts is the moment
that holds most: attention (the mask, and without flash attention the scores of every head), the feed-forward
block (the mask, what goes in, what it makes), or the end (logits; the mask is gone). Hidden vectors live
beside each. Bands cover the compute buffers of public logs with one device.
"""

from __future__ import annotations

from kvroom.engines.llama_cpp.context import Context
from kvroom.engines.llama_cpp.setup import LlamaCppSetup
from kvroom.models.spec import Layer, ModelSpec
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
    mask = context.cells * tokens * (2 if setup.flash else 4)
    scores = 0 if setup.flash else context.cells * tokens * model.q_heads * 4
    wide = widest(model) * tokens * 4
    few = tokens if setup.rules.outputs == "batch" else min(context.slots, tokens)
    row = model.vocab_size * 4 if output else 0

    attention, inner = mask + scores + AT_ATTENTION * hidden, mask + 2 * hidden + wide
    middle = max(attention, inner, few * row + 2 * hidden)
    low = max(scores, wide // 2, few * row)
    at_once = mask + scores + max(tokens * row, wide) + 2 * hidden  # nothing gives its place away
    return middle, min(low, middle), round(1.25 * at_once)


def widest(model: ModelSpec) -> int:
    """Numbers a token of the widest layer."""
    return max((_width(run.layer) for run in model.layers), default=0)


def _width(layer: Layer) -> int:
    """Numbers a token that the layer's feed-forward block holds at once."""
    dense = sum(
        tensor.rows for tensor in layer.tensors if tensor.part == "mlp" and tensor.is_matrix
    )
    routed = sum(
        tensor.rows * tensor.active
        for tensor in layer.tensors
        if tensor.part == "expert" and tensor.is_matrix
    )
    return dense + routed
