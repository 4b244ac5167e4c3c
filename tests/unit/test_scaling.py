"""Targets of an autoscaler over the same requests: the cheapest that holds, and what is refused."""

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.optimize.scaling import ScalePoint, at, parse_targets
from kvroom.optimize.search.tuned import tuned
from kvroom.scenario.autoscale import Autoscaling
from kvroom.scenario.scenario import Scenario
from kvroom.ui.terminal.scaling import scaling_text
from kvroom.workloads.synthetic import parse

KEYS = {
    "engine_version": "0.33.0",
    "context_tokens": 8192,
    "routing": "least-loaded",
    "prices": {"L4": 0.5},
}
START = {"seconds": 30}
LOAD = parse("arrivals=gamma:1.2/s:cv=4,input=1000,output=200,requests=250,seed=5")


def swept(targets, slo="ttft_p95=2s", **autoscale):
    rule = {"policy": "hpa", "max": 4, "metrics": {"waiting": 4}} | autoscale
    fleet = {"autoscale": rule, "start": START}
    return api.scale_to(targets, "llama-3-8b", "L4", trace=LOAD, slo=slo, fleet=fleet, **KEYS)


def test_the_cheapest_that_holds_is_the_best():
    found = swept("concurrency=2,8,30", metrics={"concurrency": 8}, slo="ttft_p95=60s")
    holding = [p for p in found.points if p.holds]
    assert found.best in holding
    assert found.best.cost == min(p.cost for p in holding)
    costs = [p.cost for p in found.points]
    assert costs == sorted(costs, reverse=True)  # a higher target is cheaper
    assert all(p.cost <= found.fixed.cost for p in found.points)
    told = found.to_dict()
    assert told["fixed"]["mean_replicas"] == pytest.approx(4)
    assert told["best"]["settings"] == found.best.settings
    assert found.summary().startswith(f"concurrency {found.best.settings['concurrency']:g}: $")
    assert "<- best" in scaling_text(found)


def test_where_none_holds_the_nearest_is_named():
    found = swept("waiting=50,90", slo="ttft_p95=1ms")
    assert found.best is None
    assert found.summary().startswith("No waiting from 50 to 90 holds the objectives; ")
    assert "misses" in scaling_text(found)


def test_a_day_costs_its_gpu_hours():
    point = swept("waiting=4").points[0]
    told = point.to_dict()
    assert told["usd_per_day"] == pytest.approx(told["gpu_hours_per_day"] * 0.5)
    assert told["gpu_hours_per_day"] == pytest.approx(24 * told["mean_replicas"])


@pytest.mark.parametrize(
    ("text", "values"),
    [("waiting=2,4,8", (2, 4, 8)), ("kv=0.5", (0.5,)), ("waiting=1..16", None)],
)
def test_targets_are_read(text, values):
    found = parse_targets(text)
    if values is not None:
        assert found.values == values
    else:
        assert (found.values[0], found.values[-1], len(found.values)) == (1, 16, 9)


@pytest.mark.parametrize(
    "text", ["waiting", "waiting=", "waiting=a", "waiting=4..2", "waiting=0..4"]
)
def test_what_is_no_range_is_refused(text):
    with pytest.raises(KvroomError) as caught:
        parse_targets(text)
    assert caught.value.field == "--scale-to"


def test_numbers_of_replicas_are_whole():
    assert parse_targets("max=1..3").values == (1, 2, 3)
    with pytest.raises(KvroomError, match="no whole number of replicas"):
        at(asked({"max": 3}), {"max": 2.5})


@pytest.mark.parametrize("key", ["queue", "low", "every_s"])
def test_a_key_of_another_autoscaler_is_refused(key):
    with pytest.raises(KvroomError):
        asked({"policy": "knative", "max": 3, key: 0.5})


def asked(autoscale=None):
    fleet = {"fleet": {"autoscale": autoscale}} if autoscale else {}
    return Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4"} | fleet)


