"""The replicas that a Scenario's ``fleet`` and ``disaggregation`` ask for: each kind of replica with a
Scenario of its own, and its rules on the simulator's clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvroom.errors import KvroomError
from kvroom.planner.layout import laid_out
from kvroom.records import dataclass
from kvroom.scenario.autoscale import Autoscaling
from kvroom.scenario.cluster import ReplicaPool
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import Layout
from kvroom.simulator.replicas import Failures, seconds_ps
from kvroom.units import check_int


@dataclass(frozen=True, slots=True)
class Scaling:
    """A rule by which replicas become more and fewer, and between how many."""

    rule: Autoscaling
    least: int
    most: int


@contextmanager
def within(field: str) -> Iterator[None]:
    """An error in a pool's keys names the pool's own key, ``field``."""
    try:
        yield
    except KvroomError as error:
        if error.field.partition(".")[0] not in ReplicaPool.PARSERS:
            raise
        raise KvroomError(f"{field}.{error.field}", error.value, error.message, error.fix) from None


def pools_of(scenario: Scenario) -> list[tuple[str, Scenario, int]]:
    """Each pool by the key that asks for it, the Scenario of one replica, and how many there are: those of
    ``disaggregation`` (prefill, decode) or of ``fleet.pools``, else the one that ``replicas`` makes."""
    split, fleet = scenario.disaggregation, scenario.fleet
    if split is not None:
        named = [("disaggregation.prefill", split.prefill), ("disaggregation.decode", split.decode)]
    elif fleet is not None and fleet.pools is not None:
        named = [(f"fleet.pools[{index}]", pool) for index, pool in enumerate(fleet.pools)]
    else:
        return [("", scenario, scenario.replicas)]
    pools = []
    for field, pool in named:
        with within(field):
            own, _ = laid_out(scenario.of_pool(pool), by_load=False)
            pools.append((field, own, pool.count))
    return pools


def autoscale_of(scenario: Scenario, first: int, dp: int) -> Scaling | None:
    """The rule by which ``first`` replicas (of ``dp`` ranks) become more or fewer; None: they stay."""
    rule = scenario.fleet.autoscale if scenario.fleet else None
    if rule is None:
        return None
    field = "fleet.autoscale"
    if dp > 1:
        why = "data-parallel ranks cannot be started one by one"
        raise KvroomError(field, dp, why, "Set dp 1.")
    least = first if rule.min is None else rule.min
    most = rule.max or max(first, least)
    if least > most:
        raise KvroomError(f"{field}.min", least, f"is more than max, {most}", "Swap them.")
    if not least <= first <= most:
        why = f"is not between min, {least}, and max, {most}"
        raise KvroomError("replicas", first, why, "Begin with a count between them.")
    return Scaling(rule=rule, least=least, most=most)


def failures_of(scenario: Scenario, count: int, seed: int) -> Failures | None:
    """When each of ``count`` replicas dies; None: none does."""
    rule = scenario.fleet.failures if scenario.fleet else None
    if rule is None:
        return None
    for index, failure in enumerate(rule.at):
        check_int(f"fleet.failures.at[{index}].replica", failure.replica, low=0, high=count - 1)
    return Failures(
        at=[(seconds_ps(failure.s), failure.replica) for failure in rule.at],
        mtbf_ps=None if rule.mtbf_s is None else seconds_ps(rule.mtbf_s),
        repair_ps=seconds_ps(rule.repair_s),
        seed=seed,
    )


def lockstep_of(scenario: Scenario, dp: Sequence[int]) -> bool | None:
    """How many data-parallel ranks of each pool are asked to step together; None where the Scenario
    does not ask."""
    lockstep = scenario.fleet.lockstep if scenario.fleet else None
    if lockstep and min(dp) == 1:
        why = "needs ranks that step together"
        raise KvroomError("fleet.lockstep", True, why, "Set dp to 2 or more.")
    return lockstep


def steps_together(scenario: Scenario, layout: Layout) -> bool:
    """Whether ranks of ``layout`` step together though nobody asks: where they share experts, whose tokens
    meet in every layer. With failures, or between two pools, each has a clock of its own."""
    if scenario.disaggregation is not None or (scenario.fleet and scenario.fleet.failures):
        return False
    return min(layout.dp, layout.expert_replicas) > 1


def check_widths(names: Sequence[str]) -> None:
    """Refuse caches of two widths: what one pool computes the other could not read."""
    if len(set(names)) > 1:
        fix = "Give both pools the same kv_dtype."
        raise KvroomError("disaggregation", list(names), "are the widths of the two caches", fix)


def check_fleet(scenario: Scenario) -> tuple[str, ...]:
    """Which keys of ``routing`` and ``fleet`` are asked for, all of them checked against the pools."""
    pools = pools_of(scenario)
    count = sum(n * own.dp for _, own, n in pools)
    scale = autoscale_of(scenario, count, pools[0][1].dp)
    failures_of(scenario, max(count, scale.most if scale else 0), 0)
    lockstep_of(scenario, [own.dp for _, own, _ in pools])
    keys = scenario.fleet.keys if scenario.fleet else ()
    return (
        *(["routing"] if scenario.routing is not None else []),
        *(f"fleet.{key}" for key in keys),
    )
