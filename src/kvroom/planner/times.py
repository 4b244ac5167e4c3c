"""The Plan's times: step, serving, cost, from what the model of steps says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvroom.answer.plan import Cost, Serving, Step
from kvroom.engines.registry import engine_of
from kvroom.hardware.prices import in_words
from kvroom.latency import calibration
from kvroom.latency.disaggregation import Handed, PoolsUnderLoad
from kvroom.latency.estimate import Timing
from kvroom.latency.load import Load, Times, served
from kvroom.latency.own_points import drawn_to, place_of, points_for
from kvroom.latency.power import Draw, draw, parts_of, under_load
from kvroom.latency.step_time import Rates
from kvroom.latency.traffic import Traffic, compute_dtype
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.sharding.deployment import Deployment
from kvroom.units import show_rate, show_seconds

NOTED = 0.1
"""What published runs did unsaid is told where it changes the cache's rate by more (a logarithm)."""


def rates_of(deployment: Deployment) -> Rates | None:
    """The peaks that the steps of ``deployment`` meet; None where the card's arithmetic is not known."""
    linear = compute_dtype(deployment.weights.quantisation.linear, deployment.device)
    return Rates.of(
        deployment.device,
        linear,
        one_token_dispatch=engine_of(deployment.engine).one_token_dispatch,
        fills_stages=engine_of(deployment.engine).fills_stages,
        schedules_ahead=calibration.schedules_ahead(deployment),
    )


def timing_of(deployment: Deployment, scenario: Scenario) -> Timing | None:
    """The times of ``deployment``, drawn to the measurements of the calibration file where
    ``scenario`` has one;
    None where the card's arithmetic is not known."""
    rates = rates_of(deployment)
    if rates is None:
        return None
    timing = Timing.of(deployment, rates)
    if scenario.calibration is None:
        return timing
    workload = scenario.workload
    users = (workload and workload.concurrency) or scenario.concurrency or 1
    tokens = deployment.context_tokens
    if workload is not None and workload.input_tokens is not None:
        tokens = workload.input_tokens + (workload.output_tokens or 0) // 2
    points = points_for(scenario.calibration, deployment, scenario.model)
    return drawn_to(timing, points, place_of(users, tokens))


def notes_of(
    deployment: Deployment, timing: Timing | None, workload: Workload | None, load: Load | None
) -> tuple[str, ...]:
    """What the times take from published runs because the question does not say it; what they lack."""
    notes = []
    longest = load.longest_tokens if load is not None else 0
    if longest > deployment.context_tokens:
        notes.append(
            f"a request of the workload comes to {longest:,} tokens, and the longest may have"
            f" {deployment.context_tokens:,} (--context)"
        )
    if timing is None:
        if load is not None and deployment.model.generates:
            notes.append("no times: the card's arithmetic is not known (flops_per_s)")
        return tuple(notes)
    width = calibration.width_class(deployment.weights.quantisation.linear.name)
    narrow = timing.table["effects"].get(f"weights={width} cache=auto", {})
    if narrow.get("cache_eta", 0) > NOTED and calibration.unsaid_cache(deployment):
        notes.append(
            f"times are those of published runs with {width} weights, which mostly kept the cache in 8"
            " bits; say how wide it is for times of that width (--kv-dtype bf16)"
        )
    told = [name for name in ("input", "output") if workload is not None and workload.tells(name)]
    if load is None and len(told) == 1:
        missing = "output" if told == ["input"] else "input"
        notes.append(f"no times under load without workload.{missing}_tokens (--{missing}-tokens)")
    if load is not None and not load.static and calibration.unsaid_intake(deployment):
        engine = engine_of(deployment.engine)
        notes.append(
            f"the first token waits as in {engine.label}'s published runs, which took in requests every"
            " 10 to 30 steps; a server without that flag is quicker"
            f" (--engine-arg {engine.intake_flag}=1)"
        )
    return tuple(notes)


