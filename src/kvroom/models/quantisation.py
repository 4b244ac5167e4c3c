"""How a checkpoint stores its weights: which tensors are narrowed, to what, and what stays 16-bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.dtypes import BF16, FP32, PER_ROW, Dtype
from kvroom.models.tensors import Tensor


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """``linear`` is what narrowed matrices take, ``base`` what everything else does."""

    name: str
    linear: Dtype
    base: Dtype = BF16
    kv_dtype: str | None = None
    """The cache width that the checkpoint itself asks for (its KV cache scheme), if any."""
    varies_by_layer: bool = False
    """Whether ``dtype_of`` depends on the layer's index."""
    warnings: tuple[str, ...] = ()

    def dtype_of(self, tensor: Tensor, layer: int | None = None) -> Dtype:
        """What ``tensor`` is stored as, in the layer with that index (None: outside the layers)."""
        if tensor.is_matrix and tensor.part in ("attention", "mlp", "expert", "shared_expert"):
            return self.linear
        return self.base


WEIGHT_DTYPES: dict[str, Dtype] = {
    "bf16": BF16,
    "fp16": Dtype("fp16", 16),
    "fp32": FP32,
    "fp8": Dtype("fp8", 8, PER_ROW, 4),
}


def named(weight_dtype: str) -> Quantisation:
    """The usual checkpoint of that ``weight_dtype``; KvroomError if there is none of that name."""
    found = WEIGHT_DTYPES.get(weight_dtype.lower())
    if found is None:
        fix = did_you_mean(weight_dtype, WEIGHT_DTYPES, f"One of: {', '.join(WEIGHT_DTYPES)}.")
        raise KvroomError("weight_dtype", weight_dtype, "is no weight dtype", fix)
    plain = found.bits >= 16
    return Quantisation(name=found.name, linear=found, base=found if plain else BF16)


def from_config(config: Mapping[str, Any]) -> Quantisation | None:
    """What the config's ``quantization_config`` says; None for a checkpoint at its own width."""
    return None
