"""What a workload demands of a deployment: the ``Load`` that the load model takes.

Where lengths vary, a few requests drawn from them represent all. Tokens that a later turn or a shared
prefix finds cached are not computed again. How many requests have room at once follows from the
engine's own paging (``occupancy``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, sqrt

from kvroom.answer.plan import Room
from kvroom.engines import served_by
from kvroom.engines.base import EngineAnswer
from kvroom.engines.serving_rules import ServingRules
from kvroom.errors import KvroomError
from kvroom.latency.clock import StepClock
from kvroom.latency.disaggregation import fetched_bytes
from kvroom.latency.load import CHUNK_TOKENS, Below, Length, Load, lengths_of
from kvroom.planner.place import machine_of
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.sharding.deployment import Deployment
from kvroom.simulator.occupancy import OFF, WIDE, blocks_of, held_blocks
from kvroom.units import check_int
from kvroom.workloads.distributions import Distribution, Fixed, Uniform
from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.sessions import as_graph, shared_tokens
from kvroom.workloads.synthetic import (
    SPREAD,
    TOGETHER,
    Session,
    Synthetic,
    drawn_sessions,
    of_workload,
)

SAMPLE, MOST_SAMPLED = 256, 1000
"""Requests that stand for lengths that differ: sessions, and as many as a simulation plays up to the most."""
EVENLY = (-0.8, -0.4, 0.0, 0.4, 0.8)
"""The middles of five parts of an even distribution from -1 to 1."""
STILL = StepClock(step_ps=0, request_ps=0, token_ps=0, prompt_ps=0, reaches=())
"""Where links are asked for their rates, and no step is taken."""
CHUNK_FLAGS = ("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens")


def load_of(
    workload: Workload, deployment: Deployment, answer: EngineAnswer, room: Room, replicas: int = 1
) -> Load | None:
    """The load of ``workload`` on ``replicas`` copies of ``deployment``, each of which holds ``room``
    requests at once; None where the workload states no lengths, or where all requests arrive at
    once."""
    if not (workload.tells("input") and workload.tells("output")):
        return None
    users = workload.concurrency or (deployment.concurrency or 1) * replicas
    if workload.static:
        if workload.input_tokens is None or workload.output_tokens is None:
            return None
        one = lengths_of(workload.input_tokens, workload.output_tokens)
        return Load(
            lengths=one,
            users=users,
            replicas=replicas,
            static=True,
            slots=room.requests or inf,
            chunk_tokens=chunk_tokens(deployment),
        )
    arriving = (
        workload.arrivals is not None
        or workload.requests_per_s is not None
        or workload.concurrency is not None
    )
    source = of_workload(workload if arriving else replace(workload, concurrency=users))
    return loaded(source, deployment, answer, room, replicas)


def chunk_tokens(deployment: Deployment) -> int:
    """Prompt tokens in a step: as the engine's flags say, else its usual number."""
    said = next(
        (
            deployment.args[chunk_flag]
            for chunk_flag in CHUNK_FLAGS
            if isinstance(deployment.args.get(chunk_flag), int)
        ),
        CHUNK_TOKENS,
    )
    return check_int("engine_args.chunk", said, low=1, high=2**40)


def loaded(
    source: Synthetic, deployment: Deployment, answer: EngineAnswer, room: Room, replicas: int = 1
) -> Load | None:
    """The load of the requests of ``source`` on ``replicas`` copies of ``deployment``, each of which
    holds ``room`` at once; None where all requests arrive at once."""
    source = source.within(deployment.context_tokens)
    arrivals, prefix = source.arrivals, source.prefix.tokens
    if arrivals.kind == "once":
        return None
    rules, depth = None, 0
    try:
        rules = served_by(deployment, answer)
        depth = rules.depth
        setup, ahead, apart = rules.setup, rules.steps_in_flight - 1, not rules.mixes
        budget = setup.config.max_num_batched_tokens
        block = setup.groups[0].block_size if setup.enable_prefix_caching else 0
    except KvroomError:  # it would not start, and is timed as if it did
        budget, ahead, block, apart = chunk_tokens(deployment), 0, 0, False
    think = thinking = 0.0
    sample: list[tuple[Length, Request]] = []
    alike = not source.chains and source.first is None
    if alike and all(map(_even, (source.input, source.output))):
        cached = prefix // block * block if block else 0
        lengths = tuple(
            replace(x, cached=cached, computed=x.computed + prefix - cached)
            for x in lengths_of(source.input.mean, source.output.mean, _factors(source))
        )
    else:
        many = SAMPLE if source.chains else min(max(SAMPLE, source.requests), MOST_SAMPLED)
        sessions = drawn_sessions(replace(source, requests=many, start=TOGETHER))
        kept = _kept_blocks(rules)
        sample = [x for session in sessions for x in _cached(session, prefix, block, kept)]
        lengths = tuple(length for length, _ in sample)
        think = sum(request.think_ps for _, request in sample) / len(sample) / PS_PER_S
        thinking = sum(request.think_ps > 0 for _, request in sample) / len(sample)
    load = Load(
        lengths=lengths,
        think_s=think,
        thinking_ratio=thinking,
        in_step=in_step(source),
        replicas=replicas,
        spread=source.start == SPREAD,
        chunk_tokens=budget,
        steps_ahead=ahead,
        depth=depth,
        apart=apart,
    )
    if rules is not None and any(length.own for length in lengths):
        requests = [request for _, request in sample]
        load = _in_cache(load, rules, requests, prefix, deployment.layout.dp)
    if room.requests is not None:
        # What room varies by as requests come and go; its band holds the closed form's own error, too.
        band = ((room.high or 0.0) - (room.low or 0.0)) / (2 * WIDE)
        deviation = sqrt(max(0.0, band**2 - (OFF * room.requests) ** 2) * replicas)
        load = replace(load, slots=room.requests * replicas, slots_deviation=deviation)
    if arrivals.users:
        return replace(load, users=arrivals.users)
    return replace(load, requests_per_s=arrivals.busiest_per_s * source.calls)


