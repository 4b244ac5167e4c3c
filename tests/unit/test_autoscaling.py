"""Autoscalers as people run them: the published rules on cases small enough to follow."""

import pytest

from fleets import S, queue
from kvroom.errors import KvroomError
from kvroom.latency.clock import PS_PER_S
from kvroom.planner.cluster import groups_of
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.autoscale import AUTOSCALERS, Autoscaling
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.autoscaling.concurrency import AtATime
from kvroom.simulator.autoscaling.gauges import PoolGauges, RateWindow, ReplicaGauge
from kvroom.simulator.autoscaling.hpa import PodMetrics, SummedMetrics
from kvroom.simulator.autoscaling.planner import ByLatency, ByThroughput
from kvroom.simulator.autoscaling.saturation import SpareCapacity
from kvroom.workloads.synthetic import parse

BASE = {
    "model": "llama-3-8b",
    "gpu": "H100-SXM",
    "engine_version": "0.33.0",
    "context_tokens": 8192,
}


def said(policy, **given):
    usual = {key: entry[0] for key, entry in AUTOSCALERS[policy].settings.items()} | given
    return usual.__getitem__


def gauges(second, *queues, starting=0, stranded=0, came=0, running=0, kv=0, owed=0):
    ready = [
        ReplicaGauge(waiting=q, running=running, held_blocks=kv, blocks=100, owed_tokens=owed)
        for q in queues
    ]
    return PoolGauges(
        now_ps=round(second * PS_PER_S),
        ready=ready,
        starting=starting,
        stranded=stranded,
        came=came,
        came_tokens=1000 * came,
    )


# Kubernetes


def test_the_examples_of_its_page():
    """kubernetes.io, Horizontal Pod Autoscaling: 200m against 100m doubles, 50m halves."""
    assert PodMetrics({"waiting": 100}, said("hpa"), 1, 20).wanted(gauges(0, 200, 200)) == 4
    assert PodMetrics({"waiting": 100}, said("hpa"), 1, 20).wanted(gauges(0, 50, 50)) == 1
    # 1.1 and 0.9 are within the tolerance of a tenth, 1.11 is not.
    for value, wanted in ((110, 10), (90, 10), (111, 12), (89, 9)):
        rule = PodMetrics({"waiting": 100}, said("hpa"), 1, 20)
        assert rule.wanted(gauges(0, *[value] * 10)) == wanted


def test_the_largest_of_several_metrics_counts():
    rule = PodMetrics({"waiting": 10, "running": 4}, said("hpa"), 1, 20)
    assert rule.wanted(gauges(0, 5, 5, running=16)) == 8


def test_replicas_that_start_count_as_none_waiting():
    rule = PodMetrics({"waiting": 4}, said("hpa"), 1, 20)
    assert rule.wanted(gauges(0, 12)) == 3
    assert rule.wanted(gauges(0, 12, starting=2)) == 3  # 12 over 3 is the target
    assert rule.wanted(gauges(0, 24, starting=2)) == 6
    assert rule.wanted(gauges(0, 2, 2, starting=1)) == 1  # fewer: of those that are ready


def test_it_goes_down_five_minutes_after_it_wanted_more():
    rule = PodMetrics({"waiting": 10}, said("hpa"), 1, 20)
    assert rule.target(gauges(0, 30, 30)) == 6
    told = [rule.target(gauges(t, *[1] * 6)) for t in range(15, 331, 15)]
    assert told[:20] == [6] * 20  # to 300 s
    assert told[20:] == [1, 1]


def test_it_at_most_doubles_or_adds_four_in_fifteen_seconds():
    rule = PodMetrics({"waiting": 1}, said("hpa"), 1, 100)
    assert rule.target(gauges(0, 50, 50)) == 6
    assert rule.target(gauges(15, *[50] * 6)) == 12
    assert rule.target(gauges(30, *[50] * 12)) == 24


def test_with_nobody_ready_nothing_changes():
    rule = PodMetrics({"kv": 0.5}, said("hpa"), 1, 9)
    assert rule.target(gauges(0, starting=3)) == 3


def test_a_rate_is_over_its_window():
    window = RateWindow(60)
    assert window.rate(0, 0) == 0
    assert window.rate(30 * PS_PER_S, 60) == 2
    assert window.rate(90 * PS_PER_S, 60) == 0
    rule = PodMetrics({"rate": 3}, said("hpa"), 1, 20)
    assert rule.wanted(gauges(15, 0, 0, came=450)) == 10  # 30 a second


