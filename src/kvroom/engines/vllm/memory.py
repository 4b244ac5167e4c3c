"""The ledger of one GPU: what of its memory vLLM gives to weights, overheads and cache.

``gpu_memory_utilization`` applies to all that the engine sees, not to what is free. Weights as loaded, the
profiling run's peak, encoding and what is not PyTorch's come off it; since 0.20 so does an estimate of CUDA
graph memory, which before lay outside. What was measured (``known_bytes``) takes an account's place.
"""

from __future__ import annotations

from math import ceil, hypot

from kvroom.answer.plan import Account
from kvroom.engines.base import account
from kvroom.engines.vllm import graphs
from kvroom.engines.vllm.activations import peak
from kvroom.engines.vllm.defaults import Batching, on_v2_runner
from kvroom.engines.vllm.encoding import encoder_band
from kvroom.engines.vllm.loaded import band as loaded_band
from kvroom.engines.vllm.loaded import loaded
from kvroom.engines.vllm.runtime import Band, non_torch, outside
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank

PEAK_BAND = (0.98, 1.03)
"""The peak as printed over as reckoned: the 80 % band over models, with the experts' kernels and the
encoders that no formula has apart."""
SOURCES = {
    "activations": "engine rule",
    "encoder": "assumed",
    "runtime": "assumed",
    "graphs": "assumed",
}
"""Where an overhead's figure comes from: what is reckoned, and what is the median of starts."""
EXPERTS_BAND = (0.95, 1.12)
"""The same where experts are routed to."""


@dataclass(frozen=True)
class Budget:
    """One rank's memory as the engine shares it out.

    ``weights`` and ``overheads`` are (estimate, low, high); ``outside`` is what is gone before the engine
    takes its snapshot, no part of its share.
    """

    gpu_bytes: int
    requested_bytes: int
    weights: Band
    beside: tuple[Account, ...]
    """What is loaded beside the weights: adapters, a draft model."""
    overheads: dict[str, Band]
    graphs_subtracted: bool
    taken_by_others: int
    outside: Band = (0, 0, 0)

    @property
    def subtracted(self) -> tuple[Band, ...]:
        """What comes off the cache."""
        left_in = () if self.graphs_subtracted else ("graphs",)
        return (
            self.weights,
            *(value for key, value in self.overheads.items() if key not in left_in),
        )

    def cache_bytes(self, end: int = 0) -> int:
        """Bytes left for cache: as estimated, or at the low (-1) or high (1) end of its band.

        The accounts are off independently, so their bands add up as squares.
        """
        left = self.requested_bytes - self.taken_by_others
        left -= sum(a.bytes for a in self.beside)
        left -= sum(middle for middle, _, _ in self.subtracted)
        if end < 0:
            return left - round(hypot(*(high - middle for middle, _, high in self.subtracted)))
        if end > 0:
            return left + round(hypot(*(middle - low for middle, low, _ in self.subtracted)))
        return left


def budget(vllm_setup: VllmSetup, rank: Rank, batch: Batching) -> Budget:
    """The ledger of ``rank`` before any cache is counted in blocks."""
    d, flags, rules = vllm_setup.d, vllm_setup.flags, vllm_setup.rules
    known = d.known_bytes
    gpu = known.get("visible", d.device.engine_bytes)
    share = flags.utilisation if flags.utilisation is not None else rules.utilisation
    requested = ceil(gpu * share) if rules.whole_bytes else int(gpu * share)
    size = loaded(vllm_setup, rank)
    captures = graphs.captures(vllm_setup, batch)
    subtracted = estimates_graphs(vllm_setup) and captures.count > 0
    overheads = _overheads(vllm_setup, rank, batch)
    overheads["graphs"] = (
        graphs.estimated_bytes(vllm_setup, rank, captures)
        if subtracted
        else graphs.graph_bytes(vllm_setup, rank, captures)
    )
    if "activations" in known:
        overheads.pop("encoder", None)
    for name in overheads:
        if name in known:
            overheads[name] = (known[name],) * 3
    free = known.get("free_before_load", gpu)
    return Budget(
        gpu_bytes=gpu,
        requested_bytes=requested,
        weights=(known["weights"],) * 3 if "weights" in known else (size, *loaded_band(size)),
        beside=d.extras.accounts(rank.stage),
        overheads=overheads,
        graphs_subtracted=subtracted,
        taken_by_others=max(0, gpu - free) if not rules.start_snapshot else 0,
        outside=outside(vllm_setup),
    )


def _overheads(vllm_setup: VllmSetup, rank: Rank, batch: Batching) -> dict[str, Band]:
    """Activations, what encoding adds, and runtime of ``rank``, each with an 80 % band."""
    found = peak(vllm_setup, rank, batch)
    low, high = EXPERTS_BAND if vllm_setup.experts else PEAK_BAND
    made: dict[str, Band] = {
        "activations": (found.bytes, round(found.bytes * low), round(found.bytes * high)),
        "runtime": non_torch(vllm_setup),
    }
    seeing = encoder_band(vllm_setup, batch.tokens, found.bytes) if rank.stage == 0 else None
    if seeing is not None:
        made["encoder"] = seeing
    return made


def estimates_graphs(vllm_setup: VllmSetup) -> bool:
    """Whether the engine estimates its graphs and takes that off the cache: not on ROCm, and not on the
    V2 runner at first."""
    asked = vllm_setup.flags.estimates_graphs
    default = vllm_setup.rules.graphs_subtracted and (
        vllm_setup.rules.v2_estimates or not on_v2_runner(vllm_setup)
    )
    return (default if asked is None else asked) and not vllm_setup.platform.hip


def accounts(budget: Budget, deployment: Deployment, given: int | None) -> tuple[Account, ...]:
    """The accounts of one GPU; they add up to ``gpu_bytes``. ``given``: the cache asked for outright."""
    known = deployment.known_bytes
    cache = max(0, budget.cache_bytes() if given is None else given)
    over = [
        account(key, value[0], "measured" if key in known else SOURCES[key], (value[1], value[2]))
        for key, value in budget.overheads.items()
    ]
    low, high = cache, cache
    if given is None:
        low, high = max(0, budget.cache_bytes(-1)), max(0, budget.cache_bytes(1))
    size, least, most = budget.weights
    spent = size + sum(a.bytes for a in (*budget.beside, *over)) + cache
    return (
        account("weights", size, "measured" if "weights" in known else "config", (least, most)),
        *budget.beside,
        *over,
        account("kv", cache, "engine rule", (low, high)),
        account("unused", budget.gpu_bytes - spent, "engine rule"),
    )
