"""The engines: what each makes of a device's bytes. One folder an engine; ``registry`` has their names."""

from __future__ import annotations

from kvroom.engines.base import EngineAnswer
from kvroom.engines.registry import engine_of
from kvroom.sharding.deployment import Deployment


def answer(deployment: Deployment) -> EngineAnswer:
    """What ``deployment.engine`` gives, by that engine's own rules."""
    return engine_of(deployment.engine).answer(deployment)
