"""An engine's measured answers beside what was predicted of it: cache, steps, first tokens, hits.

Everything predicted comes from the Scenario alone: blocks and steps from its plan, first tokens, cache
hits and preemptions from the simulator, which is given the same requests at the same times. Steps are
predicted twice more once calibrated: each half of the points by a calibration file made of the other
half, so that nothing is judged by what it was fitted to.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import asdict, field, replace
from statistics import median
from typing import Any

from kvroom.answer.shown import Shown
from kvroom.engines.corrections import FORMAT
from kvroom.errors import KvroomError
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.observe.prove.experiments import (
    MeasuredFirstToken,
    MeasuredStep,
    MeasuredWorkload,
    Measurements,
    ids,
)
from kvroom.planner.plan import Workings, work
from kvroom.planner.simulate import serve
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.requests import Request, TokenIds, TokenRuns

KEY = "kvroom_proof"
APART_S = 10**6
"""Seconds between requests that are served one by one: longer than any of them takes."""
TOLERANCE = {"hits": 0.1, "preemptions": 0.35}
"""How far, relatively, counters of requests at once may be off: which step a request arrives in is
chance, and each preemption moves those after it. One by one nothing may be off."""
FEW = 3
"""Preemptions that a difference may always have: of few, one is a large share."""
WANTED = (0.25, 0.1)
"""Errors of step times aimed at, as predicted and once calibrated by half of the points."""
CACHE = ("num_blocks", "block_size", "kv_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """A figure of the cache as planned and as the engine tells it."""

    name: str
    predicted: int | None
    measured: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step measured, predicted (with its 80 % band), and predicted once calibrated by the other half
    of the points (None: there are too few)."""

    measured: MeasuredStep
    predicted_s: float
    low_s: float
    high_s: float
    calibrated_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRow:
    """A first token measured and simulated, with the tokens found in the cache."""

    measured: MeasuredFirstToken
    predicted_s: float
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """How far a counter rose over a workload, in the engine and in the simulator; ``within`` is how far
    the two may differ."""

    workload: str
    one_by_one: bool
    counter: str
    measured: int
    predicted: int
    within: int

    @property
    def holds(self) -> bool:
        """Whether they differ by no more than that."""
        return abs(self.measured - self.predicted) <= self.within


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """Seconds that a workload took the engine, what others took left out, and the simulator: with the
    deployment's own cache, and with one that preempts nobody."""

    workload: str
    measured_s: float
    predicted_s: float
    roomy_s: float


