"""From a Scenario to the replicas that serve it (pools of their own hardware behind routers), and what
happened to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from kvroom.engines import served_by
from kvroom.engines.registry import engine_of
from kvroom.engines.serving_rules import ServingRules
from kvroom.errors import KvroomError, as_sentence
from kvroom.hardware.node import Machine
from kvroom.kvcache.connector import KVConnector
from kvroom.kvcache.extents import ExtentPool
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S, StepClock, step_clock
from kvroom.latency.disaggregation import adapters_bytes_per_s, crossing_layers, fetched_bytes
from kvroom.latency.transfer import BELOW, transfer_s
from kvroom.planner.offload import plant_of
from kvroom.planner.plan import Workings, work
from kvroom.planner.pools import (
    autoscale_of,
    check_widths,
    failures_of,
    lockstep_of,
    pools_of,
    steps_together,
    within,
)
from kvroom.planner.scaling import scaling_rule
from kvroom.planner.verdict import not_started
from kvroom.records import dataclass
from kvroom.scenario.cluster import ColdStart, Disaggregation
from kvroom.scenario.routing import ROUTING_POLICIES, Routing
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import MAX_REPLICAS
from kvroom.simulator.cluster import Cluster
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.feed import Feed
from kvroom.simulator.frames import Frame, FrameRecorder
from kvroom.simulator.group_engine import GroupEngine
from kvroom.simulator.managed_cluster import ManagedCluster
from kvroom.simulator.metrics import Outcome, RequestLimits
from kvroom.simulator.offload_tiers import Common, Plant
from kvroom.simulator.replicas import ClusterOutcome, Replica, seconds_ps
from kvroom.simulator.routed_pool import RoutedPool
from kvroom.simulator.router import Router
from kvroom.simulator.step_engine import StepEngine, StepLoop
from kvroom.simulator.stream import Follow
from kvroom.simulator.timeline import ServingEngine, Watch
from kvroom.simulator.transfer import TransferConnector, TransferLinks
from kvroom.units import check_int, show_rate

FAR = 2**20
"""A length at which a cache that does not grow with every token is found out."""


@dataclass(frozen=True, kw_only=True)
class ReplicaGroup:
    """Equal replicas: their deployment, their scheduling rules and their clock; how many there are at
    first (``replicas``) and at most (counting data-parallel ranks), how long one takes to start, and
    its tiers."""

    workings: Workings
    rules: ServingRules
    clock: StepClock
    replicas: int
    most: int
    cold_ps: int = 0
    lockstep: bool = False
    """Whether data-parallel ranks step together."""
    plant: Plant | None = None
    clocks: Mapping[int, StepClock] = field(default_factory=dict)
    """Those of steps with fewer drafts than ``clock`` has, by how many."""
    pipelined: bool = False
    """Whether several batches are in the stages of a pipeline at once; else it is played as one step."""
    prompts_only: bool = False
    """Whether answers are generated elsewhere, so that nothing is ever drafted here."""

    @property
    def blocks(self) -> int:
        """Usable blocks of one."""
        return self.rules.setup.num_gpu_blocks - 1

    @property
    def gpus(self) -> int:
        """GPUs of one."""
        layout = self.workings.deployment.layout
        return layout.tp * layout.pp

    def loops(self) -> Callable[[int], StepLoop | None]:
        """The loop of each rank by its number, ranks of one replica having one together; None: its own."""
        made: dict[int, StepLoop] = {}
        dp = self.workings.deployment.layout.dp
        return lambda place: made.setdefault(place // dp, StepLoop()) if self.lockstep else None

    def engine(
        self,
        outcome: Outcome,
        feed: Feed,
        follow: Follow | None,
        *,
        connector: KVConnector | None = None,
        place: int = 0,
        together: StepLoop | None = None,
        tell: Callable[[Frame], None] | None = None,
    ) -> ServingEngine:
        """A new one with an empty cache: from event to event where its rules allow it, else step by
        step, or ``together`` with others. ``place`` is its number among all; a ``connector`` is in the
        place of tiers; ``tell`` is given a Frame a pass, of an engine that is then stepped."""
        rules, setup = self.rules, self.rules.setup
        unit = feed.naming.unit if feed.naming else 1
        tiers = None if self.plant is None or connector else self.plant.make(place)
        drafts = setup.drafts is not None and not self.prompts_only
        plain = together is None and tell is None and not drafts and not self.pipelined
        depth = rules.depth if self.pipelined else 0
        if rules.jumps and plain:
            return EventEngine(
                setup.config,
                ExtentPool(self.blocks, unit),
                self.clock,
                outcome,
                block_tokens=setup.groups[0].block_size,
                caching=setup.enable_prefix_caching,
                follow=follow,
                connector=connector or tiers,
                events=tiers,
            )
        named = feed.naming is not None
        if rules.jumps_over_groups(named) and plain and connector is None and tiers is None:
            return GroupEngine(setup, self.clock, outcome, unit=unit, follow=follow)
        if tell is not None:
            if rules.own is not None:
                fix = "Replay it with --engine vllm."
                why = "has rules of its own, without numbered blocks"
                raise KvroomError("engine", None, why, fix)
            return FrameRecorder(
                setup.scheduler(),
                self.clock,
                outcome,
                follow=follow,
                clocks=self.clocks,
                unit=unit,
                depth=depth,
                tell=tell,
            )
        return StepEngine(
            rules.scheduler(),
            self.clock,
            outcome,
            follow=follow,
            clocks=self.clocks,
            unit=unit,
            connector=connector or tiers,
            events=tiers,
            loop=together,
            depth=depth,
        )


def passage_of(groups: Sequence[ReplicaGroup]) -> Callable[[ServedRequest], int] | None:
    """How long a prompt travels through the pipeline of its engine beyond its own step, where that is played
    as one. ``groups`` are those of all engines, by place. None where no prompt does."""
    as_one = [group.clock.stages > 1 and not group.pipelined for group in groups]
    if not any(as_one):
        return None
    return lambda request: (
        groups[request.replica].clock.passage_ps(
            request.num_prompt_tokens - request.num_cached_tokens
        )
        if as_one[request.replica]
        else 0
    )


def group_of(workings: Workings, replicas: int, most: int = 0) -> ReplicaGroup:
    """``replicas`` of a planned deployment; KvroomError where its engine would not start or no step can
    be timed."""
    deployment, answer = workings.deployment, workings.answer
    if not (answer.starts or answer.cache_given):
        why, cure = not_started(workings.plan)
        what = f"would not start: {why}"
        raise KvroomError("engine", deployment.engine, what, as_sentence(cure))
    rules = served_by(deployment, answer)
    if workings.timing is None:
        fix = "Name a card of the catalogue, or give its flops_per_s."
        raise KvroomError(
            "gpu", deployment.device.name, "has no known arithmetic rate: no times", fix
        )
    clock = workings.timing.clock
    fewer = {tokens for _, tokens in clock.drafting.schedule} if clock.drafting else ()
    made = ReplicaGroup(
        workings=workings,
        rules=rules,
        clock=step_clock(clock),
        clocks={n: step_clock(clock.drafts(n)) for n in fewer},
        pipelined=rules.depth > 0,
        replicas=replicas * deployment.layout.dp,
        most=max(replicas, most) * deployment.layout.dp,
    )
    return made if made.pipelined else stepping_as_one(made)


def stepping_as_one(group: ReplicaGroup) -> ReplicaGroup:
    """``group`` whose pipeline, if it has one, is played as one step, which it says."""
    deployment, rules = group.workings.deployment, group.rules
    if deployment.layout.pp == 1:
        return group
    where = " in two pools" if group.pipelined else ""
    label = engine_of(deployment.engine).label
    note = (
        f"the pipeline of {label}{where} is played as one step that all requests take together, each stage"
        " on its share of them: who waits, is preempted or finds a prefix cached may differ, and a prompt"
        " delays others by one stage's time only"
    )
    rules = replace(rules, warnings=(*rules.warnings, note))
    return replace(group, rules=rules, pipelined=False)


def groups_of(workings: Workings) -> list[ReplicaGroup]:
    """The replicas of a planned Scenario, pool by pool. In a disaggregated Scenario the pool that
    computes prompts comes first."""
    scenario = workings.plan.scenario
    fleet, split = scenario.fleet, scenario.disaggregation
    field = "disaggregation" if split else "fleet.pools"
    if split is not None or (fleet is not None and fleet.pools is not None):
        groups = [_pool_group(*pool) for pool in pools_of(scenario)]
    else:
        first = check_int("replicas", scenario.replicas, low=1, high=MAX_REPLICAS)
        scale = autoscale_of(scenario, first, workings.deployment.layout.dp)
        groups = [group_of(workings, first, scale.most if scale else first)]
    if split is not None:
        groups = [stepping_as_one(group) for group in groups]  # only such hand over
        groups[0] = replace(groups[0], prompts_only=True)
        _check_split(groups)
    sizes = {group.rules.name_tokens for group in groups}
    if len(sizes) > 1:
        fix = "Give all pools the same engine, block_size and dcp."
        raise KvroomError(field, sorted(sizes), "tokens are in a block, pool by pool", fix)
    start = (fleet and fleet.start) or ColdStart()
    layouts = [group.workings.deployment.layout for group in groups]
    asked = lockstep_of(scenario, [layout.dp for layout in layouts])
    return [
        replace(
            group,
            cold_ps=cold_start_ps(group, start),
            lockstep=steps_together(scenario, layout) if asked is None else asked,
        )
        for group, layout in zip(groups, layouts, strict=True)
    ]


def _pool_group(field: str, own: Scenario, count: int) -> ReplicaGroup:
    with within(field):
        return group_of(work(own), count)


def _check_split(groups: Sequence[ReplicaGroup]) -> None:
    for group in groups:
        if not group.rules.jumps:
            name = group.workings.deployment.model.name
            why = "is handed over only with vLLM's rules and one group of full attention"
            raise KvroomError("disaggregation", name, why, "Leave disaggregation out.")
    check_widths([group.workings.deployment.kv_name for group in groups])


def cold_start_ps(group: ReplicaGroup, start: ColdStart) -> int:
    """How long a new replica of ``group`` takes until it serves: reading its weights from their tier
    (all GPUs at once, ``latency.transfer``), plus a fixed number of seconds."""
    deployment = group.workings.deployment
    name = start.weights_from
    machine = Machine.standard(deployment.device, deployment.layout.gpus)
    load = transfer_s(machine, name, max(rank.weight_bytes for rank in deployment.ranks))
    if load is None:
        fix = f"One of: {', '.join(t for t in BELOW if machine.tier(t))}."
        raise KvroomError("fleet.start.weights_from", name, "is no tier of this machine", fix)
    return seconds_ps(load + start.fixed_s)


def is_managed(scenario: Scenario, groups: Sequence[ReplicaGroup]) -> bool:
    """Whether the replicas need a router that decides, or change over time, or differ from each other."""
    policy = (scenario.routing or Routing()).policy
    several = sum(group.replicas for group in groups) > 1
    special = bool(scenario.fleet and scenario.fleet.keys) or scenario.disaggregation is not None
    return (several and (policy != ROUTING_POLICIES[0] or shares(groups))) or special


def with_tiers(groups: Sequence[ReplicaGroup], feed: Feed) -> list[ReplicaGroup]:
    """``groups`` with the tiers that their Scenarios ask for."""
    common: Common = {}
    unit = feed.naming.unit if feed.naming else 1
    engines = sum(group.most for group in groups)
    made: list[ReplicaGroup] = []
    for group in groups:
        own = plant_of(
            group.workings, group.rules, group.clock, unit=unit, engines=engines, common=common
        )
        made.append(replace(group, plant=own))
    return made


def shares(groups: Sequence[ReplicaGroup]) -> bool:
    """Whether replicas have a tier in common."""
    return any(group.plant is not None and group.plant.shared for group in groups)


def managed(
    scenario: Scenario,
    groups: Sequence[ReplicaGroup],
    feed: Feed,
    limits: RequestLimits | None,
    *,
    on_over: Callable[[ServedRequest, int | None], None] | None,
    watch: Watch | None,
    seed: int,
) -> ManagedCluster:
    """``groups`` behind the routers that ``scenario`` asks for; failures are drawn by ``seed``."""
    split = scenario.disaggregation
    replicas: list[Replica] = []
    passage = passage_of([group for group in groups for _ in range(group.most)])
    outcome = ClusterOutcome(replicas, limits=limits, on_over=on_over, passage_ps=passage)
    routings = [scenario.routing or Routing(), *([split.routing] if split else [])]
    room = [
        group.blocks * group.rules.setup.groups[0].block_size
        for group in groups
        for _ in range(group.most)
    ]
    naming = feed.naming
    size = naming.unit * naming.block_tokens if naming else 1
    block = groups[0].rules.setup.groups[0].block_size
    routers = [Router(routing, room, size, block) for routing in routings]
    links = _links(split, groups) if split else None
    fleet: ManagedCluster

    def follow(request: ServedRequest, now: int) -> tuple[()]:
        fleet.after(request, now)
        return ()

    def makes(
        group: ReplicaGroup, router: Router, receives: bool
    ) -> Callable[[int], ServingEngine]:
        first, loop = len(replicas), group.loops()

        def make(place: int) -> ServingEngine:
            connector = (
                TransferConnector(links, place, fleet.release) if links and receives else None
            )
            together = loop(place - first)
            told = follow if feed.follows else None
            made = group.engine(
                outcome, feed, told, connector=connector, place=place, together=together
            )
            router.watch(place, made)
            return made

        return make

    for number, group in enumerate(groups):
        make = makes(group, routers[number if split else 0], receives=number == 1)
        for _ in range(group.most):
            replicas.append(
                Replica(
                    place=len(replicas),
                    make=make,
                    blocks=group.blocks,
                    cold_ps=group.cold_ps,
                    kind=group.workings.deployment.device.name,
                    gpus=group.gpus,
                    role=("prefill", "decode")[number] if split else "",
                )
            )
    if split:
        first = groups[0].most
        pools = [
            RoutedPool(replicas=part, router=router, begin=len(part))
            for part, router in zip((replicas[:first], replicas[first:]), routers, strict=True)
        ]
    else:
        dp = groups[0].workings.deployment.layout.dp
        scale = autoscale_of(scenario, groups[0].replicas, dp)
        begin = sum(group.replicas for group in groups)
        only = RoutedPool(replicas=replicas, router=routers[0], begin=begin)
        if scale is not None:
            batch = groups[0].rules.setup.config.max_num_batched_tokens
            only.scale = scaling_rule(scale, groups[0].clock, batch)
            only.least, only.most = scale.least, scale.most
            if scale.rule.grace_s is not None:
                only.grace_ps = seconds_ps(scale.rule.grace_s)
        pools = [only]
    fleet = ManagedCluster(
        pools,
        outcome,
        failures=failures_of(scenario, len(replicas), seed),
        linked=feed.follows,
        shares=shares(groups),
        links=links,
        watch=watch,
    )
    fleet.follow = feed.follow
    return fleet


def _links(split: Disaggregation, groups: Sequence[ReplicaGroup]) -> TransferLinks:
    """The links between the pools: as the Scenario says, else one network adapter for each GPU of the
    smaller pool."""
    rate = split.link_bytes_per_s
    if rate is None:
        rate = adapters_bytes_per_s(*(group.workings.deployment for group in groups))
    deployment = groups[1].workings.deployment
    each = fetched_bytes(deployment, 1)
    linear = fetched_bytes(deployment, FAR) == FAR * each

    def request_bytes(tokens: int) -> int:
        return tokens * each if linear else fetched_bytes(deployment, tokens)

    return TransferLinks(
        bytes_per_s=rate,
        latency_s=split.latency_s,
        layerwise=split.layerwise,
        layers=crossing_layers(deployment),
        request_bytes=request_bytes,
        longest_tokens=groups[1].rules.setup.config.max_model_len,
    )


BUSY = 0.9
"""A link that is busy for more of the time is what holds requests up."""


def fleet_warnings(fleet: Cluster, groups: Sequence[ReplicaGroup], last_ps: int) -> Iterator[str]:
    """Warnings about a fleet that has served its requests until ``last_ps``."""
    if not isinstance(fleet, ManagedCluster):
        return
    if fleet.links is not None:
        crossed = fleet.links.dict(last_ps / PS_PER_S)
        if crossed["link_busy"] > BUSY:
            yield (
                f"links of {show_rate(crossed['link_bytes_per_s'])} are busy "
                f"{crossed['link_busy']:.0%} of the time: requests wait for their cache to cross"
            )
    for group in groups:
        deployment = group.workings.deployment
        if (
            deployment.layout.dp > 1
            and deployment.model.active_params < deployment.model.params
            and not group.lockstep
        ):
            yield (
                f"the {deployment.layout.dp} data-parallel ranks of a mixture of experts step together; here "
                "each has a clock of its own (fleet.lockstep)"
            )
            return


def fleet_dict(fleet: ManagedCluster, seconds: float) -> dict[str, Any]:
    """What became of each replica and what happened to them, as plain values."""
    end = round(seconds * PS_PER_S)
    rows = []
    for replica in fleet.replicas:
        role = {"role": replica.role} if replica.role else {}
        rows.append(
            {
                "replica": replica.place,
                **role,
                "gpu": replica.kind,
                "gpus": replica.gpus,
                "requests": replica.requests,
                "completed": replica.completed,
                "prefix_hit_ratio": replica.cached_tokens / replica.prompt_tokens
                if replica.prompt_tokens
                else 0.0,
                "kv_blocks": {"total": replica.blocks, "peak": replica.peak_blocks},
                "cold_starts": replica.cold_starts,
                "failures": replica.failures,
                "there_s": replica.there_ps(end) / PS_PER_S,
            }
        )
    routing = fleet.pools[0].router.routing
    told: dict[str, Any] = {
        "routing": {
            "policy": routing.policy,
            "stale_s": routing.stale_s,
            **({"settings": routing.settings} if routing.settings else {}),
        },
        "retries": fleet.retries,
        "cold_starts": sum(replica.cold_starts for replica in fleet.replicas),
        "failures": sum(replica.failures for replica in fleet.replicas),
        "gpu_hours": sum(replica.there_ps(end) * replica.gpus for replica in fleet.replicas)
        / PS_PER_S
        / 3600,
        "replicas": rows,
        "timeline": [
            {"t_s": t.time_ps / PS_PER_S, "what": t.what, "replica": t.place} for t in fleet.history
        ],
    }
    if fleet.links is not None:
        told["transfers"] = fleet.links.dict(seconds)
    return told
