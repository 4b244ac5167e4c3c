"""Scenario and requests → what happens: the one call behind ``kvroom simulate``.

It takes the Plan's own deployment: its blocks, its engine's limits and rules, its step times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, fsum
from typing import Any

from kvroom.engines.serving_rules import ServingRules
from kvroom.errors import KvroomError, did_you_mean
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.latency.load import served
from kvroom.planner.cluster import (
    ReplicaGroup,
    fleet_dict,
    fleet_warnings,
    groups_of,
    is_managed,
    managed,
    passage_of,
    with_tiers,
)
from kvroom.planner.load import kept_below, loaded
from kvroom.planner.offload import told, warnings_of
from kvroom.planner.plan import Workings, work
from kvroom.planner.pools import pools_of
from kvroom.planner.sessions import fitted
from kvroom.records import dataclass
from kvroom.scenario.routing import Routing
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import settling
from kvroom.simulator.cluster import Cluster
from kvroom.simulator.feed import Feed, Naming
from kvroom.simulator.frames import Frame, FrameRecorder
from kvroom.simulator.managed_cluster import ManagedCluster
from kvroom.simulator.metrics import Outcome, RequestLimits
from kvroom.simulator.offload_tiers import Plant
from kvroom.simulator.part import Part
from kvroom.simulator.tally import add, joined, tally
from kvroom.simulator.timeline import Moment, Watch
from kvroom.units import ceil_div, parse_seconds
from kvroom.workloads.requests import Request
from kvroom.workloads.sessions import SessionPool
from kvroom.workloads.statistics import nearest_rank
from kvroom.workloads.synthetic import Synthetic
from kvroom.workloads.traces.reader import Trace

OtherScheduler = Callable[[ServingRules], ServingRules]
"""From an engine's rules here to those that serve instead."""
WAVES = 2
"""How many requests of each user of a closed loop are left out."""
FILLING = 4
"""Of how many requests those that are at once in the end may be one without a word of it."""
METRICS = ("ttft", "tpot", "itl", "e2e")
PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Objective:
    """``metric`` (ttft, tpot, itl, e2e) at ``percent`` (None: the mean) is to be at most ``limit_s``."""

    name: str
    metric: str
    at: str
    limit_s: float


def parse_slo(text: str, field: str = "--slo") -> tuple[Objective, ...]:
    """The objectives of ``ttft_p95=2s,tpot_p95=50ms``; KvroomError names what is wrong."""
    names = [
        f"{metric}_{at}"
        for metric in METRICS
        for at in ("mean", *(f"p{percent}" for percent in PERCENTS), "max")
    ]
    objectives: list[Objective] = []
    for part in text.split(","):
        name, equals, value = (x.strip() for x in part.partition("="))
        if not equals or name not in names:
            fix = did_you_mean(name, names, "Write it like ttft_p95=2s,tpot_p95=50ms.")
            raise KvroomError(field, part.strip(), "is no objective", fix)
        limit = parse_seconds(f"{field} {name}", value)
        if not limit:
            raise KvroomError(f"{field} {name}", value, "can never be met", "Write such as 200ms.")
        metric, _, at = name.rpartition("_")
        objectives.append(Objective(name, metric, at, limit))
    return tuple(objectives)


