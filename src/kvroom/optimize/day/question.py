"""What a day asks: who comes by the hour, from which regions, and what is to hold."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.scenario.routing import Routing
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.daily import DAY_S, DailyCurve
from kvroom.workloads.synthetic import Synthetic, of_workload

EXAMPLE_DAY = "arrivals=day:1e9/day,input=1000,output=200"
METRICS = ("ttft", "tpot")


@dataclass(frozen=True, kw_only=True)
class FleetDay:
    """Replicas of their own, and the requests a second that come to them at each quarter of an hour."""

    name: str
    share: float
    rates: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class DayQuestion:
    """A planned deployment of one replica, its day, and the objectives."""

    workings: Workings
    source: Synthetic
    slo: tuple[Objective, ...]
    replicas: int | None
    """So many all day; None: as many as are needed by the hour."""

    @property
    def curve(self) -> DailyCurve:
        """The day's curve."""
        assert self.source.arrivals.curve is not None
        return self.source.arrivals.curve

    @property
    def requests(self) -> float:
        """Requests of the day."""
        return self.source.arrivals.rate_per_s * DAY_S * self.source.calls

    @property
    def fleets(self) -> list[FleetDay]:
        """A fleet in each region; one for all where replicas stay all day."""
        if self.replicas is not None:
            return [self.together]
        rate = self.source.arrivals.rate_per_s * self.source.calls
        fleets = []
        for index, region in enumerate(self.curve.regions):
            name = "all" if len(self.curve.regions) == 1 else f"UTC{region.ahead_h:+g}"
            rates = tuple(rate * each for each in self.curve.region(index))
            fleets.append(FleetDay(name=name, share=region.share, rates=rates))
        return fleets

    @property
    def together(self) -> FleetDay:
        """One fleet for all regions."""
        rate = self.source.arrivals.rate_per_s * self.source.calls
        return FleetDay(
            name="all", share=1.0, rates=tuple(rate * each for each in self.curve.rates)
        )

    @property
    def usd_per_replica_hour(self) -> float | None:
        """What an hour of a replica costs, where that is known."""
        plan = self.workings.plan
        usd = plan.cost.usd_per_hour
        return None if usd is None else usd / plan.scenario.replicas

    @property
    def looks(self) -> bool:
        """Whether a router looks at the replicas."""
        routing = self.workings.plan.scenario.routing or Routing()
        return routing.policy not in ("round-robin", "session")


def question_of(
    scenario: Scenario,
    workings: Workings,
    slo: Sequence[Objective],
    seed: int | None,
    *,
    asked: bool,
) -> DayQuestion:
    """The question of a scenario, whose ``replicas`` are ``asked`` for or left open; KvroomError where it is
    none of a day."""
    if scenario.workload is None or not str(scenario.workload.arrivals).startswith("day"):
        arrivals = scenario.workload and scenario.workload.arrivals
        fix = f"Write --workload {EXAMPLE_DAY}."
        raise KvroomError("workload.arrivals", arrivals, "are no day's", fix)
    source = of_workload(scenario.workload, seed)
    if scenario.workload.requests is not None:
        fix = "Leave requests out, or change the day's rate."
        raise KvroomError("workload.requests", source.requests, "and a day's rate are two", fix)
    for what, there in (
        ("disaggregation", scenario.disaggregation is not None),
        ("fleet", bool(scenario.fleet and scenario.fleet.keys)),
    ):
        if there:
            fix = f"Leave {what} out, or simulate hours of the day without --day."
            raise KvroomError(what, None, "is not answered by the hour", fix)
    if not slo:
        fix = "Write --slo ttft_p95=2s,tpot_p95=50ms."
        raise KvroomError(
            "--slo", None, "is missing: how many replicas are needed follows from it", fix
        )
    for objective in slo:
        if objective.metric not in METRICS or objective.at == "max":
            fix = "Write means and percentiles of ttft and tpot."
            raise KvroomError("--slo", objective.name, "is not answered by the hour", fix)
    replicas = scenario.replicas if asked else None
    return DayQuestion(workings=workings, source=source, slo=tuple(slo), replicas=replicas)
