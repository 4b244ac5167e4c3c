"""How the figures' derived numbers follow from the Plan's own, in the form of its explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvroom.answer.figures import ACCOUNTS, Explanation, explained
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE


def explanations(workings: Workings, data: dict[str, Any]) -> tuple[Explanation, ...]:
    """The explanations of every number that the page shows beside those of ``explain``."""
    config = workings.deployment.model.source
    explanations_all = (
        *_memory(workings, data["memory"]),
        *_price(data["price"]),
        *_step(workings, data["step"]),
    )
    return tuple(
        replace(one, source=config) if one.source == "config" else one for one in explanations_all
    )


def _known(
    at: str, data: Mapping[str, Any], numbers: Mapping[str, str], **more: Any
) -> Iterator[Explanation]:
    """Of the figures ``at`` those that have a value; ``numbers`` is what each comes from, ``""`` itself."""
    for key, text in numbers.items():
        if data[key] is not None:
            yield explained(f"{at}{key}", data[key], numbers=text or None, **more)


def _memory(workings: Workings, m: dict[str, Any]) -> Iterator[Explanation]:
    plan, at = workings.plan, "figures.memory."
    gpus, dp = m["gpus"], workings.deployment.layout.dp
    each, kv = f"{m['request_bytes']:,}", f"{plan.memory.kv_bytes:,}"
    own = f"{plan.kv.bytes_per_request_per_gpu:,}"
    room = m["room"]
    ceiling = workings.deployment.engine == CEILING_ENGINE
    engine = plan.capacity.engine
    counted = None if ceiling or engine is None else engine.max_concurrency
    for index, a in enumerate(m["accounts"]):
        account = ACCOUNTS.get(a["name"], a["name"])
        numbers = {"bytes": f"{gpus} × {a['bytes'] // gpus:,}"}
        more = {"of": ("weights.bytes",)} if a["name"] == "weights" else {}
        yield from _known(
            f"{at}accounts.{index}.", a, numbers, source=a["source"], account=account, **more
        )
    replica = gpus // dp // workings.answer.pools
    if counted:
        formula = "room for cache / requests that the engine counts in it, blocks and padding in"
        numbers = {"request_bytes": f"{plan.memory.kv_bytes * replica:,} / {counted:,}"}
        yield from _known(at, m, numbers, formula=formula)
    else:
        yield from _known(at, m, {"request_bytes": f"{own} × {replica}"})
    yield from _known(
        at,
        m,
        {
            "total_bytes": f"{gpus} × {plan.memory.gpu_bytes:,}",
            "weights_bytes": f"{gpus} × {m['weights_bytes'] // gpus:,}",
            "kv_bytes": f"{gpus} × {kv}",
            "stored_bytes": f"{own} × {gpus // dp}",
            "kept_bytes": f"{gpus} × {m['kept_bytes'] // gpus:,}",
            "room": f"⌊{kv} / {own}⌋ × {dp}" if ceiling and m["request_bytes"] else "",
            "running": f"min({m['users']:,}, {room or m['users']:,})",
            "waiting": f"{m['users']:,} − {m['running']:,}",
            "free_bytes": f"{m['kv_bytes']:,} − {m['running']:,} × {each}",
            "left_bytes": f"{m['kv_bytes']:,} − {room or 0:,} × {each}",
            "short_bytes": f"{each} − {m['left_bytes']:,}",
            "over_bytes": "",
        },
    )


def _price(p: dict[str, Any]) -> Iterator[Explanation]:
    at = "figures.price."
    yield from _known(at, p, {"times_8k_to_128k": "", "read_s": ""})
    for index, k in enumerate(p["kinds"]):
        key, kind = f"{at}kinds.{index}.", k["kind"]
        for one_index, f in enumerate(k["factors"]):
            where = f"{key}factors.{one_index}."
            yield from _known(where, f, {"value": ""}, factor=f["name"], kind=kind)
        bytes_from = f"{k['layers']:,} × {k['bytes_per_layer']:,}"
        yield from _known(key, k, {"layers": "", "bits": "", "entry_bytes": bytes_from}, kind=kind)


def _step(workings: Workings, s: dict[str, Any]) -> Iterator[Explanation]:
    moved, batch, at = workings.plan.step.bytes, workings.plan.step.batch, "figures.step."
    total = f"{s['total_bytes']:,}"
    yield from _known(
        at,
        s,
        {
            "total_bytes": f"{moved.weights:,} + {moved.kv:,} + {moved.state:,}",
            "cache_bytes": f"{moved.kv:,} + {moved.state:,}",
            "bytes_per_output_token": f"{total} / {batch:,}",
            "alone_bytes": "",
            "times_cheaper": f"{s['alone_bytes']:,} / ({total} / {batch:,})",
        },
    )
    source = str(workings.deployment.device.source("flops_per_s"))
    yield from _known(at, s, {"compute_batch": ""}, source=source)