def kept_below(load: Load, scenario: Scenario, deployment: Deployment) -> Load:
    """The load with the blocks that tiers below the cache keep of ended requests, and how long it takes to
    bring them, where it has any. What is written through and stays is in the tier twice."""
    blocks = sum(length.blocks for length in load.lengths)
    if load.cache_blocks == inf or not scenario.tiers or not blocks:
        return load
    from kvroom.simulator.offload_tiers import Plant, sized  # few questions have tiers

    machine = machine_of(scenario, deployment.layout.gpus)
    tiers = sized(scenario.tiers, machine)
    plant = Plant(
        tiers=tiers,
        machine=machine,
        d=deployment,
        clock=STILL,
        block_tokens=1,
        unit=1,
        batch_tokens=load.chunk_tokens,
    )
    if not plant.block.once:
        return load  # nothing grows with every token
    tokens = [x.cached + x.computed + x.output for x in load.lengths]
    each = sum(fetched_bytes(deployment, n) for n in tokens) / blocks
    room, below = load.cache_blocks, []
    for tier, (latency_s, token_s) in zip(tiers, plant.fetching_s(), strict=True):
        own = inf if tier.bytes is None else tier.bytes / each * load.replicas
        if tier.bytes is None and tier.asked.times_gpu is not None:
            own = tier.asked.times_gpu * load.cache_blocks
        twice = tier.asked.inclusive and tier.asked.write != "back"
        room = max(room, own) if twice else room + own
        below.append(Below(blocks=room, latency_s=latency_s, token_s=token_s))
    return replace(load, below=tuple(below))


def in_step(source: Synthetic) -> bool:
    """Whether the users of a closed loop stay in step once they have met: all answers have the same
    length, and so do all pauses."""
    alike = (source.output, source.think, source.agent, source.tool)
    return bool(source.users) and not source.subagents and all(isinstance(x, Fixed) for x in alike)


def _even(lengths: Distribution) -> bool:
    return isinstance(lengths, Fixed | Uniform)


def _factors(source: Synthetic) -> tuple[float, ...]:
    """Lengths over their mean that stand for all, where both lengths vary alike."""
    wide = [x.high / x.mean - 1 for x in (source.input, source.output) if isinstance(x, Uniform)]
    return tuple(1 + max(wide) * f for f in EVENLY) if wide else (1.0,)


def _cached(
    session: Session, prefix: int, block: int, blocks: Callable[[int], float]
) -> Iterator[tuple[Length, Request]]:
    graph = as_graph(session)
    once = blocks(prefix) if prefix and blocks(1) != blocks(prefix) else 0.0
    gone = [inf] * len(graph.requests)  # until what comes next for a request's tokens
    for request, waits in zip(graph.requests, graph.after, strict=True):
        for w in waits:
            gone[w] = min(gone[w], request.think_ps / PS_PER_S)
    for request, waits, gone_s in zip(graph.requests, graph.after, gone, strict=True):
        said = max([prefix, *(shared_tokens(graph.requests[w], request) for w in waits)])
        cached = said // block * block if block else 0
        cached = min(cached, request.input_tokens - 1)
        length = Length(
            cached=cached,
            computed=request.input_tokens - cached,
            output=max(1, request.output_tokens),
            own=max(0, cached - prefix),
            away_s=request.think_ps / PS_PER_S,
            blocks=blocks(request.input_tokens + request.output_tokens) - once,
            gone_s=gone_s,
        )
        yield length, request


def _kept_blocks(rules: ServingRules | None) -> Callable[[int], float]:
    """Blocks that hold so many tokens; one slot for engines that keep slots."""
    if rules is None or rules.in_slots:
        return lambda tokens: 1.0
    groups = rules.setup.groups
    return lambda tokens: blocks_of(groups, tokens)


def _in_cache(
    load: Load, rules: ServingRules, sample: Sequence[Request], prefix: int, dp: int
) -> Load:
    """The load with the blocks in which ended requests leave their tokens to later turns: slots, or the
    cache's beside the shared prefix."""
    setup, replicas = rules.setup, load.replicas
    if rules.in_slots:
        slots = setup.config.max_num_seqs
        return replace(load, cache_blocks=slots * dp * replicas, running_blocks=1.0)
    once = blocks_of(setup.groups, prefix) if prefix else 0.0
    pairs = [(request.input_tokens, request.output_tokens) for request in sample]
    running, _ = held_blocks(setup, pairs, rules.steps_in_flight - 1, max(1, rules.depth))
    return replace(
        load,
        cache_blocks=max(0.0, setup.num_gpu_blocks - 1 - once) * dp * replicas,
        running_blocks=max(0.0, running - once),
    )
