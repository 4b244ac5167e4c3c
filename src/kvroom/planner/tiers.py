"""The machine's tiers of memory in a Plan: each against the one above it, and what crossing them costs."""

from __future__ import annotations

from typing import Any

from kvroom.latency.transfer import crossings, ladder
from kvroom.planner.offload import holdings
from kvroom.planner.place import machine_of
from kvroom.planner.plan import Workings


def plan_json(w: Workings) -> dict[str, Any]:
    """The Plan as plain JSON values: its own keys, and the tiers below the GPU."""
    return {**w.plan.to_dict(), "tiers": tiers(w)}


def tiers(w: Workings) -> dict[str, Any]:
    """The machine's tiers, each against the one above it, and what crossing them costs."""
    d = w.deployment
    machine = machine_of(w.own, d.layout.gpus)
    tokens = w.asked_tokens
    found: dict[str, Any] = {
        "tiers": [
            {
                "name": r.tier.name,
                "bytes": r.tier.bytes,
                "bytes_per_s": r.tier.bytes_per_s,
                "latency_s": r.tier.latency_s,
                "times_larger": r.times_larger,
                "times_slower": r.times_slower,
                "source": str(r.tier.source),
            }
            for r in ladder(machine)
        ],
        "links": [{"name": k.name, "bytes_per_s": k.bytes_per_s} for k in machine.links],
    }
    if w.own.tiers:
        found["holds"] = holdings(w.own, d)
    if w.timing is not None:
        found["prompt_tokens"] = tokens
        found["recompute_s"] = w.timing.prefill_s(tokens)
        found["crossings"] = [
            {
                "name": c.tier.name,
                "load_weights_s": c.weights_s,
                "fetch_s": c.fetch_s,
                "crossover_tokens": c.crossover_tokens,
            }
            for c in crossings(machine, d, w.timing, tokens)
        ]
    return found
