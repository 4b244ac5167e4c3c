"""Scenario → Plan: loads the model and the device, asks layout, engine and traffic, sums up.

``plan`` is the one call behind the command line, the page and the Python API. ``work`` returns its
intermediate objects too, for ``--explain`` and whoever wants to look inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, inf

from kvroom import engines
from kvroom.answer.plan import (
    Account,
    Cache,
    Capacity,
    Ceiling,
    LayerGroup,
    Memory,
    Plan,
    Pool,
    Pools,
    Room,
    Weights,
)
from kvroom.answer.verdict import Verdict
from kvroom.engines.base import EngineAnswer
from kvroom.engines.corrections import corrected
from kvroom.latency.disaggregation import (
    Handed,
    PoolsUnderLoad,
    adapters_bytes_per_s,
    crossing_layers,
    fetched_bytes,
)
from kvroom.latency.drafting import at_batch, traffic_of
from kvroom.latency.estimate import Timing
from kvroom.latency.load import Load, Times, held_per_s
from kvroom.latency.own_points import unused
from kvroom.latency.traffic import Traffic
from kvroom.planner.host import with_host
from kvroom.planner.layout import laid_out
from kvroom.planner.place import deploy
from kvroom.planner.times import (
    cost_of,
    cost_of_pools,
    handed_serving,
    in_step_note,
    notes_of,
    pool_notes,
    serving_of,
    step_of,
    timing_of,
)
from kvroom.planner.verdict import in_pool, judge, requests_held, with_speed
from kvroom.records import dataclass
from kvroom.scenario.cluster import Disaggregation
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.ledger import ceiling
from kvroom.units import GIB, MIB, ceil_div, show_memory


@dataclass(frozen=True, kw_only=True)
class Workings:
    """A Plan and what it was made from."""

    plan: Plan
    deployment: Deployment
    answer: EngineAnswer
    traffic: Traffic
    timing: Timing | None
    load: Load | None
    times: Times | None
    held: int | None
    """Whole requests that run at once, of the workload's lengths where it states any; None without limit."""
    beyond: tuple[str, ...] = ()
    """Those of the Plan's warnings that a simulation of the same Scenario answers."""
    split: Divided | None = None
    """The pools of a disaggregated Scenario, of whose second one replica is the deployment."""

    @property
    def own(self) -> Scenario:
        """The Scenario of ``deployment``: that of one replica of the second pool where there are pools."""
        return self.split.decode.plan.scenario if self.split else self.plan.scenario

    @property
    def asked_tokens(self) -> int:
        """The prompt's length where a workload says one, else the longest request's."""
        load = self.split.pools.prefill if self.split and self.split.pools else self.load
        return load.input_tokens if load else self.deployment.context_tokens


@dataclass(frozen=True, kw_only=True)
class Divided:
    """Two pools, each planned by itself, and how they serve a load together (None: nothing is timed)."""

    prefill: Workings
    decode: Workings
    pools: PoolsUnderLoad | None
    times: Handed | None


def plan(scenario: Scenario, *, paths: bool = True) -> Plan:
    """The answer to ``scenario``. Without ``paths`` only names and values are read, never files.

    Raises KvroomError for a question that cannot be asked (an unknown model, a layout that the model
    cannot be cut into …); a deployment that does not fit is an answer, not an error.
    """
    return work(scenario, paths=paths).plan


WIDE = 10
"""A band so many times as high as low says that nothing is known."""


def unknown_accounts(accounts: Sequence[Account]) -> tuple[str, ...]:
    """The names of the accounts whose band says that nothing is known of them."""
    return tuple(
        f"nothing is known of {account.name} here: {show_memory(account.low_bytes)} to "
        f"{show_memory(account.high_bytes)} "
        f"(measure it, and give it: known_bytes.{account.name})"
        for account in accounts
        if account.source == "assumed"
        and account.high_bytes > max(GIB, WIDE * max(account.low_bytes, MIB))
    )


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A Scenario's deployment, what its engine makes of it, and its times (None: not known)."""

    deployment: Deployment
    answer: EngineAnswer
    timing: Timing | None
    warnings: tuple[str, ...]

    @property
    def limit(self) -> Ceiling | None:
        """Requests by arithmetic alone."""
        deployment = self.deployment
        return (
            ceiling(deployment, self.answer.ceiling_bytes) if deployment.model.generates else None
        )