# KEDA


def test_none_to_one_when_it_polls_and_to_none_when_it_has_cooled_down():
    rule = SummedMetrics({"concurrency": 5}, said("keda"), 0, 9)
    assert rule.target(gauges(0, stranded=1)) == 1
    assert rule.target(gauges(15, starting=1)) == 1
    for second in range(30, 300, 15):
        assert rule.target(gauges(second, 0)) == 1
    assert rule.target(gauges(300, 0)) == 0  # 300 s after it was last active
    assert rule.target(gauges(315, stranded=9)) == 0  # it does not poll
    assert rule.target(gauges(330, stranded=9)) == 1


def test_one_is_enough_until_the_activation_is_passed():
    rule = SummedMetrics({"waiting": 5}, said("keda", activation=3), 0, 9)
    assert rule.target(gauges(0, stranded=3)) == 0
    assert rule.target(gauges(30, stranded=4)) == 1


def test_between_it_goes_by_sums():
    rule = SummedMetrics({"waiting": 5}, said("keda"), 0, 9)
    assert rule.target(gauges(0, 12, 0)) == 3


# Knative


def test_requests_at_a_time_over_a_minute():
    rule = AtATime(said("knative", target=10), 0, 50)
    for tick in range(60):
        wanted = rule.target(gauges(2 * tick, *[7] * 4))
    assert wanted == 4  # 28 at a time over 7 each
    for tick in range(60, 88):
        rule.target(gauges(2 * tick, *[10] * 4))
    assert rule.target(gauges(2 * 88, *[10] * 4)) == 6


def test_a_burst_is_a_panic_and_a_panic_does_not_shrink():
    rule = AtATime(said("knative", target=10), 0, 50)
    for tick in range(30):
        rule.target(gauges(2 * tick, 7))
    assert rule.target(gauges(60, 70)) >= 4  # the mean of the last 6 s
    burst = [rule.target(gauges(60 + 2 * tick, 70)) for tick in range(1, 4)]
    assert burst[-1] == 10
    calm = [rule.target(gauges(70 + 2 * tick, *[0] * 10)) for tick in range(20)]
    assert set(calm) == {10}


def test_none_are_left_after_a_minute_and_the_grace():
    rule = AtATime(said("knative", target=10), 0, 50)
    rule.target(gauges(0, 7))
    told = {second: rule.target(gauges(second, 0)) for second in range(2, 120, 2)}
    assert told[58] == told[88] == 1
    assert told[90] == 0 and told[118] == 0
    assert rule.target(gauges(120, stranded=1)) == 1


# llm-d


def test_spare_capacity():
    """The thresholds of docs/saturation-analyzer.md: 0.8 and 5, triggers 0.1 and 3."""
    rule = SpareCapacity(said("llm-d"))
    assert rule.change([(0.6, 0), (0.65, 1)], 0) == 0  # spare 0.175 and 4.5; not without one
    assert rule.change([(0.75, 0), (0.7, 0)], 0) == 1  # spare 0.075
    assert rule.change([(0.3, 2), (0.2, 3)], 0) == 1  # spare queue 2.5
    assert rule.change([(0.3, 0), (0.3, 1)], 0) == -1  # 0.6 and 1 on one: spare 0.2 and 4
    assert rule.change([(0.9, 0), (0.85, 9)], 0) == 1  # all saturated
    assert rule.change([(0.9, 0), (0.85, 9)], 1) == 0  # one is coming
    assert rule.change([(0.1, 0)], 0) == 0  # the last one stays


def test_it_goes_by_the_peak_of_a_minute():
    rule = SpareCapacity(said("llm-d"))
    assert rule.every_ps == 15 * PS_PER_S
    told = [rule.target(gauges(t, 4 if t == 30 else 0, 0)) for t in range(15, 61, 15)]
    assert told == [2, 2, 2, 2]  # 4 and 0 waited at most: spare queue 3, on one 1
    assert [rule.target(gauges(t, 0, 0)) for t in range(75, 121, 15)] == [2, 2, 2, 1]


# Dynamo's planner


