"""Scenario → the replicas that serve it: pools of their own hardware behind routers, and what became of
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.hardware.node import Machine
from kvroom.kvcache.connector import Bringer
from kvroom.kvcache.extents import ExtentPool
from kvroom.kvcache.request import Sequence as Served
from kvroom.latency.clock import PS_PER_S, StepClock, step_clock
from kvroom.latency.disaggregation import adapters_bytes_per_s, crossing_layers, fetched_bytes
from kvroom.latency.transfer import BELOW, transfer_s
from kvroom.planner.offload import plant_of
from kvroom.planner.plan import Workings, work
from kvroom.planner.pools import (
    MAX_REPLICAS,
    Split,
    autoscale_of,
    check_widths,
    failures_of,
    fleet_keys,
    lockstep_of,
    object_of,
    pools_of,
    split_of,
    within,
)
from kvroom.scenario.scenario import Scenario, check_keys
from kvroom.simulator.cluster import Managed, Pool
from kvroom.simulator.engines import Played, played
from kvroom.simulator.event_engine import Server
from kvroom.simulator.feed import Feed, LiveHashes
from kvroom.simulator.fleet import Engine, Fleet, Watch
from kvroom.simulator.frames import Frame, Recording
from kvroom.simulator.handover import Receiver, Wire
from kvroom.simulator.live import Follow, Live
from kvroom.simulator.lockstep import Lockstep, Rank
from kvroom.simulator.loop import Stepper
from kvroom.simulator.metrics import Limits, Outcome
from kvroom.simulator.offload_tiers import Common, Plant
from kvroom.simulator.replicas import Ledger, Replica, seconds_ps
from kvroom.simulator.router import POLICIES, Router, parse_routing
from kvroom.units import check_float, check_int, show_rate

FAR = 2**20
"""A length at which a cache that does not grow with every token is found out."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Equal replicas: their deployment, the rules and the clock they go by, how many there are at first
    (``replicas``) and at most (data-parallel ranks counted), how long one takes to start, and its tiers."""

    workings: Workings
    rules: Played
    clock: StepClock
    replicas: int
    most: int
    cold_ps: int = 0
    lockstep: bool = False
    """Whether data-parallel ranks step together."""
    plant: Plant | None = None
    clocks: Mapping[int, StepClock] = field(default_factory=dict)
    """Those of steps with fewer drafts than ``clock`` has, by how many."""
    prompts_only: bool = False
    """Whether answers are generated elsewhere, so that nothing is ever drafted here."""

    @property
    def blocks(self) -> int:
        """Usable blocks of one."""
        return self.rules.engine.num_gpu_blocks - 1

    @property
    def gpus(self) -> int:
        """GPUs of one."""
        layout = self.workings.deployment.layout
        return layout.tp * layout.pp

    def engine(
        self,
        outcome: Outcome,
        feed: Feed,
        follow: Follow | None,
        *,
        bringer: Bringer | None = None,
        place: int = 0,
        together: Lockstep | None = None,
        tell: Callable[[Frame], None] | None = None,
    ) -> Engine:
        """A new one with an empty cache: from event to event where its rules allow it, else step by
        step, or ``together`` with others. ``place`` is its number among all; a ``bringer`` is in the
        place of tiers; ``tell`` is given a Frame a pass, of an engine that is then stepped."""
        rules, engine = self.rules, self.rules.engine
        unit = feed.naming.unit if feed.naming else 1
        tiers = None if self.plant is None or bringer else self.plant.make(place)
        drafts = engine.drafts is not None and not self.prompts_only
        if rules.jumps and together is None and tell is None and not drafts:
            return Server(
                engine.settings,
                ExtentPool(self.blocks, unit),
                self.clock,
                outcome,
                block_tokens=engine.groups[0].block_size,
                caching=engine.enable_prefix_caching,
                follow=follow,
                bringer=bringer or tiers,
                notices=tiers,
            )

        def sequence(live: Live) -> Served:
            served = Served(
                live.index,
                live.arrival_ps,
                live.prompt,
                live.total - live.prompt,
                hashes=LiveHashes(live, unit),
                priority=live.priority,
            )
            served.known = live.known
            return served

        if together is not None:
            return Rank(
                together,
                rules.rules(),
                self.clock,
                outcome,
                sequence,
                follow=follow,
                clocks=self.clocks,
            )
        if tell is not None:
            if rules.own is not None:
                fix = "Replay it with --engine vllm."
                why = "has rules of its own, without numbered blocks"
                raise KvroomError("engine", None, why, fix)
            return Recording(
                engine.scheduler(),
                self.clock,
                outcome,
                sequence,
                follow=follow,
                clocks=self.clocks,
                tell=tell,
            )
        return Stepper(
            rules.rules(),
            self.clock,
            outcome,
            sequence,
            follow=follow,
            clocks=self.clocks,
            unit=unit,
            bringer=bringer or tiers,
            notices=tiers,
        )


def passage_of(clocks: Sequence[StepClock]) -> Callable[[Live], int] | None:
    """What a request's prompt takes beyond its step in the pipeline of the engine that has it, ``clocks``
    being those of all engines by place; None where there is no pipeline."""
    if all(clock.stages == 1 for clock in clocks):
        return None
    return lambda live: clocks[live.place].passage_ps(live.prompt - live.cached_tokens)


def group_of(workings: Workings, replicas: int, most: int = 0) -> Group:
    """``replicas`` of a planned deployment; KvroomError where its engine would not start or no step can
    be timed."""
    d = workings.deployment
    rules = played(d, workings.answer)
    if workings.timing is None:
        fix = "Name a card of the catalogue, or give its flops_per_s."
        raise KvroomError("gpu", d.device.name, "has no known arithmetic rate: no times", fix)
    clock = workings.timing.clock
    fewer = {tokens for _, tokens in clock.drafting.schedule} if clock.drafting else ()
    return Group(
        workings=workings,
        rules=rules,
        clock=step_clock(clock),
        clocks={n: step_clock(clock.drafts(n)) for n in fewer},
        replicas=replicas * d.layout.dp,
        most=max(replicas, most) * d.layout.dp,
    )


def groups_of(workings: Workings) -> list[Group]:
    """The replicas of a planned Scenario, pool by pool; of a disaggregated one those that compute prompts
    come first."""
    scenario = workings.plan.scenario
    asked, split = fleet_keys(scenario), split_of(scenario)
    field = "fleet.pools"
    if split is not None:
        field = "disaggregation"
        pools = {f"{field}.{name}": getattr(split, name) for name in ("prefill", "decode")}
        groups = [_pool_group(name, *pool) for name, pool in pools.items()]
        groups[0] = replace(groups[0], prompts_only=True)
        _check_split(groups)
    elif "pools" in asked:
        owns = pools_of(scenario, asked["pools"])
        groups = [_pool_group(f"{field}[{n}]", *pool) for n, pool in enumerate(owns)]
        if "autoscale" in asked and len(groups) > 1:
            fix = "Give equal replicas (replicas in place of fleet.pools)."
            why = "pools cannot be scaled by one rule"
            raise KvroomError("fleet.autoscale", len(groups), why, fix)
    else:
        first = check_int("replicas", scenario.replicas, low=1, high=MAX_REPLICAS)
        scale = autoscale_of(asked, first, workings.deployment.layout.dp)
        groups = [group_of(workings, first, scale.most if scale else first)]
    sizes = {g.rules.name_tokens for g in groups}
    if len(sizes) > 1:
        fix = "Give all pools the same engine, block_size and dcp."
        raise KvroomError(field, sorted(sizes), "tokens are in a block, pool by pool", fix)
    start = asked.get("start") or {}
    together = lockstep_of(asked, [g.workings.deployment.layout.dp for g in groups])
    return [replace(g, cold_ps=cold_start_ps(g, start), lockstep=together) for g in groups]


def _pool_group(field: str, own: Scenario, count: int) -> Group:
    with within(field):
        return group_of(work(own), count)


def _check_split(groups: Sequence[Group]) -> None:
    for group in groups:
        if not group.rules.jumps:
            name = group.workings.deployment.model.name
            why = "is handed over only with vLLM's rules and one group of full attention"
            raise KvroomError("disaggregation", name, why, "Leave disaggregation out.")
    check_widths([g.workings.deployment.kv_name for g in groups])


def cold_start_ps(group: Group, start: Mapping[str, Any]) -> int:
    """Until a replica of ``group`` that starts serves: its weights from their tier (all GPUs at once,
    ``timing.tiers``), and so many seconds."""
    d = group.workings.deployment
    check_keys("fleet.start", object_of("fleet.start", start), ("weights_from", "seconds"))
    name = start.get("weights_from", "nvme")
    if name not in BELOW:
        fix = did_you_mean(str(name), BELOW, f"One of: {', '.join(BELOW)}.")
        raise KvroomError("fleet.start.weights_from", name, "is no tier that holds weights", fix)
    seconds = check_float("fleet.start.seconds", start.get("seconds", 0.0), low=0, high=1e6)
    machine = Machine.standard(d.device, d.layout.gpus)
    load = transfer_s(machine, name, max(r.weight_bytes for r in d.ranks))
    if load is None:
        fix = f"One of: {', '.join(t for t in BELOW if machine.tier(t))}."
        raise KvroomError("fleet.start.weights_from", name, "is no tier of this machine", fix)
    return seconds_ps(load + seconds)


def is_managed(scenario: Scenario, groups: Sequence[Group]) -> bool:
    """Whether replicas need a router that decides, or are not all alike for ever."""
    routing = parse_routing(scenario.routing)
    several = sum(g.replicas for g in groups) > 1
    special = bool(fleet_keys(scenario)) or split_of(scenario) is not None
    return (several and (routing.policy != POLICIES[0] or shares(groups))) or special


def with_tiers(groups: Sequence[Group], feed: Feed) -> list[Group]:
    """``groups`` with the tiers that their Scenarios ask for."""
    common: Common = {}
    unit = feed.naming.unit if feed.naming else 1
    engines = sum(g.most for g in groups)
    made: list[Group] = []
    for g in groups:
        own = plant_of(g.workings, g.rules, g.clock, unit=unit, engines=engines, common=common)
        if own is not None and g.lockstep:
            dp = g.workings.deployment.layout.dp
            why = "data-parallel ranks that step together are not simulated with tiers"
            raise KvroomError("tiers", dp, why, "Leave the tiers out, or set dp 1.")
        made.append(replace(g, plant=own))
    return made


def shares(groups: Sequence[Group]) -> bool:
    """Whether replicas have a tier in common."""
    return any(g.plant is not None and g.plant.shared for g in groups)


def managed(
    scenario: Scenario,
    groups: Sequence[Group],
    feed: Feed,
    limits: Limits | None,
    *,
    on_over: Callable[[Live, int | None], None] | None,
    watch: Watch | None,
    seed: int,
) -> Managed:
    """``groups`` behind the routers that ``scenario`` asks for; failures are drawn by ``seed``."""
    asked, split = fleet_keys(scenario), split_of(scenario)
    replicas: list[Replica] = []
    passage = passage_of([g.clock for g in groups for _ in range(g.most)])
    ledger = Ledger(replicas, limits=limits, on_over=on_over, passage_ps=passage)
    routings = [parse_routing(scenario.routing), *([split.routing] if split else [])]
    room = [g.blocks * g.rules.engine.groups[0].block_size for g in groups for _ in range(g.most)]
    naming = feed.naming
    size = naming.unit * naming.block_tokens if naming else 1
    routers = [Router(routing, room, size) for routing in routings]
    wire = _wire(split, groups) if split else None
    fleet: Managed

    def follow(live: Live, now: int) -> Live | None:
        fleet.after(live, now)
        return None

    def makes(group: Group, router: Router, receives: bool) -> Callable[[int], Engine]:
        dp = group.workings.deployment.layout.dp
        ranks: dict[int, Lockstep] = {}
        first = len(replicas)

        def make(place: int) -> Engine:
            bringer = Receiver(wire, place, fleet.release) if wire and receives else None
            together = (
                ranks.setdefault((place - first) // dp, Lockstep()) if group.lockstep else None
            )
            told = follow if feed.follows else None
            made = group.engine(ledger, feed, told, bringer=bringer, place=place, together=together)
            if router.routing.policy == "prefix" and isinstance(made, Server):
                router.views[place].watch(made)
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
            Pool(replicas=part, router=router, begin=len(part))
            for part, router in zip((replicas[:first], replicas[first:]), routers, strict=True)
        ]
    else:
        dp = groups[0].workings.deployment.layout.dp
        scale = autoscale_of(asked, groups[0].replicas, dp)
        begin = sum(g.replicas for g in groups)
        pools = [Pool(replicas=replicas, router=routers[0], begin=begin, scale=scale)]
    fleet = Managed(
        pools,
        ledger,
        failures=failures_of(asked, len(replicas), seed),
        linked=feed.follows,
        shares=shares(groups),
        wire=wire,
        watch=watch,
    )
    fleet.follow = feed.follow
    return fleet


def _wire(split: Split, groups: Sequence[Group]) -> Wire:
    """What connects the pools: as asked, or a network adapter a GPU, of the pool that has fewer."""
    rate = split.link_bytes_per_s
    if rate is None:
        rate = adapters_bytes_per_s(*(g.workings.deployment for g in groups))
    d = groups[1].workings.deployment
    each = fetched_bytes(d, 1)
    linear = fetched_bytes(d, FAR) == FAR * each

    def request_bytes(tokens: int) -> int:
        return tokens * each if linear else fetched_bytes(d, tokens)

    return Wire(
        bytes_per_s=rate,
        latency_s=split.latency_s,
        layerwise=split.layerwise,
        layers=crossing_layers(d),
        request_bytes=request_bytes,
        longest_tokens=groups[1].rules.engine.settings.max_model_len,
    )


BUSY = 0.9
"""A link that is busy for more of the time is what holds requests up."""


def fleet_warnings(fleet: Managed | Fleet, groups: Sequence[Group], last_ps: int) -> Iterator[str]:
    """What has to be said about a fleet that has served its requests until ``last_ps``."""
    if not isinstance(fleet, Managed):
        return
    if fleet.wire is not None:
        crossed = fleet.wire.dict(last_ps / PS_PER_S)
        if crossed["link_busy"] > BUSY:
            yield (
                f"links of {show_rate(crossed['link_bytes_per_s'])} are busy "
                f"{crossed['link_busy']:.0%} of the time: requests wait for their cache to cross"
            )
    for group in groups:
        d = group.workings.deployment
        if d.layout.dp > 1 and d.model.active_params < d.model.params and not group.lockstep:
            yield (
                f"the {d.layout.dp} data-parallel ranks of a mixture of experts step together; here "
                "each has a clock of its own (fleet.lockstep)"
            )
            return


def fleet_dict(fleet: Managed, seconds: float) -> dict[str, Any]:
    """What became of each replica and what happened to them, as plain values."""
    end = round(seconds * PS_PER_S)
    rows = []
    for r in fleet.replicas:
        role = {"role": r.role} if r.role else {}
        rows.append(
            {
                "replica": r.place,
                **role,
                "gpu": r.kind,
                "gpus": r.gpus,
                "requests": r.requests,
                "completed": r.completed,
                "prefix_hit_ratio": r.cached_tokens / r.prompt_tokens if r.prompt_tokens else 0.0,
                "kv_blocks": {"total": r.blocks, "peak": r.peak_blocks},
                "cold_starts": r.cold_starts,
                "failures": r.failures,
                "there_s": r.there_ps(end) / PS_PER_S,
            }
        )
    routing = fleet.pools[0].router.routing
    told: dict[str, Any] = {
        "routing": {"policy": routing.policy, "stale_s": routing.stale_s},
        "retries": fleet.retries,
        "cold_starts": sum(r.cold_starts for r in fleet.replicas),
        "failures": sum(r.failures for r in fleet.replicas),
        "gpu_hours": sum(r.there_ps(end) * r.gpus for r in fleet.replicas) / PS_PER_S / 3600,
        "replicas": rows,
        "timeline": [
            {"t_s": t.time_ps / PS_PER_S, "what": t.what, "replica": t.place} for t in fleet.told
        ],
    }
    if fleet.wire is not None:
        told["transfers"] = fleet.wire.dict(seconds)
    return told
