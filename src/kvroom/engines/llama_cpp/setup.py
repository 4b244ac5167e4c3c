"""One question to llama.cpp: its build's rules, the flags, and the defaults of what they leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from kvroom.engines.llama_cpp import ollama
from kvroom.engines.llama_cpp.context import Context, context_of
from kvroom.engines.llama_cpp.flags import LlamaCppFlags, read_flags
from kvroom.engines.llama_cpp.versions import IK, BuildRules, parse_build, rules_of
from kvroom.errors import KvroomError
from kvroom.hardware.catalogue import find
from kvroom.hardware.device import Device
from kvroom.models.dtypes import Dtype, cache_dtype
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import MIB

FIT_MARGIN = 1024 * MIB
"""What --fit leaves free of each device."""


@dataclass(frozen=True, kw_only=True)
class LlamaCppSetup:
    """What every rule is asked with. ``slots`` None: as many as have room; ``total`` None: as many
    tokens as the slots need."""

    engine: str
    rules: BuildRules
    flags: LlamaCppFlags
    key: Dtype
    value: Dtype
    slots: int | None
    unified: bool
    total: int | None
    flash: bool
    fit: bool
    cpu: bool = False
    margins: tuple[int, ...] = ()
    spread: Literal["all", "one or all", "fewest"] = "all"
    auto_batch: bool = False
    auto_slots: int = 1
    """Slots of ``total`` tokens each that are tried where none are asked for, and all must lie on GPUs."""
    expanded: bool = False

    def context(self, slots: int, total: int) -> Context:
        """The cells of ``slots`` slots and ``total`` tokens."""
        return context_of(self.rules, slots, total, self.unified)

    def margin(self, gpu: int) -> int:
        """Bytes to leave free of that GPU."""
        if not self.margins:
            return 0
        return self.margins[min(gpu, len(self.margins) - 1)]


def setup(
    engine: str,
    version: str | None,
    args: Mapping[str, Any],
    model: ModelSpec,
    kv_dtype: str,
    *,
    cpu: bool = False,
) -> tuple[LlamaCppSetup, tuple[str, ...]]:
    """The LlamaCppSetup of a question, and warnings about the version it names."""
    if engine == "ollama":
        return _ollama(version, args, model, kv_dtype, cpu=cpu)
    flags = read_flags(args, engine)
    if engine == "ik_llama.cpp":
        rules, note = IK, ""
        if flags.mla == 0:
            rules = replace(rules, latent="heads")
        elif flags.mla == 1 and flags.flash is False:
            rules = replace(rules, latent="latent and values")
    else:
        build, note = parse_build(version)
        rules = rules_of(build)
    slots, unified = flags.slots, bool(flags.unified)
    if slots is None and (flags.auto_slots or flags.total is not None):
        slots = rules.auto_slots
        if flags.unified is None:
            unified = slots > 1
    total = flags.total
    if total is None and flags.slot_tokens is not None:
        slots = slots or rules.auto_slots
        total = flags.slot_tokens * slots
    fit = rules.fit if flags.fit is None else flags.fit
    return _built(
        engine,
        rules,
        flags,
        model,
        kv_dtype,
        cpu=cpu,
        slots=slots,
        unified=unified,
        total=total,
        fit=fit,
        margins=(flags.fit_margin or (FIT_MARGIN,)) if fit else (),
    ), (note,) if note else ()


def _ollama(
    version: str | None, args: Mapping[str, Any], model: ModelSpec, kv_dtype: str, *, cpu: bool
) -> tuple[LlamaCppSetup, tuple[str, ...]]:
    release, rules, note = ollama.release_of(version)
    options = ollama.read_options(args, model, release)
    flags = options.flags
    reserve = FIT_MARGIN if release.server else ollama.RESERVE_BYTES
    setup = _built(
        "ollama",
        rules,
        flags,
        model,
        kv_dtype,
        cpu=cpu,
        slots=flags.slots,
        unified=False,
        total=flags.total,
        fit=True,
        margins=(reserve + options.overhead_bytes,),
    )
    spread: Literal["all", "one or all", "fewest"] = "one or all" if release.server else "fewest"
    return replace(
        setup,
        spread="all" if options.spread else spread,
        auto_batch=release.server and not options.batch_asked,
        auto_slots=options.auto_slots,
    ), (*((note,) if note else ()), *options.warnings)


def _built(
    engine: str,
    rules: BuildRules,
    flags: LlamaCppFlags,
    model: ModelSpec,
    kv_dtype: str,
    **more: Any,
) -> LlamaCppSetup:
    key, _, value = ("fp16" if kv_dtype == "auto" else kv_dtype).partition("/")
    value = flags.value or value or key
    key = flags.key or key
    return LlamaCppSetup(
        engine=engine,
        rules=rules,
        flags=flags,
        key=cache_dtype(key),
        value=cache_dtype(value),
        flash=rules.flash if flags.flash is None else flags.flash,
        expanded=model.expanded_latents,
        **more,
    )


def is_cpu(device: Device) -> bool:
    """Whether the device is the host itself."""
    return device.vendor.lower() == "cpu" or "cpu" in device.name.lower()


def prepare(
    scenario: Scenario, model: ModelSpec, device: Device
) -> tuple[Scenario, tuple[str, ...]]:
    """The question in llama.cpp's own notions: GPUs in a row, its cache types, its context.

    There are no tensor, expert or context ranks: each GPU of a replica takes a share of the layers.
    """
    gpus = scenario.tp * scenario.pp
    settled, _ = setup(
        scenario.engine,
        scenario.engine_version,
        scenario.engine_args,
        model,
        scenario.kv_dtype.lower(),
        cpu=is_cpu(device),
    )
    if gpus > model.num_layers:
        raise KvroomError(
            "tp" if scenario.tp > 1 else "pp",
            gpus,
            f"GPUs are more than the {model.num_layers} layers that are shared out over them",
            f"Use at most {model.num_layers}, or replicas (dp).",
        )
    notes: list[str] = []
    if scenario.tp > 1:
        notes.append(
            f"{scenario.engine} cuts no matrices: the {gpus} GPUs each take a share of the layers "
            "(tp is read as a number of GPUs)"
        )
    if scenario.ep > 1 or scenario.dcp > 1:
        notes.append(f"{scenario.engine} has no expert or context ranks: ep and dcp are left out")
    tokens = scenario.context_tokens
    if tokens is None and settled.total:
        tokens = settled.context(settled.slots or 1, settled.total).limit
    if tokens is None and scenario.engine == "ollama":
        release, _, _ = ollama.release_of(scenario.engine_version)
        overhead = ollama.read_options(scenario.engine_args, model, release).overhead_bytes
        sizes = [find(name).engine_bytes for name in device.parts] or [device.engine_bytes] * gpus
        tokens = ollama.default_context(release, model, sizes, overhead)
        notes.append(f"num_ctx {tokens:,}: Ollama's default for these GPUs")
    if tokens is not None and scenario.engine == "ollama":
        tokens, shortened = ollama.trained(tokens, model)
        notes += shortened
    name = (
        settled.key.name
        if settled.key == settled.value
        else f"{settled.key.name}/{settled.value.name}"
    )
    stored = scenario.weight_dtype
    if (
        model.model_type == "gpt_oss"
        and stored in (None, "mxfp4")
        and model.source != "gguf header"
    ):
        stored = "q8_0"  # its published file: experts in MXFP4, all else in Q8_0
    changed = replace(
        scenario,
        weight_dtype=stored,
        tp=1,
        pp=gpus,
        ep=1,
        dcp=1,
        kv_dtype=name,
        context_tokens=tokens,
    )
    return changed, tuple(notes)
