"""From a Scenario to a Deployment: read the model and the card, and place the one on the other with
everything that the Scenario asks for beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvroom.engines import overrides
from kvroom.engines.adapters import adapters
from kvroom.engines.drafting import speculation_of
from kvroom.engines.flags import fraction, plain_args
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.hardware import catalogue as cards
from kvroom.hardware.device import Device
from kvroom.hardware.mixed import cards_in_turn, cards_together
from kvroom.hardware.node import CARDS_A_MACHINE, Machine
from kvroom.hardware.prices import EVERY, priced
from kvroom.hardware.reader import resolve, resolve_machine
from kvroom.memo import Memo
from kvroom.models import weight_dtypes
from kvroom.models.dtypes import BF16, FP32, Dtype, cache_dtype
from kvroom.models.load import load
from kvroom.models.quantization.base import Quantisation
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.speculation import Speculation
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.drafts import drafts
from kvroom.sharding.extras import Extras, together
from kvroom.sharding.layout import (
    Layout,
    Rank,
    WeightMap,
    check_layout,
    context_ranks,
    most_experts,
)
from kvroom.units import MAX_BYTES, parse_tokens

ASSUMED_CONTEXT = 8192
"""Taken where neither the question nor the model states a longest context."""


_WEIGHTS: Memo[WeightMap] = Memo(64)


def subject(scenario: Scenario, *, paths: bool = True) -> tuple[ModelSpec, Device]:
    """The model as its engine serves it, and the card."""
    by_name = isinstance(scenario.gpu, str) and not paths
    device = cards.find(scenario.gpu) if by_name else resolve(scenario.gpu)
    engine = engine_of(scenario.engine)
    prices = scenario.prices or {}
    if device.parts:
        parts = [priced(cards.find(name), prices) for name in device.parts]
        device = cards_together(parts)
        if not engine.tensor_parallel:
            device = cards_in_turn(device, parts)
    device = priced(device, prices)
    model = overrides.model_of(scenario.model, engine, scenario.engine_args, paths=paths)
    return engine.as_served(model), device


def machine_of(scenario: Scenario, gpus: int) -> Machine:
    """The machine that holds ``gpus`` cards of a replica, or as many of them as one machine has."""
    machine = resolve_machine(scenario.gpu, min(gpus, CARDS_A_MACHINE))
    return machine.with_host_memory(scenario.host_memory_bytes)


def unpriced(device: Device, prices: Mapping[str, float | str]) -> Iterator[str]:
    """Prices of other cards than ``device``, which are not used."""
    names = set(map(str.lower, (device.name, *device.aliases)))
    names.update(map(str.lower, device.parts))
    for name, price in prices.items():
        if name.lower() not in names and name != EVERY:
            amount = price if isinstance(price, str) else f"${price:g} an hour"
            yield f"the price of {name} ({amount}) is not used: the cards are {device.name}"


def deploy(scenario: Scenario, *, paths: bool = True) -> tuple[Deployment, tuple[str, ...]]:
    """The Deployment that a Scenario with a layout describes, and the warnings that came up on the way."""
    engine, flags = engine_of(scenario.engine), scenario.engine_args
    model, device = subject(scenario, paths=paths)
    scenario, notes = engine.prepare(scenario, model, device)
    notes += overrides.notes(scenario.model, engine, flags, paths=paths)
    notes += tuple(unpriced(device, scenario.prices or {}))
    if device.parts and engine.tensor_parallel:
        notes += (
            f"each of the {len(device.parts)} cards counts as the least of them in memory and in speed: "
            "ranks hold equal shares and wait for one another",
        )
    on_host = overrides.host_weight_bytes(engine, flags)
    layout = Layout(
        scenario.tp,
        scenario.pp,
        scenario.dp,
        scenario.ep,
        scenario.dcp,
        expert_dp=scenario.dp if engine.shares_experts and most_experts(model) else 1,
        attention_dp=engine.attention_groups(flags, scenario.tp),
        stage_layers=overrides.stage_layers(engine, flags, model, scenario.pp),
    )
    check_layout(model, layout)
    weights = _WEIGHTS.get(
        (model,),
        (scenario.weight_dtype, computes_in_fp32(scenario), on_host),
        lambda: WeightMap(
            model=model, quantisation=weight_rule(scenario, model), host_bytes=on_host
        ),
    )
    check_size(weights)
    kv_name, kv = cache_rule(scenario, weights.quantisation)
    context, warnings = context_of(scenario, model)
    encoder = scenario.encoder_tokens
    if encoder and not model.encoder_tokens:
        notes = (*notes, "encoder_tokens is not used: the model keeps nothing of an encoder")
    ranks = weights.ranks(layout)
    if (shared := context_ranks(model, layout)) < layout.dcp:
        notes += (
            f"dcp {layout.dcp} shares a request's tokens among {shared}: it needs as many tensor ranks "
            f"with copies of one KV head, and tp {layout.tp} over {model.kv_heads} heads makes no more",
        )
    drafting = speculation_of(scenario.speculation, engine.draft_flags, scenario.engine_args)
    if drafting is not None and drafting.schedule and layout.dp > 1 and engine.schedule_of_one_rank:
        # its ranks would draft different numbers: it falls back to the most (Dynamic Speculative Decoding)
        drafting = replace(drafting, schedule=())
    args, extras = beside(scenario, drafting, weights, layout, ranks, paths=paths)
    return Deployment(
        model=model,
        weights=weights,
        ranks=extras.on(ranks, layout.tp),
        layout=layout,
        device=device,
        host=machine_of(scenario, layout.gpus).tier("host") if paths else None,
        kv=kv,
        kv_name=kv_name,
        kv_asked=asked_cache(scenario)[1],
        weights_asked=scenario.weight_dtype,
        context_tokens=context,
        context_given=scenario.context_tokens is not None,
        encoder_tokens=model.encoder_tokens if encoder is None else encoder,
        engine=scenario.engine,
        version=scenario.engine_version,
        recipe=scenario.recipe,
        args=args,
        known_bytes=scenario.known_bytes or {},
        concurrency=scenario.replica_concurrency,
        extras=extras,
        speculation=drafting,
        tiers=scenario.tiers or (),
    ), (*model.warnings, *weights.quantisation.warnings, *warnings, *notes, *extras.warnings)


def beside(
    scenario: Scenario,
    drafting: Speculation | None,
    weights: WeightMap,
    layout: Layout,
    ranks: tuple[Rank, ...],
    *,
    paths: bool,
) -> tuple[Mapping[str, Any], Extras]:
    """The engine's flags, drafting included, and the memory that adapters and a draft take beside the
    model."""
    engine, args = engine_of(scenario.engine), scenario.engine_args
    if drafting is not None and drafting.field == "speculation":
        args = {**engine.draft_flags.write(drafting, scenario.engine_version), **args}
    slots = engine.adapters(scenario.engine_version, args, weights.model)
    extras = together(
        (
            adapters(slots, weights.model, layout, ranks),
            Extras(warnings=engine.adapter_notes(args)),
            drafts(
                drafting,
                weights,
                layout,
                load=lambda m: load(m, paths=paths),
                narrow=lambda draft: weight_rule(replace(scenario, weight_dtype=None), draft),
            ),
        )
    )
    return args, extras.unmeasured(scenario.known_bytes or {})


def weight_rule(scenario: Scenario, model: ModelSpec) -> Quantisation:
    """How the weights are stored: as asked, else as the checkpoint itself says.

    A 32-bit checkpoint counts as 16-bit: every engine narrows it as it loads.
    """
    if scenario.weight_dtype is not None:
        return weight_dtypes.named(scenario.weight_dtype, model)
    if model.quantisation is None and computes_in_fp32(scenario):
        return weight_dtypes.named("fp32")
    if model.quantisation is not None:
        return model.quantisation
    return weight_dtypes.named("bf16" if model.dtype == "fp32" else model.dtype)


def computes_in_fp32(scenario: Scenario) -> bool:
    """Whether the engine's flag for it asks for 32 bits, which then is the width of weights and cache."""
    line = engine_of(scenario.engine).command
    if line is None or not line.dtype_flag:
        return False
    dtype = plain_args(scenario.engine_args).get(line.dtype_flag)
    return str(dtype).lower() in ("float32", "float", "fp32")


