"""A day of requests by the hour: replicas that are needed, times over the day, cost.

A sample of replicas is simulated exactly at a dozen loads; between them, and from hour to hour, a fluid limit
leads (``levels``, ``fluid``). So a day of 10^9 requests costs as much as one of 10^6. How far the answer is
from the whole simulation was measured (``errors.json``), and is in its bands with what the samples differ by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

from kvroom.distributed.journal import Journal
from kvroom.distributed.processes import MakePool
from kvroom.distributed.workers import Progress
from kvroom.optimize.day.answer import Day
from kvroom.optimize.day.hours import (
    FleetCurves,
    ServedHour,
    hour_dict,
    needed,
    played,
    times_of,
    together,
)
from kvroom.optimize.day.question import METRICS, DayQuestion, FleetDay, question_of
from kvroom.optimize.day.sampler import SAMPLES, Sampler
from kvroom.planner.plan import work
from kvroom.planner.simulate import Objective
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import MAX_REPLICAS
from kvroom.workloads.daily import DAY_S, HOURS

USUAL = 0.85
"""The share that replicas are taken to be used at, where their number is not known yet."""
LIKE = 1.5
"""Numbers of replicas within this ratio have arrivals alike."""
WIDE = 1.638
"""Student's t of 80 % with SAMPLES − 1 degrees of freedom."""
IDEAL = (
    "replicas are there by the hour as they are needed: no cold starts, and nothing is told of the minutes "
    "between (fleet.autoscale in a simulation does)"
)
SPLIT = "requests are taken as spread evenly over the replicas by their router, which is sampled with {}"


def day(
    scenario: Scenario,
    *,
    slo: Sequence[Objective],
    all_day: bool = False,
    seed: int | None = None,
    pool: MakePool | None = None,
    journal: str | None = None,
    progress: Progress | None = None,
) -> Day:
    """The day of ``scenario``, whose arrivals are a day's, by the hour: with its ``replicas`` ``all_day``,
    else with as many as hold ``slo`` in each hour. KvroomError for a question that is none of a day."""
    question = question_of(scenario, work(scenario), slo, seed, asked=all_day)
    fleets = question.fleets
    named = {"day": scenario.to_dict(), "slo": [[o.name, o.limit_s] for o in slo], "seed": seed}
    with Journal(journal, named) as kept:
        sampler = Sampler(question, kept, pool, progress)
        sampler.sample(_counts(question, sampler.most_per_s))
    curves = sampler.curves()
    needs = [_needs(fleet, curves, question.slo) for fleet in fleets]
    fixed = question.replicas
    never = fixed is None and any(need is None for each in needs for need in each)
    counts = [[fixed or need or MAX_REPLICAS for need in each] for each in needs]
    figures: dict[str, Any] = {
        "holds": all(
            need is not None and (fixed is None or need <= fixed) for n in needs for need in n
        ),
        "requests": round(question.requests),
        **_figures(question, [] if never else counts, needs, sampler),
    }
    if len(fleets) > 1:
        one = _needs(question.together, curves, question.slo)
        figures["one_fleet"] = _replicas([one], question)
    return Day(question=question, figures=figures)


def _counts(question: DayQuestion, most_per_s: float) -> list[int]:
    """The numbers of replicas whose arrivals are sampled: the fewest and the most that may be."""
    if question.replicas is not None:
        rough = [question.replicas]
    else:
        rates = [rate for fleet in question.fleets for rate in fleet.rates]
        rough = [min(MAX_REPLICAS, max(1, ceil(rate / (USUAL * most_per_s)))) for rate in rates]
    few, many = min(rough), max(rough)
    return [few, many] if many > LIKE * few else [many]


def _needs(fleet: FleetDay, curves: FleetCurves, slo: Sequence[Objective]) -> list[int | None]:
    """The fewest replicas that hold in each hour; None where no number does."""
    return [needed(fleet, hour, curves, slo) for hour in range(HOURS)]


