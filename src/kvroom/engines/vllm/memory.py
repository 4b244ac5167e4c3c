"""The ledger of one GPU: what of its memory vLLM gives to weights, overheads and cache.

``gpu_memory_utilization`` applies to all that the engine sees, not to what is free. Weights,
activations (the peak of a profiling run of one full batch) and runtime (what the driver, NCCL and
workspaces hold) come off it; since 0.20 so does an estimate of CUDA graph memory, which before lay
outside. The three overheads are estimates fitted to start-up logs people published, by the script
named in ``overheads.json``; what was measured (``known_bytes``) takes their place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import ceil, exp, hypot, log
from typing import Any

from kvroom.answer.plan import Account
from kvroom.engines import flags as read
from kvroom.engines.base import account
from kvroom.engines.encoders import encoder_band
from kvroom.engines.vllm.defaults import Batching
from kvroom.engines.vllm.graphs import captured
from kvroom.engines.vllm.setup import Setup
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank, most_experts
from kvroom.units import GIB

USUAL_SHAPES = 51
"""Sizes captured by default: what the fit counts from."""
Band = tuple[int, int, int]
"""(estimate, low, high) in bytes."""


@dataclass(frozen=True)
class Budget:
    """One rank's memory as the engine shares it out."""

    gpu_bytes: int
    requested_bytes: int
    weights: int
    beside: tuple[Account, ...]
    """What is loaded beside the weights: adapters, a draft model."""
    overheads: dict[str, Band]
    graphs_subtracted: bool
    taken_by_others: int

    @property
    def subtracted(self) -> tuple[Band, ...]:
        """The overheads that come off the cache."""
        left_in = () if self.graphs_subtracted else ("graphs",)
        return tuple(v for n, v in self.overheads.items() if n not in left_in)

    def cache_bytes(self, end: int = 0) -> int:
        """Bytes left for cache: as estimated, or at the low (-1) or high (1) end of its band.

        The overheads are off independently, so their bands add up as squares.
        """
        left = self.requested_bytes - self.weights - self.taken_by_others
        left -= sum(a.bytes for a in self.beside)
        left -= sum(middle for middle, _, _ in self.subtracted)
        if end < 0:
            return left - round(hypot(*(high - middle for middle, _, high in self.subtracted)))
        if end > 0:
            return left + round(hypot(*(middle - low for middle, low, _ in self.subtracted)))
        return left


def budget(s: Setup, rank: Rank, batch: Batching) -> Budget:
    """The ledger of ``rank`` before any cache is counted in blocks."""
    d, flags, rules = s.d, s.flags, s.rules
    known = d.known_bytes
    gpu = known.get("visible", d.device.engine_bytes)
    share = flags.utilisation if flags.utilisation is not None else rules.utilisation
    requested = ceil(gpu * share) if rules.whole_bytes else int(gpu * share)
    found = estimates(s, rank, batch)
    seeing = encoder_band(d.args, d.model, d.layout, batch.tokens) if rank.stage == 0 else None
    if seeing is not None and "activations" not in known:
        found["encoder"] = seeing
    for name in found:
        if name in known:
            found[name] = (known[name],) * 3
    free = known.get("free_before_load", gpu)
    return Budget(
        gpu_bytes=gpu,
        requested_bytes=requested,
        weights=known.get("weights", rank.weight_bytes),
        beside=d.extras.accounts(rank.stage),
        overheads=found,
        graphs_subtracted=_estimated(s) and graph_count(s, batch) > 0,
        taken_by_others=max(0, gpu - free) if not rules.start_snapshot else 0,
    )


@lru_cache(maxsize=1)
def _fitted() -> dict[str, Any]:
    text = files("kvroom.engines.vllm").joinpath("overheads.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def features(s: Setup, rank: Rank, batch: Batching) -> dict[str, float]:
    """What the overheads are lines in, as ``benchmarks/fit_overheads.py`` takes it from logs."""
    d = s.d
    return {
        "batch": log(batch.tokens / 2048),
        "weights": log(max(rank.weight_bytes, 1) / (8 * GIB)),
        "ranks": log(d.layout.gpus),
        "shapes": log(max(graph_count(s, batch), 1) / USUAL_SHAPES),
        "moe": float(most_experts(d.model) > 0),
    }


def estimates(s: Setup, rank: Rank, batch: Batching) -> dict[str, Band]:
    """Activations, runtime and graphs of ``rank``, each with an 80 % band.

    Where the engine takes its own estimate of the graphs off the cache, that estimate is meant, which
    runs above what the graphs come to.
    """
    x, kept = features(s, rank, batch), _fitted()
    made: dict[str, Band] = {}
    for name, fit in kept["accounts"].items():
        middle = fit["log_bytes"] + sum(c * x[k] for k, c in fit["slopes"].items())
        low, high = fit["low"], fit["high"]
        if name == "graphs" and _estimated(s):
            more = kept["graph_estimate"]
            middle += more["log_ratio"]
            low, high = -hypot(low, more["low"]), hypot(high, more["high"])
        made[name] = (
            round(exp(middle)),
            round(exp(middle + low)),
            round(exp(middle + high)),
        )
    if not graph_count(s, batch):
        made["graphs"] = (0, 0, 0)
    return made


def _estimated(s: Setup) -> bool:
    """Whether the engine estimates its graphs and takes that off the cache: not on ROCm."""
    return s.rules.graphs_subtracted and not s.platform.hip


def graph_count(s: Setup, batch: Batching) -> int:
    """CUDA graphs that are captured; 0 where they are off, or the device has none."""
    if s.flags.eager or not s.platform.graphs:
        return 0
    args = {read.plain_name(k): v for k, v in s.d.args.items()}
    return captured(args, batch.sequences, batch.tokens, s.flags.speculative_tokens)


def accounts(b: Budget, d: Deployment, given: int | None) -> tuple[Account, ...]:
    """The accounts of one GPU; they add up to ``gpu_bytes``. ``given``: the cache asked for outright."""
    known = d.known_bytes
    cache = max(0, b.cache_bytes() if given is None else given)
    over = [
        account(n, v[0], "measured" if n in known else "assumed", (v[1], v[2]))
        for n, v in b.overheads.items()
    ]
    low, high = cache, cache
    if given is None:
        low, high = max(0, b.cache_bytes(-1)), max(0, b.cache_bytes(1))
    spent = b.weights + sum(a.bytes for a in (*b.beside, *over)) + cache
    return (
        account("weights", b.weights, "measured" if "weights" in known else "config"),
        *b.beside,
        *over,
        account("kv", cache, "engine rule", (low, high)),
        account("unused", b.gpu_bytes - spent, "engine rule"),
    )
