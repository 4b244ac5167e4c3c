"""A simulation on many workers: seeds, and replicas that share nothing, each by itself.

The requests are the same for all: each worker goes through all of them and serves those that come to
its own replicas. So the figures are those of one process to the last digit, however many workers there
are. Where replicas see each other (a router that looks at them, a common tier, users who wait for any
answer) they stay in one process; ``routing`` with ``cells`` says that they stand behind routers of
their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from kvroom.distributed.journal import Journal
from kvroom.distributed.processes import MakePool
from kvroom.distributed.workers import Progress, Unit, run_each
from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings
from kvroom.planner.simulate import (
    Objective,
    Simulated,
    StagedFleet,
    bands,
    cells_of,
    check_cells,
    served_by,
    stage,
)
from kvroom.planner.simulation import Simulation, figures_of, simulation
from kvroom.records import dataclass
from kvroom.scenario.routing import Routing
from kvroom.simulator.part import Part
from kvroom.simulator.tally import add, joined, tally
from kvroom.version import VERSION
from kvroom.workloads.requests import Request
from kvroom.workloads.sessions import SessionPool
from kvroom.workloads.synthetic import Synthetic
from kvroom.workloads.traces.reader import Counts, Trace

CUT = "cut"
"""The journal's name for how many parts the replicas are cut into."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """A simulation as its workers get it: what is served by which deployment, and how."""

    workings: Workings
    requests: Iterable[Request]
    slo: tuple[Objective, ...]
    warmup: int | None
    linked: bool
    version: str = VERSION

    def __call__(self, unit: Unit) -> dict[str, Any]:
        """What came of one unit: a seed, or a part of the replicas."""
        if self.version != VERSION:
            fix = "Give the workers the same release."
            raise KvroomError("--cluster", VERSION, f"is not {self.version}, as here", fix)
        source = self.of_seed(unit["seed"])
        if unit["parts"] > 1:
            part = Part(
                unit["part"], unit["parts"], unit["replicas"], unit["sticky"], unit["narrow"]
            )
            staged = self.staged(source, part)
            staged.fleet.serve(staged.feed)
            counts = tally(staged.fleet)
            if isinstance(source, Trace):
                counts["read"] = asdict(source.counts)
            return counts
        simulated = simulation(
            self.workings,
            source,
            slo=self.slo,
            keep_requests=False,
            warmup=self.warmup,
            linked=self.linked,
        )
        return {**tally(simulated.run.fleet), "figures": simulated.to_dict()}

    def of_seed(self, seed: int | None) -> Iterable[Request]:
        """The requests as that seed draws them."""
        if seed is None or not isinstance(self.requests, Synthetic | SessionPool):
            return self.requests
        return self.requests.at_seed(seed)

    def staged(self, source: Iterable[Request], part: Part | None = None) -> StagedFleet:
        """The deployment and its requests, before any is served."""
        return stage(
            self.workings,
            source,
            slo=self.slo,
            warmup=self.warmup,
            linked=self.linked,
            part=part,
        )


def why_whole(staged: StagedFleet, warmup: int | None) -> str:
    """Why the replicas of ``staged`` can only be served together; empty where they share nothing."""
    scenario, feed = staged.workings.plan.scenario, staged.feed
    routing = scenario.routing or Routing()
    if feed.closed:
        return "users of a closed loop come back when any replica has answered"
    if staged.plants:
        return "tiers below the cache are served together"
    if scenario.disaggregation is not None or (scenario.fleet and scenario.fleet.keys):
        return "replicas hand over to each other, come or go"
    if any(group.rules.setup.drafts is not None for group in staged.groups):
        return "drafts are drawn by a request's number among all"
    if warmup and feed.follows:
        return "which requests warm up depends on all answers"
    if staged.managed and routing.policy != "session":
        return f"its router looks at every replica ({routing.policy}: cells=N cuts them)"
    if not staged.managed and feed.forks:
        return "requests of a session wait for others on other replicas (session routing does not)"
    return ""


