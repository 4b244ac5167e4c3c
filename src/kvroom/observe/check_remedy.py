"""The flags with which an engine that would refuse to start does: each set is planned before it is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario

SHARES = (0.92, 0.95)
SEQUENCES = (512, 256, 128, 64, 32, 16, 8)
LEAST_TOKENS = 1024
"""A shorter limit than this is no remedy."""
Flags = dict[str, Any]


def remedy(scenario: Scenario, workings: Workings, command: CommandLine) -> Flags | None:
    """Flags (by the engine's name) with which the engine starts, the fewest first; None where none do."""
    for flags in _candidates(workings, command):
        try:
            if work(_with(scenario, flags, command)).plan.verdict.starts:
                return flags
        except KvroomError:
            continue
    return None


def _with(scenario: Scenario, flags: Flags, command: CommandLine) -> Scenario:
    args = {**scenario.engine_args, **flags}
    length = command.keys.get("context_tokens", ("",))[0]
    if length in flags:
        return replace(scenario, engine_args={key: value for key, value in args.items() if key != length},
                       context_tokens=flags[length])  # fmt: skip
    return replace(scenario, engine_args=args)


def _candidates(workings: Workings, command: CommandLine) -> Iterator[Flags]:
    capacity = workings.plan.capacity.engine
    longest = capacity.max_context_tokens if capacity else None
    length = command.keys.get("context_tokens", ("",))[0]
    shorter: list[Flags] = []
    if longest and longest >= LEAST_TOKENS and length:
        shorter = [{length: longest // LEAST_TOKENS * LEAST_TOKENS}]
    sequences = (
        [{"max_num_seqs": sequence} for sequence in SEQUENCES]
        if "max_num_seqs" in command.known
        else []
    )
    shares = (
        [{"gpu_memory_utilization": share} for share in SHARES]
        if "gpu_memory_utilization" in command.known
        else []
    )
    yield from (*shorter, *sequences, *shares)
    if length:
        for share in (*shares, {}):
            for few in ({}, {"max_num_seqs": 16}) if sequences else ({},):
                for tokens in (32_768, 16_384, 8_192, 4_096):
                    yield {**share, **few, length: tokens}
