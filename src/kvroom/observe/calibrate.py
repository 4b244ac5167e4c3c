"""Several files of evidence → one calibration file, with the error before and after.

Start-up logs, recordings and metrics texts give the memory part. The error after is of each log
predicted with what the others measured; one log alone has only itself. Benchmarks, recordings, lines of
throughput in logs and records of ``kvroom prove`` give the times part, likewise (``calibrate_times``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from functools import partial
from pathlib import Path
from typing import Any

from kvroom.answer.shown import Shown
from kvroom.engines.corrections import FORMAT
from kvroom.errors import KvroomError
from kvroom.observe.benchmarks.reader import read_file as read_benchmark
from kvroom.observe.benchmarks.run import BenchmarkRun
from kvroom.observe.calibrate_times import Timed, TimeError, errors, of_run, of_step
from kvroom.observe.calibration_file import profile_of
from kvroom.observe.logs import serving as served_log
from kvroom.observe.logs.startup import read_file
from kvroom.observe.prove.proof import KEY
from kvroom.observe.reconcile import Reconciliation, figures_of, reconcile
from kvroom.observe.recording import OBSERVED, Recording
from kvroom.planner.plan import work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

FIGURES = ("kv_tokens", "num_blocks", "kv_available_bytes")
"""What the error is of: the first that a log prints and the plan predicts."""


STEP = ("concurrency", "context_tokens", "step_s")
"""What a point of a record of experiments needs."""


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


@dataclass(repr=False)
class Calibrated(Shown):
    """The file's content, the errors, and what was left out and why."""

    TITLE = "What was learned"

    entries: list[dict[str, Any]] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    memory: list[CacheError] = field(default_factory=list)
    times: list[TimeError] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """The calibration file; KvroomError where nothing was learned."""
        if not self.entries and not self.timed:
            why = "hold nothing to calibrate by"
            fix = "Give start-up logs that print accounts of memory, or benchmarks with --model, --gpu."
            reason = "; ".join(self.left_out) or "no time in them, no account of memory"
            raise KvroomError("files", None, f"{why}: {reason.rstrip('.')}", fix)
        memory = {"memory": {"entries": self.entries}} if self.entries else {}
        times = {"times": {"points": [dict(t.point) for t in self.timed]}} if self.timed else {}
        return {"kvroom_calibration": FORMAT} | memory | times

    def summary(self) -> str:
        """How much was learned of memory and of times."""
        memory, times = len(self.entries), len(self.timed)
        return (
            f"learned from {memory} account{'s' if memory != 1 else ''} of memory and {times} "
            f"measured time{'s' if times != 1 else ''}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a figure that was held against what was learned: before and after."""
        memory = [
            {"file": m.file, "figure": m.figure, "measured": m.printed, "before": m.before}
            | {"after": m.after, "alone": m.alone}
            for m in self.memory
        ]
        return memory + [
            {"file": t.file, "figure": t.metric, "measured": t.measured_s, "before": t.before_s}
            | {"after": t.after_s, "alone": t.alone}
            for t in self.times
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "calibration": self.content() if self.entries or self.timed else None,
            "memory": [asdict(m) for m in self.memory],
            "times": [asdict(time) for time in self.times],
            "left_out": self.left_out,
        }


def calibrate(files: Sequence[str], keys: Mapping[str, Any]) -> Calibrated:
    """Learn from ``files``; ``keys`` are Scenario keys that win over what the files say.

    KvroomError where nothing is learned.
    """
    calibrated = Calibrated()
    learned: list[tuple[str, Reconciliation, dict[str, Any]]] = []
    for path in files:
        name = Path(path).name
        if _times(path, name, keys, calibrated):
            continue
        answer = reconcile(read_file(path), dict(keys))
        try:
            (entry,) = profile_of(answer, name)["memory"]["entries"]
        except KvroomError as error:
            calibrated.left_out.append(f"{name}: {error.message} ({error.fix})")
        else:
            calibrated.entries.append(entry)
            learned.append((name, answer, entry))
        _served(path, name, answer, calibrated)
    for name, answer, entry in learned:
        others = [e for _, _, e in learned if e is not entry and _same_kind(e, entry)]
        off = _off(name, answer, others or [entry], alone=not others)
        if off is not None:
            calibrated.memory.append(off)
    calibrated.content()
    calibrated.times = errors(calibrated.timed)
    return calibrated


def _times(path: str, name: str, keys: Mapping[str, Any], calibrated: Calibrated) -> bool:
    """Whether the file is a record of experiments, a benchmark or a recording with times; those it
    holds are added."""
    if (steps := proved_steps(path)) is not None:
        for question, step in steps:
            _add(calibrated, name, partial(of_step, name, {**question, **keys}, step))
        return True
    runs = read_benchmark(path)
    if runs is None and (seen := recorded_run(path)) is not None:
        runs = [seen]
    if runs == []:
        calibrated.left_out.append(f"{name}: a benchmark that tells no lengths with mean times")
    for run in runs or ():
        _add(calibrated, name, partial(of_run, name, run, keys))
    return runs is not None


def _served(path: str, name: str, answer: Reconciliation, calibrated: Calibrated) -> None:
    """The steps that a start-up log goes on to tell, of the deployment that it started."""
    if answer.scenario is None or path == "-":
        return
    question = {key: value for key, value in answer.scenario.items() if key != "known_bytes"}
    for step in served_log.read_file(path):
        point = asdict(step)
        del point["lines"]
        _add(calibrated, name, partial(of_step, name, question, point))


def _add(calibrated: Calibrated, name: str, make: Callable[[], Timed | None]) -> None:
    try:
        made = make()
    except KvroomError as error:
        reason = f"{name}: no plan to hold it against: {error.field} {error.message}"
        if reason not in calibrated.left_out:
            calibrated.left_out.append(reason)
    else:
        calibrated.timed += [made] if made else []


def proved_steps(path: str) -> list[tuple[dict[str, Any], dict[str, Any]]] | None:
    """(Question, step) of each step in a record of ``kvroom prove``; None where the file is none."""
    try:
        with Path(path).open("rb") as file:
            if KEY.encode() not in file.read(64):
                return None
            file.seek(0)
            runs = json.loads(file.read())["runs"]
        return [
            (dict(run["scenario"]), {k: step[k] for k in STEP})
            for run in runs
            for step in run["measured"]["steps"]
        ]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def recorded_run(path: str) -> BenchmarkRun | None:
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
    return BenchmarkRun(
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
    name: str, reconciliation: Reconciliation, entries: list[dict[str, Any]], *, alone: bool
) -> CacheError | None:
    """Printed against predicted, before and after calibrating by ``entries``."""
    figure = next(
        (
            figure
            for figure in FIGURES
            if reconciliation.printed.get(figure) and figure in reconciliation.predicted
        ),
        None,
    )
    if figure is None or reconciliation.scenario is None:
        return None
    asked = {key: value for key, value in reconciliation.scenario.items() if key != "known_bytes"}
    asked["calibration"] = {"kvroom_calibration": FORMAT, "memory": {"entries": entries}}
    after = figures_of(work(Scenario.from_dict(asked))).get(figure)
    return CacheError(
        file=name,
        figure=figure,
        printed=reconciliation.printed[figure],
        before=reconciliation.predicted[figure],
        after=after,
        alone=alone,
    )
