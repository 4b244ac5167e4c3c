"""The engines: what each makes of a device's bytes. One module an engine, found by its name."""

from __future__ import annotations

from importlib import import_module

from kvroom.memory.deployment import Deployment, EngineAnswer

_MODULES = {"arithmetic": "arithmetic", "sglang": "sglang", "vllm": "vllm"}
_OTHERS = "budget"
"""What answers for an engine whose own rules are not modelled."""


def answer(deployment: Deployment) -> EngineAnswer:
    """What ``deployment.engine`` gives, by that engine's own rules."""
    module = import_module(f"kvroom.memory.engines.{_MODULES.get(deployment.engine, _OTHERS)}")
    result: EngineAnswer = module.answer(deployment)
    return result
