"""Measured times → points of a calibration file, and how far the plan is off without and with them.

Steps come from logs and from records of ``kvroom prove``, times under load from benchmarks and
recordings. The error after is of each figure predicted with the others: with all but itself where there
are few, else with those of every second place that are not its own. One figure alone has only itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.engines.corrections import FORMAT
from kvroom.latency.own_points import METRICS, points_for
from kvroom.observe.benchmarks.run import BenchmarkRun
from kvroom.planner.plan import Workings, work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

FEW = 8
"""Up to so many figures each is predicted with all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One measurement: from which file, the question it answers, and the point that it makes."""

    file: str
    question: Mapping[str, Any]
    point: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeError:
    """A time (``step_s``, ``tpot_s`` or ``ttft_s``) measured, planned from the flags alone, and planned
    once calibrated; ``alone`` where there was nothing to calibrate by but itself."""

    file: str
    metric: str
    concurrency: int
    tokens: int
    measured_s: float
    before_s: float | None
    after_s: float | None
    alone: bool


def of_run(file: str, run: BenchmarkRun, given: Mapping[str, Any]) -> Timed | None:
    """A benchmark's run, ``given`` winning over what it says; None where it timed nothing.

    KvroomError where no plan can be made of it.
    """
    seconds = {"tpot_s": run.tpot_s, "ttft_s": run.ttft_s}
    measured = {key: value for key, value in seconds.items() if value}
    load = {
        "input_tokens": max(1, round(run.input_tokens)),
        "output_tokens": max(1, round(run.output_tokens)),
        "concurrency": max(1, round(run.concurrency or 1)),
    }
    stated = ("model", "engine", "weight_dtype", "kv_dtype")
    of_tool = {"model": run.model} | {key: said for key in stated if (said := getattr(run, key))}
    question = {**of_tool, **given, "workload": load, "concurrency": load["concurrency"]}
    return _timed(file, question, {**load, **measured}) if measured else None


def of_step(file: str, question: Mapping[str, Any], step: Mapping[str, Any]) -> Timed:
    """A step: ``concurrency``, ``context_tokens``, ``step_s``. KvroomError as ``of_run``."""
    return _timed(file, {**question, "concurrency": step["concurrency"]}, step)


def _timed(file: str, question: Mapping[str, Any], point: Mapping[str, Any]) -> Timed:
    w = _planned(question, None)
    deployment = w.deployment
    whose = {
        "engine": deployment.engine,
        "gpu": deployment.device.name,
        "model": w.plan.scenario.model,
        "tp": deployment.layout.tp,
    }
    return Timed(file=file, question=question, point={**whose, **point})


def _planned(question: Mapping[str, Any], points: Sequence[Mapping[str, Any]] | None) -> Workings:
    asked = {**question, "allow_overcommit": True}
    if points is not None:
        kept = asked.get("calibration") or {"kvroom_calibration": FORMAT}
        asked["calibration"] = {**kept, "times": {"points": list(points)}}
    return work(Scenario.from_dict(asked))


def errors(timed: Sequence[Timed]) -> list[TimeError]:
    """Every measured time against the plan without and with the others' points."""
    found = []
    for index, t in enumerate(timed):
        others = [
            o.point
            for one_index, o in enumerate(timed)
            if one_index != index and (len(timed) <= FEW or one_index % 2 != index % 2)
        ]
        before = _planned(t.question, None)
        alone = not points_for(_file(others), before.deployment, before.plan.scenario.model)
        after = _planned(t.question, [t.point] if alone else others)
        for metric in METRICS:
            if metric in t.point:
                found.append(
                    TimeError(
                        file=t.file,
                        metric=metric,
                        concurrency=t.point["concurrency"],
                        tokens=t.point.get("context_tokens") or t.point["input_tokens"],
                        measured_s=t.point[metric],
                        before_s=_said(before, t.point, metric),
                        after_s=_said(after, t.point, metric),
                        alone=alone,
                    )
                )
    return found


def _file(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"kvroom_calibration": FORMAT, "times": {"points": list(points)}}


def _said(workings: Workings, point: Mapping[str, Any], metric: str) -> float | None:
    """What the plan says of ``metric`` where ``point`` was measured."""
    if metric != "step_s":
        value: float | None = getattr(workings.plan.serving, metric)
        return value
    if workings.timing is None:
        return None
    return workings.timing.step(point["concurrency"], point["context_tokens"])[1].seconds
