"""What every quantisation answers, and the element widths that checkpoints use.

Sources of the widths: the safetensors of published checkpoints of each kind. Scales that a matrix has
only one of are counted (4 B); tensors that only describe (GPTQ's ``g_idx``, a packed shape) are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction
from math import gcd
from typing import Any

from kvroom.models.dtypes import BF16, FP32, PER_ROW, Dtype
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass

Rule = Callable[[Tensor, "int | None"], Dtype]
"""What a tensor is stored as in the layer of that index (None: outside the layers)."""

_MATRICES = ("attention", "mlp", "expert", "shared_expert", "state")
_SMALL_STATE = 256
"""Recurrent layers' gates and steps below this many rows (or columns) are left alone."""


def is_linear(tensor: Tensor) -> bool:
    """Whether quantisers narrow it by default: a linear layer's matrix inside a decoder layer.

    Embedding, head, norms, biases, routers and towers stay; so do convolutions, the thin gates of
    recurrent layers, an indexer's head weights, and what joins an MTP layer to the model.
    """
    if not tensor.is_matrix or tensor.part not in _MATRICES:
        return False
    if tensor.part == "state":
        return "conv" not in tensor.name and min(tensor.rows, tensor.columns) >= _SMALL_STATE
    return tensor.name != "fc" and not tensor.name.endswith(("weights_proj", "eh_proj"))


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """``linear`` is what most narrowed matrices take, ``base`` what stays as it was trained.

    ``rule`` says more where that is not the whole story. ``warnings`` are what a reader should know
    of how the config was understood.
    """

    name: str
    linear: Dtype
    base: Dtype = BF16
    rule: Rule | None = None
    kv_dtype: str | None = None
    """The cache width that the checkpoint itself asks for (its KV cache scheme), if any."""
    varies_by_layer: bool = False
    """Whether ``dtype_of`` depends on the layer's index."""
    warnings: tuple[str, ...] = ()
    _seen: dict[tuple[object, ...], Dtype] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def dtype_of(self, tensor: Tensor, layer: int | None = None) -> Dtype:
        """What ``tensor`` is stored as, in the layer with that index (None: outside the layers)."""
        if self.rule is None:
            return self.linear if is_linear(tensor) else self.base
        index = layer if self.varies_by_layer or layer is None else 0
        key = (tensor.name, index, tensor.part, tensor.rows, tensor.columns)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self.rule(tensor, index)
        return found

    def bytes_of(self, tensor: Tensor, layer: int | None = None) -> int:
        """Bytes of all ``count`` of a tensor as stored, scales included."""
        return self.dtype_of(tensor, layer).bytes_for(tensor.columns, tensor.rows) * tensor.count


FP16 = Dtype("fp16", 16)
PLAIN: dict[str, Dtype] = {"bf16": BF16, "fp16": FP16, "fp32": FP32}

FP8_TENSOR = Dtype("fp8", 8, PER_ROW, 4, PER_ROW)
"""FP8 with one FP32 scale a matrix."""
FP8_CHANNEL = Dtype("fp8", 8, PER_ROW, 4)
"""FP8 with an FP32 scale for each output channel."""
INT8_CHANNEL = Dtype("int8", 8, PER_ROW, 4)
MXFP4 = Dtype("mxfp4", 4, 32, 1)
MXFP8 = Dtype("mxfp8", 8, 32, 1)
NVFP4 = Dtype("nvfp4", 4, 16, 1)
NF4 = Dtype("nf4", 4, 64, 4)
NF4_DOUBLE = Dtype("nf4", 4, 64, 1)
"""bitsandbytes with double quantisation: the scales themselves in one byte."""


def fp8_block(rows: int = 128, columns: int = 128, scale_bytes: int = 4) -> Dtype:
    """FP8 with a scale (FP32 unless told) for each block."""
    return Dtype("fp8", 8, columns, scale_bytes, rows)


def grouped(bits: int, group: int, *, zeros: bool, kind: str = "int") -> Dtype:
    """Integers with a 16-bit scale for each group of a row and, with ``zeros``, a packed zero point.

    The zero point takes ``bits`` of its own, so scales are counted over as many rows as fill bytes.
    ``group`` −1 or 0 means the whole row.
    """
    group = group if group > 0 else PER_ROW
    if not zeros:
        return Dtype(f"{kind}{bits}", bits, group, 2)
    rows = 8 // gcd(8, bits)
    return Dtype(f"{kind}{bits}", bits, group, 2 * rows + rows * bits // 8, rows)


def average(name: str, bits: float) -> Dtype:
    """A width that is only known on average (exl2, exl3): whole bits, the rest as scale bytes."""
    whole = int(bits)
    rest = Fraction(bits - whole).limit_denominator(32)
    if not rest:
        return Dtype(name, whole)
    return Dtype(name, whole, 8 * rest.denominator, rest.numerator)


_KEYS = ("quantization_config", "compression_config", "quantization")
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


def rule_in(config: Mapping[str, Any]) -> tuple[str, Any, Mapping[str, Any]] | None:
    """Where a config says how its weights are stored: (key's path, value, the level it stands on)."""
    levels = [("", config)]
    levels += [(f"{n}.", v) for n in NESTED if isinstance(v := config.get(n), Mapping)]
    for path, level in levels:
        for key in _KEYS:
            if level.get(key) is not None:
                return path + key, level[key], level
    return None
