"""What the page's figures draw beyond the Plan's own keys: derived here, so that no script of it computes.

``figures(workings)`` is plain JSON: ``traits`` (what is so of this answer), ``memory`` (all cards added
up, running and waiting requests), ``price`` (the factors of one token and every layer in order),
``step`` (the curve over batch sizes).
Bytes are ``int`` and summed over all GPUs unless the key says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from math import floor
from typing import Any

from kvroom.errors import KvroomError
from kvroom.latency.traffic import MAX_BATCH, compute_dtype
from kvroom.models import catalogue
from kvroom.models.kinds import FullAttention, HeadedAttention, LayerKind
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE
from kvroom.units import smallest

CURVE = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160,
         192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)  # fmt: skip
"""Batches at which the step's curve is drawn."""
MOST_RUNS = 400
"""Runs of equal layers that are sent; every published model has fewer."""


def figures(workings: Workings) -> dict[str, Any]:
    """The figures' data for one answered question."""
    bar = memory(workings)
    return {
        "traits": traits(workings, bar),
        "memory": bar,
        "price": price(workings),
        "step": step(workings),
    }


def traits(workings: Workings, bar: dict[str, Any]) -> list[str]:
    """What is so of this answer, by which the page chooses among sentences.

    ``over`` (what must be held is more than there is) or ``within``; of what is within, ``stopped`` (the
    engine refuses to start), ``free`` (requests store nothing), or ``room``: ``grows`` (length costs) or
    ``fixed``, and ``breaks`` (memory ends it) or ``capped`` (the engine runs no more at once).
    ``arithmetic`` or ``engine``;
    ``many`` cards; ``experts`` that are read as they are chosen; ``crosses`` (the cache read overtakes
    the weights at some batch) or ``level``; ``priced`` cards; room that is ``banded`` by estimates.
    """
    plan = workings.plan
    if bar["over_bytes"]:
        traits = ["over"]
    elif not workings.answer.starts:
        traits = ["within", "stopped"]
    elif not bar["request_bytes"]:
        traits = ["within", "free"]
    else:
        traits = ["within", "room", "grows" if plan.kv.bytes_per_token else "fixed"]
        traits.append("breaks" if bar["short_bytes"] else "capped")
    traits.append("arithmetic" if plan.scenario.engine == CEILING_ENGINE else "engine")
    traits += ["many"] if bar["gpus"] > 1 else []
    traits += ["experts"] if plan.weights.active_params < plan.weights.params else []
    traits.append("level" if plan.step.crossover_batch is None else "crosses")
    traits += ["priced"] if plan.cost.usd_per_user_hour is not None else []
    counted = plan.capacity.engine
    if counted and counted.low is not None and counted.low != counted.high and "room" in traits:
        traits.append("banded")
    return traits