AskedEngine = Callable[[Deployment, EngineAnswer], EngineAnswer]
"""What an engine that was asked itself says, given what its rules here say."""


def place(scenario: Scenario, *, paths: bool = True, asked: AskedEngine | None = None) -> Placed:
    """The first half of ``work``: everything that the figures are computed from."""
    deployment, warnings = deploy(scenario, paths=paths)
    answer = engines.answer(deployment)
    if asked is not None:
        answer = asked(deployment, answer)
    if scenario.calibration is not None:
        deployment, answer, corrections = corrected(
            deployment, answer, scenario.calibration, scenario.model
        )
        warnings += corrections
        if idle := unused(scenario.calibration, deployment, scenario.model):
            warnings += (idle,)
    warnings += unknown_accounts(answer.accounts)
    if answer.context_tokens is not None:
        deployment = replace(deployment, context_tokens=answer.context_tokens)
    timing = timing_of(deployment, scenario) if deployment.model.generates else None
    return Placed(
        deployment=deployment,
        answer=answer,
        timing=timing and with_host(timing, deployment, answer),
        warnings=warnings + answer.warnings,
    )


def work(scenario: Scenario, *, paths: bool = True, asked: AskedEngine | None = None) -> Workings:
    """``plan`` with its intermediate objects; ``asked`` has the last word on what the engine makes of it."""
    scenario, chosen = laid_out(scenario, paths=paths)
    workings = _work(scenario, paths=paths, asked=asked)
    return replace(
        workings, plan=replace(workings.plan, warnings=(*chosen, *workings.plan.warnings))
    )


def _work(scenario: Scenario, *, paths: bool, asked: AskedEngine | None) -> Workings:
    if scenario.disaggregation is not None:
        return _divided(scenario, scenario.disaggregation, paths=paths)
    if scenario.routing is None and scenario.fleet is None:
        return _single(scenario, paths=paths, asked=asked)
    from kvroom.planner.pools import check_fleet  # few questions have one

    fleet = check_fleet(scenario)
    workings = _single(scenario, paths=paths, asked=asked)
    if not fleet:
        return workings
    keys, copies = ", ".join(fleet), scenario.replicas
    alone = "one copy of the deployment serves the workload alone"
    where = alone if copies == 1 else f"{copies:,} copies share the workload evenly"
    left = (f"{keys}: left out here, where {where}; kvroom simulate serves it by them",)
    unlike = workings.plan.warnings if copies > 1 or scenario.fleet is not None else ()
    unlike = tuple(note for note in unlike if note.startswith(QUEUE_WITHOUT_END))
    plan = replace(workings.plan, warnings=workings.plan.warnings + left)
    return replace(workings, plan=plan, beyond=left + unlike)


QUEUE_WITHOUT_END = "more requests arrive than the deployment can serve: they queue without end"


def _queue_note(timing: Timing, load: Load) -> str:
    """That the queue grows, and how many requests a second would have it end."""
    most = held_per_s(timing.clock, load)
    return f"{QUEUE_WITHOUT_END}; up to {most:.3g} requests a second do not"