@dataclass(kw_only=True, repr=False)
class Proof(Shown):
    """One engine's measurements beside their predictions."""

    TITLE = "A running engine beside its plan"

    title: str
    scenario: dict[str, Any]
    cache: list[CacheRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    firsts: list[FirstRow] = field(default_factory=list)
    counts: list[CountRow] = field(default_factory=list)
    times: list[TimeRow] = field(default_factory=list)
    lines: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """Context → (batch, seconds) as predicted, for a curve through the points."""

    @property
    def exact(self) -> bool:
        """Whether all that must come out exactly does: the cache, and counters one request at a time."""
        cache = all(r.predicted == r.measured for r in self.cache)
        return cache and all(count.holds for count in self.counts if count.one_by_one)

    @property
    def within(self) -> bool:
        """Whether the other counters are within their tolerance."""
        return all(count.holds for count in self.counts)

    def summary(self) -> str:
        """Whether what must be exact is, and how far the steps are off."""
        exact = "exact" if self.exact else "NOT exact"
        off = errors(self.steps).get("predicted", {}).get("median")
        steps = "" if off is None else f", steps off by {off:.1%} in the median"
        return f"{self.title}: cache and counters {exact}{steps}"

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a figure: what it is of, measured and predicted."""
        cache = [(f"cache: {r.name}", r.measured, r.predicted) for r in self.cache]
        steps = [
            (
                f"step of {s.measured.concurrency} at {s.measured.context_tokens}",
                s.measured.step_s,
                s.predicted_s,
            )
            for s in self.steps
        ]
        counts = [(f"{c.workload}: {c.counter}", c.measured, c.predicted) for c in self.counts]
        times = [(f"{t.workload}: seconds", t.measured_s, t.predicted_s) for t in self.times]
        names = ("figure", "measured", "predicted")
        return [dict(zip(names, row, strict=True)) for row in (*cache, *steps, *counts, *times)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "title": self.title,
            "exact": self.exact,
            "within": self.within,
            "cache": [asdict(r) for r in self.cache],
            "steps": [asdict(step) for step in self.steps],
            "firsts": [asdict(first) for first in self.firsts],
            "counts": [asdict(count) for count in self.counts],
            "times": [asdict(time) for time in self.times],
            "errors": errors(self.steps),
        }


def prove(title: str, scenario: Scenario, printed: dict[str, int], measured: Measurements) -> Proof:
    """Predict all that was measured; ``printed`` is the cache as the engine tells it."""
    workings = work(scenario)
    if workings.timing is None:
        fix = "Give a machine file with its flops_per_s (kvroom probe --gpu-python writes it)."
        raise KvroomError("gpu", workings.deployment.device.name, "has no known arithmetic", fix)
    room = workings.plan.capacity.engine
    planned = {
        "num_blocks": room.num_blocks if room else None,
        "block_size": room.block_tokens if room else None,
        "kv_tokens": room.kv_tokens if room else None,
    }
    steps = _steps(scenario, workings, measured.steps)
    tuned = work(calibrated(scenario, measured.steps)) if measured.steps else workings
    return Proof(
        title=title,
        scenario=scenario.differences(),
        cache=[
            CacheRow(name=n, predicted=planned[n], measured=printed[n])
            for n in CACHE
            if n in printed
        ],
        steps=steps,
        firsts=_firsts(workings, measured.firsts),
        counts=[row for workload in measured.workloads for row in _counts(tuned, workload)],
        times=[row for workload in measured.workloads for row in _times(scenario, tuned, workload)],
        lines=_lines(workings, measured.steps),
    )


def calibrated(scenario: Scenario, steps: Sequence[MeasuredStep]) -> Scenario:
    """``scenario`` with a calibration file of ``steps``, beside what it has of memory already."""
    content = {**(scenario.calibration or {"kvroom_calibration": FORMAT})}
    content["times"] = {"points": points(scenario, steps)}
    return replace(scenario, calibration=content)


def points(scenario: Scenario, steps: Sequence[MeasuredStep]) -> list[dict[str, Any]]:
    """Steps as a calibration file's points."""
    return [
        {
            "engine": scenario.engine,
            "tp": scenario.tp,
            "concurrency": step.concurrency,
            "context_tokens": step.context_tokens,
            "step_s": step.step_s,
        }
        for step in steps
    ]


def errors(rows: Sequence[StepRow]) -> dict[str, Any]:
    """Relative errors of the steps: median, largest, and how many are as near as wanted."""
    by_metric: dict[str, Any] = {}
    for name, wanted in zip(("predicted", "calibrated"), WANTED, strict=True):
        off = [
            abs(predicted_s / row.measured.step_s - 1)
            for row in rows
            if (predicted_s := getattr(row, f"{name}_s")) is not None
        ]
        if off:
            near = sum(e <= wanted for e in off)
            by_metric[name] = {
                "points": len(off),
                "median": median(off),
                "largest": max(off),
                "wanted": wanted,
                "near": near,
            }
    return by_metric


def _steps(scenario: Scenario, workings: Workings, steps: Sequence[MeasuredStep]) -> list[StepRow]:
    """Each step predicted, and by a calibration from the other half (every second point)."""
    others: list[Workings | None] = [None, None]
    if len(steps) >= 4:
        others = [work(calibrated(scenario, steps[half::2])) for half in (1, 0)]
    found = []
    for index, step in enumerate(steps):
        span = _span(workings, step)
        tuned = others[index % 2]
        found.append(
            StepRow(
                measured=step,
                predicted_s=span.seconds,
                low_s=span.low,
                high_s=span.high,
                calibrated_s=None if tuned is None else _span(tuned, step).seconds,
            )
        )
    return found


def _span(workings: Workings, measured_step: MeasuredStep) -> Any:
    assert workings.timing is not None
    return workings.timing.step(measured_step.concurrency, measured_step.context_tokens)[1]


def _lines(workings: Workings, steps: Sequence[MeasuredStep]) -> dict[int, list[tuple[int, float]]]:
    """Predicted steps at every batch up to the largest measured, for the contexts measured."""
    assert workings.timing is not None
    contexts = sorted({step.context_tokens for step in steps if step.concurrency == 1})
    most = max((step.concurrency for step in steps), default=0)
    clock = workings.timing.clock
    return {
        context: [(index, clock.decode_s(index, context)) for index in range(1, most + 1)]
        for context in contexts
    }


def _simulated(workings: Workings, requests: Sequence[Request]) -> tuple[list[ServedRequest], Any]:
    """The requests as the simulator served them, in order, and its totals."""
    done: dict[int, ServedRequest] = {}

    def on_over(request: ServedRequest, at: int | None) -> None:
        done[request.index] = request

    simulated = serve(workings, iter(requests), on_over=on_over)
    return [done[index] for index in range(len(requests))], simulated.fleet.outcome


def _firsts(workings: Workings, firsts: Sequence[MeasuredFirstToken]) -> list[FirstRow]:
    """First tokens simulated: each prompt asked anew, then again."""
    requests = [
        Request(
            index * APART_S * PS_PER_S,
            first.input_tokens,
            1,
            TokenRuns(((index // 2 << 24, first.input_tokens),)),
        )
        for index, first in enumerate(firsts)
    ]
    served, _ = _simulated(workings, requests)
    return [
        FirstRow(
            measured=first,
            predicted_s=(request.first_token_ps - request.arrival) / PS_PER_S,
            cached_tokens=request.num_cached_tokens,
        )
        for first, request in zip(firsts, served, strict=True)
    ]


def _requests(measured_workload: MeasuredWorkload) -> list[Request]:
    """The requests of ``w`` as they were sent; those one by one far apart."""
    requests = [
        Request(
            round((index * APART_S if measured_workload.one_by_one else request.at_s) * PS_PER_S),
            sum(n for _, n in request.prompt),
            len(request.answer),
            TokenIds(array("I", ids(request.prompt)), array("I", request.answer)),
        )
        for index, request in enumerate(measured_workload.requests)
    ]
    return sorted(requests, key=lambda r: r.arrival_ps)


def _times(
    scenario: Scenario, workings: Workings, measured_workload: MeasuredWorkload
) -> list[TimeRow]:
    """How long ``w`` took; nothing where it waited for arrivals, since those came by the clock that
    others slowed."""
    wall = sum(request.e2e_s for request in measured_workload.requests)
    if not measured_workload.one_by_one:
        wall = max(request.at_s + request.e2e_s for request in measured_workload.requests)
        if max(request.at_s for request in measured_workload.requests) > wall / 10:
            return []
    requests = _requests(measured_workload)
    blocks = sum(request.input_tokens + request.output_tokens for request in requests) // len(
        requests
    )
    args = {**scenario.engine_args, "num_gpu_blocks_override": blocks * len(requests)}
    roomy = work(replace(workings.plan.scenario, engine_args=args))
    took = []
    for of in (workings, roomy):
        _, out = _simulated(of, requests)
        took.append((sum(out.e2e_ps) if measured_workload.one_by_one else out.last_ps) / PS_PER_S)
    return [
        TimeRow(
            workload=measured_workload.name,
            measured_s=wall * (1 - (measured_workload.disturbed or 0.0)),
            predicted_s=took[0],
            roomy_s=took[1],
        )
    ]


def _counts(workings: Workings, measured_workload: MeasuredWorkload) -> list[CountRow]:
    """The counters over ``w``: of requests one by one exactly, else within a tolerance."""
    _, out = _simulated(workings, _requests(measured_workload))
    counts = {"queries": out.prompt_tokens, "hits": out.cached_tokens, "preemptions": out.preempted}
    rows = []
    for name, predicted in counts.items():
        measured = measured_workload.counters[name]
        within = 0
        if not measured_workload.one_by_one and name in TOLERANCE:
            larger = max(measured, predicted)
            within = max(FEW if name == "preemptions" else 0, round(TOLERANCE[name] * larger))
        rows.append(
            CountRow(
                workload=measured_workload.name,
                one_by_one=measured_workload.one_by_one,
                counter=name,
                measured=measured,
                predicted=predicted,
                within=within,
            )
        )
    return rows
