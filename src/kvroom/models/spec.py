"""A model as kvroom knows it: runs of layers in order, each with what it stores and what it weighs.

A layer is its cache kinds (``stores``) and its weight tensors; a model is runs of layers (layer ×
count) in order, with the tensors before, after and beside them. Parameters are logical: never packed,
tied weights once, no quantisation scales.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from kvroom.models.kinds import LayerKind
from kvroom.models.quantization.base import Quantisation
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass
from kvroom.units import show_count


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: what it keeps for a request and what it weighs."""

    stores: tuple[LayerKind, ...] = ()
    tensors: tuple[Tensor, ...] = ()

    @cached_property
    def params(self) -> int:
        """Parameters of the layer."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` equal layers one after another."""

    layer: Layer
    count: int


def runs_of(layers: Iterable[Layer]) -> tuple[Run, ...]:
    """Equal neighbours gathered into runs; give the same object for equal layers to be quick."""
    runs: list[Run] = []
    for layer in layers:
        if runs and (runs[-1].layer is layer or runs[-1].layer == layer):
            runs[-1] = Run(runs[-1].layer, runs[-1].count + 1)
        else:
            runs.append(Run(layer, 1))
    return tuple(runs)


@dataclass(frozen=True, slots=True)
class Vision:
    """What a config's ``vision_config`` says of its tower, in these very words (None: it does not)."""

    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    image_size: int | None = None
    patch_size: int | None = None
    spatial_merge_size: int | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelSpec:
    """A served model.

    ``layers`` are the decoder's (of an encoder-only model, the encoder's) in order; ``embedding`` lies
    on the first pipeline stage, ``head`` on the last; ``beside`` holds encoders and towers, which a
    decode step does not read; ``mtp`` the multi-token-prediction layers, which are not part of
    ``params``. ``q_heads``/``kv_heads`` are those of the widest attention, by which a tensor-parallel
    layout is checked (0: no attention). ``max_context_tokens`` is the limit that the model states,
    ``encoder_tokens`` its longest encoder input. ``file_bytes`` are weight bytes as the checkpoint file
    itself says, which win over arithmetic.
    """

    name: str
    model_type: str
    layers: tuple[Run, ...]
    embedding: tuple[Tensor, ...]
    head: tuple[Tensor, ...]
    beside: tuple[Tensor, ...] = ()
    mtp: tuple[Run, ...] = ()
    tied: bool = False
    hidden_size: int
    vocab_size: int
    q_heads: int
    kv_heads: int
    max_context_tokens: int | None = None
    encoder_tokens: int = 0
    generates: bool = True
    dtype: str = "bf16"
    quantisation: Quantisation | None = None
    file_bytes: int | None = None
    source: str = "config"
    warnings: tuple[str, ...] = ()
    state_dtype: str | None = None
    """The recurrent state's width that the config itself states."""
    scan_chunk_tokens: int | None = None
    """Tokens that the recurrence's kernel scans at once, where the config says."""
    architecture: str = ""
    """The class that the config names (the first of ``architectures``), by which engines tell models."""
    vision: Vision | None = None
    draft_vocab_size: int | None = None
    """The vocabulary that an EAGLE-3 head drafts from."""
    expanded_latents: bool = False
    """A GGUF made before its engine stored latents: whole heads are cached from it."""
    layer_names: str = "model.layers"
    """What comes before a layer's index in the checkpoint's tensor names."""

    def __repr__(self) -> str:
        layers = sum(run.count for run in self.layers)
        return f"<ModelSpec {self.name}: {show_count(self.params)} parameters, {layers} layers>"

    def each_layer(self) -> Iterator[Layer]:
        """Every layer in order."""
        for run in self.layers:
            for _ in range(run.count):
                yield run.layer

    @cached_property
    def num_layers(self) -> int:
        """Decoder layers, multi-token-prediction layers left out."""
        return sum(layer.count for layer in self.layers)

    @cached_property
    def params(self) -> int:
        """Parameters that the config describes: tied weights once, towers in, MTP layers out."""
        loose = (*self.embedding, *self.head, *self.beside)
        return sum(t.elements for t in loose) + sum(
            layer.layer.params * layer.count for layer in self.layers
        )

    @cached_property
    def mtp_params(self) -> int:
        """Parameters of the multi-token-prediction layers."""
        return sum(r.layer.params * r.count for r in self.mtp)

    @cached_property
    def active_params(self) -> int:
        """Parameters that one token goes through: of the routed experts only those it is sent to.

        Token table and head count; encoders and towers do not, unless the model is only an encoder.
        """
        idle = sum(
            tensor.elements * (tensor.count - tensor.active) // tensor.count * layer.count
            for layer in self.layers
            for tensor in layer.layer.tensors
            if tensor.part == "expert"
        )
        return self.params - sum(t.elements for t in self.beside) - idle

    @cached_property
    def stores(self) -> tuple[tuple[LayerKind, int], ...]:
        """Distinct cache kinds with how many layers keep each, in order of first appearance."""
        counts: dict[LayerKind, int] = {}
        for run in self.layers:
            for store in run.layer.stores:
                counts[store] = counts.get(store, 0) + run.count
        return tuple(counts.items())
