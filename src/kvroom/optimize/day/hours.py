"""The hours of a fleet's day: how many replicas hold, and what their requests see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kvroom.optimize.day.fluid import STEPS, Flow, FlowStep, mean, percentile, steps_of, within
from kvroom.optimize.day.levels import Level, LevelCurve
from kvroom.optimize.day.question import FleetDay
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.scenario.values import MAX_REPLICAS
from kvroom.units import smallest
from kvroom.workloads.daily import HOURS, PARTS

A_DAY = PARTS * STEPS
AN_HOUR = A_DAY // HOURS
SHOWN = ("mean", "p50", "p90", "p95", "p99")


class FleetCurves:
    """How one of so many replicas answers: curves that were sampled for two numbers of replicas, and between
    them, by what sets how even its arrivals are (1 over the number)."""

    def __init__(self, sampled: Mapping[int, LevelCurve]) -> None:
        self._sampled = dict(sorted(sampled.items()))
        self.of = lru_cache(maxsize=4096)(self._of)

    def _of(self, replicas: int) -> LevelCurve:
        counts = list(self._sampled)
        few, many = counts[0], counts[-1]
        if replicas <= few or few == many:
            return self._sampled[few]
        if replicas >= many:
            return self._sampled[many]
        share = (1 / few - 1 / replicas) / (1 / few - 1 / many)
        low, high = self._sampled[few], self._sampled[many]
        levels: list[Level] = [
            one.between(other, share) for one, other in zip(low.levels, high.levels, strict=False)
        ]
        return LevelCurve(tuple(levels))


@dataclass(frozen=True, kw_only=True)
class ServedHour:
    """An hour of one fleet."""

    hour: int
    replicas: int
    steps: tuple[FlowStep, ...]
    """Of one replica, step by step."""

    @property
    def requests(self) -> float:
        """Requests of the whole fleet."""
        return self.replicas * sum(step.requests for step in self.steps)

    @property
    def waiting(self) -> float:
        """The most that wait at a time, the whole fleet."""
        return self.replicas * max(step.waiting for step in self.steps)


def figure(steps: Sequence[FlowStep], metric: str, at: str) -> float:
    """One figure of the requests of all steps: a mean or a percentile."""
    if at == "mean":
        return mean(steps, metric)
    return percentile(steps, metric, float(at[1:]))


def times_of(steps: Sequence[FlowStep], metric: str) -> dict[str, float]:
    """Mean and percentiles of a metric."""
    return {at: figure(steps, metric, at) for at in SHOWN}


def met(steps: Sequence[FlowStep], slo: Sequence[Objective]) -> bool:
    """Whether every objective holds for the requests of all steps."""
    return all(
        mean(steps, o.metric) <= o.limit_s
        if o.at == "mean"
        else within(steps, o.metric, o.limit_s) >= float(o.at[1:]) / 100
        for o in slo
    )


def needed(fleet: FleetDay, hour: int, curves: FleetCurves, slo: Sequence[Objective]) -> int | None:
    """The fewest replicas that hold ``slo`` in an hour that begins in a steady state (None: none do)."""
    rates = steps_of(fleet.rates)[hour * AN_HOUR : (hour + 1) * AN_HOUR]

    def holds(replicas: int) -> bool:
        curve = curves.of(replicas)
        flow = Flow(curve.here(min(rates[0] / replicas, curve.most_per_s)))
        return met([flow.step(rate / replicas, curve) for rate in rates], slo)

    return smallest(holds, MAX_REPLICAS)


def played(fleet: FleetDay, replicas: Sequence[int], curves: FleetCurves) -> list[ServedHour]:
    """The day of a fleet that has so many ``replicas`` by the hour and is empty at first."""
    rates = steps_of(fleet.rates)
    flow = Flow()
    hours: list[ServedHour] = []
    for hour, count in enumerate(replicas):
        curve = curves.of(count)
        if hours:
            flow.here *= hours[-1].replicas / count
        own = rates[hour * AN_HOUR : (hour + 1) * AN_HOUR]
        steps = tuple(flow.step(rate / count, curve) for rate in own)
        hours.append(ServedHour(hour=hour, replicas=count, steps=steps))
    return hours


def together(hours: Sequence[Sequence[ServedHour]]) -> list[FlowStep]:
    """The steps of all hours of all fleets, each as often as it is had by a replica."""
    return [
        step._replace(requests=step.requests * hour.replicas)
        for fleet in hours
        for hour in fleet
        for step in hour.steps
    ]


def hour_dict(fleets: Sequence[ServedHour], usd_per_hour: float | None) -> dict[str, Any]:
    """One hour of all fleets as plain values."""
    steps = together([[hour] for hour in fleets])
    replicas = sum(hour.replicas for hour in fleets)
    requests = sum(hour.requests for hour in fleets)
    return {
        "hour": fleets[0].hour,
        "requests": round(requests),
        "requests_per_s": requests / 3600,
        "replicas": replicas,
        "waiting": sum(hour.waiting for hour in fleets),
        "ttft_s": times_of(steps, "ttft"),
        "tpot_s": times_of(steps, "tpot"),
        "usd": None if usd_per_hour is None else replicas * usd_per_hour,
    }