def _figures(
    question: DayQuestion,
    counts: Sequence[Sequence[int]],
    needs: Sequence[Sequence[int | None]],
    sampler: Sampler,
) -> dict[str, Any]:
    several = len(question.fleets) > 1
    figures = {
        "requests_per_s": {
            "mean": question.requests / DAY_S,
            "busiest": max(question.together.rates),
        },
        "replicas": _replicas(needs, question),
        **(_hours(question, counts, needs, sampler) if counts else {"hours": []}),
        "regions": [
            {"region": fleet.name, "share": fleet.share, **_replicas([need], question)}
            for fleet, need in zip(question.fleets, needs, strict=True)
        ],
        "sample": sampler.told(),
        "error": errors()["measured"],
        "warnings": _warnings(question, sampler),
    }
    return figures if several else {**figures, "regions": []}


def _hours(
    question: DayQuestion,
    counts: Sequence[Sequence[int]],
    needs: Sequence[Sequence[int | None]],
    sampler: Sampler,
) -> dict[str, Any]:
    """What requests see by the hour and over the day of so many replicas, and what these cost."""
    usd = question.usd_per_replica_hour
    hours = _played(question, counts, sampler.curves())
    samples = [together(_played(question, counts, sampler.curves(k))) for k in range(SAMPLES)]
    steps = together(hours)
    times = {metric: times_of(steps, metric) for metric in METRICS}
    rows = [hour_dict(each, usd) for each in zip(*hours, strict=True)]
    for hour, row in enumerate(rows):
        row["needed"] = _total(each[hour] for each in needs)
        if len(question.fleets) > 1:
            row["by_region"] = [each[hour] for each in counts]
    hourly = [sum(column) for column in zip(*counts, strict=True)]
    gpus = question.workings.deployment.layout.gpus
    return {
        **{f"{metric}_s": times[metric] for metric in METRICS},
        "bands": {
            f"{m}_s": _bands(times[m], [times_of(sample, m) for sample in samples], m)
            for m in METRICS
        },
        "cost": {
            "gpu_hours": sum(hourly) * gpus,
            "usd": None if usd is None else sum(hourly) * usd,
            "usd_all_day": None if usd is None else HOURS * max(hourly) * usd,
        },
        "hours": rows,
    }


def _played(
    question: DayQuestion, counts: Sequence[Sequence[int]], curves: FleetCurves
) -> list[list[ServedHour]]:
    return [
        played(fleet, count, curves) for fleet, count in zip(question.fleets, counts, strict=True)
    ]


def _total(needs: Iterable[int | None]) -> int | None:
    each = list(needs)
    return None if None in each else sum(need for need in each if need is not None)


def _replicas(needs: Sequence[Sequence[int | None]], question: DayQuestion) -> dict[str, Any]:
    """Replicas needed by the hour, and what they come to."""
    hourly = [_total(column) for column in zip(*needs, strict=True)]
    needed = [need for need in hourly if need is not None]
    whole = len(needed) == len(hourly)
    usd = question.usd_per_replica_hour
    return {
        "by_hour": hourly,
        "quietest": min(needed) if whole else None,
        "busiest": max(needed) if whole else None,
        "mean": sum(needed) / HOURS if whole else None,
        "usd": sum(needed) * usd if whole and usd is not None else None,
    }


def _bands(
    times: Mapping[str, float], samples: Sequence[Mapping[str, float]], metric: str
) -> dict[str, Any]:
    """Within which each figure lies four times in five: what the samples differ by, and the error of the
    way."""
    bands = {}
    for at, value in times.items():
        each = [sample[at] for sample in samples]
        chance = WIDE * stdev(each) / sqrt(len(each))
        own = errors()["errors"][metric][at] * value
        half = sqrt(chance * chance + own * own)
        bands[at] = {"low": max(0.0, value - half), "high": value + half}
    return bands


@lru_cache(maxsize=1)
def errors() -> Mapping[str, Any]:
    """How far the answer was from the whole simulation, where that was played (``benchmarks/day.py``)."""
    content: Mapping[str, Any] = json.loads(
        Path(__file__).with_name("errors.json").read_text(encoding="utf-8")
    )
    return content


def _warnings(question: DayQuestion, sampler: Sampler) -> list[str]:
    plan, workings = question.workings.plan, question.workings
    warnings = [w for w in plan.warnings if w not in workings.beyond and "queue" not in w]
    if question.replicas is None:
        warnings.append(IDEAL)
    if question.looks:
        warnings.append(SPLIT.format(sampler.together))
    return warnings