def _single(
    scenario: Scenario, *, paths: bool, loaded: bool = True, asked: AskedEngine | None = None
) -> Workings:
    """One copy of a deployment; not ``loaded``: its workload is not timed."""
    placed = place(scenario, paths=paths, asked=asked)
    deployment, answer, timing = placed.deployment, placed.answer, placed.timing
    model, warnings, limit = deployment.model, placed.warnings, placed.limit
    workload = scenario.workload
    alone = shared = Room()
    if workload is not None:
        from kvroom.simulator.occupancy import expected_room  # where somebody comes, here and below

        alone, shared = expected_room(deployment, answer, workload)
    room = alone if shared.requests is None else shared
    verdict = judge(scenario, deployment, answer, limit, room)
    requests = requests_held(deployment, answer, limit, room)
    batch = scenario.replica_concurrency or max(1, int(requests or 0))
    answered = verdict.starts or scenario.allow_overcommit  # the time questions
    if requests and not scenario.allow_overcommit:
        batch = min(batch, requests)
    tokens = deployment.context_tokens
    if workload is not None:
        from kvroom.workloads.synthetic import decoding_tokens

        tokens = min(tokens, decoding_tokens(workload) or tokens)
    stepping = at_batch(deployment, batch)
    traffic = traffic_of(stepping)
    copies = scenario.replicas
    load = None
    if workload is not None and loaded:
        from kvroom.planner.load import kept_below, load_of

        load = load_of(workload, deployment, answer, shared, copies)
        load = load and kept_below(load, scenario, deployment)
    serving, times = serving_of(timing if answered else None, load)
    warnings += notes_of(deployment, timing, workload, load)
    if timing is not None and load is not None and times is not None and times.saturated:
        warnings += (_queue_note(timing, load),)
    if load is not None and times is not None and times.together_s:
        warnings += (in_step_note(load, times),)
    if deployment.speculation is not None and deployment.speculation.acceptance_assumed:
        rate = deployment.speculation.kept[0]
        warnings += (
            f"how many drafted tokens are kept is assumed: {rate:g} of them"
            " (speculation.acceptance_rate)",
        )
    step = step_of(traffic, stepping, timing if answered else None, batch, tokens)
    resolved = replace(scenario, context_tokens=deployment.context_tokens)
    plan = Plan(
        scenario=resolved,
        weights=Weights(
            params=model.params,
            active_params=model.active_params,
            mtp_params=model.mtp_params,
            bytes=deployment.weights.whole_bytes,
        ),
        kv=cache_of(deployment, answer),
        memory=Memory(
            gpu_bytes=answer.gpu_bytes, accounts=answer.accounts, kv_bytes=answer.kv_bytes
        ),
        capacity=Capacity(
            ceiling=limit,
            engine=answer.capacity,
            expected=alone,
            shared=shared,
        ),
        step=step,
        serving=serving,
        cost=cost_of(deployment, scenario.replicas, step, load, times, timing=timing),
        verdict=with_speed(verdict, deployment, answer, step),
        warnings=warnings,
    )
    return Workings(
        plan=plan,
        deployment=deployment,
        answer=answer,
        traffic=traffic,
        timing=timing,
        load=load,
        times=times,
        held=requests,
    )


