"""One deployment in closed form: how many users it serves within the objectives, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import ceil, inf
from typing import Any

from kvroom.errors import KvroomError
from kvroom.latency.estimate import Timing
from kvroom.latency.load import Load, Times
from kvroom.latency.load import served as serving_times
from kvroom.optimize.search.demand import Demand, demand_of
from kvroom.optimize.search.journal import fingerprint
from kvroom.planner.load import loaded
from kvroom.planner.plan import Placed, place
from kvroom.planner.verdict import judge
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import MAX_GPUS
from kvroom.scenario.workload import Workload
from kvroom.simulator.occupancy import expected_room
from kvroom.units import ceil_div

MOST_USERS = 65_536
CHUNK = 32
"""Deployments of one unit of work."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a search asks, as its workers get it: the keys of a Scenario without its card, and the load."""

    keys: Mapping[str, Any]
    workload: Mapping[str, Any]
    slo: str
    seed: int
    max_gpus: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "keys": dict(self.keys),
            "workload": dict(self.workload),
            "slo": self.slo,
            "seed": self.seed,
            "max_gpus": self.max_gpus,
        }

    def demand(self) -> Demand:
        """The load and the objectives, made once a process."""
        name = fingerprint({"workload": self.workload, "slo": self.slo, "seed": self.seed})
        if name not in _MADE:
            _MADE.clear()
            workload = Workload(**self.workload) if self.workload else None
            _MADE[name] = demand_of(workload, self.slo, self.seed)
        return _MADE[name]


_MADE: dict[str, Demand] = {}


def scenario_of(question: Question, keys: Mapping[str, Any], row: Mapping[str, Any]) -> Scenario:
    """The Scenario of a deployment that serves its share of the load, all replicas in."""
    demand = question.demand()
    users = max(1, ceil(row["users"]))
    load = {
        "input_tokens": demand.input_tokens,
        "output_tokens": demand.output_tokens,
        "concurrency": users,
        "requests_per_s": demand.requests_per_s,
    }
    return Scenario.from_dict(
        {
            **question.keys,
            **keys,
            "concurrency": users,
            "replicas": row["replicas"],
            "workload": load,
        }
    )


def first_s(times: Times) -> float:
    """Seconds to the first token, without end where more come than can be served."""
    return inf if times.ttft_s is None else times.ttft_s


