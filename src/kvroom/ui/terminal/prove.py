"""``kvroom prove``: asks a running engine, holds the answers against the plan, tells how far it was off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from kvroom.answer.plan import EngineCapacity
from kvroom.errors import KvroomError
from kvroom.observe.endpoint import Endpoint, NoAnswerError
from kvroom.observe.prove.completions import Engine
from kvroom.observe.prove.experiments import Lab, Measured
from kvroom.observe.prove.proof import KEY, Proof, errors, prove
from kvroom.observe.prove.quiet import Meter, load
from kvroom.observe.recording import cache_of
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.plan import paragraph
from kvroom.ui.terminal.watch import seconds

Table = tuple[tuple[str, ...], list[list[str]]]
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


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to ask: the parts, the workload's seed, the engine's first process where it runs here."""

    parts: tuple[str, ...]
    seed: int = 0
    pid: int | None = None


def ask(url: str, scenario: Scenario, title: str, wishes: Wishes) -> dict[str, Any]:
    """One engine's record: the question, the cache as it tells it, and all that was measured."""
    if scenario.engine != "vllm":
        fix = "Ask a vLLM with --engine vllm; kvroom watch reads others."
        raise KvroomError("engine", scenario.engine, "is not asked in token ids", fix)
    if wishes.pid is not None and not Path(f"/proc/{wishes.pid}").is_dir():
        fix = "Name a process of this machine, or leave it out: times are then by the clock."
        raise KvroomError("--pid", wishes.pid, "is no process here", fix)
    workings = work(scenario)
    room = workings.plan.capacity.engine
    if room is None or not room.kv_tokens:
        why = "has no cache whose size is known"
        raise KvroomError("engine", scenario.engine, why, "Give --engine vllm and its flags.")
    model = workings.deployment.model
    endpoint = Endpoint.of(url)
    try:
        engine = Engine.at(url)
        lab = Lab(engine, Meter(wishes.pid), model.vocab_size, wishes.seed)
        before = load()
        measured = _measure(lab, wishes.parts, room, workings.plan.scenario)
        printed = cache_of(engine.reading())
    except NoAnswerError as error:
        fix = "Is the server up, and is this its address?"
        raise KvroomError("URL", endpoint.shown, f"gave no answer: {error}", fix) from None
    return {
        "title": title,
        "scenario": scenario.differences(),
        "printed": printed,
        "load": [before, load()],
        "measured": measured.to_dict(),
    }