def limits_of(slo: Sequence[Objective]) -> RequestLimits | None:
    """What a single request is held to: every metric's objective, at whatever percentile it is set."""
    if not slo:
        return None

    def tightest(*metrics: str) -> float:
        limits = [o.limit_s for o in slo if o.metric in metrics]
        return min(limits) * PS_PER_S if limits else float("inf")

    return RequestLimits(tightest("ttft"), tightest("tpot", "itl"), tightest("e2e"))


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What happened to the requests of one simulation."""

    workings: Workings
    fleet: Cluster
    slo: tuple[Objective, ...]
    counts: Mapping[str, int]
    blocks: int
    """Usable ones, all replicas together."""
    duration_s: float
    warnings: tuple[str, ...]
    front_end_s: float = 0.0
    """What a client waits for beside the engine, in a mean of all requests."""
    start_s: float = 0.0
    """What a start of all users at once adds to a benchmark's mean."""
    plants: tuple[Plant, ...] = ()

    @property
    def line(self) -> list[Moment]:
        """How things stood over time."""
        return sorted(self.fleet.timeline.moments)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as ``kvroom simulate --json`` prints them."""
        out, seconds = self.fleet.outcome, self.duration_s
        times = {
            "ttft_s": spread_s(out.ttft_ps, out.warm["ttft"], out.outside_ps),
            "ttft_engine_s": spread_s(out.ttft_ps, out.warm["ttft"]),
            "tpot_s": spread_s(out.tpot_ps, out.warm["tpot"]),
            "itl_s": _gaps_s(out),
            "e2e_s": spread_s(out.e2e_ps, out.warm["e2e"], out.outside_ps),
        }
        answer: dict[str, Any] = {
            "requests": dict(self.counts),
            **times,
            "ttft_front_end_s": self.front_end_s,
            "ttft_start_s": self.start_s,
            "warmup_requests": out.warmup,
            "output_tokens_per_s": out.output_tokens / seconds if seconds else 0.0,
            "goodput_requests_per_s": out.good / seconds if seconds else 0.0,
            "prefix_hit_ratio": out.cached_tokens / out.prompt_tokens if out.prompt_tokens else 0.0,
            "preemptions": out.preempted,
            "kv_blocks": {
                "total": self.blocks,
                "peak": self.fleet.peak_blocks,
            },
            "duration_s": seconds,
        }
        if self.slo:
            answer["slo"] = {o.name: _kept(o, times) for o in self.slo}
        if out.verifying:
            answer["speculation"] = drafted_dict(out)
        if self.plants:
            answer["tiers"] = told(self.plants, seconds)
        if isinstance(self.fleet, ManagedCluster):
            answer["fleet"] = fleet_dict(self.fleet, seconds)
        return answer | {"stopped": self.fleet.stopped, "warnings": list(self.warnings)}


def drafted_dict(out: Outcome) -> dict[str, float]:
    """What came of drafts: steps of a request that checked some, tokens drafted, kept (of an answer's last
    step those beyond its end are not) and wasted, tokens that such a step gave."""
    kept = out.gained_tokens - out.verifying
    return {
        "steps": out.verifying,
        "drafted_tokens": out.drafted_tokens,
        "accepted_tokens": kept,
        "wasted_tokens": out.drafted_tokens - kept,
        "tokens_per_step": out.gained_tokens / out.verifying,
    }


def _kept(objective: Objective, times: Mapping[str, Mapping[str, float | None]]) -> dict[str, Any]:
    value = times[f"{objective.metric}_s"].get(objective.at)
    met = value is not None and value <= objective.limit_s
    return {"limit_s": objective.limit_s, "value_s": value, "met": met}


def spread_s(
    values_ps: Iterable[float], without: Iterable[float] = (), outside_ps: int = 0
) -> dict[str, float | None]:
    """Mean, nearest-rank percentiles and maximum of picoseconds, in seconds; None where there are none.

    Those of ``without`` are left out; to the others ``outside_ps`` is added.
    """
    ordered = sorted(values_ps)
    if left_out := Counter(without):
        every, ordered = ordered, []
        for value in every:
            if left_out[value]:
                left_out[value] -= 1
            else:
                ordered.append(value)
    if not ordered:
        return dict.fromkeys(("mean", *(f"p{percent}" for percent in PERCENTS), "max"))
    percentiles = {
        f"p{percent}": (nearest_rank(ordered, percent) + outside_ps) / PS_PER_S
        for percent in PERCENTS
    }
    # rounded once: Python 3.12 and later add floats otherwise than 3.11, and the page's Python is newer
    mean = (fsum(ordered) + outside_ps * len(ordered)) / len(ordered) / PS_PER_S
    return {"mean": mean, **percentiles, "max": (ordered[-1] + outside_ps) / PS_PER_S}


def _gaps_s(out: Outcome) -> dict[str, float | None]:
    gaps = out.gaps
    count = gaps.count
    if not count:
        return spread_s(())
    found = gaps.ranked([*(ceil_div(percent * count, 100) for percent in PERCENTS), count])
    named = dict(zip((*(f"p{percent}" for percent in PERCENTS), "max"), found, strict=True))
    mean = gaps.total_ps / count / PS_PER_S
    return {"mean": mean, **{name: gap / PS_PER_S for name, gap in named.items()}}


def simulate(
    scenario: Scenario,
    source: Iterable[Request],
    *,
    slo: tuple[Objective, ...] = (),
    on_over: Callable[[ServedRequest, int | None], None] | None = None,
    watch: Watch | None = None,
    warmup: int | None = None,
) -> Simulated:
    """Serve the requests of ``source`` on the deployment of ``scenario``.

    ``on_over`` is told of each request that is done (and when, in ps) or dropped (None); ``watch`` of how
    things stand, and may end it. KvroomError where the engine would not start or no step can be timed.
    """
    workings = work(scenario)
    return serve(workings, source, slo=slo, on_over=on_over, watch=watch, warmup=warmup)


def usual_warmup(source: Iterable[Request]) -> int:
    """The first requests that are left out of the times where nothing is asked: of a closed loop, which
    begins with everybody at once, two of each user and at most half of all; where sessions are in their
    midst at first, as many as ``settling`` says."""
    if not isinstance(source, Synthetic | SessionPool) or not source.users:
        return 0
    if source.midway:
        return settling(source.users, source.requests)
    return min(WAVES * source.users, source.requests // 2)


def _filling(workings: Workings, source: Iterable[Request]) -> list[str]:
    """That most of open arrivals come while a deployment still fills, and how many more would not."""
    times = workings.times
    if not isinstance(source, Synthetic) or source.users or times is None or times.saturated:
        return []
    many = ceil(times.decoding)
    if many * FILLING <= source.requests:
        return []
    return [
        f"about {many:,} requests are served at once in the steady state that kvroom plan tells, and"
        f" {source.requests:,} come: the times are of a deployment that fills and empties"
        f" (--workload …,requests={10 * many} --warmup {3 * many})"
    ]


def outside_of(workings: Workings, source: Iterable[Request]) -> tuple[float, float]:
    """Seconds that a client waits for a first token beside the engine's part: the front end's, and what a
    start at once adds. The same as in the plan of the same load; of a trace only the front end's."""
    timing, deployment = workings.timing, workings.deployment
    if timing is None:
        return 0.0, 0.0
    if workings.split and workings.split.times:
        return workings.split.times.front_end_s, workings.split.times.start_s
    if isinstance(source, Synthetic):
        shared = workings.plan.capacity.shared
        copies = sum(count for _, _, count in pools_of(workings.plan.scenario))
        load = loaded(source, deployment, workings.answer, shared, copies)
        if load is not None:
            times = served(timing.clock, kept_below(load, workings.plan.scenario, deployment))
            return times.front_end_s, times.start_s
    k = timing.clock.k
    return k.first_s + k.wait * timing.clock.decode_s(
        deployment.layout.dp, workings.asked_tokens
    ), 0.0


