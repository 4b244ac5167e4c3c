"""The engines: what each makes of a device's bytes. One folder an engine; ``registry`` has their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.engines.base import EngineAnswer
from kvroom.engines.registry import engine_of
from kvroom.sharding.deployment import Deployment

if TYPE_CHECKING:
    from kvroom.engines.serving_rules import ServingRules


def answer(deployment: Deployment) -> EngineAnswer:
    """What ``deployment.engine`` gives, by that engine's own rules."""
    return engine_of(deployment.engine).answer(deployment)


def served_by(deployment: Deployment, answer: EngineAnswer) -> ServingRules:
    """What serves one data-parallel replica; KvroomError where it would not start."""
    return engine_of(deployment.engine).serving_rules(deployment, answer)