def step_of(
    traffic: Traffic, deployment: Deployment, timing: Timing | None, batch: int, tokens: int
) -> Step:
    """One decode step of ``batch`` requests of ``tokens`` tokens: bytes, FLOPs, seconds."""
    moved, flops = traffic.step_bytes(batch, tokens), traffic.decode_flops(batch, tokens)
    span = timing.step(batch, tokens)[1] if timing else None
    gained = sum((1.0, *deployment.speculation.kept)) if deployment.speculation else 1.0
    return Step(
        batch=batch,
        request_tokens=tokens,
        bytes=moved,
        flops=flops,
        seconds=span.seconds if span else None,
        seconds_low=span.low if span else None,
        seconds_high=span.high if span else None,
        bound=_bound(deployment, moved.weights + moved.kv + moved.state, flops),
        crossover_batch=traffic.crossover_batch(tokens),
        tokens_per_request=gained,
        tokens_per_s=batch * gained / span.seconds if span else None,
    )


def _bound(deployment: Deployment, moved: int, flops: int) -> str | None:
    """What a step waits for at the card's peak rates: its memory or its arithmetic."""
    peak = deployment.device.flops(
        compute_dtype(deployment.weights.quantisation.linear, deployment.device)
    )
    if peak is None:
        return None
    return "memory" if moved / deployment.device.memory_bytes_per_s >= flops / peak else "compute"


def _banded(
    first: Timing,
    second: Timing,
    times: Times | Handed,
    output_tokens: int,
    *,
    static: bool = False,
) -> Serving:
    """``times`` with the bands of those who give the first token, and the others."""
    tpot = second.span("whole" if static else "tpot", times.tpot_s)
    ttft = None if times.ttft_s is None else first.span("ttft", times.ttft_s)
    return Serving(
        tpot_s=tpot.seconds,
        tpot_low_s=tpot.low,
        tpot_high_s=tpot.high,
        ttft_s=ttft.seconds if ttft else None,
        ttft_low_s=ttft.low if ttft else None,
        ttft_high_s=ttft.high if ttft else None,
        ttft_engine_s=times.ttft_engine_s,
        ttft_front_end_s=times.front_end_s,
        ttft_start_s=times.start_s,
        output_tokens_per_s=times.requests_per_s * output_tokens,
        rests_on=second.rests_on("whole" if static else "tpot"),
    )


def serving_of(timing: Timing | None, load: Load | None) -> tuple[Serving, Times | None]:
    """Times under the load, and their parts; all None where nothing is asked or known."""
    if timing is None or load is None:
        return Serving(), None
    times = served(timing.clock, load)
    serving = _banded(timing, timing, times, load.output_tokens, static=load.static)
    if times.together_s:
        # A server's users do not stay in step for ever: the bands hold those who are spread, too.
        spread = served(timing.clock, replace(load, in_step=False), times.decoding)
        other = _banded(timing, timing, spread, load.output_tokens)
        serving = replace(
            serving,
            ttft_low_s=_least(serving.ttft_low_s, other.ttft_low_s),
            tpot_low_s=_least(serving.tpot_low_s, other.tpot_low_s),
            tpot_high_s=max(serving.tpot_high_s or 0.0, other.tpot_high_s or 0.0),
        )
    return serving, times


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def in_step_note(load: Load, times: Times) -> str:
    """That users keep in step, and what a first token then waits for."""
    wait = show_seconds(times.together_s)
    return (
        f"answers of {load.output_tokens:,} tokens each keep the users in step: their prompts come"
        f" together and a first token waits {wait} longer (output=uniform:LOW-HIGH spreads them)"
    )


USUAL_DRAW = Draw(low=0.4, share=0.7, high=1.0)
"""Where no time says what a card does."""