@dataclass(frozen=True, kw_only=True)
class StagedFleet:
    """A planned deployment and the requests that come to it, before any is served."""

    workings: Workings
    groups: Sequence[ReplicaGroup]
    feed: Feed
    fleet: Cluster
    slo: tuple[Objective, ...]
    front_end_s: float
    start_s: float
    notes: Sequence[str] = ()
    """What of the requests was left out or changed, so that the model takes them."""

    @property
    def plants(self) -> tuple[Plant, ...]:
        """The tiers below its caches."""
        return tuple(group.plant for group in self.groups if group.plant is not None)

    @property
    def managed(self) -> bool:
        """Whether a router decides, or replicas come and go."""
        return isinstance(self.fleet, ManagedCluster)


def stage(
    workings: Workings,
    source: Iterable[Request],
    *,
    slo: tuple[Objective, ...] = (),
    on_over: Callable[[ServedRequest, int | None], None] | None = None,
    watch: Watch | None = None,
    tell: Callable[[Frame], None] | None = None,
    warmup: int | None = None,
    scheduler: OtherScheduler | None = None,
    linked: bool = True,
    part: Part | None = None,
) -> StagedFleet:
    """What ``serve`` serves; of ``part`` only its replicas, and what comes to them."""
    scenario = workings.plan.scenario
    groups = groups_of(workings)
    if scheduler is not None:
        groups = [replace(group, rules=scheduler(group.rules)) for group in groups]
    rules = groups[0].rules
    limits = limits_of(slo)
    limit_tokens = workings.deployment.context_tokens
    notes: list[str] = []
    if isinstance(source, Synthetic):
        source = source.within(limit_tokens)
    if isinstance(source, Synthetic | SessionPool):
        source, notes = fitted(source, limit_tokens)
    notes += _filling(workings, source)
    front_end_s, start_s = outside_of(workings, source)
    outside = round((front_end_s + start_s) * PS_PER_S)
    warmup = usual_warmup(source) if warmup is None else warmup
    count_from = warmup if getattr(source, "midway", False) else 0
    hashed: int | None = getattr(source, "hash_tokens", None)
    naming = None
    if rules.setup.enable_prefix_caching:
        all_named = tell is not None or scheduler is not None
        naming = Naming(
            rules.name_tokens,
            hashed,
            numbered=isinstance(source, Synthetic),
            shared_tokens=None if all_named else shared_tokens_of(scenario, groups, source),
        )
    feed = Feed(source, naming, linked=linked, part=part)
    seed = getattr(source, "seed", 0)
    groups = [
        replace(with_tier, rules=with_tier.rules.seeded(seed))
        for with_tier in with_tiers(groups, feed)
    ]
    for group in groups:
        if group.plant is not None:
            group.plant.count_from = count_from
    behind_router = is_managed(scenario, groups)
    if part is not None and part.narrow:
        count = len(part.places)
        groups = [replace(group, replicas=count, most=count) for group in groups]
    fleet: Cluster
    if behind_router:
        if tell is not None:
            fix = "Leave routing, tiers, fleet and disaggregation out."
            raise KvroomError("frames", None, "show one replica, not a fleet", fix)
        fleet = managed(scenario, groups, feed, limits, on_over=on_over, watch=watch, seed=seed)
        fleet.outcome.outside_ps, fleet.outcome.warmup = outside, warmup
    else:
        each = [group for group in groups for _ in range(group.replicas)]
        passage = passage_of(each)
        outcome = Outcome(
            limits=limits, on_over=on_over, passage_ps=passage, outside_ps=outside, warmup=warmup
        )
        follow = feed.follow if feed.waits else None
        # Frames are of one rank, stepped by itself.
        loops = {id(g): g.loops() if tell is None else lambda _: None for g in groups}
        engines = [
            g.engine(
                outcome,
                feed,
                follow,
                place=index,
                together=loops[id(g)](index),
                tell=None if index else tell,
            )
            for index, g in enumerate(each)
        ]
        fleet = Cluster(engines, outcome, watch=watch)
    fleet.outcome.count_from = count_from
    return StagedFleet(
        workings=workings,
        groups=groups,
        feed=feed,
        fleet=fleet,
        slo=slo,
        front_end_s=front_end_s,
        start_s=start_s,
        notes=notes,
    )


