"""Targets of an autoscaler over the same requests: the cheapest that holds, and what is refused."""

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.optimize.scaling import at, parse_targets
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
    assert told["best"]["value"] == found.best.value
    assert found.summary().startswith(f"concurrency {found.best.value:g}: $")
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
        at(asked({"max": 3}), "max", 2.5)


@pytest.mark.parametrize("key", ["queue", "low", "every_s"])
def test_a_key_of_another_autoscaler_is_refused(key):
    with pytest.raises(KvroomError):
        asked({"policy": "knative", "max": 3, key: 0.5})


def asked(autoscale=None):
    fleet = {"fleet": {"autoscale": autoscale}} if autoscale else {}
    return Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4"} | fleet)


def test_any_key_of_the_autoscaler_can_be_swept():
    threshold = asked({"max": 3})
    assert at(threshold, "queue", 7).fleet.autoscale.queue == 7
    assert at(threshold, "max", 2).fleet.autoscale.max == 2
    spare = asked({"policy": "llm-d", "max": 3})
    assert at(spare, "kv_spare", 0.2).fleet.autoscale.setting("kv_spare") == 0.2
    several = asked({"policy": "hpa", "max": 3, "metrics": {"kv": 0.7}})
    assert at(several, "waiting", 3).fleet.autoscale.metrics == {"kv": 0.7, "waiting": 3}


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
        at(asked(scenario), key, 3)
    assert caught.value.field == "--scale-to"


def test_objectives_are_needed():
    with pytest.raises(KvroomError) as caught:
        swept("waiting=4", slo="")
    assert caught.value.field == "--slo"
