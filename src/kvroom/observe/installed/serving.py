"""Serving by an installed engine's own scheduler: rules for ``simulate`` that its process plays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.paged.scheduler_setup import GroupSpec
from kvroom.engines.serving_rules import ServingRules
from kvroom.errors import KvroomError
from kvroom.observe.installed.engine import Asked, InstalledEngine
from kvroom.observe.installed.process import FIELD
from kvroom.observe.installed.scheduler import EngineFacts, InstalledScheduler
from kvroom.planner.simulate import OtherScheduler
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.replay import play
from kvroom.simulator.script import Script
from kvroom.simulator.script_results import ScriptResult


def check_scenario(scenario: Scenario) -> None:
    """Refuse what only kvroom's own scheduler serves; KvroomError names the key."""
    for key in ("tiers", "disaggregation", "fleet"):
        if getattr(scenario, key) is not None:
            why = "is served by kvroom's own scheduler only"
            fix = f"Leave {key} out, or --scheduler engine."
            raise KvroomError(key, None, why, fix)


def scheduler_of(engine: InstalledEngine, asked: Asked) -> OtherScheduler:
    """What puts the scheduler of ``engine`` in the place of kvroom's rules, for the plan ``asked`` about.

    KvroomError where the engine refuses the plan, or its scheduler cannot be played.
    """
    if "error" in asked.told or not asked.told:
        fix = "Change what it names, or leave --scheduler engine out."
        raise KvroomError("engine", engine.name, asked.note, fix)
    if engine.engine.asked is None or not engine.engine.asked.schedules:
        fix = "Leave --scheduler engine out: kvroom's own scheduler serves it."
        raise KvroomError("--scheduler", "engine", f"cannot play {engine.name}", fix)
    check_scenario(asked.workings.plan.scenario)
    first = engine.ask("begin")
    if "error" in first:
        fix = "Leave --scheduler engine out: kvroom's own scheduler serves it."
        raise KvroomError(FIELD, engine.name, f"has no scheduler for it: {first['message']}", fix)
    unused = [first]

    def made(drafts: Drafts | None) -> InstalledScheduler:
        begun = unused.pop() if unused else engine.ask("begin")
        return InstalledScheduler(engine, facts_of(begun, asked.told), drafts)

    def rules(own: ServingRules) -> ServingRules:
        setup = replace(
            own.setup,
            num_gpu_blocks=first["num_blocks"],
            groups=(GroupSpec(type="full", block_size=first["hash_tokens"]),),
            enable_prefix_caching=asked.told["prefix_caching"],
        )
        note = f"requests are scheduled by {engine.name} itself, its blocks are its own"
        return replace(
            own,
            setup=setup,
            own=made,
            own_steps=first["steps_in_flight"],
            own_names=first["hash_tokens"],
            warnings=(note, *own.warnings),
        )

    return rules


def facts_of(begun: Mapping[str, Any], told: Mapping[str, Any]) -> EngineFacts:
    """What a begun scheduler is, of what ``capacity`` and ``begin`` told."""
    return EngineFacts(
        number=begun["number"],
        steps_in_flight=begun["steps_in_flight"],
        queues_idle=begun.get("queues_idle", False),
        max_model_len=told["max_model_len"],
        keeps_stale=begun.get("keeps_stale", True),
    )


def script_scheduler(
    engine: InstalledEngine, told: Mapping[str, Any], script: Script
) -> InstalledScheduler:
    """The scheduler of ``engine`` over the blocks and groups of a script (``told``: its ``engine`` as JSON);
    KvroomError where it refuses them."""
    begun = engine.ask("script", engine=dict(told))
    if "error" in begun:
        fix = "Change what it names, or leave --scheduler engine out."
        raise KvroomError("script.engine", None, f"{engine.name} refuses: {begun['message']}", fix)
    texts = {place: (each.prompt, each.output) for place, each in enumerate(script.requests)}
    facts = EngineFacts(
        number=begun["number"],
        steps_in_flight=begun["steps_in_flight"],
        queues_idle=begun.get("queues_idle", False),
        max_model_len=script.engine.config.max_model_len,
    )
    return InstalledScheduler(engine, facts, texts=texts)


def play_script(engine: InstalledEngine, value: Mapping[str, Any]) -> ScriptResult:
    """A script played by the scheduler of ``engine``."""
    script = Script.from_dict(value)
    return play(script_scheduler(engine, value["engine"], script), script.served())
