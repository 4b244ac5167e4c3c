"""One load of agents on one deployment: what its sessions see, and what the GPUs do meanwhile."""

from __future__ import annotations

from typing import Any

from kvroom.engines import served_by
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S, StepClock, step_clock
from kvroom.planner.plan import Workings
from kvroom.planner.sessions import Sessions
from kvroom.planner.simulate import Objective, serve, usual_warmup
from kvroom.records import dataclass
from kvroom.scenario.workload import calls_of
from kvroom.simulator.feed import Naming
from kvroom.simulator.routing.views import leading
from kvroom.simulator.timeline import Moment, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTrial:
    """What ``users`` sessions at a time see, once they are under way, drawn by ``seed``.

    ``hit_ratio`` is of prompt tokens; ``ideal_ratio`` what caches without limit would have found. ``tiers``
    are hits by tier, the GPUs' first. ``prefill_ratio`` is the share of the GPUs' time that prompts take,
    ``again_ratio`` the part of it that computes what was computed before and is gone.
    """

    users: int
    seed: int
    met: bool
    requests: int
    requests_per_s: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p95_s: float | None
    hit_ratio: float
    ideal_ratio: float
    tiers: tuple[tuple[str, float], ...]
    prefill_ratio: float
    again_ratio: float
    output_tokens_per_s: float
    peak_ratio: float
    """Blocks of the GPUs' caches that running requests held at most, over all."""
    dropped: int
    preemptions: int
    missed: tuple[str, ...]
    """Objectives that are missed."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        keys = (name for name in self.__dataclass_fields__ if name not in ("tiers", "warnings"))
        values = {name: getattr(self, name) for name in keys}
        return values | {"tiers": dict(self.tiers), "missed": list(self.missed)}


class Recomputed:
    """Counts the prompt tokens that were computed before and have been evicted; it is told of each
    request that is over."""

    def __init__(self, clock: StepClock, name_tokens: int, count_from: int) -> None:
        self.clock = clock
        self.name_tokens = name_tokens
        self.count_from = count_from
        self.ideal_tokens = self.prompt_tokens = 0
        self.prefill_ps = self.again_ps = self.late = 0
        self._seen: set[int] = set()
        self._nothing = clock.mixed_ps(0, 0, 0)

    def over(self, request: ServedRequest, end_ps: int | None) -> None:
        """``request`` is done at ``end_ps``, or dropped."""
        if end_ps is None:
            return
        prompt, cached = request.num_prompt_tokens, request.num_cached_tokens
        names = request.extents.names if request.extents is not None else ()
        size = self.name_tokens
        known = leading(names[: prompt // size], self._seen)
        found = known * size
        self._seen.update(names[known:])
        if request.index < self.count_from:
            return
        ideal = max(cached, min(found, prompt - 1))
        self.prompt_tokens += prompt
        self.ideal_tokens += ideal
        self.prefill_ps += self._computing_ps(cached, prompt)
        self.again_ps += self._computing_ps(cached, ideal)

    def _computing_ps(self, start: int, end: int) -> int:
        """What computing a prompt's tokens ``start … end`` adds to the steps that do it."""
        if end <= start:
            return 0
        count, clock = end - start, self.clock
        return clock.mixed_ps(0, count, 1) - self._nothing + clock.chunk_ps(start, count)


def _late_limit(slo: tuple[Objective, ...], measured: int) -> tuple[float, float] | None:
    """The first tokens' limit in picoseconds, and how many may miss it where it is set at a percentile."""
    for objective in slo:
        if objective.metric == "ttft" and objective.at.startswith("p"):
            share = 1 - int(objective.at[1:]) / 100
            return objective.limit_s * PS_PER_S, share * measured + 1
    return None


def tried(
    workings: Workings,
    sessions: Sessions,
    users: int,
    slo: tuple[Objective, ...],
    *,
    seed: int = 0,
    short: bool = False,
    watch: Watch | None = None,
) -> AgentTrial:
    """Serve so many sessions at a time; KvroomError where the engine would not start. ``short``: it
    ends once so many first tokens are late that the objective can only be missed."""
    source = sessions.at_once(users, calls_of(users), seed)
    warmup = usual_warmup(source)
    assert workings.timing is not None
    rules = served_by(workings.deployment, workings.answer)
    naming = Naming(rules.name_tokens, getattr(source, "hash_tokens", None))
    noted = Recomputed(step_clock(workings.timing.clock), naming.unit * naming.block_tokens, warmup)
    limit = _late_limit(slo, source.requests - warmup) if short else None

    def over(request: ServedRequest, end_ps: int | None) -> None:
        noted.over(request, end_ps)
        if limit is not None and request.index >= warmup and end_ps is not None:
            late = request.first_token_ps - request.arrival + request.outside_ps
            noted.late += late > limit[0]

    def stops(now: Moment) -> bool:
        lost = limit is not None and noted.late > limit[1]
        return lost or (watch is not None and watch(now))

    simulated = serve(workings, source, slo=slo, on_over=over, watch=stops, warmup=warmup)
    told = simulated.to_dict()
    copies = max(1, len(simulated.fleet.engines))
    busy_ps = simulated.duration_s * PS_PER_S * copies
    measured = (told["requests"]["arrived"] - warmup) / max(1, told["requests"]["arrived"])
    tiers = told.get("tiers") or [{"tier": "gpu", "hit_ratio": told["prefix_hit_ratio"]}]
    missed = tuple(name for name, kept in told["slo"].items() if not kept["met"])
    return AgentTrial(
        users=users,
        seed=seed,
        met=not missed and not simulated.fleet.stopped and told["requests"]["completed"] > warmup,
        requests=told["requests"]["completed"],
        requests_per_s=told["requests"]["completed"] / simulated.duration_s
        if simulated.duration_s
        else 0.0,
        ttft_p50_s=told["ttft_s"]["p50"],
        ttft_p95_s=told["ttft_s"]["p95"],
        tpot_p95_s=told["tpot_s"]["p95"],
        hit_ratio=told["prefix_hit_ratio"],
        ideal_ratio=noted.ideal_tokens / noted.prompt_tokens if noted.prompt_tokens else 0.0,
        tiers=tuple((row["tier"], row["hit_ratio"]) for row in tiers),
        prefill_ratio=_share(noted.prefill_ps, busy_ps * measured),
        again_ratio=_share(noted.again_ps, busy_ps * measured),
        output_tokens_per_s=told["output_tokens_per_s"],
        peak_ratio=told["kv_blocks"]["peak"] / max(1, told["kv_blocks"]["total"]),
        dropped=told["requests"]["dropped"],
        preemptions=told["preemptions"],
        missed=missed,
        warnings=tuple(told["warnings"]),
    )


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole else 0.0
