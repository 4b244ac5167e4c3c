"""The tiers of a machine, and what crossing them costs: loading weights, fetching cache back.

A transfer down the tiers goes through all that lie above it (NVMe through host memory and the host
link), each carrying it on while it still comes in, so the slowest part sets the time. What all GPUs
share carries all their bytes; the host link carries one GPU's. Fetching N tokens of cache grows with N,
recomputing them with N and N², so from some length on fetching is quicker, if the tier is fast enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from kvroom.hardware.device import Tier
from kvroom.hardware.node import Machine
from kvroom.latency.estimate import Timing
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.units import smallest

LONGEST = 2**24
"""No crossover is looked for beyond this many tokens."""
CACHE = "l2"
BELOW = ("host", "nvme", "network")
"""Tiers that hold what does not fit the device, from near to far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A tier against the one above it: how many times larger, how many times slower (None: unknown)."""

    tier: Tier
    times_larger: float | None
    times_slower: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What a tier costs the deployment: seconds to load all weights from it, to fetch one request's
    cache of ``tokens`` back, and the shortest length at which that beats recomputing (None: never)."""

    tier: Tier
    weights_s: float
    tokens: int
    fetch_s: float
    crossover_tokens: int | None


def ladder(machine: Machine) -> tuple[Rung, ...]:
    """The machine's tiers from fast to far, each against the one above it; the L2 cache holds what is in the
    device's memory anyway, so nothing is set against it."""
    rungs: list[Rung] = []
    above: Tier | None = None
    for tier in machine.tiers:
        rungs.append(
            Rung(
                tier=tier,
                times_larger=_ratio(tier.bytes, above.bytes if above else None),
                times_slower=_ratio(
                    above.bytes_per_s if above else None, reached(machine, tier.name)
                ),
            )
        )
        if tier.name != CACHE or above is None:
            above = tier
    return tuple(rungs)


def _ratio(large: float | None, small: float | None) -> float | None:
    return large / small if large and small else None


def reached(machine: Machine, name: str) -> float | None:
    """Bytes per second at which one GPU alone gets at the tier: its own rate, or what leads there."""
    tier = machine.tier(name)
    if tier is None or tier.bytes_per_s is None:
        return None
    rates = [tier.bytes_per_s]
    if name in BELOW and not machine.device.unified_memory:
        link = machine.device.host_link
        rates += [link.bytes_per_s] if link else []
    return min(rates)


def transfer_s(machine: Machine, name: str, gpu_bytes: float) -> float | None:
    """Seconds until each GPU has ``gpu_bytes`` from the tier ``name``, all GPUs at once; None where a
    rate is not known."""
    wanted = machine.tier(name)
    if wanted is None or wanted.bytes_per_s is None:
        return None
    times = []
    for tier in {t.name: t for t in (machine.tier("host"), wanted) if t is not None}.values():
        # The network tier is an adapter a GPU; host memory and NVMe are the machine's.
        moved = gpu_bytes * (1 if tier.name == "network" else machine.count)
        times.append(moved / tier.bytes_per_s if tier.bytes_per_s else 0.0)
    link = machine.device.host_link
    if link is not None and not machine.device.unified_memory:
        times.append(gpu_bytes / link.bytes_per_s)
    return (wanted.latency_s or 0.0) + max(times)


def crossings(
    machine: Machine, deployment: Deployment, timing: Timing, tokens: int
) -> tuple[Crossing, ...]:
    """What each tier below the device costs a deployment on ``machine``."""
    weights = max(rank.weight_bytes for rank in deployment.ranks)
    crossings_made: list[Crossing] = []
    stored, recompute = cache(partial(cache_bytes, deployment)), cache(timing.prefill_s)
    for name in BELOW:
        tier, fetch = machine.tier(name), partial(_fetch_s, machine, name, stored)
        load = transfer_s(machine, name, weights)
        if tier is not None and load is not None:
            crossings_made.append(
                Crossing(
                    tier=tier,
                    weights_s=load,
                    tokens=tokens,
                    fetch_s=fetch(tokens),
                    crossover_tokens=crossover(fetch, recompute),
                )
            )
    return tuple(crossings_made)


def _fetch_s(machine: Machine, name: str, stored: Callable[[int], int], tokens: int) -> float:
    return transfer_s(machine, name, stored(tokens)) or 0.0


def cache_bytes(deployment: Deployment, tokens: int) -> int:
    """What one request of ``tokens`` stores on the GPU that stores most of it."""
    return max(
        rank.request_bytes(tokens, deployment.kv, deployment.encoder_tokens)
        for rank in deployment.ranks
    )


def crossover(fetch: Callable[[int], float], recompute: Callable[[int], float]) -> int | None:
    """The shortest length from which ``fetch`` is no slower than ``recompute``; None up to LONGEST.

    A step has a fixed cost, so the very shortest prompts may be fetched sooner too, with longer ones
    between that are computed sooner: what counts is the last length that is.
    """
    last = 0
    for power in range(LONGEST.bit_length()):
        if fetch(2**power) > recompute(2**power):
            last = 2**power
    if last >= LONGEST:
        return None
    further = smallest(lambda n: fetch(last + n) <= recompute(last + n), max(1, last))
    return None if further is None else last + further