LOOKS_ELSEWHERE = ("round-robin", "random", "least-loaded", "power-of-two", "session")
"""Rules of routers that do not go by what prompts hold."""
LOOKS_AT_CACHES = ("prefix", "kv-cost", "longest-cached")
"""Those that go by what replicas have cached, where these tell it."""


def shared_tokens_of(
    scenario: Scenario, groups: Sequence[ReplicaGroup], source: Iterable[Request]
) -> int | None:
    """How much of a prompt's beginning others may hold too, where nobody counts the blocks behind it by their
    names: not a tier below the cache, nor a router that remembers what it sent. None: any part of it."""
    if not isinstance(source, Synthetic) or source.chains or not source.prefix.tokens:
        return None
    if scenario.tiers or scenario.disaggregation:
        return None
    rule = scenario.routing.rule if scenario.routing else LOOKS_ELSEWHERE[0]
    tells = all(
        g.rules.jumps
        and not g.pipelined
        and g.rules.setup.drafts is None
        and g.workings.deployment.layout.dp == 1
        for g in groups
    )
    local = rule in LOOKS_ELSEWHERE or (rule in LOOKS_AT_CACHES and tells)
    return source.prefix.tokens if local else None


def served_by(staged: StagedFleet) -> Simulated:
    """What became of the requests of a stage that has served them."""
    fleet, workings, plants = staged.fleet, staged.workings, staged.plants
    for engine in fleet.engines[:1]:
        if isinstance(engine, FrameRecorder):
            engine.rest()
    out = fleet.outcome
    running, waiting = fleet.running_count, fleet.waiting_count
    done = len(out.e2e_ps)
    last = out.last_ps if not fleet.stopped else fleet.last_ps
    return Simulated(
        workings=workings,
        fleet=fleet,
        slo=staged.slo,
        counts={
            "arrived": done + running + waiting + out.dropped,
            "completed": done,
            "running": running,
            "waiting": waiting,
            "dropped": out.dropped,
        },
        blocks=sum(group.blocks * group.most for group in staged.groups),
        duration_s=last / PS_PER_S,
        warnings=(
            *(warning for warning in workings.plan.warnings if warning not in workings.beyond),
            *staged.groups[0].rules.warnings,
            *warnings_of(workings.plan.scenario, plants),
            *staged.notes,
            *fleet_warnings(fleet, staged.groups, last),
        ),
        plants=plants,
        front_end_s=staged.front_end_s,
        start_s=staged.start_s,
    )