@dataclass(frozen=True, kw_only=True)
class ServedDeployment:
    """The closed form of one deployment under any number of users."""

    timing: Timing
    load: Load
    room: int
    demand: Demand
    seen: dict[float, Times] = field(default_factory=dict, compare=False)

    def times(self, users: float) -> Times:
        """The times with ``users`` at once, all of whom have room."""
        if users not in self.seen:
            load = replace(self.load, users=users, requests_per_s=None)
            self.seen[users] = serving_times(self.timing.clock, load)
        return self.seen[users]

    def worst(self, times: Times) -> tuple[str, float]:
        """The objective that is nearest to its limit, or farthest beyond, and value over limit."""
        ttft_s = first_s(times)
        whole = ttft_s + times.tpot_s * max(0, self.demand.output_tokens - 1)
        values = {"ttft": ttft_s, "tpot": times.tpot_s, "itl": times.tpot_s, "e2e": whole}
        ratios = [(values[o.metric] / o.limit_s, o.name) for o in self.demand.slo]
        ratio, name = max(ratios, default=(0.0, ""))
        return name, ratio

    def meets(self, users: int) -> bool:
        """Whether the means are within every objective."""
        return self.worst(self.times(users))[1] <= 1.0

    def most_users(self, most: int) -> int:
        """The most users, up to ``most``, that the objectives allow (0: not even one)."""
        top = max(0, min(self.room, most))
        if top == 0 or not self.meets(1):
            return 0
        if self.meets(top):
            return top
        low, high = 1, top
        while high - low > max(1, low // 64):  # within 2 % is as near as the times are
            middle = (low + high) // 2
            low, high = (middle, high) if self.meets(middle) else (low, middle)
        return low

    def at_rate(self, rate: float, most: int) -> tuple[float, Times]:
        """How many are at once where ``rate`` requests a second come, ``most`` at most, and the times."""
        times = serving_times(self.timing.clock, replace(self.load, requests_per_s=rate))
        if times.saturated:
            return float(most), self.times(most)
        users = rate * (first_s(times) + times.tpot_s * max(0, self.demand.output_tokens - 1))
        return (users, times) if users <= most else (float(most), self.times(most))


def served_of(
    scenario: Scenario, made: Placed, demand: Demand, workload: Workload
) -> ServedDeployment | str:
    """The closed form of a deployment, or why it has none."""
    d, answer = made.deployment, made.answer
    if not answer.starts:
        return judge(scenario, d, answer, made.limit).sentence
    if not d.model.generates:
        return f"{d.model.name} writes no tokens: there is nothing to time"
    if made.timing is None:
        return f"{d.device.name} has no known arithmetic rate: no times"
    longest = demand.input_tokens + demand.output_tokens
    if longest > d.context_tokens:
        return f"requests of {longest:,} tokens are longer than it takes"
    room = expected_room(d, answer, workload)[1]
    load = loaded(demand.requests(1.0, 1), d, answer, room)
    if load is None or room.requests is None:
        return "its cache has no size in tokens"
    return ServedDeployment(timing=made.timing, load=load, room=int(room.requests), demand=demand)


def closed(question: Question, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The deployment of ``keys`` at its share of the load: a row of figures, or why there is none.

    Rows have ``meets``; where it is false ``worst`` and ``ratio`` say which objective fails by how much.
    """
    demand = question.demand()
    try:
        scenario = Scenario.from_dict({**question.keys, **keys})
        made = place(scenario)
        served = served_of(scenario, made, demand, Workload(**question.workload))
    except KvroomError as e:
        return {"refused": f"{e.field} {e.value!r} {e.message}"}
    if isinstance(served, str):
        return {"refused": served}
    most = served.most_users(demand.users or MOST_USERS)
    if most == 0:
        return _row(made, served, users=1.0, replicas=1, meets=served.meets(1) and served.room > 0)
    if demand.users is not None:
        replicas = ceil_div(demand.users, most)
        return _row(made, served, users=demand.users / replicas, replicas=replicas)
    if demand.requests_per_s is not None:
        fastest = served.times(most).requests_per_s
        replicas = max(1, ceil(demand.requests_per_s / fastest))
        users, times = served.at_rate(demand.requests_per_s / replicas, most)
        return _row(made, served, users=users, replicas=replicas, times=times)
    return _row(made, served, users=float(most), replicas=1)


def _row(
    made: Placed,
    served: ServedDeployment,
    *,
    users: float,
    replicas: int,
    meets: bool = True,
    times: Times | None = None,
) -> dict[str, Any]:
    times = times or served.times(max(users, 1e-3))
    demand, d = served.demand, made.deployment
    gpus = d.layout.gpus * replicas
    name, ratio = served.worst(times)
    each = times.requests_per_s
    if demand.requests_per_s is not None and meets:
        each = min(each, demand.requests_per_s / replicas)
    made_tokens = each * demand.output_tokens * replicas
    price = d.device.usd_per_hour
    hour = None if price is None else price * gpus
    spans = {
        m: served.timing.span(m, s) for m, s in (("ttft", first_s(times)), ("tpot", times.tpot_s))
    }
    return {
        "meets": meets and gpus <= MAX_GPUS,
        "worst": name,
        "ratio": ratio,
        "users": users,
        "replicas": replicas,
        "gpus": gpus,
        "usd_per_hour": hour,
        "usd_per_million_output_tokens": hour and hour / 3600 / made_tokens * 1e6,
        "output_tokens_per_s": made_tokens,
        **{f"{m}_s": s.seconds for m, s in spans.items()},
        **{f"{m}_low_s": s.low for m, s in spans.items()},
        **{f"{m}_high_s": s.high for m, s in spans.items()},
        "loads": len(served.seen),
        "e2e_s": first_s(times) + times.tpot_s * max(0, demand.output_tokens - 1),
    }


def closed_chunk(unit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A unit of work: the rows of several deployments."""
    question = Question(**unit["question"])
    return [closed(question, keys) for keys in unit["candidates"]]
