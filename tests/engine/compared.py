"""kvroom's scheduler and an installed engine's own, on the same load, step by step and block for block."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from engine.loads import Load
from kvroom import engines
from kvroom.engines.scheduler import EngineScheduler, SchedulerOutput
from kvroom.errors import KvroomError
from kvroom.observe.installed.engine import InstalledEngine, installed
from kvroom.observe.installed.scheduler import InstalledScheduler
from kvroom.observe.installed.serving import facts_of
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.replay import play
from kvroom.simulator.script_results import ScriptResult


@dataclass
class Trail:
    """What a scheduler decided, step by step: rows, hits of the admitted, the preempted, blocks held."""

    steps: list[tuple[Any, ...]] = field(default_factory=list)

    def __call__(self, output: SchedulerOutput, rules: EngineScheduler) -> None:
        self.steps.append(
            (
                [(row.request.index, row.tokens) for row in output.scheduled],
                [(row.request.index, row.cached_tokens) for row in output.admitted],
                sorted(request.index for request in output.preempted),
                rules.blocks_in_use,
            )
        )

    @property
    def told(self) -> list[int]:
        """How many steps, tokens, hits and preemptions, the most blocks, and a checksum of every step."""
        return [
            len(self.steps),
            sum(tokens for step in self.steps for _, tokens in step[0]),
            sum(cached for step in self.steps for _, cached in step[1]),
            sum(len(step[2]) for step in self.steps),
            max(step[3] for step in self.steps),
            crc32(json.dumps(self.steps, separators=(",", ":")).encode()),
        ]


@dataclass(frozen=True)
class Comparison:
    """Both runs of one load; ``refused`` where only one of the engine and kvroom would start it."""

    load: Load
    blocks: tuple[int | None, int | None] = (None, None)
    own: ScriptResult | None = None
    engine: ScriptResult | None = None
    first: str = ""
    """The first step that differs, in words."""
    refused: str = ""
    told: tuple[list[int], list[int]] = ([], [])
    """``Trail.told`` of both."""


def planned(load: Load) -> Workings:
    """kvroom's plan of a load."""
    return work(Scenario.from_dict(load.scenario))


def compared(engine: InstalledEngine, load: Load) -> Comparison:
    """One load by both schedulers."""
    made = planned(load)
    asked = engine.plan(made)
    if not made.answer.starts or "error" in asked.told:
        both = not made.answer.starts and asked.told.get("error") == "refused"
        return Comparison(load, refused="" if both else asked.note)
    rules = engines.served_by(made.deployment, made.answer)
    own, theirs = Trail(), Trail()
    ours = play(rules.scheduler(), load.served(rules.name_tokens), on_scheduled=own)
    begun = engine.ask("begin")
    if "error" in begun:
        raise KvroomError("engine", load.name, begun["message"], "Look at the load.")
    drafts = rules.setup.drafts
    stepped = InstalledScheduler(engine, facts_of(begun, asked.told), drafts, texts=load.texts)
    engines_own = play(stepped, load.served(begun["hash_tokens"]), on_scheduled=theirs)
    return Comparison(
        load,
        (rules.setup.num_gpu_blocks, begun["num_blocks"]),
        ours,
        engines_own,
        _first(own, theirs),
        told=(own.told, theirs.told),
    )


def _first(own: Trail, theirs: Trail) -> str:
    for number, (ours, engines_own) in enumerate(zip(own.steps, theirs.steps, strict=False)):
        for what, left, right in zip(
            ("scheduled", "cached", "preempted", "blocks"), ours, engines_own, strict=True
        ):
            if left != right:
                return f"step {number}: {what} {left} by kvroom, {right} by the engine"
    if len(own.steps) != len(theirs.steps):
        return f"{len(own.steps)} steps by kvroom, {len(theirs.steps)} by the engine"
    return ""


__all__ = ["Comparison", "compared", "installed", "planned"]
