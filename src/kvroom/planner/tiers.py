"""The machine's tiers of memory in a Plan: each against the one above it, and what crossing them costs."""

from __future__ import annotations

from typing import Any

from kvroom.latency.transfer import crossings, ladder
from kvroom.planner.place import machine_of
from kvroom.planner.plan import Workings


def plan_json(workings: Workings) -> dict[str, Any]:
    """The Plan as plain JSON values: its own keys, and the tiers below the GPU."""
    return {**workings.plan.to_dict(), "tiers": tiers(workings)}


def tiers(workings: Workings) -> dict[str, Any]:
    """The machine's tiers, each against the one above it, and what crossing them costs."""
    deployment = workings.deployment
    machine = machine_of(workings.own, deployment.layout.gpus)
    tokens = workings.asked_tokens
    answer: dict[str, Any] = {
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
        "links": [{"name": link.name, "bytes_per_s": link.bytes_per_s} for link in machine.links],
    }
    if workings.own.tiers:
        from kvroom.planner.offload import holdings  # few questions have any

        answer["holds"] = holdings(workings.own, deployment)
    if workings.timing is not None:
        answer["prompt_tokens"] = tokens
        answer["recompute_s"] = workings.timing.prefill_s(tokens)
        answer["crossings"] = [
            {
                "name": crossing.tier.name,
                "load_weights_s": crossing.weights_s,
                "fetch_s": crossing.fetch_s,
                "crossover_tokens": crossing.crossover_tokens,
            }
            for crossing in crossings(machine, deployment, workings.timing, tokens)
        ]
    return answer
