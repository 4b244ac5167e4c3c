"""LoRA adapters: the buffers that an engine sets aside for all that may be active at once.

A slot holds, for each linear layer that may be adapted, A (rank × inputs) and B (outputs × rank), whether
an adapter is loaded or not. Over tensor ranks B is cut where a layer's outputs are, A where its inputs
are; the other of the two is whole on every rank, unless ``fully_sharded_loras`` cuts that too. Sources:
vLLM's ``lora/layers`` (``create_lora_weights``), checked against the buffers of 0.32.0; SGLang's
``lora/mem_pool``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.vllm.versions import parse_release, rules_of
from kvroom.errors import KvroomError
from kvroom.models.kinds import ConvState, RecurrentState
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.sharding.extras import NONE, Extra, Extras
from kvroom.sharding.layout import Layout, Rank, shape_on_rank
from kvroom.units import ceil_div

MODELLED = ("vllm", "sglang")
"""Engines whose buffers are known."""
VLLM_SLOTS, VLLM_RANK = 1, 16
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM's ``max_lora_rank`` takes."""
SGLANG_SLOTS, ASSUMED_RANK = 8, 16
"""SGLang takes the rank from the adapters it is started with, which are not seen here."""
ELEMENT_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}
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
WITH_EMBEDDING = frozenset(
    {
        "apertus",
        "exaone",
        "exaone4",
        "exaone_moe",
        "falcon_h1",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "jamba",
        "lfm2",
        "lfm2_moe",
        "llama",
        "minicpm",
        "mixtral",
        "nemotron",
        "nemotron-nas",
        "nemotron_h",
        "phimoe",
        "qwen3",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_moe",
        "solar",
    }
)
"""Models whose token table and head vLLM adapts too (their class's ``embedding_modules``)."""


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


def asked(
    engine: str, version: str | None, args: Mapping[str, Any], model: ModelSpec
) -> Adapters | None:
    """The adapters that the engine's flags make room for; None without them.

    KvroomError where vLLM has no such rank, adapters or not.
    """
    given = _given(args)
    if engine == "vllm" and "max_lora_rank" in given:
        _rank(given["max_lora_rank"])
    if engine not in MODELLED or not _enabled(given):
        return None

    def number(name: str, default: int) -> int:
        return read.number(f"engine_args.{name}", given.get(name, default), 1, 100_000)

    targets = given.get("lora_target_modules")
    words = targets.replace(",", " ").split() if isinstance(targets, str) else targets
    chosen = frozenset(map(str, words)) if words else None
    if engine == "sglang":
        return Adapters(
            slots=number("max_loras_per_batch", SGLANG_SLOTS),
            rank=number("max_lora_rank", ASSUMED_RANK),
            targets=chosen,
            assumed="max_lora_rank" not in given or chosen is None,
        )
    dtype = str(given.get("lora_dtype", "auto"))
    return Adapters(
        slots=number("max_loras", VLLM_SLOTS),
        rank=_rank(given.get("max_lora_rank", VLLM_RANK)),
        element_bytes=ELEMENT_BYTES.get(dtype, 2),
        targets=chosen,
        sharded=read.switch("engine_args.fully_sharded_loras", given.get("fully_sharded_loras", 0)),
        embedding=model.model_type in WITH_EMBEDDING,
        experts=rules_of(parse_release(version)[0]).expert_adapters,
    )


def _given(args: Mapping[str, Any]) -> dict[str, Any]:
    return {read.plain_name(k): v for k, v in args.items() if v is not None}


def _enabled(given: Mapping[str, Any]) -> bool:
    named = given.get("lora_paths") or given.get("lora_modules")
    return read.switch("engine_args.enable_lora", given.get("enable_lora", bool(named)))


def _rank(value: Any) -> int:
    field = "engine_args.max_lora_rank"
    rank = read.number(field, value, 1, 100_000)
    if rank not in VLLM_RANKS:
        fix = f"Use one of {', '.join(map(str, VLLM_RANKS))}: the first that holds your adapters."
        raise KvroomError(field, value, "is no rank that vLLM makes buffers of", fix)
    return rank


def notes(engine: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    """What is asked about adapters and changes nothing in the answer."""
    given = _given(args)
    if engine in MODELLED:
        idle = [] if _enabled(given) else [name for name in ONLY_WITH if name in given]
        return (f"no effect without enable_lora: {', '.join(idle)}",) if idle else ()
    asks = [n for n in ASKING if given.get(n) not in (None, False, "false", 0, "", [], {})]
    if engine == "arithmetic" or not asks:
        return ()
    return (
        f"adapters ({', '.join(asks)}) take memory beside the weights: how much is not known for "
        f"{engine}, and none is counted",
    )


def layer_numbers(a: Adapters, layer: Layer, layout: Layout) -> int:
    """Numbers of A and B of one slot for ``layer`` on one tensor rank.

    Matrices of one name are one linear layer: one A for each of its slices, B for all rows.
    """
    form = next((k.form for k in layer.stores if isinstance(k, RecurrentState)), "")
    in_slices, conv_slices = SLICES.get(form, (1, 1))
    made = 0
    seen: set[str] = set()
    for tensor in layer.tensors:
        if not a.meets(tensor):
            continue
        rows, columns, count = shape_on_rank(tensor, layout)
        slices = 0 if tensor.name in seen else 1
        if slices and tensor.name.endswith(".in_proj"):
            slices = in_slices
        seen.add(tensor.name)
        made += count * _numbers(a, tensor.split, slices * columns, rows, layout.tp)
    for kind in layer.stores:
        if isinstance(kind, ConvState) and form and (a.targets is None or "conv1d" in a.targets):
            cut = kind.on_rank(layout.tp)
            width = cut.width if isinstance(cut, ConvState) else kind.width
            made += _numbers(a, "column", conv_slices * (kind.columns + 1), width, layout.tp)
    return made


def _numbers(a: Adapters, split: str, columns: int, rows: int, tp: int) -> int:
    """A (rank × columns) and B (rows × rank) of one matrix, whole or, ``sharded``, cut."""
    cut = tp if a.sharded else 1
    if split in ("column", "kv", "expert"):
        return ceil_div(a.rank, cut) * columns + rows * a.rank
    if split == "row":
        return a.rank * columns + ceil_div(rows, cut) * a.rank
    return a.rank * (columns + rows)


def adapters(a: Adapters | None, model: ModelSpec, layout: Layout, ranks: Sequence[Rank]) -> Extras:
    """The account of ``a`` on every stage of ``ranks``."""
    if a is None:
        return NONE
    layers = list(model.each_layer())
    of_layer = {id(x): 0 for x in layers}
    for layer in {id(x): x for x in layers}.values():
        of_layer[id(layer)] = layer_numbers(a, layer, layout)
    made = []
    for rank in ranks:
        held = sum(of_layer[id(layers[i])] for i in rank.layers)
        for place in ("embed_tokens", "lm_head"):
            here = rank.stage == (0 if place == "embed_tokens" else layout.pp - 1)
            if here and (place in a.targets if a.targets is not None else a.embedding):
                held += a.rank * (model.vocab_size + model.hidden_size)  # whole on every rank
        made.append(held * a.slots * a.element_bytes)
    band = (0.5, 4.0) if a.assumed else (1.0, 1.0)
    source = "assumed" if a.assumed else "engine rule"
    part = Extra(name="adapters", stages=tuple(made), source=source, low=band[0], high=band[1])
    return Extras(parts=(part,))
