"""A deployment simulated: does what the closed form promises hold, and with how many replicas."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from kvroom.decisions.closed import Question, scenario_of
from kvroom.errors import KvroomError
from kvroom.planning import work
from kvroom.scenario import Scenario
from kvroom.simulating import serve

TRIES = 5
"""How often the number of replicas is raised before a deployment is given up."""
STEP = 1.15


def tried(unit: Mapping[str, Any]) -> dict[str, Any]:
    """A unit of work: the fewest replicas with which a simulation keeps to every objective.

    One replica is simulated under its share of the load. Gives what the last simulation measured, with
    ``met``; times are medians, since a closed loop begins with everybody at once.
    """
    question = Question(**unit["question"])
    demand = question.demand()
    row, keys = dict(unit["row"]), unit["keys"]
    users, first = row["users"] * row["replicas"], row["replicas"]
    found: dict[str, Any] = {}
    for attempt in range(TRIES):
        replicas = ceil(first * STEP**attempt) if attempt else first
        if found and (replicas == found["replicas"] or row["gpus"] // first * replicas > question.max_gpus):
            replicas = found["replicas"] + 1
            if row["gpus"] // first * replicas > question.max_gpus:
                break
        row |= {"replicas": replicas, "users": users / replicas}
        try:
            found = _simulated(question, keys, row)
        except KvroomError as e:
            return {"met": False, "why": f"{e.field} {e.message}", "replicas": replicas}
        free = demand.users is None and demand.requests_per_s is None
        if found["met"] or found["dropped"]:
            return found  # more replicas take no longer requests
        if free:
            first, users = 1, users * 0.8  # nothing has to be served: serve fewer
    return found


def _simulated(question: Question, keys: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    demand = question.demand()
    asked = scenario_of(question, keys, row).to_dict() | {"replicas": 1, "workload": None}
    made = work(Scenario.from_dict(asked))
    source = demand.requests(row["users"], row["replicas"])
    told = serve(made, source, slo=demand.slo).to_dict()
    slo = told.get("slo", {})
    return {
        "met": all(kept["met"] for kept in slo.values()) and not told["requests"]["dropped"],
        "slo": {name: kept["value_s"] for name, kept in slo.items()},
        "replicas": row["replicas"],
        "users": row["users"],
        "ttft_s": told["ttft_s"]["p50"],
        "tpot_s": told["tpot_s"]["p50"],
        "output_tokens_per_s": told["output_tokens_per_s"] * row["replicas"],
        "requests": told["requests"]["completed"],
        "dropped": told["requests"]["dropped"],
    }