def _measure(lab: Lab, parts: Sequence[str], room: EngineCapacity, scenario: Scenario) -> Measured:
    """The experiments that fit the engine's limits."""
    kv_tokens = room.kv_tokens or 0
    longest = min(scenario.context_tokens or kv_tokens, kv_tokens)
    found = Measured()
    lab.warm()
    if "steps" in parts:
        contexts = [c for c in CONTEXTS if c + 64 <= longest]
        batches = [b for b in BATCHES if b <= (room.max_running_requests or b)]
        if contexts:
            found.steps = lab.steps(batches, contexts, min(STEP_ROOM, kv_tokens // 2))
    if "firsts" in parts:
        found.firsts = lab.firsts([n for n in FIRSTS if n < longest])
    if "conversations" in parts:
        most = min(1200, longest - 1)
        talk = lab.conversations(
            "conversations", users=4, turns=4, system_tokens=most // 12, most_tokens=most
        )
        found.workloads.append(talk)
    if "pressure" in parts:
        each = min(PRESSURE_TOKENS, longest // 2)
        many = kv_tokens * 8 // (5 * each) + 1
        if many <= MOST_AT_ONCE:
            half = each // 2
            found.workloads += [
                lab.arrivals("all at once", requests=many, gap_s=0.0, input_tokens=half,
                             output_tokens=half),
                lab.arrivals("by chance", requests=2 * many, gap_s=1.0, input_tokens=half,
                             output_tokens=half, shared_tokens=half // 2),
            ]  # fmt: skip
    return found


def record(path: str, runs: Sequence[dict[str, Any]], about: dict[str, Any]) -> None:
    """Write what was measured, to be judged again by ``read``."""
    value = {KEY: 1, "about": about, "runs": list(runs)}
    write("--record", path, json.dumps(value) + "\n")


def write(flag: str, path: str, text: str) -> None:
    """Write a file; KvroomError (field ``flag``) where that cannot be."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _unwritable(flag, path, error) from None


def writable(flag: str, path: str | None) -> None:
    """KvroomError where ``path`` could not be written: told before minutes are spent on what it is to
    hold. What is there stays."""
    if path is None:
        return
    try:
        there = Path(path).exists()
        Path(path).open("a").close()
        if not there:
            Path(path).unlink()
    except (OSError, ValueError) as error:
        raise _unwritable(flag, path, error) from None


def _unwritable(flag: str, path: str, error: OSError | ValueError) -> KvroomError:
    why = getattr(error, "strerror", None) or "the name cannot be one"
    fix = "Give a file in a folder that may be written."
    return KvroomError(flag, path, f"cannot be written ({why})", fix)


def read(path: str) -> tuple[list[Proof], dict[str, Any]]:
    """The proofs of a record, made anew by today's predictions, and what it was measured on."""
    value = codec.read_json(path, "record")
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
    return prove(str(run["title"]), scenario, run["printed"], Measured.from_dict(run["measured"]))


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


def headline(proofs: Sequence[Proof]) -> str:
    """What came out, in a sentence or three."""
    blocks = [r for p in proofs for r in p.cache if r.name == "num_blocks"]
    alone = [r for p in proofs for r in p.counts if r.one_by_one]
    steps = errors([r for p in proofs for r in p.steps])
    said = []
    if blocks:
        right = sum(r.predicted == r.measured for r in blocks)
        said.append(f"Cache blocks exact on {right} of {len(blocks)} engines.")
    if alone:
        right = sum(r.holds for r in alone)
        said.append(f"{right} of {len(alone)} counters of requests one by one equal.")
    for name, told in (("predicted", "as predicted"), ("calibrated", "once calibrated")):
        if name in steps:
            said.append(f"Steps off by {steps[name]['median']:.0%} in the median {told}.")
    return " ".join(said) or "Nothing was measured."


def cache_rows(p: Proof) -> Table:
    """The cache's figures."""
    rows = [
        [
            r.name.replace("_", " "),
            "-" if r.predicted is None else f"{r.predicted:,}",
            f"{r.measured:,}",
            "exact" if r.predicted == r.measured else "OFF",
        ]
        for r in p.cache
    ]
    return ("cache", "predicted", "measured", ""), rows


def step_rows(p: Proof) -> Table:
    """Steps, their errors and how disturbed they were."""
    rows = []
    for r in p.steps:
        m = r.measured
        rows.append(
            [
                f"{m.concurrency}",
                f"{m.context_tokens:,}",
                seconds(m.step_s),
                seconds(r.predicted_s),
                f"{r.predicted_s / m.step_s - 1:+.0%}",
                "-" if r.calibrated_s is None else f"{r.calibrated_s / m.step_s - 1:+.0%}",
                "-" if m.disturbed is None else f"{m.disturbed:.0%}",
            ]
        )
    head = ("at once", "context", "step", "predicted", "error", "calibrated", "others had")
    return head, rows


def first_rows(p: Proof) -> Table:
    """First tokens, of prompts unknown and known."""
    rows = [
        [
            f"{r.measured.input_tokens:,}",
            f"{r.measured.cached_tokens:,}",
            f"{r.cached_tokens:,}",
            seconds(r.measured.ttft_s),
            seconds(r.predicted_s),
            f"{r.predicted_s / r.measured.ttft_s - 1:+.0%}",
        ]
        for r in p.firsts
    ]
    return ("prompt", "cached", "predicted", "TTFT", "predicted", "error"), rows


def count_rows(p: Proof) -> Table:
    """Counters of the engine and the simulator."""
    rows = []
    for r in p.counts:
        verdict = "OFF"
        if r.holds:
            verdict = "exact" if r.measured == r.predicted else "within"
        allowed = "0" if not r.within else f"±{r.within:,}"
        rows.append(
            [
                f"{r.workload}, {r.counter}",
                f"{r.predicted:,}",
                f"{r.measured:,}",
                verdict,
                allowed,
            ]
        )
    return ("counter", "simulated", "measured", "", "may differ by"), rows


def time_rows(p: Proof) -> Table:
    """What whole workloads took."""
    rows = [
        [
            r.workload,
            seconds(r.measured_s),
            seconds(r.predicted_s),
            f"{r.predicted_s / r.measured_s - 1:+.0%}",
            seconds(r.roomy_s),
        ]
        for r in p.times
    ]
    return ("all of it", "measured", "simulated", "error", "with a larger cache"), rows


def show(proofs: Sequence[Proof], told: dict[str, Any]) -> str:
    """The whole answer as text."""
    blocks = [paragraph(headline(proofs), "")]
    for p in proofs:
        blocks.append(click.style(p.title, bold=True))
        for table in (cache_rows(p), step_rows(p), first_rows(p), count_rows(p), time_rows(p)):
            if table[1]:
                blocks.append(_aligned(table))
        for name, e in errors(p.steps).items():
            blocks.append(
                f"  {name}: off by {e['median']:.1%} in the median, {e['largest']:.1%} at most; "
                f"{e['near']} of {e['points']} within {e['wanted']:.0%}"
            )
    blocks.append("\n".join(f"  {k:26}{paragraph(str(v), ' ' * 28)[28:]}" for k, v in told.items()))
    text = "\n\n".join(blocks)
    return spelled(text) if ascii_only() else text


def _aligned(table: Table) -> str:
    head, rows = table
    lines = [list(head), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  " + line[0].ljust(widths[0]) + "".join(
            "  " + cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)
        )
        for line in lines
    )  # fmt: skip
