"""Rules that several kinds of checkpoint share: routed experts alone, and an average width."""

from __future__ import annotations

from kvroom.models.dtypes import BF16, Dtype
from kvroom.models.quantization.base import FP16, Quantisation, average, is_linear
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass


@dataclass(frozen=True)
class OnlyExperts:
    """Routed experts' matrices in ``linear``, all else in ``base``."""

    linear: Dtype
    base: Dtype = BF16

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The width of one tensor."""
        return self.linear if tensor.part == "expert" and tensor.is_matrix else self.base


@dataclass(frozen=True)
class Exl:
    """exllamav2: an average width for matrices, another for the head, FP16 for the rest."""

    linear: Dtype
    head: Dtype

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The width of one tensor."""
        if tensor.part == "head" and tensor.is_matrix:
            return self.head
        return self.linear if is_linear(tensor) else FP16


def exl(bits: float, *, head_bits: float, name: str) -> Quantisation:
    """An exllamav2 (or 3) checkpoint of ``bits`` a weight on average."""
    linear, head = average(name, bits), average(f"exl_{head_bits:g}", head_bits)
    return Quantisation(name=name, linear=linear, base=FP16, rule=Exl(linear, head))
