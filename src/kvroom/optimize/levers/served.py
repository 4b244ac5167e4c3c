"""The same requests served with a lever and without: what only a simulation tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from kvroom.errors import KvroomError
from kvroom.optimize.levers.lever import Lever, Unmodelled
from kvroom.planner.plan import Workings
from kvroom.records import dataclass
from kvroom.simulator.timeline import Watch
from kvroom.workloads.requests import Request
from kvroom.workloads.synthetic import of_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    """Figures of ``kvroom simulate``: mean seconds to the first token, its 95th percentile, mean seconds a
    token after it, tokens a second, the share of the prompts found cached; dollars for a million output
    tokens. None is not known."""

    ttft_s: float | None
    ttft_p95_s: float | None
    tpot_s: float | None
    output_tokens_per_s: float
    prefix_hit_ratio: float
    usd_per_million_output_tokens: float | None

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLever:
    """A lever alone, the workload's requests served with it."""

    lever: Lever
    changes: Mapping[str, Any]
    after: ServedFigures

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        lever = self.lever
        values: dict[str, Any] = {
            "id": lever.id,
            "label": lever.label,
            "changes": dict(self.changes),
        }
        values |= {"after": self.after.to_dict(), "needs": list(lever.needs)}
        for name, effect in (("quality", lever.quality), ("latency", lever.latency)):
            values[name] = effect.to_dict() if effect else None
        return values


def served(
    workings: Workings, watch: Watch | None = None, source: Iterable[Request] | None = None
) -> ServedFigures:
    """The figures of serving ``source``, or the workload of ``workings``; KvroomError where nobody comes or
    nothing starts.

    ``watch`` is called as it goes on, and may raise to end it.
    """
    from kvroom.planner.simulate import serve  # where a simulation is asked for

    scenario = workings.plan.scenario
    if source is None:
        if scenario.workload is None:
            fix = "Give --workload arrivals=poisson:2/s,input=1000,output=200."
            raise KvroomError("workload", None, "is missing: no requests to serve", fix)
        source = of_workload(scenario.workload)
    figures = serve(workings, source, watch=watch).to_dict()
    rate, price = figures["output_tokens_per_s"], workings.deployment.device.usd_per_hour
    hours = figures["duration_s"] / 3600
    gpu_hours = (
        figures["fleet"]["gpu_hours"]
        if "fleet" in figures
        else hours * scenario.gpu_count * scenario.replicas
    )
    tokens = rate * figures["duration_s"]
    known = price is not None and tokens and not (scenario.fleet and scenario.fleet.pools)
    return ServedFigures(
        ttft_s=figures["ttft_s"]["mean"],
        ttft_p95_s=figures["ttft_s"]["p95"],
        tpot_s=figures["tpot_s"]["mean"],
        output_tokens_per_s=rate,
        prefix_hit_ratio=figures["prefix_hit_ratio"],
        usd_per_million_output_tokens=price * gpu_hours / tokens * 1e6 if known else None,
    )


def each_served(
    levers: Iterable[Lever],
    work: Callable[[Lever], Workings],
    changes: Callable[[Lever], Mapping[str, Any]],
    watch: Watch | None = None,
    source: Iterable[Request] | None = None,
) -> tuple[list[ServedLever], list[Unmodelled]]:
    """Each of ``levers`` alone, best tokens a second first, and those that cannot be served, with why."""
    rows: list[ServedLever] = []
    out: list[Unmodelled] = []
    for lever in levers:
        try:
            if lever.refusal is None:
                after = served(work(lever), watch, source)
                rows.append(ServedLever(lever=lever, changes=changes(lever), after=after))
                continue
            why = lever.refusal
        except KvroomError as error:
            why = f"{error.field} {error.message}"
        out.append(Unmodelled(id=lever.id, label=lever.label, why=why))
    rows.sort(key=lambda x: -x.after.output_tokens_per_s)
    return rows, out
