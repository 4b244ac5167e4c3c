"""What a GPU holds beside weights and cache: the compute buffer and the driver's context, estimated.

llama.cpp reserves the compute buffer once, for the widest step at a full cache. There is no closed
formula; the parts that dominate are known (logits, attention mask, scores without flash attention, the
widest layer). Bands cover the compute buffers of public logs with one device.
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


def compute_band(setup: LlamaCppSetup, model: ModelSpec, context: Context, output: bool) -> Band:
    """The compute buffer of a device that holds layers and, with ``output``, the output projection."""
    tokens = min(setup.flags.ubatch, context.tokens)
    hidden = tokens * model.hidden_size * 4
    mask = context.cells * tokens * (2 if setup.flash else 4)
    scores = 0 if setup.flash else context.cells * tokens * model.q_heads * 4
    wide = widest(model) * tokens * 4
    few = tokens if setup.rules.outputs == "batch" else min(context.slots, tokens)
    row = model.vocab_size * 4 if output else 0

    def buffer(rows: int) -> int:
        return mask + scores + max(rows * row + 2 * hidden, 2 * hidden + wide)

    middle = buffer(few)
    low = scores + max(few * row, wide // 2)
    return middle, min(low, middle), round(1.25 * buffer(tokens))


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
