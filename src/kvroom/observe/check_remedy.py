"""The flags with which an engine that would refuse to start does: each set is planned before it is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario

SHARES = (0.92, 0.95)
SEQUENCES = (512, 256, 128, 64, 32, 16, 8)
STEP_TOKENS = 1024
"""Lengths are told in whole ones of this."""
LEAST_TOKENS = 4096
"""A shorter limit than this is no remedy, unless that was asked for."""
Flags = dict[str, Any]


def remedy(scenario: Scenario, workings: Workings, command: CommandLine) -> Flags | None:
    """Flags (by the engine's name) with which the engine starts, the fewest first; None where none do."""
    for flags in _candidates(scenario, workings, command):
        try:
            if work(_with(scenario, flags, command)).plan.verdict.starts:
                return flags
        except KvroomError:
            continue
    return None


def _with(scenario: Scenario, flags: Flags, command: CommandLine) -> Scenario:
    args = {**scenario.engine_args, **flags}
    keys: dict[str, Any] = {}
    for key in ("context_tokens", "kv_dtype"):
        name = command.keys.get(key, ("",))[0]
        if name in flags:
            keys[key] = flags[name]
            args.pop(name)
    return replace(scenario, engine_args=args, **keys)


def _candidates(scenario: Scenario, workings: Workings, command: CommandLine) -> Iterator[Flags]:
    """Flags to try, the fewest and the least intrusive first."""
    length = command.keys.get("context_tokens", ("",))[0]
    if length:
        yield from _shorter(scenario, {}, workings, command)
    sequences: list[Flags] = [
        {"max_num_seqs": number} for number in SEQUENCES if "max_num_seqs" in command.known
    ]
    share = "gpu_memory_utilization"
    shares: list[Flags] = [{share: part} for part in SHARES if share in command.known]
    yield from (*sequences, *shares)
    if not length:
        return
    cache = command.keys.get("kv_dtype", ("",))[0]
    widths: list[Flags] = [{}]
    if cache and scenario.kv_dtype == "auto":
        widths.append({cache: "fp8"})
    few: list[Flags] = [{}, {"max_num_seqs": 16}] if sequences else [{}]
    for width, part, number in product(widths, [{}, *shares], few):
        flags = {**part, **number, **width}
        if flags:
            yield from _shorter(scenario, flags, None, command)


def _shorter(
    scenario: Scenario, flags: Flags, workings: Workings | None, command: CommandLine
) -> Iterator[Flags]:
    """``flags`` with the longest limit that holds with them (``workings`` where that is planned already)."""
    length = command.keys["context_tokens"][0]
    try:
        workings = workings or work(_with(scenario, flags, command))
    except KvroomError:
        return
    capacity, asked = workings.plan.capacity.engine, workings.deployment.context_tokens
    longest = (capacity.max_context_tokens if capacity else None) or 0
    most = min(asked, workings.deployment.model.max_context_tokens or asked)
    whole = most if longest >= most else longest // STEP_TOKENS * STEP_TOKENS
    if whole >= min(LEAST_TOKENS, asked):
        yield flags if flags and whole == asked else {**flags, length: whole}