def memory(workings: Workings) -> dict[str, Any]:
    """All cards as one bar, each counted as the one that binds.

    ``users`` are those asked for, or as many as have room; ``running`` of them have room, ``waiting``
    do not. ``left_bytes`` is what is left when full, ``free_bytes`` beside those running now,
    ``kept_bytes`` what the engine leaves alone. ``request_bytes`` is a request as the engine counts it,
    ``stored_bytes`` what it stores.
    """
    plan, deployment = workings.plan, workings.deployment
    gpus = deployment.layout.gpus
    room = workings.held if workings.answer.starts else 0
    pools = deployment.layout.dp * workings.answer.pools
    pool = plan.memory.kv_bytes * gpus
    each = stored = plan.kv.bytes_per_request_per_gpu * gpus // deployment.layout.dp
    counted = plan.capacity.engine.max_concurrency if plan.capacity.engine else None
    if counted and each:
        # As the engine counts: whole blocks, padding in.
        each = floor(pool / (pools * counted))
    if lengths := plan.capacity.of_lengths.requests:
        each = stored = floor(pool / lengths)
    asked = plan.scenario.concurrency
    users = (room or 0) if asked is None else asked
    running = users if room is None else min(users, room)
    left = pool - (room or 0) * each
    overheads = [
        account
        for account in plan.memory.accounts
        if account.name not in ("kv", "unused") and account.bytes
    ]
    used = sum(overhead.bytes for overhead in overheads)
    return {
        "gpus": gpus,
        "starts": workings.answer.starts,
        "total_bytes": plan.memory.gpu_bytes * gpus,
        "accounts": [
            {
                "name": overhead.name,
                "bytes": overhead.bytes * gpus,
                "low_bytes": overhead.low_bytes * gpus,
                "high_bytes": overhead.high_bytes * gpus,
                "source": overhead.source,
            }
            for overhead in overheads
        ],
        "weights_bytes": sum(overhead.bytes for overhead in overheads if overhead.name == "weights")
        * gpus,
        "kv_bytes": pool,
        "kept_bytes": max(0, plan.memory.gpu_bytes - used - plan.memory.kv_bytes) * gpus,
        "over_bytes": max(0, used - plan.memory.gpu_bytes) * gpus,
        "request_bytes": each,
        "stored_bytes": stored,
        "room": room,
        "users": users,
        "running": running,
        "waiting": users - running,
        "running_bytes": running * each,
        "free_bytes": pool - running * each,
        "left_bytes": left,
        "short_bytes": max(0, each - left // pools),
    }


def price(workings: Workings) -> dict[str, Any]:
    """One token's price: each kind of layer with its factors, and the layers in order.

    ``kinds[i]`` is one kind: ``layers`` of it, ``factors`` whose product times their ``bits`` / 8 is
    ``bytes_per_layer``, what it adds a token (``bytes_per_token``) and holds for one request. ``runs``
    are equal layers one after another, each naming its kinds by index.
    """
    deployment = workings.deployment
    stores = list(deployment.model.stores)
    index = {kind: index for index, (kind, _) in enumerate(stores)}
    runs = [
        {"kinds": [index[kind] for kind in layer.layer.stores], "layers": layer.count}
        for layer in deployment.model.layers
    ]
    return {
        "attention": _attention([kind for kind, _ in stores]),
        "kinds": [
            {
                "kind": kind.kind,
                "layers": count,
                "factors": [{"name": name, "value": value} for name, value in kind.factors()],
                "bits": kind.dtype_of(deployment.kv).bits,
                "scales": kind.dtype_of(deployment.kv).scale_bytes > 0,
                "window_tokens": kind.window_tokens,
                "bytes_per_layer": kind.entry_bytes(deployment.kv),
                "entry_bytes": kind.entry_bytes(deployment.kv) * count,
                "bytes_per_token": float(kind.growth(deployment.kv) * count),
                "bytes_per_request": kind.stored_bytes(
                    deployment.context_tokens, deployment.kv, deployment.encoder_tokens
                )
                * count,
                "sentence": kind.sentence(),
            }
            for kind, count in stores
        ],
        "runs": runs[:MOST_RUNS],
        "turns": _turns(workings),
        "times_8k_to_128k": _times(workings, 8192, 131072),
        "read_s": _read_s(workings),
    }


def _read_s(workings: Workings) -> float | None:
    """Seconds of the plan's step that go into reading one request's cache and state."""
    if workings.timing is None:
        return None
    terms, _ = workings.timing.step(workings.plan.step.batch, workings.plan.step.request_tokens)
    return terms.cache_s / workings.plan.step.batch


BITS = {"bf16": 16, "fp8": 8, "q4_0": 4}
"""The cache widths that can be turned to."""


def _turns(workings: Workings) -> dict[str, Any]:
    """What of the product can be turned, and to what: the cache's bits for every model; layers, heads
    and width of a plain one, each by its key in the ``config`` to ask with."""
    model, asked = workings.deployment.model, workings.plan.scenario.model
    turns: dict[str, Any] = {
        "bits": [{"value": value, "kv_dtype": name} for name, value in BITS.items()]
    }
    kinds = [kind for kind, _ in model.stores]
    own = asked.get("config") if isinstance(asked, dict) else _published(asked)
    config = own if isinstance(own, Mapping) else {}
    plain = kinds[0] if len(kinds) == 1 else None
    if not isinstance(plain, FullAttention) or "num_key_value_heads" not in config:
        return turns
    head = plain.k_dim
    return turns | {
        "config": {"head_dim": head, **config},
        "layers": {"key": "num_hidden_layers", "steps": list(range(1, 161))},
        "heads": {
            "key": "num_key_value_heads",
            "steps": [
                number for number in range(1, model.q_heads + 1) if model.q_heads % number == 0
            ],
        },
        "width": {"key": "head_dim", "steps": sorted({32, 64, 96, 128, 192, 256, head})},
    }


def _published(name: str) -> Mapping[str, Any]:
    try:
        return catalogue.config_of(name)
    except KvroomError:
        return {}


def _times(workings: Workings, short: int, long: int) -> float | None:
    """How many times more a request of ``long`` tokens stores than one of ``short``."""
    deployment = workings.deployment

    def stored(tokens: int) -> int:
        return sum(
            kind.stored_bytes(tokens, deployment.kv, deployment.encoder_tokens) * count
            for kind, count in deployment.model.stores
        )

    return stored(long) / stored(short) if stored(short) else None


def _attention(kinds: list[LayerKind]) -> str:
    """The family in the field's own letters: MHA, GQA, MQA, MLA, or hybrid of several kinds."""
    names = {kind.kind for kind in kinds} - {"shared", "indexer", "conv"}
    if len(names) > 1:
        return "hybrid"
    if names & {"latent", "compressed"}:
        return "MLA"
    heads = [(kind.kv_heads, kind.q_heads) for kind in kinds if isinstance(kind, HeadedAttention)]
    kv, q = max(heads, default=(0, 0))
    if not kv:
        return "none"
    return "MHA" if kv == q else "MQA" if kv == 1 else "GQA"


def step(workings: Workings) -> dict[str, Any]:
    """The decode step over batch sizes: bytes in all and for each token made.

    ``compute_batch`` is the smallest batch at which the cards' arithmetic takes longer than their
    memory at both peaks; None where the card's arithmetic is not stated or never does.
    """
    plan, traffic = workings.plan, workings.traffic
    tokens = plan.step.request_tokens
    moved = plan.step.bytes
    total = moved.weights + moved.kv + moved.state
    alone = traffic.step_bytes(1, tokens)
    alone_total = alone.weights + alone.kv + alone.state
    return {
        "total_bytes": total,
        "cache_bytes": moved.kv + moved.state,
        "bytes_per_output_token": total / plan.step.batch,
        "weight_bytes_per_output_token": moved.weights / plan.step.batch,
        "cache_bytes_per_output_token": (moved.kv + moved.state) / plan.step.batch,
        "alone_bytes": alone_total,
        "times_cheaper": alone_total * plan.step.batch / total if total else 1.0,
        "overtaken": moved.kv + moved.state >= moved.weights,
        "compute_batch": _compute_batch(workings),
        "compute_known": _peak(workings) is not None,
        "curve": [_point(workings, b) for b in takewhile(lambda b: b <= MAX_BATCH, CURVE)],
    }


def _point(workings: Workings, batch: int) -> dict[str, Any]:
    moved = workings.traffic.step_bytes(batch, workings.plan.step.request_tokens)
    cache = moved.kv + moved.state
    return {
        "batch": batch,
        "weight_bytes": moved.weights,
        "cache_bytes": cache,
        "bytes_per_output_token": (moved.weights + cache) / batch,
        "weight_bytes_per_output_token": moved.weights / batch,
        "cache_bytes_per_output_token": cache / batch,
    }


def _peak(workings: Workings) -> float | None:
    deployment = workings.deployment
    return deployment.device.flops(
        compute_dtype(deployment.weights.quantisation.linear, deployment.device)
    )


def _compute_batch(workings: Workings) -> int | None:
    deployment, traffic, peak = workings.deployment, workings.traffic, _peak(workings)
    if peak is None:
        return None
    tokens, rate = workings.plan.step.request_tokens, deployment.device.memory_bytes_per_s

    def computes(batch: int) -> bool:
        moved = traffic.step_bytes(batch, tokens)
        flops = traffic.decode_flops(batch, tokens)
        return flops * rate >= (moved.weights + moved.kv + moved.state) * peak

    return smallest(computes, MAX_BATCH)
