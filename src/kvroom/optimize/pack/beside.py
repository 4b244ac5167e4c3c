"""What engines on one GPU do to each other's times: each simulated on its own traffic, alone, beside the
others, and while one of them has three times as much.

Without MPS the driver gives a GPU's processes turns (time slicing): while ``n`` of them have work, each has
an n-th of the GPU. A step of one so takes 1 + b times as long, b being how many others have work at a time,
on average: the sum of the parts of time in which each has a request. Those parts grow as steps do, so each is
simulated again until they settle. It is a mean: bursts of two that meet by chance are not told apart.

With MPS kernels run side by side. How far they take each other's memory bandwidth and multiprocessors is not
modelled: times lie between those alone (with so much of the multiprocessors as its share says) and those of
turns. Slices of MIG share neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from kvroom.optimize.pack.seats import PackSeat
from kvroom.planner.plan import Workings, work
from kvroom.planner.simulation import Simulation, simulation
from kvroom.records import dataclass
from kvroom.workloads.synthetic import Synthetic, of_workload

BURST = 3
REQUESTS, MOST_REQUESTS = 300, 3000
"""Of each simulation, and at most where many users are there."""
ROUNDS = 5
SETTLED = 0.01
KEPT_UP = 0.8
"""Of what comes, by which a queue is told that grows without end: less than this is answered meanwhile."""


@dataclass(frozen=True, kw_only=True)
class BesideTimes:
    """Seconds (95th percentile of the first token, mean of those after it), how many times as long a step
    takes as alone, the part of time in which there is work, and whether more comes than is answered."""

    ttft_p95_s: float | None
    tpot_mean_s: float | None
    slower: float
    busy: float
    queues: bool


@dataclass(frozen=True, kw_only=True)
class BesideOthers:
    """One model's times alone, beside the others, and while each has BURST times as much (by its name, its
    own among them). ``mean_cache_bytes`` and ``peak_cache_bytes`` of one card, alone."""

    name: str
    alone: BesideTimes
    beside: BesideTimes
    bursts: Mapping[str, BesideTimes]
    side_by_side: BesideTimes
    """With the multiprocessors that MPS lets it use and all of the bandwidth: the least beside others."""
    mean_cache_bytes: int
    peak_cache_bytes: int


class Neighbours:
    """The models of one node whose traffic is told, and who shares a card with whom."""

    def __init__(self, seats: Sequence[PackSeat]) -> None:
        self.seats = {seat.entry.name: seat for seat in seats if _timed(seat)}
        self.workings: dict[str, Workings] = {
            name: work(seat.trial.scenario) for name, seat in self.seats.items() if seat.trial
        }
        self._made: dict[tuple[str, bool, float, float], tuple[BesideTimes, Simulation]] = {}

    def answers(self) -> tuple[BesideOthers, ...]:
        """Everybody's times; none for who has no card to itself or no traffic."""
        beside = self._together(None)
        bursts = {name: self._together(name) for name in self.seats}
        return tuple(self._answer(name, beside, bursts) for name in self.seats)

    def _answer(
        self,
        name: str,
        beside: Mapping[str, BesideTimes],
        bursts: Mapping[str, Mapping[str, BesideTimes]],
    ) -> BesideOthers:
        alone, played = self._times(name, 1.0, burst=False)
        mean, peak = _cache(played)
        total = self.workings[name].answer.kv_bytes
        felt = {name, *(other for other in self.seats if self._share(name, other))}
        return BesideOthers(
            name=name,
            alone=alone,
            beside=beside[name],
            side_by_side=self._times(name, 1.0, burst=False, mps=True)[0],
            bursts={other: times[name] for other, times in bursts.items() if other in felt},
            mean_cache_bytes=ceil(mean * total),
            peak_cache_bytes=ceil(peak * total),
        )

    def _share(self, one: str, two: str) -> bool:
        """Whether they use a card at the same time: who sleeps takes turns with other sleepers by hand."""
        first, second = self.seats[one], self.seats[two]
        both_sleep = bool(first.entry.sleep and second.entry.sleep)
        return one != two and not both_sleep and bool(set(first.cards) & set(second.cards))

    def _together(self, bursting: str | None) -> dict[str, BesideTimes]:
        """Everybody's times together, settled."""
        slower = dict.fromkeys(self.seats, 1.0)
        found: dict[str, BesideTimes] = {}
        for _ in range(ROUNDS):
            found = {n: self._times(n, slower[n], burst=n == bursting)[0] for n in self.seats}
            after = {
                name: 1.0
                + sum(found[other].busy for other in self.seats if self._share(name, other))
                for name in self.seats
            }
            settled = all(abs(after[name] - slower[name]) < SETTLED for name in after)
            slower = after
            if settled:
                break
        return found

    def _times(
        self, name: str, slower: float, *, burst: bool, mps: bool = False
    ) -> tuple[BesideTimes, Simulation]:
        compute = self.seats[name].entry.compute if mps else 1.0
        key = name, burst, round(slower, 3), compute
        if key not in self._made:
            source = self._source(name, burst=burst)
            simulated = simulation(slowed(self.workings[name], slower, compute), source)
            self._made[key] = _told(simulated, source, slower), simulated
        return self._made[key]

    def _source(self, name: str, *, burst: bool) -> Synthetic:
        workload = self.workings[name].plan.scenario.workload
        assert workload is not None
        source = of_workload(workload)
        arrivals = source.arrivals
        if burst:
            arrivals = replace(
                arrivals, rate_per_s=BURST * arrivals.rate_per_s, users=BURST * arrivals.users
            )
        many = min(MOST_REQUESTS, max(REQUESTS, 6 * arrivals.users))
        return replace(source, arrivals=arrivals, requests=workload.requests or many)