def test_all_must_be_late_for_one_more_and_all_be_early_for_one_fewer():
    clock = queue(1).clock  # every step takes S
    late, early = S / PS_PER_S / 2, S / PS_PER_S * 2
    rule = ByLatency(said("dynamo-load", ttft=2 * early, itl=late), clock, 100)
    assert rule.target(gauges(0, 0, 0)) == 3  # a token takes S, twice what it may
    rule = ByLatency(said("dynamo-load", ttft=2.5 * S / PS_PER_S, itl=early), clock, 1000)
    assert rule.target(gauges(0, 0, 0, came=1)) == 1  # both S: below 80 % of both
    assert rule.target(gauges(0, 0, 0, came=1, owed=1500)) == 3  # three steps of 1,000 tokens
    assert rule.target(gauges(0, 0, 0, came=1, owed=500)) == 2  # two: between
    assert rule.target(gauges(0, 0, 0, came=1, owed=1500, starting=1)) == 3  # one is coming


def test_by_throughput_the_last_interval_comes_again():
    rule = ByThroughput(said("dynamo-throughput", rps=2))
    assert rule.target(gauges(180, 0, came=900)) == 3
    assert rule.target(gauges(360, 0, came=900)) == 1


# The question


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_each_of_the_list_is_read_and_said(name):
    asked = {"policy": name, "max": 4}
    if AUTOSCALERS[name].metrics:
        asked["metrics"] = {"waiting": 8}
    if name == "dynamo-throughput":
        asked["rps"] = 2
    if AUTOSCALERS[name].zero:
        asked["min"] = 0
    rule = Autoscaling.parse("a", asked)
    assert Autoscaling.parse("a", rule.to_dict()) == rule
    for usual, low, high in AUTOSCALERS[name].settings.values():
        assert low <= usual <= high


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"policy": "hpo"}, "a.policy"),
        ({"policy": "hpa", "metrics": {}}, "a.metrics"),
        ({"policy": "hpa", "metrics": {"waitng": 1}}, "a.metrics"),
        ({"policy": "hpa", "metrics": {"waiting": 0}}, "a.metrics.waiting"),
        ({"policy": "hpa", "metrics": {"waiting": 1}, "min": 0}, "a.min"),
        ({"policy": "llm-d", "metrics": {"waiting": 1}}, "a.metrics"),
        ({"policy": "hpa", "metrics": {"waiting": 1}, "polling": 5}, "a"),
        ({"policy": "keda", "metrics": {"waiting": 1}, "settings": {"poling": 5}}, "a.settings"),
        ({"policy": "keda", "min": 0, "metrics": {"kv": 0.8}}, "a.metrics"),
        ({"grace_s": -1}, "a.grace_s"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, field):
    with pytest.raises(KvroomError) as caught:
        Autoscaling.parse("a", keys)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("policy", "field"), [("hpa", "a.metrics"), ("dynamo-throughput", "a.rps")]
)
def test_what_it_goes_by_is_asked_for_when_it_is_to_scale(policy, field):
    with pytest.raises(KvroomError) as caught:
        Autoscaling.parse("a", {"policy": policy}).check_targets("a")
    assert caught.value.field == field


def test_a_cold_start_is_its_parts_one_after_the_other():
    def cold_s(**start):
        return groups_of(work(Scenario.from_dict(BASE | {"fleet": {"start": start}})))[0].cold_ps

    parts = {"image_bytes": "10GB", "pull_bytes_per_s": 5e8, "engine_s": 25, "graphs_s": 6}
    more = cold_s(**parts, seconds=4) - cold_s()
    assert more == pytest.approx((20 + 25 + 6 + 4) * PS_PER_S)


def test_a_fleet_from_none():
    """Requests that come while none is there wait for a replica to start."""
    keys = {"policy": "keda", "min": 0, "max": 2, "metrics": {"concurrency": 50}, "cooldown": 30}
    asked = BASE | {
        "replicas": 1,
        "fleet": {"autoscale": keys, "start": {"seconds": 20}},
    }
    spec = "arrivals=burst:0.005/s:size=3,input=200,output=20,requests=9,seed=3"
    made = serve(work(Scenario.from_dict(asked)), parse(spec)).to_dict()
    assert made["requests"]["completed"] == 9
    assert made["fleet"]["cold_starts"] >= 1
    assert made["ttft_s"]["max"] > 20
    there = sum(r["there_s"] for r in made["fleet"]["replicas"])
    assert there < made["duration_s"] + 60