def serve(
    workings: Workings,
    source: Iterable[Request],
    *,
    slo: tuple[Objective, ...] = (),
    on_over: Callable[[ServedRequest, int | None], None] | None = None,
    watch: Watch | None = None,
    tell: Callable[[Frame], None] | None = None,
    warmup: int | None = None,
    scheduler: OtherScheduler | None = None,
    linked: bool = True,
) -> Simulated:
    """``simulate`` on a deployment that is planned already.

    ``tell`` is given a Frame a step of the first replica, which is then stepped. ``scheduler`` puts other
    rules in the place of the engine's here. Without ``linked`` the requests of a trace come when they were
    recorded, whatever became of those before them. Where sessions are in their midst at first, hits are
    counted from the end of the ``warmup`` on, as times are: until then no cache knows them.
    """

    def staged(part: Part | None = None) -> StagedFleet:
        return stage(
            workings,
            source,
            slo=slo,
            on_over=on_over,
            watch=watch,
            tell=tell,
            warmup=warmup,
            scheduler=scheduler,
            linked=linked,
            part=part,
        )

    cells = cells_of(workings.plan.scenario)
    if cells == 1:
        alone = staged()
        alone.fleet.serve(alone.feed)
        return served_by(alone)
    if not isinstance(source, Synthetic | SessionPool | Trace | Sequence):
        source = tuple(source)
    together = staged()
    check_cells(together, cells)
    lines = []
    for part in parts_of(together, cells):
        own = staged(part)
        own.fleet.serve(own.feed)
        record = tally(own.fleet)
        add(together.fleet, record, part.places)
        lines.append(record["line"])
        if own.fleet.stopped:
            together.fleet.stopped = True
            break
    together.fleet.timeline.moments = joined(lines)
    return served_by(together)


