"""A deployment simulated: does what the closed form promises hold, and with how many replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from kvroom.distributed.processes import lent
from kvroom.errors import KvroomError
from kvroom.optimize.search.closed_form import Question, scenario_of
from kvroom.optimize.search.played import PlayedTrace
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.requests import Request
from kvroom.workloads.synthetic import of_workload

TRIES = 5
"""How often fewer users, or larger pools, are tried before a deployment is given up."""
MORE, FEWER = 1.15, 0.8

Trial = dict[str, Any]


def tried(unit: Mapping[str, Any]) -> Trial:
    """A unit of work: what the last simulation of a deployment measured, of all its replicas under the whole
    load, with ``met`` and the number of ``runs``.

    ``least`` replicas or more are tried, at first ``first``, at most ``most``; the one told is the smallest
    number that meets every objective, of which one less was simulated too and does not.
    """
    question, keys = Question(**unit["question"]), unit["keys"]
    demand = question.demand()
    try:
        if demand.free:
            return _with_users(question, keys, unit["users"])
        if question.replicas is not None:
            return simulated(question, keys, question.replicas) | {"runs": 1}
        if keys.get("disaggregation"):
            return _with_pools(question, keys, unit)
        return _fewest(
            lambda n: simulated(question, keys, n), unit["least"], unit["first"], unit["most"]
        )
    except KvroomError as error:
        why = f"{error.field} {error.message}"
        return {"met": False, "why": why, "replicas": unit["first"], "runs": 0}


def _fewest(run: Callable[[int], Trial], least: int, first: int, most: int) -> Trial:
    runs: dict[int, Trial] = {}

    def meets(n: int) -> bool:
        runs[n] = run(n)
        return bool(runs[n]["met"])

    n, failed = min(max(first, least), most), least - 1
    while not meets(n):
        failed = n
        if n == most or runs[n]["dropped"]:  # more replicas take no longer requests
            return runs[n] | {"runs": len(runs)}
        n = min(most, max(n + 1, ceil(n * MORE)))
    while n - failed > 1:
        middle = (n + failed) // 2
        n, failed = (middle, failed) if meets(middle) else (n, middle)
    while n > 1 and n - 1 not in runs and meets(n - 1):  # the bound itself is put to the proof
        n -= 1
    return runs[n] | {"runs": len(runs)}


def _with_users(question: Question, keys: Mapping[str, Any], users: float) -> Trial:
    for number in range(TRIES):
        row = simulated(question, keys, 1, users) | {"runs": number + 1}
        if row["met"] or row["dropped"]:
            break
        users = max(1.0, users * FEWER)
    return row


def _with_pools(question: Question, keys: Mapping[str, Any], unit: Mapping[str, Any]) -> Trial:
    """Two pools, of which the one that fails is enlarged, as long as both cost less than the ``budget``; up
    to ``most`` replicas together."""
    split, usd, budget = keys["disaggregation"], unit.get("pool_usd"), unit.get("budget")
    pools = {name: split[name]["count"] for name in ("prefill", "decode")}
    for number in range(TRIES):
        sized = {name: {**split[name], "count": value} for name, value in pools.items()}
        here = {**keys, "disaggregation": sized}
        row = simulated(question, here, 1) | {"runs": number + 1, "pools": dict(pools)}
        if row["met"] or row["dropped"]:
            break
        over = {o.metric for o in question.demand().slo if (row["slo"][o.name] or 0) > o.limit_s}
        more = "prefill" if over == {"ttft"} else "decode"
        larger = {**pools, more: pools[more] + 1}
        if usd and budget is not None:
            if sum(usd[name] * value for name, value in larger.items()) >= budget:
                break
        elif sum(larger.values()) > unit["most"]:
            break
        pools = larger
    return row


def simulated(
    question: Question, keys: Mapping[str, Any], replicas: int, users: float | None = None
) -> Trial:
    """What ``kvroom simulate`` answers of so many replicas under the whole load."""
    demand = question.demand()
    scenario, source, linked = loaded(question, scenario_of(question, keys, replicas, users))
    workings = work(scenario)
    figures = serve(workings, source, slo=demand.slo, linked=linked).to_dict()
    endless = question.trace is None and workings.plan.serving.ttft_s is None
    slo = figures.get("slo", {})
    met = all(kept["met"] for kept in slo.values()) and not figures["requests"]["dropped"]
    return {
        "met": met and not endless,
        **({"why": "more requests come than it serves"} if endless else {}),
        "slo": {name: kept["value_s"] for name, kept in slo.items()},
        "replicas": replicas,
        "users": users or demand.users,
        "ttft_s": figures["ttft_s"]["mean"],
        "tpot_s": figures["tpot_s"]["mean"],
        "output_tokens_per_s": figures["output_tokens_per_s"],
        "requests": figures["requests"]["completed"],
        "dropped": figures["requests"]["dropped"],
    }


def loaded(question: Question, scenario: Scenario) -> tuple[Scenario, Iterable[Request], bool]:
    """(what is asked, the requests that it gets, whether they wait for each other): those of a trace that is
    lent, else of the workload."""
    if question.trace is not None:
        traced: PlayedTrace = lent()
        # Its likeness is for the closed form alone.
        return replace(scenario, workload=None), traced.source, traced.linked
    assert scenario.workload is not None
    return scenario, of_workload(scenario.workload), True