def cache_rule(scenario: Scenario, weights: Quantisation) -> tuple[str, Dtype]:
    """The cache width, by name and as a Dtype: ``auto`` is the checkpoint's own scheme, else 16 bits."""
    field, name = asked_cache(scenario)
    if name != "auto":
        return name, cache_dtype(name, field)
    if weights.kv_dtype is not None:
        return weights.kv_dtype, cache_dtype(weights.kv_dtype)
    if computes_in_fp32(scenario):
        return FP32.name, FP32
    return BF16.name, BF16


def asked_cache(scenario: Scenario) -> tuple[str, str]:
    """The cache width asked for, with the key that asks: the engine's own flag wins."""
    flag = scenario.engine_args.get("kv_cache_dtype")
    if isinstance(flag, str) and flag.strip():
        return "engine_args.kv_cache_dtype", flag.strip().lower()
    return "kv_dtype", scenario.kv_dtype.lower()


def lengthened(scenario: Scenario, *, paths: bool = True) -> Scenario:
    """The question with the variable set that lets requests be longer than the model states, where they
    are longer and the engine has such a variable."""
    line, asked = engine_of(scenario.engine).command, scenario.context_tokens
    limit = load(scenario.model, paths=paths).max_context_tokens
    if line is None or not line.longer_variable or limit is None or asked is None or asked <= limit:
        return scenario
    return replace(scenario, engine_args={**scenario.engine_args, line.longer_variable: 1})


def context_of(scenario: Scenario, model: ModelSpec) -> tuple[int, tuple[str, ...]]:
    """The most tokens that one request may hold, and a warning where the model does not state it
    or states less."""
    asked_tokens = scenario.context_tokens
    for name in ("max_model_len", "context_length"):
        flag = scenario.engine_args.get(name)
        if flag not in (None, -1, "auto"):
            asked_tokens = parse_tokens(f"engine_args.{name}", flag)
    limit = model.max_context_tokens
    stretch = scenario.engine_args.get("rope_scale")
    if limit is not None and asked_tokens is not None and stretch is not None:
        limit = round(limit * max(1.0, fraction("engine_args.rope_scale", stretch, 1e6)))
    if asked_tokens is None:
        if limit is not None:
            return limit, ()
        return ASSUMED_CONTEXT, (
            f"the model states no longest context: {ASSUMED_CONTEXT:,} tokens assumed (--context)",
        )
    if limit is not None and asked_tokens > limit:
        return asked_tokens, (
            f"{asked_tokens:,} tokens is beyond the model's own limit of {limit:,}",
        )
    return asked_tokens, ()


def check_size(weights: WeightMap) -> None:
    """Refuse a model whose weights exceed any machine: some figure in its config is a slip."""
    if weights.whole_bytes > MAX_BYTES:
        raise KvroomError(
            "model",
            f"{weights.model.params:,} parameters",
            f"would weigh more than {MAX_BYTES:,} bytes",
            "Check the sizes in its config.",
        )