def cells_of(scenario: Scenario) -> int:
    """Into how many cells, each behind a router of its own, the replicas are cut."""
    return (scenario.routing or Routing()).cells


def parts_of(staged: StagedFleet, cells: int) -> list[Part]:
    """The cells of a deployment: requests are split in turn, those of sessions that fork by session."""
    replicas = sum(group.replicas for group in staged.groups)
    return [Part(cell, cells, replicas, sticky=staged.feed.forks) for cell in range(cells)]


def check_cells(staged: StagedFleet, cells: int) -> None:
    """KvroomError where a deployment cannot be cut into ``cells``."""
    scenario = staged.workings.plan.scenario
    replicas = sum(group.replicas for group in staged.groups)
    if cells > replicas:
        fix = f"Write up to {replicas} cells."
        raise KvroomError("routing.cells", cells, f"are more than the {replicas} replicas", fix)
    for there, what in (
        (staged.feed.closed, "users of a closed loop, who come back to any of them"),
        (bool(staged.plants), "tiers below the cache"),
        (scenario.disaggregation is not None, "disaggregation"),
        (bool(scenario.fleet and scenario.fleet.keys), "a fleet of its own keys"),
    ):
        if there:
            fix = "Leave cells out."
            raise KvroomError("routing.cells", cells, f"are not simulated with {what}", fix)


BAND = ("ttft_s", "tpot_s", "itl_s", "e2e_s")


def bands(
    answers: Sequence[Mapping[str, Any]], counts: Sequence[Mapping[str, float | None]]
) -> dict[str, Any]:
    """Low and high of every figure over ``answers`` of several seeds: an 80 % band, nearest ranks.

    ``counts`` of who ran at once (``Timeline.at_once``) are banded too; they are looked at now and then, so
    they are no figure of a single simulation.
    """

    def band(values: Iterable[float | None]) -> dict[str, float] | None:
        ordered = sorted(value for value in values if value is not None)
        if not ordered:
            return None
        return {"low": nearest_rank(ordered, 10), "high": nearest_rank(ordered, 90)}

    found: dict[str, Any] = {"seeds": len(answers)}
    for name in BAND:
        found[name] = {at: band(answer[name][at] for answer in answers) for at in answers[0][name]}
    found["requests_at_once"] = {at: band(count[at] for count in counts) for at in counts[0]}
    for name in ("output_tokens_per_s", "goodput_requests_per_s", "prefix_hit_ratio"):
        found[name] = band(answer[name] for answer in answers)
    return found


def over_seeds(
    simulated: Simulated,
    answer: Mapping[str, Any],
    source: Synthetic | SessionPool,
    many: int,
    *,
    slo: tuple[Objective, ...] = (),
    watch: Watch | None = None,
    scheduler: OtherScheduler | None = None,
) -> tuple[Simulated, dict[str, Any]]:
    """The last simulation and the ``bands`` of ``many`` seeds of ``source``. ``simulated`` is the first of
    them and ``answer`` its figures. There are fewer where ``watch`` ends one."""
    answers, counts = [answer], [simulated.fleet.timeline.at_once]
    while len(answers) < many and not simulated.fleet.stopped:
        again = source.at_seed(source.seed + len(answers))
        simulated = serve(
            simulated.workings,
            again,
            slo=slo,
            watch=watch,
            warmup=simulated.fleet.outcome.warmup,
            scheduler=scheduler,
        )
        if not simulated.fleet.stopped:
            answers.append(simulated.to_dict())
            counts.append(simulated.fleet.timeline.at_once)
    return simulated, bands(answers, counts)
