"""A proof from beginning to end: a running engine is asked, its answers kept as a record and judged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.registry import all_engines, engine_of
from kvroom.errors import KvroomError
from kvroom.observe.endpoint import Endpoint, NoAnswerError
from kvroom.observe.prove.completions import AskedEngine
from kvroom.observe.prove.experiments import Lab, Measurements
from kvroom.observe.prove.proof import KEY, Proof, prove
from kvroom.observe.prove.quiet import Meter, load
from kvroom.observe.recording import cache_of
from kvroom.planner.plan import work
from kvroom.scenario.engine_names import DEFAULT_ENGINE
from kvroom.scenario.scenario import Scenario

PARTS = ("steps", "firsts", "conversations", "pressure")
BATCHES = (1, 2, 4, 8, 16)
CONTEXTS = (128, 384, 1024, 2048)
STEP_ROOM = 6144
"""Tokens that the requests of one step point hold together at most: a CPU computes some hundreds of
prompt tokens a second."""
FIRSTS = (64, 256, 1024)
PRESSURE_TOKENS = 320
"""Tokens of a request that is one of too many, on average: half of them prompt."""
MOST_AT_ONCE = 64
"""Requests that overfill a cache; one that would take more is not put under pressure."""

Run = dict[str, Any]
"""One engine's record: ``title``, ``scenario``, the cache as it tells it (``printed``), ``measured``."""


def measured(
    url: str,
    scenario: Scenario,
    parts: Sequence[str] = PARTS,
    *,
    title: str | None = None,
    seed: int = 0,
    pid: int | None = None,
) -> Run:
    """One engine's record. ``pid`` is the engine's first process, where it runs here: times are then its
    own."""
    if not engine_of(scenario.engine).takes_token_ids:
        others = " or ".join(
            all_engine.name for all_engine in all_engines() if all_engine.takes_token_ids
        )
        fix = f"Ask one with --engine {others}; kvroom watch reads others."
        raise KvroomError("engine", scenario.engine, "is not asked in token ids", fix)
    if pid is not None and not Path(f"/proc/{pid}").is_dir():
        fix = "Name a process of this machine, or leave it out: times are then by the clock."
        raise KvroomError("--pid", pid, "is no process here", fix)
    workings = work(scenario)
    room = workings.plan.capacity.engine
    if room is None or not room.kv_tokens:
        why = "has no cache whose size is known"
        raise KvroomError(
            "engine", scenario.engine, why, f"Give --engine {DEFAULT_ENGINE} and its flags."
        )
    model = workings.deployment.model
    endpoint = Endpoint.of(url)
    try:
        engine = AskedEngine.at(url)
        lab = Lab(engine, Meter(pid), model.vocab_size, seed)
        before = load()
        experiments = _measure(lab, parts, room, workings.plan.scenario)
        printed = cache_of(engine.reading())
    except NoAnswerError as error:
        fix = "Is the server up, and is this its address?"
        raise KvroomError("URL", endpoint.shown, f"gave no answer: {error}", fix) from None
    name = scenario.model if isinstance(scenario.model, str) else "a model by value"
    return {
        "title": title or f"{scenario.engine} serving {name}",
        "scenario": scenario.differences(),
        "printed": printed,
        "load": [before, load()],
        "measured": experiments.to_dict(),
    }


def _measure(
    lab: Lab, parts: Sequence[str], room: EngineCapacity, scenario: Scenario
) -> Measurements:
    """The experiments that fit the engine's limits."""
    kv_tokens = room.kv_tokens or 0
    longest = min(scenario.context_tokens or kv_tokens, kv_tokens)
    measurements = Measurements()
    lab.warm()
    if "steps" in parts:
        contexts = [context for context in CONTEXTS if context + 64 <= longest]
        batches = [batch for batch in BATCHES if batch <= (room.max_running_requests or batch)]
        if contexts:
            measurements.steps = lab.steps(batches, contexts, min(STEP_ROOM, kv_tokens // 2))
    if "firsts" in parts:
        measurements.firsts = lab.firsts([first for first in FIRSTS if first < longest])
    if "conversations" in parts:
        most = min(1200, longest - 1)
        talk = lab.conversations(
            "conversations", users=4, turns=4, system_tokens=most // 12, most_tokens=most
        )
        measurements.workloads.append(talk)
    if "pressure" in parts:
        each = min(PRESSURE_TOKENS, longest // 2)
        many = kv_tokens * 8 // (5 * each) + 1
        if many <= MOST_AT_ONCE:
            half = each // 2
            measurements.workloads += [
                lab.arrivals("all at once", requests=many, gap_s=0.0, input_tokens=half,
                             output_tokens=half),
                lab.arrivals("by chance", requests=2 * many, gap_s=1.0, input_tokens=half,
                             output_tokens=half, shared_tokens=half // 2),
            ]  # fmt: skip
    return measurements


def record_of(runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    """What was measured, plain: ``read_record`` judges it again."""
    return {KEY: 1, "about": about, "runs": list(runs)}


def read_record(value: Any, path: str) -> tuple[list[Proof], dict[str, Any]]:
    """The proofs of a record, made anew by today's predictions, and what it was measured on."""
    fix = "Give a file that kvroom prove --record wrote."
    if not isinstance(value, dict) or value.get(KEY) != 1:
        raise KvroomError("record", path, "is no record of experiments", fix)
    try:
        return [proof_of(run) for run in value["runs"]], dict(value["about"])
    except (LookupError, TypeError, ValueError, AttributeError):
        raise KvroomError("record", path, "is no record of experiments", fix) from None


def proof_of(run: dict[str, Any]) -> Proof:
    """One engine's record, judged."""
    scenario = Scenario.from_dict(run["scenario"])
    return prove(
        str(run["title"]), scenario, run["printed"], Measurements.from_dict(run["measured"])
    )


def about(scenario: Scenario, pid: int | None) -> dict[str, Any]:
    """What is told beside the figures: the machine, versions, the load, how times were taken."""
    device = work(scenario).deployment.device
    flops = device.flops("bf16")
    taken = "by the clock" if pid is None else (
        "the engine's own: by the clock, less what its busiest threads waited for a core"
    )  # fmt: skip
    return {
        "machine": device.name,
        "memory, as steps read it": f"{device.memory_bytes_per_s / 1e9:,.1f} GB/s",
        "arithmetic, 16 bits": f"{(flops or 0) / 1e9:,.0f} GFLOP/s",
        "engine": f"{scenario.engine} {scenario.engine_version or ''}".strip(),
        "measured": datetime.now(UTC).isoformat(timespec="minutes"),
        "load": f"{load() or 0:.1f} processes wanted a core when it ended",
        "times": taken,
    }