def test_any_key_of_the_autoscaler_can_be_swept():
    threshold = asked({"max": 3})
    assert at(threshold, {"queue": 7}).fleet.autoscale.queue == 7
    assert at(threshold, {"max": 2}).fleet.autoscale.max == 2
    spare = asked({"policy": "llm-d", "max": 3})
    assert at(spare, {"kv_spare": 0.2}).fleet.autoscale.setting("kv_spare") == 0.2
    served = asked({"policy": "dynamo-throughput", "max": 3})  # what is swept need not be said
    assert at(served, {"rps": 2}).fleet.autoscale.setting("rps") == 2
    bare = asked({"policy": "hpa", "max": 3})
    assert at(bare, {"waiting": 3}).fleet.autoscale.metrics == {"waiting": 3}
    several = asked({"policy": "hpa", "max": 3, "metrics": {"kv": 0.7}})
    assert at(several, {"waiting": 3}).fleet.autoscale.metrics == {"kv": 0.7, "waiting": 3}


@pytest.mark.parametrize(
    ("scenario", "key"),
    [
        (None, "waiting"),
        ({"max": 3}, "waiting"),
        ({"max": 3}, "policy"),
        ({"policy": "llm-d", "max": 3}, "queue"),
        ({"policy": "hpa", "max": 3, "metrics": {"kv": 0.7}}, "cool_down_s"),
    ],
)
def test_what_it_does_not_go_by_is_refused(scenario, key):
    with pytest.raises(KvroomError) as caught:
        at(asked(scenario), {key: 3})
    assert caught.value.field == "--scale-to"


def test_objectives_are_needed():
    with pytest.raises(KvroomError) as caught:
        swept("waiting=4", slo="")
    assert caught.value.field == "--slo"


def test_several_keys_are_tried_together():
    found = swept(["concurrency=2,30", "max=2,3"], metrics={"concurrency": 8}, slo="ttft_p95=60s")
    assert [p.settings for p in found.points] == [
        {"concurrency": a, "max": b} for a in (2, 30) for b in (2, 3)
    ]
    head = scaling_text(found).splitlines()[-6].split()
    assert head[:2] == ["concurrency", "max"]
    assert found.rows()[0]["max"] == 2
    assert found.points[0].slo["ttft_p95"] == found.points[0].ttft_p95_s
    with pytest.raises(KvroomError, match="said twice"):
        swept(["max=2,3", "max=4"])


def point(settings, cost, holds):
    figures = dict.fromkeys(("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "tpot_p95_s"), 1.0)
    return ScalePoint(
        settings=settings,
        holds=holds,
        usd_per_day=cost,
        gpu_hours_per_day=cost,
        mean_replicas=8.0 if settings is None else cost / 10,
        cold_starts=0,
        goodput_requests_per_s=1.0,
        slo={},
        **figures,
    )


def tuned_by(holds, cost, rule=None, replicas=8):
    """Tuned over two targets, a replica a day for ten dollars."""

    def play(settings):
        made = [None if one is None else (holds(one), cost(one)) for one in settings]
        return [
            point(None, 80.0, True) if two is None else point(dict(one), two[1], two[0])
            for one, two in zip(settings, made, strict=True)
        ]

    rule = Autoscaling(policy="hpa", metrics={"waiting": 4}) if rule is None else rule
    return tuned([parse_targets("waiting=4,16")], rule, replicas, play)


def cost_of(one):
    return max(10.0 * one["min"], 60.0 - one["waiting"])


def test_a_fleet_of_which_more_stay_may_have_the_cheaper_target():
    """16 waiting hold only where two stay: that is cheaper than 4 waiting with one."""
    found = tuned_by(lambda one: one["waiting"] == 4 or one["min"] >= 2, cost_of)
    assert found.best.settings == {"waiting": 16, "min": 2, "max": 8}
    assert (
        max(p.settings["min"] for p in found.points) == 4
    )  # no cheaper than two, and the last tried


def test_more_may_start_where_none_holds():
    found = tuned_by(lambda one: one["max"] > 8, cost_of)
    assert found.best.settings == {"waiting": 16, "min": 1, "max": 10}


def test_what_is_said_of_replicas_stays():
    rule = Autoscaling(policy="hpa", min=3, max=6, metrics={"waiting": 4})
    found = tuned_by(lambda one: True, cost_of, rule)
    assert {(p.settings["min"], p.settings["max"]) for p in found.points} == {(3, 6)}


def test_one_replica_has_nothing_to_let_go():
    found = tuned_by(lambda one: True, cost_of, replicas=1)
    assert (found.points, found.best) == ((), None)
