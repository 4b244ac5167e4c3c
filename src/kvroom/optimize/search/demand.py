"""What a search has to serve and how well: lengths, users or a rate, and the objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import Any

from kvroom.errors import KvroomError
from kvroom.planner.simulate import Objective, parse_slo
from kvroom.records import dataclass
from kvroom.scenario.workload import Workload
from kvroom.workloads.synthetic import Synthetic, of_workload

LIKE_USERS, LIKE_SECONDS, LEAST_REQUESTS, MOST_REQUESTS = 25, 60, 800, 8_000
"""Requests simulated where the workload does not say: so many a user or a second, within bounds."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """``users`` of a closed loop or ``requests_per_s`` of open arrivals; neither: as much as one deployment
    does within the objectives. ``input_tokens`` and ``output_tokens`` are the means, ``longest_tokens`` what
    the longest of the requests that a simulation draws holds in the end, ``reuses`` whether later requests
    begin with what earlier ones left in the cache."""

    input_tokens: int
    output_tokens: int
    longest_tokens: int
    reuses: bool
    users: int | None
    requests_per_s: float | None
    slo: tuple[Objective, ...]

    @property
    def free(self) -> bool:
        """Whether nothing is to be served but as much as is cheap."""
        return self.users is None and self.requests_per_s is None

    def many(self, users: float | None = None) -> int:
        """Requests to simulate, with ``users`` at once where the demand is free."""
        like = LIKE_USERS * ceil(self.users or users or 1)
        if self.requests_per_s is not None:
            like = ceil(LIKE_SECONDS * self.requests_per_s)
        return min(MOST_REQUESTS, max(LEAST_REQUESTS, like))


def demand_of(workload: Workload | None, slo: str, seed: int) -> Demand:
    """The demand of a workload; KvroomError where it is incomplete or contradicts itself."""
    if workload is None:
        fix = "Say --workload input=…,output=…, or --input-tokens and --output-tokens."
        raise KvroomError("workload", None, "is missing: what is to be served", fix)
    if workload.static:
        raise KvroomError("static", True, "is no steady load", "Leave --static out of a search.")
    free = (
        workload.arrivals is None
        and workload.requests_per_s is None
        and workload.concurrency is None
    )
    source = of_workload(replace(workload, concurrency=1) if free else workload, seed)
    users, rate = _load(workload, source, free)
    drawn = list(replace(source, requests=MOST_REQUESTS))
    return Demand(
        input_tokens=ceil(sum(r.input_tokens for r in drawn) / len(drawn)),
        output_tokens=max(1, round(sum(r.output_tokens for r in drawn) / len(drawn))),
        longest_tokens=max(r.input_tokens + r.output_tokens for r in drawn),
        reuses=bool(source.prefix.tokens) or source.chains,
        users=users,
        requests_per_s=rate,
        slo=objectives(slo),
    )


def demand_of_trace(summary: Mapping[str, Any], slo: str) -> Demand:
    """The demand of a trace (``PlayedTrace.summary``)."""
    return Demand(
        input_tokens=summary["input_tokens"],
        output_tokens=summary["output_tokens"],
        longest_tokens=summary["longest_tokens"],
        reuses=summary["reuses"],
        users=summary["sessions_at_a_time"],
        requests_per_s=summary["requests_per_s"],
        slo=objectives(slo),
    )


def _load(workload: Workload, source: Synthetic, free: bool) -> tuple[int | None, float | None]:
    """(users, requests a second), one of them or neither."""
    if free:
        return None, None
    if workload.requests_per_s is not None and workload.concurrency is not None:
        fix = "Give --rate, or --users, or the workload's arrivals."
        raise KvroomError(
            "--rate", workload.requests_per_s, "is not the only load that is asked for", fix
        )
    arrivals = source.arrivals
    if (
        workload.concurrency is not None
        and workload.arrivals is not None
        and workload.concurrency != arrivals.users
    ):
        fix = "Give --users, or the workload's arrivals."
        raise KvroomError(
            "--users", workload.concurrency, "and the workload's arrivals disagree", fix
        )
    if arrivals.kind == "once":
        fix = "Write arrivals=poisson:2/s or closed:32."
        raise KvroomError("workload.arrivals", "once", "is no steady load", fix)
    if arrivals.users:
        return arrivals.users, None
    return None, arrivals.busiest_per_s * source.calls


def objectives(text: str) -> tuple[Objective, ...]:
    """The objectives of ``--slo``; KvroomError where two of them cannot both be meant."""
    objectives_asked = parse_slo(text) if text.strip() else ()
    seen: dict[str, Objective] = {}
    for o in objectives_asked:
        if o.name in seen:
            raise KvroomError("--slo", o.name, "is said twice", "Write each objective once.")
        seen[o.name] = o
    whole, parts = (
        _least(objectives_asked, "e2e"),
        [_least(objectives_asked, m) for m in ("ttft", "tpot")],
    )
    if whole is not None and any(
        part is not None and part.limit_s > whole.limit_s for part in parts
    ):
        part = next(part for part in parts if part is not None and part.limit_s > whole.limit_s)
        message = f"allows more than {whole.name}, which counts it in"
        raise KvroomError("--slo", part.name, message, f"Set it below {whole.limit_s:g}s.")
    _check_order(seen)
    return objectives_asked


def _least(objectives: Sequence[Objective], metric: str) -> Objective | None:
    return min((o for o in objectives if o.metric == metric), key=lambda o: o.limit_s, default=None)


def _check_order(seen: Mapping[str, Objective]) -> None:
    """A lower percentile with the looser limit says nothing: it is a slip."""
    by_metric: dict[str, list[Objective]] = {}
    for value in seen.values():
        if value.at.startswith("p"):
            by_metric.setdefault(value.metric, []).append(value)
    for group in by_metric.values():
        ordered = sorted(group, key=lambda o: int(o.at[1:]))
        for low, high in pairwise(ordered):
            if low.limit_s > high.limit_s:
                message = f"allows more than {high.name}, which is never below it"
                raise KvroomError("--slo", low.name, message, f"Set it below {high.limit_s:g}s.")
