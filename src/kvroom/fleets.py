"""Scenario → the replicas that serve it: pools of their own hardware, rules for more and fewer of them,
failures.

``fleet`` of a Scenario is an object of these keys, each optional:

- ``pools``: replicas of their own hardware and layout in place of ``replicas``: each ``{"count": n, …}``
  with Scenario keys that differ (POOL_KEYS);
- ``autoscale``: ``{"min", "max", "every_s", "cool_down_s", "queue", "high", "low"}`` (``simulation.replicas``);
- ``failures``: ``{"at": [{"s", "replica"}], "mtbf_s", "repair_s"}``;
- ``start``: what a cold start takes: ``{"weights_from": "host"|"nvme"|"network", "seconds"}``, the
  weights' way from that tier plus so many seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.machines.machine import Machine
from kvroom.planning import Workings, work
from kvroom.scenario import Scenario, check_keys
from kvroom.simulation.bring import Bringer
from kvroom.simulation.engines import Played, played
from kvroom.simulation.extents import ExtentPool
from kvroom.simulation.feed import Feed, LiveHashes
from kvroom.simulation.fleet import Engine, Watch
from kvroom.simulation.levels import Common, Plant
from kvroom.simulation.live import Follow, Live
from kvroom.simulation.managed import Managed, Pool
from kvroom.simulation.outcome import Limits, Outcome
from kvroom.simulation.replicas import Autoscale, Failures, Ledger, Replica, seconds_ps
from kvroom.simulation.routing import POLICIES, Router, parse_routing
from kvroom.simulation.sequence import Sequence as Served
from kvroom.simulation.server import Server
from kvroom.simulation.stepper import Stepper
from kvroom.tiering import plant_of
from kvroom.timing.ticks import PS_PER_S, StepClock, step_clock
from kvroom.timing.tiers import BELOW, transfer_s
from kvroom.units import check_float, check_int

MAX_REPLICAS = 10_000
POOL_KEYS = (
    "gpu", "gpu_count", "tp", "pp", "dp", "ep", "dcp", "weight_dtype", "kv_dtype", "engine_args",
)  # fmt: skip
KEYS = ("pools", "autoscale", "failures", "start")
_LAYOUT = ("gpu_count", "tp", "pp", "dp", "ep", "dcp")


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
    plant: Plant | None = None

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
        bringer: Bringer | None = None,
        place: int = 0,
    ) -> Engine:
        """A new one with an empty cache: from event to event where its rules allow it, else step by
        step. ``place`` is its number among all; a ``bringer`` is in the place of tiers."""
        rules, engine = self.rules, self.rules.engine
        unit = feed.naming.unit if feed.naming else 1
        if rules.jumps:
            tiers = None if self.plant is None or bringer else self.plant.make(place)
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

        return Stepper(rules.rules(), self.clock, outcome, sequence, follow=follow)


def group_of(workings: Workings, replicas: int, most: int = 0) -> Group:
    """``replicas`` of a planned deployment; KvroomError where its engine would not start or no step can
    be timed."""
    d = workings.deployment
    rules = played(d, workings.answer)
    if workings.timing is None:
        fix = "Name a card of the catalogue, or give its flops_per_s."
        raise KvroomError("gpu", d.device.name, "has no known arithmetic rate: no times", fix)
    return Group(
        workings=workings,
        rules=rules,
        clock=step_clock(workings.timing.clock),
        replicas=replicas * d.layout.dp,
        most=max(replicas, most) * d.layout.dp,
    )


def groups_of(workings: Workings) -> list[Group]:
    """The replicas of a planned Scenario, pool by pool."""
    scenario = workings.plan.scenario
    asked = _fleet(scenario)
    if asked.get("pools") is None:
        scale = asked.get("autoscale") or {}
        first = check_int("replicas", scenario.replicas, low=1, high=MAX_REPLICAS)
        most = _count("fleet.autoscale.max", scale.get("max", first))
        groups = [group_of(workings, first, most)]
    else:
        groups = [
            group_of(work(own), count)
            for own, count in (
                pool_of(scenario, pool, f"fleet.pools[{n}]")
                for n, pool in enumerate(_list("fleet.pools", asked["pools"]))
            )
        ]
    same_blocks(groups, "fleet.pools")
    start = asked.get("start") or {}
    check_keys("fleet.start", start, ("weights_from", "seconds"))
    return [replace(g, cold_ps=cold_start_ps(g, start)) for g in groups]


def same_blocks(groups: Sequence[Group], field: str) -> None:
    """Refuse pools whose caches tell prompts apart in blocks of different sizes."""
    sizes = {g.rules.name_tokens for g in groups}
    if len(sizes) > 1:
        fix = "Give all pools the same engine, block_size and dcp."
        why = "are the tokens of a block in different pools"
        raise KvroomError(field, sorted(sizes), why, fix)


def pool_of(scenario: Scenario, given: Any, field: str) -> tuple[Scenario, int]:
    """The Scenario of one pool and how many replicas it has."""
    pool = _object(field, given)
    check_keys(field, pool, (*POOL_KEYS, "count"))
    count = _count(f"{field}.count", pool.get("count", 1))
    own = {key: value for key, value in pool.items() if key != "count"}
    base = scenario.to_dict() | {"replicas": 1, "fleet": None, "disaggregation": None}
    if set(own) & {"gpu", *_LAYOUT}:
        base = {k: v for k, v in base.items() if k not in _LAYOUT}
    if "engine_args" in own:
        own["engine_args"] = {**scenario.engine_args, **_object(field, own["engine_args"])}
    return Scenario.from_dict(base | own), count


def cold_start_ps(group: Group, start: Mapping[str, Any]) -> int:
    """Until a replica of ``group`` that starts serves: its weights from their tier (all GPUs at once,
    ``timing.tiers``), and so many seconds."""
    d = group.workings.deployment
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
    """Whether replicas need a router that decides, or come and go."""
    routing = parse_routing(scenario.routing)
    several = sum(g.replicas for g in groups) > 1
    routed = several and (routing.policy != POLICIES[0] or shares(groups))
    return routed or bool(_fleet(scenario))


def with_tiers(groups: Sequence[Group], feed: Feed) -> list[Group]:
    """``groups`` with the tiers that their Scenarios ask for."""
    common: Common = {}
    unit = feed.naming.unit if feed.naming else 1
    engines = sum(g.most for g in groups)
    return [
        replace(
            g,
            plant=plant_of(g.workings, g.rules, g.clock, unit=unit, engines=engines, common=common),
        )
        for g in groups
    ]


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
    """``groups`` behind the router that ``scenario`` asks for; failures are drawn by ``seed``."""
    asked = _fleet(scenario)
    replicas: list[Replica] = []
    ledger = Ledger(replicas, limits=limits, on_over=on_over)
    naming = feed.naming
    routing = parse_routing(scenario.routing)
    router = Router(
        routing,
        [g.blocks * g.rules.engine.groups[0].block_size for g in groups for _ in range(g.most)],
        naming.unit * naming.block_tokens if naming else 1,
    )
    fleet: Managed

    def follow(live: Live, now: int) -> Live | None:
        fleet.after(live, now)
        return None

    def makes(group: Group) -> Callable[[int], Engine]:
        def make(place: int) -> Engine:
            made = group.engine(ledger, feed, follow if feed.follows else None, place=place)
            if routing.policy == "prefix" and isinstance(made, Server):
                router.views[place].watch(made)
            return made

        return make

    for group in groups:
        d = group.workings.deployment
        for _ in range(group.most):
            replicas.append(
                Replica(
                    place=len(replicas),
                    make=makes(group),
                    blocks=group.blocks,
                    cold_ps=group.cold_ps,
                    kind=d.device.name,
                    gpus=group.gpus,
                )
            )
    ledger.tell = [None] * len(replicas)
    begin = sum(g.replicas for g in groups)
    scale = _autoscale(asked, groups)
    fleet = Managed(
        [Pool(replicas=replicas, router=router, begin=begin, scale=scale)],
        ledger,
        failures=_failures(asked, len(replicas), seed),
        linked=feed.follows or shares(groups),
        watch=watch,
    )
    fleet.follow = feed.follow
    return fleet


def _autoscale(asked: Mapping[str, Any], groups: Sequence[Group]) -> Autoscale | None:
    field, given = "fleet.autoscale", asked.get("autoscale")
    if given is None:
        return None
    keys = _object(field, given)
    check_keys(field, keys, ("min", "max", "every_s", "cool_down_s", "queue", "high", "low"))
    if len(groups) > 1:
        fix = "Give equal replicas (replicas in place of fleet.pools)."
        raise KvroomError(field, len(groups), "pools cannot be scaled by one rule", fix)
    dp = groups[0].workings.deployment.layout.dp
    if dp > 1:
        raise KvroomError(
            field, dp, "data-parallel ranks cannot be started one by one", "Set dp 1."
        )
    first = groups[0].replicas
    least = _count(f"{field}.min", keys.get("min", first))
    most = _count(f"{field}.max", keys.get("max", first))
    if least > most:
        raise KvroomError(f"{field}.min", least, f"is more than max, {most}", "Swap them.")
    if not least <= first <= most:
        why = f"is not between min, {least}, and max, {most}"
        raise KvroomError("replicas", first, why, "Begin with a count between them.")
    high, low = (
        check_float(f"{field}.{k}", keys.get(k, usual), low=0, high=1)
        for k, usual in (("high", 0.9), ("low", 0.3))
    )
    if low > high:
        raise KvroomError(f"{field}.low", low, f"is more than high, {high}", "Swap them.")
    return Autoscale(
        least=least,
        most=most,
        every_ps=_seconds(field, keys, "every_s", 15.0, least=1e-3),
        cool_down_ps=_seconds(field, keys, "cool_down_s", 60.0),
        queue=check_float(f"{field}.queue", keys.get("queue", 4.0), low=0, high=1e9),
        high=high,
        low=low,
    )


def _failures(asked: Mapping[str, Any], count: int, seed: int) -> Failures | None:
    field, given = "fleet.failures", asked.get("failures")
    if given is None:
        return None
    keys = _object(field, given)
    check_keys(field, keys, ("at", "mtbf_s", "repair_s"))
    at = []
    for n, one in enumerate(_list(f"{field}.at", keys["at"]) if "at" in keys else ()):
        where = f"{field}.at[{n}]"
        check_keys(where, _object(where, one), ("s", "replica"))
        place = check_int(f"{where}.replica", one.get("replica", 0), low=0, high=count - 1)
        at.append((_seconds(where, one, "s", 0.0), place))
    chance = keys.get("mtbf_s")
    return Failures(
        at=at,
        mtbf_ps=None if chance is None else _seconds(field, keys, "mtbf_s", 0.0, least=1e-3),
        repair_ps=_seconds(field, keys, "repair_s", 0.0),
        seed=seed,
    )


def fleet_dict(fleet: Managed, seconds: float) -> dict[str, Any]:
    """What became of each replica and what happened to them, as plain values."""
    end = round(seconds * PS_PER_S)
    rows = []
    for r in fleet.replicas:
        there = r.there_ps(end) / PS_PER_S
        rows.append(
            {
                "replica": r.place,
                "gpu": r.kind,
                "gpus": r.gpus,
                "requests": r.requests,
                "completed": r.completed,
                "prefix_hit_ratio": r.cached_tokens / r.prompt_tokens if r.prompt_tokens else 0.0,
                "kv_blocks": {"total": r.blocks, "peak": r.peak_blocks},
                "cold_starts": r.cold_starts,
                "failures": r.failures,
                "there_s": there,
            }
        )
    routing = fleet.pools[0].router.routing
    return {
        "routing": {"policy": routing.policy, "stale_s": routing.stale_s},
        "retries": fleet.retries,
        "cold_starts": sum(r.cold_starts for r in fleet.replicas),
        "failures": sum(r.failures for r in fleet.replicas),
        "gpu_hours": sum(row["there_s"] * row["gpus"] for row in rows) / 3600,
        "replicas": rows,
        "timeline": [
            {"t_s": t.time_ps / PS_PER_S, "what": t.what, "replica": t.place} for t in fleet.told
        ],
    }


def _fleet(scenario: Scenario) -> Mapping[str, Any]:
    if scenario.fleet is None:
        return {}
    given = _object("fleet", scenario.fleet)
    check_keys("fleet", given, KEYS)
    return given


def _object(field: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise KvroomError(field, value, "is not an object", "Write it in braces: {…}.")
    return value


def _list(field: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not value:
        raise KvroomError(field, value, "is not a list", "Write it in brackets, one or more.")
    return value


def _count(field: str, value: Any) -> int:
    return check_int(field, value, low=1, high=MAX_REPLICAS)


def _seconds(
    field: str, keys: Mapping[str, Any], key: str, usual: float, *, least: float = 0.0
) -> int:
    value = check_float(f"{field}.{key}", keys.get(key, usual), low=least, high=1e9, unit="seconds")
    return seconds_ps(value)
