"""LoRA adapters: the buffers that an engine sets aside for all that may be active at once.

Which adapters there are is each engine's own flags' to say (``Engine.adapters``).

A slot holds, for each linear layer that may be adapted, A (rank × inputs) and B (outputs × rank), whether
an adapter is loaded or not. Over tensor ranks B is cut where a layer's outputs are, A where its inputs
are; the other of the two is whole on every rank, unless ``fully_sharded_loras`` cuts that too. Sources:
vLLM's ``lora/layers`` (``create_lora_weights``), checked against the buffers of 0.32.0; SGLang's
``lora/mem_pool``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.engines import flags as read
from kvroom.models.kinds import ConvState, RecurrentState
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass
from kvroom.sharding.extras import NONE, Extra, Extras
from kvroom.sharding.layout import Layout, Rank, shape_on_rank
from kvroom.units import ceil_div

ONLY_WITH = (
    "max_loras",
    "max_lora_rank",
    "max_loras_per_batch",
    "max_cpu_loras",
    "fully_sharded_loras",
    "lora_target_modules",
    "lora_dtype",
)
"""Flags that do nothing unless adapters are enabled."""
ASKING = ("enable_lora", "lora", "lora_scaled", "lora_config", "lora_paths", "lora_modules")
"""Flags by which one engine or another is asked for adapters."""
FLAGS = frozenset((*ASKING, *ONLY_WITH))
"""All that bear on adapters."""
NARROW = ("state", "attention", "mlp", "expert", "shared_expert", "router")
"""Parts with linear layers; embedding and head come apart."""
SLICES = {"mamba1": (2, 1), "mamba2": (5, 3)}
"""Slices with an A of their own in a recurrence's in_proj, and in its convolution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """``slots`` adapters of ``rank`` at once; ``targets`` the modules adapted (None: all linear)."""

    slots: int
    rank: int
    element_bytes: int = 2
    targets: frozenset[str] | None = None
    sharded: bool = False
    embedding: bool = False
    experts: bool = True
    assumed: bool = False

    def meets(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` is the matrix of a linear layer that is adapted."""
        if not tensor.is_matrix or tensor.part not in NARROW:
            return False
        if tensor.part == "expert" and not self.experts:
            return False
        module = tensor.name.rpartition(".")[2]
        return self.targets is None or bool(self.targets & {module, tensor.name, "all"})


def enabled(flags: Mapping[str, Any]) -> bool:
    """Whether adapters are switched on, or named."""
    named = flags.get("lora_paths") or flags.get("lora_modules")
    return read.switch("engine_args.enable_lora", flags.get("enable_lora", bool(named)))


def number(flags: Mapping[str, Any], name: str, default: int) -> int:
    """A flag's whole number."""
    return read.number(f"engine_args.{name}", flags.get(name, default), 1, 100_000)


def targets_of(flags: Mapping[str, Any]) -> frozenset[str] | None:
    """The modules that are adapted; None: all linear ones."""
    targets = flags.get("lora_target_modules")
    words = targets.replace(",", " ").split() if isinstance(targets, str) else targets
    return frozenset(map(str, words)) if words else None


def idle_notes(args: Mapping[str, Any]) -> tuple[str, ...]:
    """What is asked about adapters that are not enabled, and changes nothing in the answer."""
    flags = read.plain_args(args)
    idle = [] if enabled(flags) else [name for name in ONLY_WITH if name in flags]
    return (f"no effect without enable_lora: {', '.join(idle)}",) if idle else ()


def unknown_notes(engine: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    """That adapters of an engine take memory which is not known."""
    flags = read.plain_args(args)
    asks = [n for n in ASKING if flags.get(n) not in (None, False, "false", 0, "", [], {})]
    if not asks:
        return ()
    return (
        f"adapters ({', '.join(asks)}) take memory beside the weights: how much is not known for "
        f"{engine}, and none is counted",
    )


def layer_numbers(adapters: Adapters, layer: Layer, layout: Layout) -> int:
    """Numbers of A and B of one slot for ``layer`` on one tensor rank.

    Matrices of one name are one linear layer: one A for each of its slices, B for all rows.
    """
    form = next((kind.form for kind in layer.stores if isinstance(kind, RecurrentState)), "")
    in_slices, conv_slices = SLICES.get(form, (1, 1))
    numbers = 0
    seen: set[str] = set()
    for tensor in layer.tensors:
        if not adapters.meets(tensor):
            continue
        rows, columns, count = shape_on_rank(tensor, layout)
        slices = 0 if tensor.name in seen else 1
        if slices and tensor.name.endswith(".in_proj"):
            slices = in_slices
        seen.add(tensor.name)
        numbers += count * _numbers(adapters, tensor.split, slices * columns, rows, layout.tp)
    for kind in layer.stores:
        if (
            isinstance(kind, ConvState)
            and form
            and (adapters.targets is None or "conv1d" in adapters.targets)
        ):
            cut = kind.on_rank(layout.tp)
            width = cut.width if isinstance(cut, ConvState) else kind.width
            numbers += _numbers(
                adapters, "column", conv_slices * (kind.columns + 1), width, layout.tp
            )
    return numbers


def _numbers(adapters: Adapters, split: str, columns: int, rows: int, tp: int) -> int:
    """A (rank × columns) and B (rows × rank) of one matrix, whole or, ``sharded``, cut."""
    cut = tp if adapters.sharded else 1
    if split in ("column", "kv", "expert"):
        return ceil_div(adapters.rank, cut) * columns + rows * adapters.rank
    if split == "row":
        return adapters.rank * columns + ceil_div(rows, cut) * adapters.rank
    return adapters.rank * (columns + rows)


def adapters(
    adapters: Adapters | None, model: ModelSpec, layout: Layout, ranks: Sequence[Rank]
) -> Extras:
    """The account of ``a`` on every stage of ``ranks``."""
    if adapters is None:
        return NONE
    layers = list(model.each_layer())
    of_layer = {id(layer): 0 for layer in layers}
    for layer in {id(layer): layer for layer in layers}.values():
        of_layer[id(layer)] = layer_numbers(adapters, layer, layout)
    stages = []
    for rank in ranks:
        numbers = sum(of_layer[id(layers[layer])] for layer in rank.layers)
        for place in ("embed_tokens", "lm_head"):
            here = rank.stage == (0 if place == "embed_tokens" else layout.pp - 1)
            if here and (
                place in adapters.targets if adapters.targets is not None else adapters.embedding
            ):
                numbers += adapters.rank * (
                    model.vocab_size + model.hidden_size
                )  # whole on every rank
        stages.append(numbers * adapters.slots * adapters.element_bytes)
    band = (0.5, 4.0) if adapters.assumed else (1.0, 1.0)
    source = "assumed" if adapters.assumed else "engine rule"
    part = Extra(name="adapters", stages=tuple(stages), source=source, low=band[0], high=band[1])
    return Extras(parts=(part,))
