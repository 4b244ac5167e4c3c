"""A deployment simulated: does what the closed form promises hold, and with how many replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from kvroom.errors import KvroomError
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.optimize.search.closed_form import Question, scenario_of
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario

TRIES = 5
"""How often the number of replicas is raised before a deployment is given up."""
MORE, FEWER = 1.15, 0.8
WAVES = 2
"""How many requests a user sends before times count."""


class SteadyTrial:
    """Times of requests that came ``after`` so many others."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.ttft_ps: list[float] = []
        self.tpot_ps: list[float] = []

    def __call__(self, request: ServedRequest, end_ps: int | None) -> None:
        """A request is over."""
        if end_ps is None or request.index < self.after:
            return
        self.ttft_ps.append(request.first_token_ps - request.arrival)
        tokens = request.final_tokens - request.num_prompt_tokens
        if tokens > 1:
            self.tpot_ps.append((end_ps - request.first_token_ps) / (tokens - 1))

    @staticmethod
    def mean_s(values_ps: Sequence[float]) -> float | None:
        """Their mean, in seconds; None where there is none."""
        return sum(values_ps) / len(values_ps) / PS_PER_S if values_ps else None


def tried(unit: Mapping[str, Any]) -> dict[str, Any]:
    """A unit of work: the fewest replicas with which a simulation keeps to every objective.

    One replica is simulated under its share of the load. Gives what the last simulation measured, with
    ``met``; the mean times leave the first waves out, since a closed loop begins with everybody at once.
    """
    question = Question(**unit["question"])
    found: dict[str, Any] = {}
    for replicas, users in _shares(unit["row"], question):
        row = {**unit["row"], "replicas": replicas, "users": users}
        try:
            found = _simulated(question, unit["keys"], row)
        except KvroomError as e:
            return {"met": False, "why": f"{e.field} {e.message}", "replicas": replicas}
        if found["met"] or found["dropped"]:
            break  # more replicas take no longer requests
    return found


def _shares(row: Mapping[str, Any], question: Question) -> Iterator[tuple[int, float]]:
    """(replicas, users on each) to try: the closed form's, then more replicas, or fewer users where
    nothing has to be served."""
    demand = question.demand()
    replicas, users, cards = row["replicas"], row["users"], row["gpus"] // row["replicas"]
    free = demand.users is None and demand.requests_per_s is None
    total = replicas * users
    for _ in range(TRIES):
        yield replicas, users
        if free:
            users = max(1.0, users * FEWER)
            continue
        replicas = max(replicas + 1, ceil(replicas * MORE))
        users = total / replicas
        if cards * replicas > question.max_gpus:
            return


def _simulated(
    question: Question, keys: Mapping[str, Any], row: Mapping[str, Any]
) -> dict[str, Any]:
    demand = question.demand()
    asked = scenario_of(question, keys, row).to_dict() | {"replicas": 1, "workload": None}
    made = work(Scenario.from_dict(asked))
    source = demand.requests(row["users"], row["replicas"])
    steady = SteadyTrial(after=WAVES * ceil(row["users"]))
    told = serve(made, source, slo=demand.slo, on_over=steady).to_dict()
    slo = told.get("slo", {})
    return {
        "met": all(kept["met"] for kept in slo.values()) and not told["requests"]["dropped"],
        "slo": {name: kept["value_s"] for name, kept in slo.items()},
        "replicas": row["replicas"],
        "users": row["users"],
        "ttft_s": steady.mean_s(steady.ttft_ps),
        "tpot_s": steady.mean_s(steady.tpot_ps),
        "output_tokens_per_s": told["output_tokens_per_s"] * row["replicas"],
        "requests": told["requests"]["completed"],
        "dropped": told["requests"]["dropped"],
    }