def slowed(workings: Workings, slower: float, compute: float = 1.0) -> Workings:
    """The same whose steps take ``slower`` times as long, on ``compute`` of the multiprocessors."""
    timing = workings.timing
    if timing is None or (slower == 1.0 and compute == 1.0):
        return workings
    clock = timing.clock
    k = replace(clock.k, scale=clock.k.scale * slower)
    rates = replace(
        clock.rates,
        wide_flops_per_s=clock.rates.wide_flops_per_s * compute,
        narrow_flops_per_s=clock.rates.narrow_flops_per_s * compute,
    )
    return replace(workings, timing=replace(timing, clock=replace(clock, k=k, rates=rates)))


def _timed(seat: PackSeat) -> bool:
    """Whether its traffic is told and its steps can be timed."""
    trial = seat.trial
    if trial is None or not seat.fits or not trial.deployment.model.generates:
        return False
    workload = trial.scenario.workload
    told = workload is not None and workload.tells("input") and workload.tells("output")
    return told and bool(trial.deployment.device.flops_per_s)


def _told(simulation: Simulation, source: Synthetic, slower: float) -> BesideTimes:
    figures = simulation.figures
    rate, seconds = source.arrivals.rate_per_s, figures["duration_s"]
    answered = figures["requests"]["completed"] / seconds if seconds else 0.0
    return BesideTimes(
        ttft_p95_s=figures["ttft_s"]["p95"],
        tpot_mean_s=figures["tpot_s"]["mean"],
        slower=slower,
        busy=busy_part(simulation),
        queues=bool(rate) and answered < KEPT_UP * rate,
    )


def busy_part(simulation: Simulation) -> float:
    """The part of a simulation's time in which the engine has a request."""
    spans = sorted(
        (row["arrival_s"], row["arrival_s"] + row["e2e_s"] - row["ttft_s"] + row["ttft_engine_s"])
        for row in simulation.requests
        if row["e2e_s"] is not None
    )
    busy = until = 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return min(1.0, busy / until) if until else 0.0


def _cache(simulation: Simulation) -> tuple[float, float]:
    """Of the cache's blocks: held on average over time, and at most."""
    total = simulation.figures["kv_blocks"]["total"]
    line = simulation.line()
    if not total or len(line) < 2:
        return 0.0, 0.0
    seconds = line[-1]["time_s"] - line[0]["time_s"]
    spent = sum(one["blocks"] * (two["time_s"] - one["time_s"]) for one, two in pairwise(line))
    return spent / seconds / total if seconds else 0.0, simulation.figures["kv_blocks"][
        "peak"
    ] / total
