"""Several files of evidence → one calibration file, with the error before and after.

Start-up logs, recordings and metrics texts give the memory part. The error after is of each log
predicted with what the others measured; one log alone has only itself. Benchmarks give the times part,
and are held against the plan's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.evidence import benchmark_output
from kvroom.evidence.benchmark_output import Measured
from kvroom.evidence.calibration import profile_of
from kvroom.evidence.reconcile import Reconciliation, figures_of, reconcile
from kvroom.evidence.recording import OBSERVED, Recording
from kvroom.evidence.startup_log import read_file
from kvroom.memory.calibration import FORMAT
from kvroom.planning import Workings, work
from kvroom.scenario import Scenario

FIGURES = ("kv_tokens", "num_blocks", "kv_available_bytes")
"""What the error is of: the first that a log prints and the plan predicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheError:
    """One log: a figure printed, predicted from the flags alone, and predicted once calibrated."""

    file: str
    figure: str
    printed: float
    before: float
    after: float | None
    alone: bool
    """Whether it was calibrated by itself, there being no other log of its engine and card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeError:
    """One run of a benchmark: what it measured, and what the plan says (None: it gives no times)."""

    file: str
    run: Measured
    ttft_s: float | None
    tpot_s: float | None


@dataclass
class Calibrated:
    """The file's content, the errors, and what was left out and why."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)
    memory: list[CacheError] = field(default_factory=list)
    times: list[TimeError] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """The calibration file; KvroomError where nothing was learned."""
        if not self.entries and not self.points:
            why = "hold nothing to calibrate by"
            fix = "Give start-up logs that print accounts of memory, or benchmarks with --model, --gpu."
            raise KvroomError("files", None, f"{why}: " + "; ".join(self.left_out), fix)
        memory = {"memory": {"entries": self.entries}} if self.entries else {}
        times = {"times": {"points": self.points}} if self.points else {}
        return {"kvroom_calibration": FORMAT} | memory | times

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "calibration": self.content() if self.entries or self.points else None,
            "memory": [asdict(m) for m in self.memory],
            "times": [asdict(t) for t in self.times],
            "left_out": self.left_out,
        }


def calibrate(files: Sequence[str], given: Mapping[str, Any]) -> Calibrated:
    """Learn from ``files``; ``given`` are Scenario keys that win over what the files say."""
    found = Calibrated()
    learned: list[tuple[str, Reconciliation, dict[str, Any]]] = []
    for path in files:
        name = Path(path).name
        runs = benchmark_output.read_file(path)
        if runs is None and (seen := recorded_run(path)) is not None:
            runs = [seen]
        if runs is not None:
            found.times += [_timed(name, run, given, found) for run in runs]
            continue
        answer = reconcile(read_file(path), dict(given))
        try:
            (entry,) = profile_of(answer, name)["memory"]["entries"]
        except KvroomError as error:
            found.left_out.append(f"{name}: {error.message} ({error.fix})")
        else:
            found.entries.append(entry)
            learned.append((name, answer, entry))
    for name, answer, entry in learned:
        others = [e for _, _, e in learned if e is not entry and _same_kind(e, entry)]
        off = _off(name, answer, others or [entry], alone=not others)
        if off is not None:
            found.memory.append(off)
    return found


def recorded_run(path: str) -> Measured | None:
    """A recording of a watch as one run: the means of all that was observed while it ran.

    None where the file is no recording, or where no request ended.
    """
    try:
        recording = Recording.open(path)
    except KvroomError:
        return None
    sums = {name: [0.0, 0.0] for name in OBSERVED}
    busy = span = 0.0
    before: dict[str, Any] | None = None
    for line in recording.samples():
        for name in OBSERVED:
            told = line.get(name) or {}
            sums[name][0] += told.get("total") or 0.0
            sums[name][1] += sum(count for _, _, count in told.get("steps", ()))
        if "counters" not in line:
            continue
        running = line.get("running") or 0
        if before is not None and (running or before.get("running")):
            step = line["t_s"] - before["t_s"]
            busy += step * (running + (before.get("running") or 0)) / 2
            span += step
        before = line
    means = {name: total / count if count else None for name, (total, count) in sums.items()}
    prompt, answer = means["prompt_lengths"], means["output_lengths"]
    ended = sums["prompt_lengths"][1]
    if not ended or prompt is None or answer is None:
        return None
    return Measured(
        tool="watch",
        model=recording.header.get("model"),
        requests=round(ended),
        input_tokens=prompt,
        output_tokens=answer,
        concurrency=busy / span if span else None,
        requests_per_s=ended / span if span else None,
        ttft_s=means["ttft"],
        tpot_s=means["itl"],
    )


def _same_kind(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return (a["engine"], a["gpu"]) == (b["engine"], b["gpu"])


def _off(
    name: str, r: Reconciliation, entries: list[dict[str, Any]], *, alone: bool
) -> CacheError | None:
    """Printed against predicted, before and after calibrating by ``entries``."""
    figure = next((f for f in FIGURES if r.printed.get(f) and f in r.predicted), None)
    if figure is None or r.scenario is None:
        return None
    asked = {k: v for k, v in r.scenario.items() if k != "known_bytes"}
    asked["calibration"] = {"kvroom_calibration": FORMAT, "memory": {"entries": entries}}
    after = figures_of(work(Scenario.from_dict(asked))).get(figure)
    return CacheError(
        file=name,
        figure=figure,
        printed=r.printed[figure],
        before=r.predicted[figure],
        after=after,
        alone=alone,
    )


def _timed(name: str, run: Measured, given: Mapping[str, Any], found: Calibrated) -> TimeError:
    """The run against the plan of the same workload."""
    asked: dict[str, Any] = {"model": run.model, **given}
    users = max(1, round(run.concurrency or 1))
    asked["workload"] = {
        "input_tokens": max(1, round(run.input_tokens)),
        "output_tokens": max(1, round(run.output_tokens)),
        "concurrency": users,
    }
    asked["concurrency"] = users
    serving = None
    try:
        w = work(Scenario.from_dict({**asked, "allow_overcommit": True}))
        serving = w.plan.serving
        point = _point(run, w)
        found.points += [point] if point else []
    except KvroomError as error:
        told = f"{name}: no plan to hold it against: {error.field} {error.message}"
        if told not in found.left_out:
            found.left_out.append(told)
    return TimeError(
        file=name,
        run=run,
        ttft_s=serving.ttft_s if serving else None,
        tpot_s=serving.tpot_s if serving else None,
    )


def _point(run: Measured, w: Workings) -> dict[str, Any] | None:
    """What later plans of the same deployment are drawn to; None where the run timed nothing."""
    seconds = {"tpot_s": run.tpot_s, "ttft_s": run.ttft_s}
    measured = {k: v for k, v in seconds.items() if v}
    workload = w.plan.scenario.workload
    if not measured or workload is None:
        return None
    d = w.deployment
    return {
        "engine": d.engine,
        "gpu": d.device.name,
        "model": w.plan.scenario.model,
        "tp": d.layout.tp,
        "concurrency": workload.concurrency,
        "input_tokens": workload.input_tokens,
        "output_tokens": workload.output_tokens,
        **measured,
    }
