"""The Plan's times: step, serving, cost, from what the model of steps says."""

from __future__ import annotations

from kvroom.answer import Cost, EngineCapacity, Serving, Step
from kvroom.machines.spec import Device
from kvroom.memory.deployment import Deployment
from kvroom.scenario import Workload
from kvroom.timing.estimate import Timing
from kvroom.timing.serving import Load, Times
from kvroom.timing.steps import Rates
from kvroom.timing.traffic import Traffic, compute_dtype
from kvroom.units import check_int

CHUNK_TOKENS = {"vllm": 8192, "sglang": 8192, "tensorrt-llm": 8192}
"""Prompt tokens that an engine computes in one step, unless it is told otherwise."""
CHUNK_FLAGS = ("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens")
DEFAULT_CHUNK_TOKENS = 8192


def rates_of(d: Deployment) -> Rates | None:
    """The peaks that the steps of ``d`` meet; None where the card's arithmetic is not known."""
    return Rates.of(d.device, compute_dtype(d.weights.quantisation.linear, d.device))


def load_of(w: Workload, d: Deployment, capacity: EngineCapacity | None) -> Load | None:
    """What ``w`` asks of the deployment; None where it states no lengths."""
    if w.input_tokens is None or w.output_tokens is None:
        return None
    users = w.concurrency or d.concurrency or 1
    slots = float(users)
    if capacity is not None and not w.static:
        if capacity.kv_tokens:
            held = w.input_tokens + w.output_tokens / 2
            slots = min(slots, max(1.0, capacity.kv_tokens / held) * d.layout.dp)
        if capacity.max_running_requests:
            slots = min(slots, capacity.max_running_requests * d.layout.dp)
    chunk = next((d.args[f] for f in CHUNK_FLAGS if isinstance(d.args.get(f), int)), None)
    return Load(
        input_tokens=w.input_tokens,
        output_tokens=w.output_tokens,
        users=users,
        slots=slots,
        chunk_tokens=check_int("engine_args.chunk", chunk, low=1, high=2**40)
        if chunk is not None
        else CHUNK_TOKENS.get(d.engine, DEFAULT_CHUNK_TOKENS),
    )


def step_of(traffic: Traffic, d: Deployment, timing: Timing | None, batch: int) -> Step:
    """One decode step of ``batch`` requests of ``context_tokens``: bytes, FLOPs, seconds."""
    tokens = d.context_tokens
    moved, flops = traffic.step_bytes(batch, tokens), traffic.decode_flops(batch, tokens)
    span = timing.step(batch, tokens)[1] if timing else None
    return Step(
        batch=batch,
        bytes=moved,
        flops=flops,
        seconds=span.seconds if span else None,
        seconds_low=span.low if span else None,
        seconds_high=span.high if span else None,
        bound=_bound(d, moved.weights + moved.kv + moved.state, flops),
        crossover_batch=traffic.crossover_batch(tokens),
        tokens_per_s=batch / span.seconds if span else None,
    )


def _bound(d: Deployment, moved: int, flops: int) -> str | None:
    """What a step waits for at the card's peak rates: its memory or its arithmetic."""
    peak = d.device.flops(compute_dtype(d.weights.quantisation.linear, d.device))
    if peak is None:
        return None
    return "memory" if moved / d.device.memory_bytes_per_s >= flops / peak else "compute"


def serving_of(
    timing: Timing | None, load: Load | None, *, static: bool
) -> tuple[Serving, Times | None]:
    """Times under the load; all None where nothing is asked or known."""
    if timing is None or load is None:
        return Serving(), None
    times = timing.served(load, static=static)
    tpot, ttft = timing.span("tpot", times.tpot_s), timing.span("ttft", times.ttft_s)
    return Serving(
        tpot_s=tpot.seconds,
        tpot_low_s=tpot.low,
        tpot_high_s=tpot.high,
        ttft_s=ttft.seconds,
        ttft_low_s=ttft.low,
        ttft_high_s=ttft.high,
        output_tokens_per_s=times.requests_per_s * load.output_tokens,
    ), times


def cost_of(device: Device, gpus: int, replicas: int, tokens_per_s: float | None) -> Cost:
    """Dollars an hour of all replicas, and for a million output tokens where one replica of ``gpus``
    makes ``tokens_per_s``."""
    if device.usd_per_hour is None:
        return Cost()
    hour = device.usd_per_hour * gpus
    each = hour / 3600 / tokens_per_s * 1e6 if tokens_per_s else None
    return Cost(usd_per_hour=hour * replicas, usd_per_million_output_tokens=each)