def _divided(scenario: Scenario, split: Disaggregation, *, paths: bool) -> Workings:
    """Two pools: memory, requests and the step are those of one replica of the second, where requests
    stay; times, price and verdict are of both."""
    from kvroom.planner.load import load_of
    from kvroom.planner.pools import check_widths, pools_of, within

    (_, first, count), (_, second, others) = pools_of(scenario)
    with within("disaggregation.prefill"):
        prefill = _single(replace(first, concurrency=None), paths=paths, loaded=False)
    users = None if scenario.concurrency is None else ceil_div(scenario.concurrency, others)
    with within("disaggregation.decode"):
        decode = _single(replace(second, concurrency=users), paths=paths, loaded=False)
    one, two = prefill.deployment, decode.deployment
    check_widths((one.kv_name, two.kv_name))
    link = split.link_bytes_per_s
    if link is None:
        link = adapters_bytes_per_s(one, two)
    workload, warnings = scenario.workload, _both(prefill, decode)
    pools, times = None, None
    if workload is not None and prefill.timing is not None and decode.timing is not None:
        loads = [
            load_of(workload, x.deployment, x.answer, x.plan.capacity.shared)
            for x in (prefill, decode)
        ]
        if workload.static:
            warnings += ("one static batch is not timed in pools (kvroom simulate serves it)",)
        elif loads[0] is not None and loads[1] is not None:
            prompt, answer = (
                replace(load, users=workload.concurrency or 1) for load in loads if load
            )
            pools = PoolsUnderLoad(
                first=prefill.timing.clock.plain,
                second=decode.timing.clock,
                prefill=prompt,
                decode=answer,
                first_engines=count * one.layout.dp,
                second_engines=others * two.layout.dp,
                handed_bytes=fetched_bytes(two, prompt.input_tokens),
                link_bytes_per_s=link,
                latency_s=split.latency_s,
                layers=crossing_layers(two) if split.layerwise else 1,
                **prefill.timing.table["pools"],
            )
            times = pools.served()
    plan = decode.plan
    if pools is not None and times is not None:
        warnings += tuple(pool_notes(pools, times))
    pools_plan = Pools(
        prefill=_pool(prefill, count, pools.prefill_rate if pools else None),
        decode=_pool(decode, others, pools.decode_rate if pools else None),
        handed_bytes=pools.handed_bytes if pools else fetched_bytes(two, two.context_tokens),
        link_bytes_per_s=link,
        handover_s=times.handover_s if times else None,
        link_requests_per_s=pools.link_rate if pools and pools.occupied_s else None,
        needs_link_bytes_per_s=pools.needed_bytes_per_s if pools else None,
        binding=pools.binding if pools else None,
    )
    return replace(
        decode,
        plan=replace(
            plan,
            scenario=replace(scenario, context_tokens=two.context_tokens),
            serving=handed_serving(prefill.timing, decode.timing, pools, times),
            cost=cost_of_pools([(one, count), (two, others)], plan.step, pools, times),
            verdict=_verdict(prefill, decode),
            pools=pools_plan,
            warnings=warnings,
        ),
        split=Divided(prefill=prefill, decode=decode, pools=pools, times=times),
    )


def _both(prefill: Workings, decode: Workings) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*prefill.plan.warnings, *decode.plan.warnings)))


def _pool(workings: Workings, replicas: int, rate: float | None) -> Pool:
    rate = None if rate == inf else rate
    return Pool(
        gpu=workings.deployment.device.name,
        gpus=workings.deployment.layout.gpus,
        replicas=replicas,
        fits=workings.plan.verdict.fits,
        requests_per_s=rate,
    )


def _verdict(prefill: Workings, decode: Workings) -> Verdict:
    """The verdict of the second pool, where requests stay; that of the first pool where it does not
    fit."""
    binds, name = (decode, "decode") if prefill.plan.verdict.fits else (prefill, "prefill")
    return in_pool(binds.plan.verdict, name)


def cache_of(deployment: Deployment, answer: EngineAnswer) -> Cache:
    """What one request stores: in the whole model, counting each byte once, and on the rank that binds."""
    model, kv, tokens = deployment.model, deployment.kv, deployment.context_tokens
    growth = Fraction(0)
    whole = state = 0
    groups: dict[tuple[str, float], int] = {}
    for kind, count in model.stores:
        growth += kind.growth(kv) * count
        size = kind.stored_bytes(tokens, kv, deployment.encoder_tokens) * count
        whole += size
        if kind.recurrent:
            state += size
        key = (kind.kind, _number(kind.token_bytes(kv)))
        groups[key] = groups.get(key, 0) + count
    return Cache(
        bytes_per_token=ceil(growth),
        bytes_per_request=whole,
        state_bytes_per_request=state,
        bytes_per_token_per_gpu=ceil(answer.rank.token_bytes(kv)),
        bytes_per_request_per_gpu=deployment.request_bytes(answer.rank),
        layers=tuple(
            LayerGroup(kind=name, count=count, bytes_per_token=size)
            for (name, size), count in groups.items()
        ),
    )


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
