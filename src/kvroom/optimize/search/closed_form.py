"""One deployment in closed form: the fewest replicas that serve the load within the objectives, and their
price; and fewer than which none can, which is what a search may stop at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import ceil, inf, sqrt
from typing import Any

from kvroom.distributed.journal import fingerprint
from kvroom.errors import KvroomError
from kvroom.latency.estimate import Timing
from kvroom.latency.load import Load, Times, error_ratio
from kvroom.latency.load import served as serving_times
from kvroom.optimize.search.demand import Demand, demand_of, demand_of_trace
from kvroom.planner.load import kept_below, load_of
from kvroom.planner.plan import Placed, place, work
from kvroom.planner.verdict import judge
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.simulator.occupancy import expected_room
from kvroom.units import longest_fit, smallest

MOST_USERS = 65_536
CHUNK = 32
"""Deployments of one unit of work."""
DEVIATIONS = 5.0
"""A bound takes the closed form to be off by so many times its usual error, in the favourable way: nineteen
of twenty questions are off by less."""
MEDIAN = 0.5
"""Waits and lengths have long tails: a median may be this share of the mean that the closed form tells."""
STEADY = 0.97
"""The share of a load whose queue has to have an end where a deployment is ruled out by it."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a search asks, as its workers get it: the keys of a Scenario without its card, the load, and how
    many ``replicas`` (None: as few as do)."""

    keys: Mapping[str, Any]
    workload: Mapping[str, Any]
    slo: str
    seed: int
    max_gpus: int
    replicas: int | None = None
    trace: Mapping[str, Any] | None = None
    """What a trace asks for (``PlayedTrace.summary``): it is simulated, ``workload`` is in its likeness."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "keys": dict(self.keys),
            "workload": dict(self.workload),
            "slo": self.slo,
            "seed": self.seed,
            "max_gpus": self.max_gpus,
            "replicas": self.replicas,
            **({} if self.trace is None else {"trace": dict(self.trace)}),
        }

    def demand(self) -> Demand:
        """The load and the objectives, made once a process."""
        if self.trace is not None:
            return demand_of_trace(self.trace, self.slo)
        name = fingerprint({"workload": self.workload, "slo": self.slo, "seed": self.seed})
        if name not in _MADE:
            _MADE.clear()
            workload = Workload(**self.workload) if self.workload else None
            _MADE[name] = demand_of(workload, self.slo, self.seed)
        return _MADE[name]


_MADE: dict[str, Demand] = {}


def scenario_of(
    question: Question, keys: Mapping[str, Any], replicas: int = 1, users: float | None = None
) -> Scenario:
    """The Scenario of so many replicas that share the load: what ``plan`` and ``simulate`` are asked again.
    ``users`` are at once where the question names neither users nor a rate."""
    demand = question.demand()
    load = {**question.workload, "seed": question.seed}
    if demand.free:
        load["concurrency"] = max(1, ceil(users or 1))
    load.setdefault("requests", demand.many(users))
    all_keys = {**question.keys, **keys, "workload": load}
    return Scenario.from_dict(
        all_keys if keys.get("disaggregation") else all_keys | {"replicas": replicas}
    )


def first_s(times: Times) -> float:
    """Seconds to the first token, without end where more come than can be served."""
    return inf if times.ttft_s is None else times.ttft_s


def worst(demand: Demand, ttft_s: float | None, tpot_s: float, *, bound: bool) -> tuple[str, float]:
    """The objective that is nearest to its limit, or farthest beyond, and value over limit (without end where
    the queue has none); as a ``bound`` with the closed form off in the favourable way."""
    if ttft_s is None:
        return next((o.name for o in demand.slo if o.metric == "ttft"), "the queue"), inf
    low = {m: error_ratio(m) ** -DEVIATIONS if bound else 1.0 for m in ("ttft", "tpot")}
    first, each = ttft_s * low["ttft"], tpot_s * low["tpot"]
    whole = first + each * max(0, demand.output_tokens - 1)
    values = {"ttft": first, "tpot": each, "itl": each, "e2e": whole}
    ratios = [
        (values[o.metric] * (MEDIAN if bound and o.at == "p50" else 1.0) / o.limit_s, o.name)
        for o in demand.slo
    ]
    ratio, name = max(ratios, default=(0.0, ""))
    return name, ratio


