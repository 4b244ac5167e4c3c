"""How the figures' derived numbers follow from the Plan's own, in the form of its explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvroom.answer.explanation import Explanation
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE

ASKED, DERIVED = "the question asked", "derived from the Plan"


def _made(
    figure: str,
    label: str,
    value: Any,
    unit: str,
    formula: str,
    *,
    numbers: str = "",
    source: str = DERIVED,
) -> Explanation | None:
    if value is None:
        return None
    return Explanation(
        figure=figure,
        label=label,
        value=value,
        unit=unit,
        formula=formula,
        numbers=numbers or (f"{value:,}" if isinstance(value, int | float) else str(value)),
        source=source,
    )


def explanations(w: Workings, data: dict[str, Any]) -> tuple[Explanation, ...]:
    """The explanations of every number that the page shows beside those of ``explain``."""
    found = (
        *_question(w),
        *_memory(w, data["memory"]),
        *_price(w, data["price"]),
        *_step(w, data["step"]),
    )
    return tuple(e for e in found if e is not None)


def _question(w: Workings) -> Iterator[Explanation | None]:
    s, d = w.plan.scenario, w.deployment
    yield _made(
        "scenario.context_tokens",
        "Longest request",
        s.context_tokens,
        "tokens",
        "as asked, else the model's own limit",
        source=ASKED,
    )
    yield _made(
        "kv.bytes_per_token_per_gpu",
        "Cache that one more token adds on the GPU that binds",
        w.plan.kv.bytes_per_token_per_gpu,
        "bytes",
        "its heads (at least one a layer), its stage's layers; latent vectors whole on each",
        source="config",
    )
    yield _made(
        "step.batch",
        "Requests in the step",
        w.plan.step.batch,
        "requests",
        "as many as asked, else as many as have room",
        source=ASKED if s.concurrency else DERIVED,
    )
    counted = w.plan.capacity.engine
    for key in ("low", "high"):
        yield _made(
            f"capacity.engine.{key}",
            f"Requests that the engine counts, {'fewest' if key == 'low' else 'most'} likely",
            getattr(counted, key, None),
            "requests a replica",
            "the same count at the other end of each estimated account",
            source="assumed",
        )
    yield _made(
        "cost.usd_per_user_hour",
        "Dollars an hour for each request's place",
        w.plan.cost.usd_per_user_hour,
        "US dollars",
        "dollars an hour / requests at once",
        source=str(d.device.source("usd_per_hour")),
    )
    price = w.plan.cost.usd_per_million_output_tokens
    yield _made(
        "cost.usd_per_million_output_tokens",
        "Dollars for a million tokens written",
        price,
        "US dollars",
        "dollars an hour / tokens an hour",
        source=str(d.device.source("usd_per_hour")),
    )


def _memory(w: Workings, m: dict[str, Any]) -> Iterator[Explanation | None]:
    plan, at = w.plan, "figures.memory."
    gpus, each = m["gpus"], f"{m['request_bytes']:,}"
    replica = gpus // w.deployment.layout.dp // w.answer.pools
    room = m["room"]
    cards = "cards × what the card that binds holds of it"
    yield _made(
        at + "total_bytes",
        "Memory of all cards",
        m["total_bytes"],
        "bytes",
        "cards × memory of one",
        numbers=f"{gpus} × {plan.memory.gpu_bytes:,}",
    )
    yield _made(
        at + "weights_bytes",
        "Weights on all cards",
        m["weights_bytes"],
        "bytes",
        cards,
        numbers=f"{gpus} × {m['weights_bytes'] // gpus:,}",
    )
    for i, a in enumerate(m["accounts"]):
        yield _made(
            f"{at}accounts.{i}.bytes",
            a["name"].capitalize(),
            a["bytes"],
            "bytes",
            cards,
            numbers=f"{gpus} × {a['bytes'] // gpus:,}",
            source=a["source"],
        )
    yield _made(
        at + "kv_bytes",
        "Room for cache on all cards",
        m["kv_bytes"],
        "bytes",
        "cards × what is left beside the rest",
        numbers=f"{gpus} × {plan.memory.kv_bytes:,}",
    )
    engine = plan.capacity.engine
    paged = w.deployment.engine != CEILING_ENGINE and engine is not None and engine.max_concurrency
    yield _made(
        at + "request_bytes",
        "One request, on all the cards that serve it",
        m["request_bytes"],
        "bytes",
        "room for cache / requests that the engine counts in it, blocks and padding in"
        if paged
        else "its bytes on one card × cards of a replica",
        numbers=f"{plan.memory.kv_bytes * replica:,} / {engine.max_concurrency:,}"
        if paged and engine
        else f"{plan.kv.bytes_per_request_per_gpu:,} × {replica}",
    )
    yield _made(
        at + "stored_bytes",
        "What a request stores, on all the cards that serve it",
        m["stored_bytes"],
        "bytes",
        "its bytes on one card × cards of a replica",
        numbers=f"{plan.kv.bytes_per_request_per_gpu:,} × {gpus // w.deployment.layout.dp}",
    )
    yield _made(
        at + "kept_bytes",
        "Kept free",
        m["kept_bytes"],
        "bytes",
        "cards × what the engine leaves alone on each",
        numbers=f"{gpus} × {m['kept_bytes'] // gpus:,}",
    )
    yield _made(
        at + "room",
        "Requests that fit",
        room,
        "requests",
        "what is left for cache / one request's bytes there, rounded down, × replicas",
        numbers=f"⌊{plan.memory.kv_bytes:,} / {plan.kv.bytes_per_request_per_gpu:,}⌋"
        f" × {w.deployment.layout.dp}"
        if w.deployment.engine == CEILING_ENGINE and m["request_bytes"]
        else "",
    )
    yield _made(
        at + "running",
        "Requests running",
        m["running"],
        "requests",
        "those asked for, as far as they fit",
        numbers=f"min({m['users']:,}, {room or m['users']:,})",
    )
    yield _made(
        at + "waiting",
        "Requests waiting",
        m["waiting"],
        "requests",
        "those asked for − those that fit",
        numbers=f"{m['users']:,} − {m['running']:,}",
    )
    yield _made(
        at + "free_bytes",
        "Not in use now",
        m["free_bytes"],
        "bytes",
        "room for cache − requests running × one request",
        numbers=f"{m['kv_bytes']:,} − {m['running']:,} × {each}",
    )
    yield _made(
        at + "left_bytes",
        "Left over when full",
        m["left_bytes"],
        "bytes",
        "room for cache − requests that fit × one request",
        numbers=f"{m['kv_bytes']:,} − {room or 0:,} × {each}",
    )
    yield _made(
        at + "short_bytes",
        "What the next request lacks",
        m["short_bytes"],
        "bytes",
        "one request − what is left over",
        numbers=f"{each} − {m['left_bytes']:,}",
    )
    yield _made(
        at + "over_bytes",
        "More than there is",
        m["over_bytes"],
        "bytes",
        "cards × (what must be held − memory of one)",
    )


def _price(w: Workings, p: dict[str, Any]) -> Iterator[Explanation | None]:
    at = "figures.price."
    yield _made(
        at + "times_8k_to_128k",
        "A request of 128K against one of 8K",
        p["times_8k_to_128k"],
        "times",
        "bytes stored at 131,072 tokens / at 8,192",
    )
    yield _made(
        at + "read_s",
        "One request's share of a step's reading",
        p["read_s"],
        "s",
        "cache and state read / (share reached × memory rate) / requests in the step",
        source="calibration: published measurements",
    )
    for i, kind in enumerate(p["kinds"]):
        key, words = f"{at}kinds.{i}.", f" ({kind['kind']})"
        yield _made(
            key + "layers",
            "Layers of this kind" + words,
            kind["layers"],
            "layers",
            "counted in the model's config",
            source="config",
        )
        for j, f in enumerate(kind["factors"]):
            yield _made(
                f"{key}factors.{j}.value",
                f["name"].capitalize() + words,
                f["value"],
                "",
                "read from the model's config",
                source="config",
            )
        yield _made(
            key + "bits",
            "Bits a number" + words,
            kind["bits"],
            "bits",
            "the cache's width, or the state's own",
            source=ASKED,
        )
        yield _made(
            key + "entry_bytes",
            "All layers of this kind, an entry" + words,
            kind["entry_bytes"],
            "bytes",
            "layers × numbers an entry × bits / 8",
            numbers=f"{kind['layers']:,} × {kind['bytes_per_layer']:,}",
            source="config",
        )


def _step(w: Workings, s: dict[str, Any]) -> Iterator[Explanation | None]:
    moved, batch, at = w.plan.step.bytes, w.plan.step.batch, "figures.step."
    yield _made(
        at + "total_bytes",
        "What the step moves",
        s["total_bytes"],
        "bytes",
        "weights + cache + state",
        numbers=f"{moved.weights:,} + {moved.kv:,} + {moved.state:,}",
    )
    yield _made(
        at + "cache_bytes",
        "Cache and state that the step moves",
        s["cache_bytes"],
        "bytes",
        "cache + state",
        numbers=f"{moved.kv:,} + {moved.state:,}",
    )
    yield _made(
        at + "bytes_per_output_token",
        "Bytes moved for each token written",
        s["bytes_per_output_token"],
        "bytes",
        "what the step moves / requests in it",
        numbers=f"{s['total_bytes']:,} / {batch:,}",
    )
    yield _made(
        at + "alone_bytes",
        "The same step for one request alone",
        s["alone_bytes"],
        "bytes",
        "weights + one request's cache and state",
    )
    yield _made(
        at + "times_cheaper",
        "Against one request alone",
        s["times_cheaper"],
        "times",
        "bytes a token alone / bytes a token in the batch",
        numbers=f"{s['alone_bytes']:,} / ({s['total_bytes']:,} / {batch:,})",
    )
    yield _made(
        at + "compute_batch",
        "Batch at which arithmetic outlasts memory",
        s["compute_batch"],
        "requests",
        "the smallest batch whose FLOP / peak FLOP/s reach its bytes / peak bytes/s",
        source=str(w.deployment.device.source("flops_per_s")),
    )
