"""The engines: what each makes of a device's bytes. One module an engine, found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from kvroom.engines.base import EngineAnswer
from kvroom.engines.start_rules import refusals
from kvroom.hardware.device import Device
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import most_experts

_MODULES = {
    "arithmetic": "generic.arithmetic",
    "ik_llama.cpp": "llama_cpp",
    "llama.cpp": "llama_cpp",
    "ollama": "llama_cpp",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt_llm",
    "vllm": "vllm",
}
_OTHERS = "generic.share"
"""What answers for an engine whose own rules are not modelled."""


def prepared(
    scenario: Scenario, model: ModelSpec, device: Device
) -> tuple[Scenario, tuple[str, ...]]:
    """The question in the engine's own notions, where they are not those of a Scenario (llama.cpp has
    no tensor ranks), and what to say of it."""
    prepare = getattr(_module(scenario.engine), "prepare", None)
    if prepare is None:
        return scenario, ()
    changed: tuple[Scenario, tuple[str, ...]] = prepare(scenario, model, device)
    return changed


def taken(engine: str, model: ModelSpec) -> ModelSpec:
    """The model as the engine takes it, where it would take it for something else."""
    take = getattr(_module(engine), "taken", None)
    made: ModelSpec = model if take is None else take(model)
    return made


def shares_experts(engine: str, model: ModelSpec) -> bool:
    """Whether data-parallel ranks step together and share one set of routed experts."""
    return bool(getattr(_module(engine), "SHARED_EXPERTS", False)) and most_experts(model) > 0


def attention_groups(engine: str, args: Mapping[str, Any], tp: int) -> int:
    """Groups of tensor ranks that each compute their own requests' attention, by the engine's flags."""
    groups = getattr(_module(engine), "attention_groups", None)
    return 1 if groups is None else int(groups(args, tp))


def answer(deployment: Deployment) -> EngineAnswer:
    """What ``deployment.engine`` gives, by that engine's own rules, its start rules among them."""
    module = _module(deployment.engine)
    result: EngineAnswer = module.answer(deployment)
    rules = getattr(module, "START_RULES", ())
    found = tuple(refusals(rules, deployment))
    if not found:
        return result
    return replace(
        result, starts=False, reason=found[0].sentence, refusals=(*result.refusals, *found)
    )


def _module(engine: str) -> ModuleType:
    return import_module(f"kvroom.engines.{_MODULES.get(engine, _OTHERS)}")