@dataclass(frozen=True, kw_only=True)
class ServedDeployment:
    """The closed form of one deployment's replicas, each with the room of ``load``, under the whole load."""

    timing: Timing
    load: Load
    demand: Demand
    seen: dict[tuple[int, float], Times] = field(default_factory=dict, compare=False)

    def times(self, replicas: int, users: float | None = None, share: float = 1.0) -> Times:
        """The times of ``share`` of the load on so many replicas; with ``users`` of them at once instead."""
        key = (replicas, users or -share)
        if key not in self.seen:
            load = replace(
                self.load,
                replicas=replicas,
                slots=self.load.slots * replicas,
                slots_deviation=self.load.slots_deviation * sqrt(replicas),
            )
            if users is not None:
                load = replace(load, users=users, requests_per_s=None)
            elif load.requests_per_s is not None:
                load = replace(load, requests_per_s=load.requests_per_s * share)
            self.seen[key] = serving_times(self.timing.clock, load)
        return self.seen[key]

    def meets(self, replicas: int, users: float | None = None) -> bool:
        """Whether the means are within every objective, and the queue has an end."""
        times = self.times(replicas, users)
        return worst(self.demand, times.ttft_s, times.tpot_s, bound=False)[1] <= 1.0

    def may_meet(self, replicas: int) -> bool:
        """Whether they could be, the closed form's error counted in."""
        times = self.times(replicas, share=STEADY)
        return worst(self.demand, times.ttft_s, times.tpot_s, bound=True)[1] <= 1.0

    def most_users(self) -> int:
        """The most users that one replica's objectives and room allow (0: not even one)."""
        top = int(min(self.load.slots, MOST_USERS))
        if top < 1 or not self.meets(1, 1):
            return 0
        return longest_fit(lambda n: self.meets(1, n), top, near=max(1, top // 64))


def served_of(scenario: Scenario, placed: Placed, demand: Demand) -> ServedDeployment | str:
    """The closed form of a deployment, or why it has none."""
    deployment, answer = placed.deployment, placed.answer
    if not answer.starts:
        return judge(scenario, deployment, answer, placed.limit).sentence
    if not deployment.model.generates:
        return f"{deployment.model.name} writes no tokens: there is nothing to time"
    if placed.timing is None:
        return f"{deployment.device.name} has no known arithmetic rate: no times"
    longest = demand.input_tokens + demand.output_tokens
    if longest > deployment.context_tokens:
        return f"requests of {longest:,} tokens are longer than it takes"
    workload = scenario.workload
    room = expected_room(deployment, answer, workload)[1]
    load = load_of(workload, deployment, answer, room) if workload else None
    if load is None or room.requests is None:
        return "its cache has no size in tokens"
    if room.requests < 1:
        return "its cache has no room for one request"
    load = kept_below(load, scenario, deployment)
    return ServedDeployment(timing=placed.timing, load=load, demand=demand)


def closed(question: Question, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The deployment of ``keys`` with the replicas that it takes: a row of figures, or why there is none.

    Rows have ``meets``; where it is false ``worst`` and ``ratio`` say which objective fails by how much.
    ``least`` are replicas with fewer than which a simulation could not meet them either (None: never).
    """
    demand = question.demand()
    if keys.get("disaggregation"):
        return _split(question, keys)
    try:
        scenario = scenario_of(question, keys)
        placed = place(scenario)
        served = served_of(scenario, placed, demand)
    except KvroomError as error:
        return {"refused": f"{error.field} {error.value!r} {error.message}"}
    if isinstance(served, str):
        return {"refused": served}
    cards = placed.deployment.layout.gpus
    if demand.free:
        users = served.most_users()
        times = served.times(1, max(1, users))
        fits = users > 0 and cards <= question.max_gpus
        least = 1 if fits else None
        return _row(
            question, placed, served, times, 1, users=max(1, users), meets=fits, least=least
        )
    if question.replicas is not None:
        replicas = question.replicas
        fits, may = served.meets(replicas), served.may_meet(replicas)
        return _row(
            question,
            placed,
            served,
            served.times(replicas),
            replicas,
            meets=fits,
            least=replicas if may else None,
        )
    most = question.max_gpus // cards
    fewest = smallest(served.meets, most) if most else None
    least = smallest(served.may_meet, fewest or most) if most else None
    replicas = fewest or smallest(served.meets, MOST_USERS) or max(most, demand.users or 1)
    fits = fewest is not None
    return _row(question, placed, served, served.times(replicas), replicas, meets=fits, least=least)


def _row(
    question: Question,
    placed: Placed,
    served: ServedDeployment,
    times: Times,
    replicas: int,
    *,
    meets: bool,
    least: int | None,
    users: float | None = None,
) -> dict[str, Any]:
    demand, deployment = served.demand, placed.deployment
    name, ratio = worst(demand, times.ttft_s, times.tpot_s, bound=False)
    whole = first_s(times) + times.tpot_s * max(0, demand.output_tokens - 1)
    if users is None:
        users = demand.users if demand.users is not None else times.requests_per_s * whole
    spans = {
        "ttft": served.timing.span("ttft", first_s(times)),
        "tpot": served.timing.span("tpot", times.tpot_s),
    }
    return {
        "meets": meets,
        "worst": name,
        "ratio": ratio,
        "users": users,
        "replicas": replicas,
        "least": least,
        "cards": deployment.layout.gpus,
        **priced(
            deployment.device.usd_per_hour,
            deployment.layout.gpus * replicas,
            times.requests_per_s * demand.output_tokens,
        ),
        **{f"{key}_s": value.seconds for key, value in spans.items()},
        **{f"{key}_low_s": value.low for key, value in spans.items()},
        **{f"{key}_high_s": value.high for key, value in spans.items()},
        "loads": len(served.seen),
        "e2e_s": whole,
    }


def priced(usd_per_hour: float | None, gpus: int, tokens_per_s: float) -> dict[str, Any]:
    """What so many cards cost that together make so many output tokens a second."""
    hour = None if usd_per_hour is None else usd_per_hour * gpus
    million = None if hour is None or not tokens_per_s else hour / 3600 / tokens_per_s * 1e6
    return {
        "gpus": gpus,
        "usd_per_card_hour": usd_per_hour,
        "usd_per_hour": hour,
        "usd_per_million_output_tokens": million,
        "output_tokens_per_s": tokens_per_s,
    }


def _split(question: Question, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Two pools of the counts that ``keys`` say, by their plan."""
    demand = question.demand()
    try:
        workings = work(scenario_of(question, keys))
    except KvroomError as error:
        return {"refused": f"{error.field} {error.value!r} {error.message}"}
    plan, split = workings.plan, workings.plan.pools
    times = workings.split.times if workings.split else None
    if split is None or times is None or plan.serving.tpot_s is None:
        return {"refused": plan.verdict.sentence}
    name, ratio = worst(demand, plan.serving.ttft_s, plan.serving.tpot_s, bound=False)
    low = worst(demand, plan.serving.ttft_s, plan.serving.tpot_s, bound=True)[1]
    both = {"prefill": split.prefill, "decode": split.decode}
    gpus = sum(pool.gpus * pool.replicas for pool in both.values())
    hour = plan.cost.usd_per_hour
    first = inf if plan.serving.ttft_s is None else plan.serving.ttft_s
    whole = first + plan.serving.tpot_s * max(0, demand.output_tokens - 1)
    fits = ratio <= 1.0 and gpus <= question.max_gpus and plan.verdict.fits
    serving = plan.serving
    return {
        "meets": fits,
        "worst": name,
        "ratio": ratio,
        "users": demand.users if demand.users is not None else times.requests_per_s * whole,
        "replicas": 1,
        "least": 1 if low <= 1.0 and plan.verdict.fits else None,
        "cards": gpus,
        "pools": {name: pool.gpus for name, pool in both.items()},
        **priced(
            None if hour is None else hour / gpus, gpus, times.requests_per_s * demand.output_tokens
        ),
        "ttft_s": first,
        "ttft_low_s": serving.ttft_low_s,
        "ttft_high_s": serving.ttft_high_s,
        "tpot_s": serving.tpot_s,
        "tpot_low_s": serving.tpot_low_s,
        "tpot_high_s": serving.tpot_high_s,
        "loads": 1,
        "e2e_s": whole,
    }


def closed_split(unit: Mapping[str, Any]) -> dict[str, Any]:
    """A unit of work: the fewest replicas of a deployment that serve as two pools, with their ``keys``; or
    why none do. The ``prefill`` pool may be of another card; ``usd`` are an hour of a replica of each, which
    together cost less than ``budget``, and ``cards`` their cards."""
    question, keys, other = Question(**unit["question"]), unit["keys"], unit["prefill"]
    usd: list[float] = unit["usd"]
    cards: list[int] = unit["cards"]
    budget: float = unit["budget"]

    def most(pool: int) -> int:
        """Replicas of one pool beside one of the other, cheaper than the budget."""
        left = question.max_gpus - cards[1 - pool]
        paid = ceil((budget - usd[1 - pool]) / usd[pool]) - 1
        return max(0, min(paid, left // cards[pool]))

    def row(prefill: int, decode: int) -> dict[str, Any]:
        split = {"prefill": {"count": prefill, **other}, "decode": {"count": decode}}
        own = {**keys, "disaggregation": split}
        return _split(question, own) | {"keys": own}

    def does(prefill: int, decode: int) -> bool:
        return float(row(prefill, decode).get("ratio", inf)) <= 1.0

    first, second = most(0), most(1)
    decode = smallest(lambda n: does(first, n), second) if first and second else None
    prefill = smallest(lambda n: does(n, decode), first) if decode is not None else None
    if decode is None or prefill is None or prefill * usd[0] + decode * usd[1] >= budget:
        return {"refused": "no pools that cost less serve the load"}
    return row(prefill, decode) | {"pool_usd": {"prefill": usd[0], "decode": usd[1]}}


def closed_chunk(unit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A unit of work: the rows of several deployments."""
    question = Question(**unit["question"])
    return [closed(question, keys) for keys in unit["candidates"]]
