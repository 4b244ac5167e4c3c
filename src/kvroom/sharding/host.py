"""The parts of a replica that lie in host memory, beside its GPUs: layers, experts, cache."""

from __future__ import annotations

from dataclasses import replace

from kvroom.models.kinds import LayerKind
from kvroom.models.spec import Layer, ModelSpec, runs_of
from kvroom.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPart:
    """``layers`` lie there whole, their cache too; of ``experts``' layers only the routed experts do.
    ``head``: the output projection too. ``cache``: that of every layer does. ``bytes`` is all of it, the
    token table included.
    ``batch_tokens``: prompt tokens that are computed at once there."""

    layers: frozenset[int] = frozenset()
    experts: frozenset[int] = frozenset()
    head: bool = False
    cache: bool = False
    bytes: int = 0
    batch_tokens: int = 512

    def __bool__(self) -> bool:
        """Whether a step reads any of it."""
        return bool(self.layers or self.experts or self.cache)

    def words(self, model: ModelSpec) -> str:
        """What lies there, in a few words."""
        parts = []
        if self.layers:
            parts.append(f"{len(self.layers)} of {model.num_layers} layers")
        if experts := self.experts - self.layers:
            parts.append(f"the experts of {len(experts)} of {model.num_layers} layers")
        if self.cache:
            parts.append("the cache")
        return f"{' and '.join(parts)} on the CPU"

    def on_gpu(self, model: ModelSpec) -> ModelSpec:
        """The model as the GPUs have it."""
        dense: dict[int, Layer] = {}
        layers = [
            dense.setdefault(id(layer), _dense(layer)) if index in self.experts else layer
            for index, layer in enumerate(model.each_layer())
            if index not in self.layers
        ]
        rest = replace(model, layers=runs_of(layers))
        return replace(rest, head=(), tied=False) if self.head else rest

    def stores(self, model: ModelSpec) -> tuple[tuple[LayerKind, int], ...]:
        """The cache kinds that lie there, each with its number of layers."""
        counts: dict[LayerKind, int] = {}
        for index, layer in enumerate(model.each_layer()):
            if self.cache or index in self.layers:
                for kind in layer.stores:
                    counts[kind] = counts.get(kind, 0) + 1
        return tuple(counts.items())


def _dense(layer: Layer) -> Layer:
    return replace(
        layer, tensors=tuple(tensor for tensor in layer.tensors if tensor.part != "expert")
    )
