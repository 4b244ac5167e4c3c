"""Replicas that start, drain and die: when, how long it takes, what becomes of their cache."""

from dataclasses import replace

import pytest

from fleets import S, fleet_of, queue
from kvroom.errors import KvroomError
from kvroom.planner.cluster import groups_of
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.autoscaling.thresholds import Autoscale
from kvroom.simulator.replicas import Failures

BASE = {
    "model": "llama-3-8b",
    "gpu": "H100-SXM",
    "engine_version": "0.33.0",
    "context_tokens": 8192,
}


def rule(**more):
    given = {
        "least": 1,
        "most": 3,
        "every_ps": 10 * S,
        "cool_down_ps": 0,
        "queue": 1.0,
        "high": 1.0,
        "low": 1.0,
    }
    return Autoscale(**(given | more))


def flood(count, output=50):
    case = queue(1)
    case.requests = [(0, 16, output, [], 0, 0) for _ in range(count)]
    return case


def times(fleet, what):
    return [t.time_ps // S for t in fleet.history if t.what == what]


def test_a_queue_starts_replicas_until_there_are_enough():
    fleet, out = fleet_of(flood(12), 3, begin=1, scale=rule(), cold_ps=25 * S)
    fleet.serve(flood(12).lives())
    assert times(fleet, "starts")[:2] == [10, 20]
    assert times(fleet, "up")[:2] == [35, 45]
    assert len(out.done_ps) == 12
    # All came before anybody else was up: the first serves them all, the others only what comes later.
    assert [r.requests for r in fleet.replicas] == [12, 0, 0]


def test_cool_down_holds_changes_back():
    fleet, _ = fleet_of(flood(12), 3, begin=1, scale=rule(cool_down_ps=35 * S))
    fleet.serve(flood(12).lives())
    assert times(fleet, "starts")[:2] == [10, 50]


def test_who_drains_serves_its_own_and_comes_back_cold():
    case = queue(1)
    case.engine = replace(case.engine, enable_prefix_caching=True)
    case.requests = [(0, 33, 100, [1, 2], 2, 0), (0, 33, 30, [1, 2], 2, 0)]
    case.requests += [(200 * S, 33, 5, [1, 2], 2, 0)]
    fleet, out = fleet_of(case, 2, scale=rule(most=2, low=1.0, queue=9.0))
    fleet.serve(case.lives())
    assert times(fleet, "drains")[0] == 10
    assert len(out.done_ps) == 3
    assert fleet.replicas[1].state.value == "off"
    assert fleet.replicas[1].completed == 1
    assert 29 * S <= fleet.replicas[1].on_ps <= 41 * S


def test_whoever_dies_has_lost_its_cache():
    case = queue(4)
    case.engine = replace(case.engine, enable_prefix_caching=True)
    names = [1, 2]
    case.requests = [(at * S, 33, 3, names, 2, 0) for at in (0, 20, 40)]
    calm, warm = fleet_of(case, 1)
    calm.serve(case.lives())
    assert [warm.found[i][0] for i in range(3)] == [0, 32, 32]
    fleet, out = fleet_of(
        case, 1, failures=Failures(at=[(30 * S, 0)], repair_ps=2 * S), cold_ps=3 * S
    )
    fleet.serve(case.lives())
    assert [out.found[i][0] for i in range(3)] == [0, 32, 0]
    assert times(fleet, "up") == [35]
    assert fleet.replicas[0].there_ps(60 * S) == (30 + 28) * S


def test_whoever_was_served_goes_elsewhere_and_keeps_its_tokens():
    case = queue(4)
    case.requests = [(0, 16, 40, [], 0, 0)]
    fleet, out = fleet_of(case, 2, failures=Failures(at=[(10 * S + 1, 0)], repair_ps=10**9))
    fleet.serve(case.lives())
    assert fleet.retries == 1
    assert (
        out.first_ps[0] == S
    )  # eleven tokens were there at 11 S; one step computes them with the prompt
    assert out.done_ps[0] == 40 * S
    assert [r.requests for r in fleet.replicas] == [1, 1]


def test_with_nobody_up_requests_wait():
    case = queue(4)
    case.requests = [(20 * S, 16, 4, [], 0, 0)]
    fleet, out = fleet_of(case, 1, failures=Failures(at=[(10 * S, 0)], repair_ps=50 * S))
    fleet.serve(case.lives())
    assert out.first_ps[0] == 61 * S


def test_deaths_by_chance_are_as_frequent_as_asked():
    failures = Failures(mtbf_ps=1000, seed=3)
    gaps = [failures.next_ps(0, 0) for _ in range(4000)]
    assert sum(gaps) / len(gaps) == pytest.approx(1000, rel=0.05)
    assert gaps != [failures.next_ps(1, 0) for _ in range(4000)]


def cold_s(**start):
    asked = Scenario.from_dict(BASE | {"fleet": {"start": start}})
    return groups_of(work(asked))[0].cold_ps / 1e12


def test_a_cold_start_loads_the_weights_from_where_they_are():
    # 16.06 GB of weights: 7 GB/s of NVMe; a host link of 64 GB/s; an adapter of 50 GB/s.
    assert cold_s() == pytest.approx(16.06 / 7, rel=0.01)
    assert cold_s(weights_from="host") == pytest.approx(16.06 / 64, rel=0.02)
    assert cold_s(weights_from="network") == pytest.approx(16.06 / 50, rel=0.02)
    assert cold_s(seconds=20) == pytest.approx(20 + 16.06 / 7, rel=0.01)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"fleet": {"autoscale": {"min": 3, "max": 2}}}, "fleet.autoscale.min"),
        ({"fleet": {"autoscale": {"min": 2, "max": 4}}}, "replicas"),
        ({"fleet": {"autoscale": {"high": 2}}}, "fleet.autoscale.high"),
        ({"fleet": {"autoscale": {"low": 0.9, "high": 0.5}}}, "fleet.autoscale.low"),
        ({"fleet": {"autoscale": {"maximum": 2}}}, "fleet.autoscale"),
        ({"fleet": {"failures": {"at": [{"s": 1, "replica": 5}]}}}, "fleet.failures.at[0].replica"),
        ({"fleet": {"failures": {"mtbf_s": 0}}}, "fleet.failures.mtbf_s"),
        ({"fleet": {"start": {"weights_from": "tape"}}}, "fleet.start.weights_from"),
        ({"fleet": {"pools": []}}, "fleet.pools"),
        ({"fleet": {"pools": [{"count": 0}]}}, "fleet.pools[0].count"),
        ({"fleet": {"pools": [{"colour": "red"}]}}, "fleet.pools[0]"),
        ({"fleet": {"pools": [{}, {}], "autoscale": {"max": 2}}}, "fleet.autoscale"),
        ({"fleet": {"lockstep": True}}, "fleet.lockstep"),
        ({"fleet": {"colour": "red"}}, "fleet"),
        ({"fleet": [1]}, "fleet"),
        ({"routing": "magic"}, "routing"),
        ({"disaggregation": {"prefill": {"count": 0}}}, "disaggregation.prefill.count"),
        ({"disaggregation": {"decode": {"count": 0}}}, "disaggregation.decode.count"),
        ({"disaggregation": {"link_bytes_per_s": 0}}, "disaggregation.link_bytes_per_s"),
        ({"disaggregation": {"latency_s": -1}}, "disaggregation.latency_s"),
        ({"disaggregation": {"layerwise": 1}}, "disaggregation.layerwise"),
        ({"disaggregation": {"routing": "magic", "prefill": {}}}, "disaggregation.routing"),
        ({"disaggregation": {"prefill": {}}, "replicas": 2}, "replicas"),
        (
            {"disaggregation": {"prefill": {}}, "fleet": {"autoscale": {"max": 2}}},
            "fleet.autoscale",
        ),
        (
            {"disaggregation": {"prefill": {"kv_dtype": "fp8"}, "decode": {}}},
            "disaggregation",
        ),
        (
            {"disaggregation": {"prefill": {"engine_args": {"block_size": 32}}}},
            "disaggregation",
        ),
    ],
)
def test_bad_settings_are_refused_by_name(keys, field):
    with pytest.raises(KvroomError) as caught:
        serve(work(Scenario.from_dict(BASE | keys)), [])
    assert caught.value.field == field
    assert caught.value.fix


def test_a_model_of_windows_is_not_handed_over():
    asked = BASE | {"model": "gemma-2-9b", "disaggregation": {"prefill": {}}}
    with pytest.raises(KvroomError, match="full attention"):
        serve(work(Scenario.from_dict(asked)), [])