def spread_simulation(
    workings: Workings,
    requests: Iterable[Request],
    *,
    pool: MakePool | None,
    workers: int,
    slo: tuple[Objective, ...] = (),
    seeds: int = 1,
    warmup: int | None = None,
    linked: bool = True,
    journal: str | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """``planner.simulation.simulation`` on so many ``workers`` of ``pool``: the same figures.

    What is in the ``journal`` is not done again. ``progress`` is told (what, done, of how many). Rows of
    requests are not kept. KvroomError for a question that contradicts itself, and where workers are lost
    again and again.
    """
    drawn = isinstance(requests, Synthetic | SessionPool)
    if seeds > 1 and not drawn:
        fix = "Give a workload in place of a trace, or --sessions N of the trace."
        raise KvroomError("--seeds", seeds, "are drawn of made-up workloads only", fix)
    if not isinstance(requests, Synthetic | SessionPool | Trace):
        requests = tuple(requests)
    shares = Shares(workings=workings, requests=requests, slo=slo, warmup=warmup, linked=linked)
    staged = shares.staged(requests)
    shares = replace(shares, warmup=staged.fleet.outcome.warmup)
    cells = cells_of(workings.plan.scenario)
    if cells > 1:
        check_cells(staged, cells)
    replicas = sum(group.replicas for group in staged.groups)
    whole = why_whole(staged, warmup) if cells == 1 else ""
    question = {
        "simulate": workings.plan.scenario.to_dict(),
        "requests": _named(requests),
        "slo": [objective.name for objective in slo] + [objective.limit_s for objective in slo],
        "warmup": warmup,
        "linked": linked,
    }
    with Journal(journal, question, lean=True) as kept:
        parts = cells if cells > 1 else _parts(kept, whole, seeds, replicas, workers)
        first = requests.seed if isinstance(requests, Synthetic | SessionPool) else None
        units = [
            {
                "seed": None if first is None else first + number,
                "part": part,
                "parts": parts,
                "replicas": replicas,
                "sticky": staged.feed.forks if cells > 1 else staged.managed,
                "narrow": cells > 1 or not staged.managed,
            }
            for number in range(seeds)
            for part in range(parts)
        ]
        gathered = [
            _Gathered(shares, units[number * parts]["seed"], last=number == seeds - 1)
            for number in range(seeds)
        ]

        def take(place: int, told: Mapping[str, Any]) -> None:
            gathered[place // parts].take(units[place], told)

        named = "seeds" if seeds > 1 else "parts of the replicas"
        alone = whole or _why_one(replicas, workers)
        stage_name = named if len(units) > 1 else f"in one process: {alone}"
        run_each(stage_name, shares, units, kept, take, pool=pool, progress=progress)
    figures = gathered[0].figures()
    if seeds > 1:
        each = [figures, *(one.figures() for one in gathered[1:])]
        figures["bands"] = bands(each, [one.at_once for one in gathered])
    return Simulation(run=gathered[-1].run, figures=figures, requests=())


def _parts(journal: Journal, whole: str, seeds: int, replicas: int, workers: int) -> int:
    """Into how many parts the replicas are cut: one for each worker, or as many as the journal says."""
    if whole or seeds > 1:
        return 1
    if CUT in journal:
        return int(journal.result(CUT))
    parts = max(1, min(replicas, workers))
    journal.add(CUT, parts)
    return parts


def _why_one(replicas: int, workers: int) -> str:
    """Why replicas that could be cut are one part."""
    if replicas == 1:
        return "one replica"
    return "one worker" if workers == 1 else "the journal was begun by one worker"


def _named(requests: Iterable[Request]) -> Any:
    """What identifies the requests."""
    if isinstance(requests, Trace):
        return [str(requests.path), requests.hash_tokens]
    return repr(requests) if isinstance(requests, Synthetic) else len(tuple(requests))


class _Gathered:
    """What the parts of one simulation counted, put together."""

    def __init__(self, shares: Shares, seed: int | None, *, last: bool) -> None:
        self.shares = shares
        self.requests = shares.of_seed(seed)
        self.last = last
        self.told: dict[str, Any] | None = None
        self.lines: list[Sequence[Sequence[int]]] = []
        self.at_once: Mapping[str, float | None] = {}

    def take(self, unit: Unit, told: Mapping[str, Any]) -> None:
        """Add what one part counted."""
        parts, replicas = unit["parts"], unit["replicas"]
        self.told = told.get("figures")
        self.at_once = told["at_once"] if parts == 1 else {"mean": None, "while_waiting": None}
        if self.last or self.told is None:
            add(self.staged.fleet, told, range(unit["part"], replicas, parts))
            self.lines.append(told["line"])
        if "read" in told and isinstance(self.requests, Trace):
            self.requests.counts = Counts(**told["read"])

    @cached_property
    def staged(self) -> StagedFleet:
        """The deployment, which serves nothing itself."""
        return self.shares.staged(self.requests)

    @cached_property
    def run(self) -> Simulated:
        """The simulation, as if it had been served here."""
        self.staged.fleet.timeline.moments = joined(self.lines)
        return served_by(self.staged)

    def figures(self) -> dict[str, Any]:
        """Its figures."""
        if self.told is not None:
            return dict(self.told)
        return figures_of(self.run, self.requests, linked=self.shares.linked)