def cost_of(
    deployment: Deployment,
    replicas: int,
    step: Step,
    load: Load | None,
    times: Times | None,
    *,
    timing: Timing | None = None,
) -> Cost:
    """Money and energy at the plan's load, else at its step: dollars an hour of all replicas, for a
    million output and input tokens, and for an hour of one user; joules an output token by what the card
    draws for such steps, the band of the times in theirs."""
    output = step.tokens_per_s
    entering = users = None
    if load is not None and times is not None:
        output = times.requests_per_s * load.output_tokens
        entering = times.requests_per_s * load.input_tokens
        users = times.decoding if load.requests_per_s is not None else load.users
    elif output is not None:
        output, users = output * replicas, step.batch * replicas
    drawn = USUAL_DRAW
    if timing is not None:
        if load is not None and times is not None:
            parts = under_load(timing.clock, load, times)
            span = timing.span("whole" if load.static else "tpot", times.tpot_s)
        else:
            terms, span = timing.step(step.batch, deployment.context_tokens)
            parts = parts_of(terms)
        drawn = draw(parts, timing.table)
        low, share, high = drawn.widened(span.low, span.seconds, span.high)
        drawn = Draw(low=low, share=share, high=high)
    return price_of([(deployment, replicas)], output, entering, users, drawn)


def price_of(
    parts: Sequence[tuple[Deployment, int]],
    output: float | None,
    entering: float | None,
    users: float | None,
    draw: Draw = USUAL_DRAW,
) -> Cost:
    """Money and energy of so many copies of each deployment that together make ``output`` tokens a
    second, take in ``entering`` and serve ``users`` at once, each card drawing ``draw`` of its limit."""
    hours = [(d.device.usd_per_hour, d.layout.gpus * n) for d, n in parts]
    limits = [(d.device.tdp_w, d.layout.gpus * n) for d, n in parts]
    hour, watts = _summed(hours), _summed(limits)
    shares = (draw.low, draw.share, draw.high)
    joules = [watts * share / output if watts and output else None for share in shares]
    return Cost(
        usd_per_hour=hour,
        usd_per_million_output_tokens=_a_million(hour, output),
        usd_per_million_input_tokens=_a_million(hour, entering),
        usd_per_user_hour=hour / users if hour is not None and users else None,
        joules_per_output_token=joules[1],
        joules_per_output_token_low=joules[0],
        joules_per_output_token_high=joules[2],
        price_source="; ".join(dict.fromkeys(in_words(d.device) for d, _ in parts)),
    )


def _summed(each: Sequence[tuple[float | None, int]]) -> float | None:
    """The sum of figures times their counts; None where one is not known."""
    known = [value * count for value, count in each if value is not None]
    return sum(known) if len(known) == len(each) else None


def _a_million(usd_per_hour: float | None, tokens_per_s: float | None) -> float | None:
    if usd_per_hour is None or not tokens_per_s:
        return None
    return usd_per_hour / 3600 / tokens_per_s * 1e6


def handed_serving(
    first: Timing | None, second: Timing | None, pools: PoolsUnderLoad | None, times: Handed | None
) -> Serving:
    """The times of two pools: the first token by the first one's band, the others by the second's."""
    if first is None or second is None or pools is None or times is None:
        return Serving()
    return _banded(first, second, times, pools.decode.output_tokens)


def cost_of_pools(
    parts: Sequence[tuple[Deployment, int]],
    step: Step,
    pools: PoolsUnderLoad | None,
    times: Handed | None,
) -> Cost:
    """Money and energy of two pools at their load, else at the second one's step."""
    if pools is None or times is None:
        many = parts[1][1]
        output_tokens_per_s = None if step.tokens_per_s is None else step.tokens_per_s * many
        return price_of(
            parts,
            output_tokens_per_s,
            None,
            None if output_tokens_per_s is None else step.batch * many,
        )
    rate = times.requests_per_s
    users = times.decoding if pools.prefill.requests_per_s is not None else pools.prefill.users
    return price_of(
        parts, rate * pools.decode.output_tokens, rate * pools.prefill.input_tokens, users
    )


def pool_notes(pools: PoolsUnderLoad, times: Handed) -> Iterator[str]:
    """What speaks against two pools, with the numbers."""
    most = f"{pools.most:,.3g} requests a second"
    what = {"prefill": "the prefill pool", "link": "the links", "decode": "the decode pool"}
    if times.saturated:
        yield (
            f"more requests arrive than the pools can serve, {most} ({what[pools.binding]}):"
            " they queue without end"
        )
    if pools.binding == "link":
        yield (
            f"links of {show_rate(pools.link_bytes_per_s)} a replica hold up both pools at {most}:"
            f" {show_rate(pools.needed_bytes_per_s)} would not"
        )
