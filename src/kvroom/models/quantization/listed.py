"""Widths by name: which of a model's tensors a quantiser's lists speak of, and what the rest takes."""

from __future__ import annotations

from collections.abc import Mapping

from kvroom.models.config import Config
from kvroom.models.dtypes import BF16, Dtype
from kvroom.models.quantization.base import NESTED, Quantisation, is_linear
from kvroom.models.quantization.match import Names
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
SKIPS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude")


@dataclass(frozen=True)
class Listed:
    """Widths by name: ``groups`` first (None: left alone), then ``skip``, then what is usual.

    ``default`` is what linear matrices of no group take, ``head`` whether the head is one of them;
    ``layers`` is how many the model has, after which come its MTP layers.
    """

    default: Dtype | None
    skip: Names
    groups: tuple[tuple[Names, Dtype | None], ...] = ()
    experts: Dtype | None = None
    head: bool = False
    layers: int | None = None
    base: Dtype = BF16

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The width of one tensor."""
        if not tensor.is_matrix or tensor.part in ("norm", "router", "encoder"):
            return self.base
        for names, dtype in self.groups:
            if names.speak_of(tensor, layer, self.layers):
                return dtype or self.base
        if not (is_linear(tensor) or (self.head and tensor.part == "head")):
            return self.base
        if self.skip.speak_of(tensor, layer, self.layers):
            return self.base
        wanted = self.experts if self.experts and tensor.part == "expert" else self.default
        return wanted or self.base

    @property
    def layered(self) -> bool:
        """Whether any list speaks of single layers."""
        return self.skip.layered or any(names.layered for names, _ in self.groups)


def listed(name: str, linear: Dtype, rule: Listed, *warnings: str) -> Quantisation:
    """The rule as a Quantisation."""
    return Quantisation(
        name=name, linear=linear, rule=rule, varies_by_layer=rule.layered, warnings=warnings
    )


def layer_count(top: Config) -> int | None:
    """How many layers the model has, where its config says."""
    for level in (top.raw, *(top.raw.get(n) for n in NESTED)):
        for key in LAYERS:
            count = level.get(key) if isinstance(level, Mapping) else None
            if isinstance(count, int):
                return count
    return None


def skips(config: Config, *names: str) -> Names:
    """The modules that the config leaves alone."""
    entries = [item for key in names or SKIPS for item in config.items(key, default=[])]
    return Names(config.field(*(names or SKIPS)), entries)


def bits_of(config: Config, *names: str, default: int = 4) -> int:
    """Bits an element."""
    return config.integer(*names, default=default, low=1, high=32)


def group_of(config: Config, *names: str, default: int = 128) -> int:
    """Elements a group (0 or −1: the whole row)."""
    return config.integer(*names, default=default, low=-1)
