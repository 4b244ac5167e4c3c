"""The arithmetic engine: no overhead, no pages, no rounding. What it gives is the ceiling itself."""

from __future__ import annotations

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.base import EngineAnswer, account
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.ledger import binding_rank, longest_context, room


def answer(d: Deployment) -> EngineAnswer:
    """Every byte of the card's catalogue size that is not weights is cache."""
    gpu = d.known_bytes.get("visible", d.device.catalogue_bytes)
    rank = binding_rank(d, gpu)
    weights = d.known_bytes.get("weights", rank.weight_bytes)
    left = gpu - weights - d.extras.loaded_bytes(rank.stage)
    cache = max(0, left)
    exact = room(d, rank, gpu)
    starts = left >= d.request_bytes(rank)
    lengths = longest_context(
        d.ranks, [max(0, gpu - d.loaded_bytes(r)) for r in d.ranks], d.kv, d.encoder_tokens
    )
    return EngineAnswer(
        rank=rank,
        gpu_bytes=gpu,
        accounts=(
            account("weights", weights, "measured" if "weights" in d.known_bytes else "config"),
            *d.extras.accounts(rank.stage),
            account("activations", 0, "assumed"),
            account("runtime", 0, "assumed"),
            account("graphs", 0, "assumed"),
            account("kv", cache, "engine rule"),
            account("unused", min(0, left), "engine rule"),
        ),
        kv_bytes=cache,
        capacity=EngineCapacity(
            kv_tokens=int(exact * d.context_tokens) if exact is not None else None,
            max_concurrency=float(exact) if exact is not None else None,
            max_context_tokens=lengths,
        ),
        starts=starts,
        reason="" if starts else "weights and one request need more than the card holds",
    )
