"""A search whose answers are played with an autoscaler: order, settings, what is refused."""

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.optimize.scaling import at
from kvroom.optimize.search.demand import demand_of
from kvroom.ui.terminal.search import show

DAY = {"arrivals": "day:1200/day:peak=1.8", "input": 1500, "output": 6000}
FLEET = {"autoscale": {"policy": "hpa", "metrics": {"concurrency": 6}}, "start": {"seconds": 60}}
SPACE = {"gpus": ["L4"], "counts": [1], "weight_dtypes": ["own"], "kv_dtypes": ["auto"]}
KEYS = {"engine_version": "0.33.0", "context_tokens": 8192, "routing": "least-loaded"}


def searched(**more):
    asked = {"slo": "ttft_p95=20s", "space": SPACE, "simulate": 1, "workload": DAY, "fleet": FLEET}
    return api.search("llama-3-8b", **(asked | KEYS | more))


@pytest.fixture(scope="module")
def found():
    return searched(scale_to="concurrency=1,3")


def test_settings_cost_and_what_was_reached_are_told(found):
    answer = found.answers[0]
    told = answer.to_dict()["autoscaler"]
    assert told["policy"] == "hpa"
    holding = [p for p in told["points"] if p["holds"]]
    assert told["best"] == min(holding, key=lambda p: (p["usd_per_day"], p["ttft_p95_s"]))
    assert told["best"]["usd_per_day"] < told["fixed"]["usd_per_day"]
    assert told["best"]["slo"]["ttft_p95"] <= 20
    assert set(told["best"]["settings"]) == {"concurrency", "min", "max"}
    assert f"${told['best']['usd_per_day']:,.2f} a day" in found.sentence
    assert found.rows()[0]["scaled_usd_per_day"] == told["best"]["usd_per_day"]
    assert "over the whole load" in show(found)
    assert max(map(len, show(found).splitlines())) <= 80
    assert "Over the whole load" in found.to_html()


def test_simulate_plays_the_answer_again(found):
    answer = found.answers[0]
    told = answer.autoscaler["best"]
    swept = api.scale_to(
        f"concurrency={told['settings']['concurrency']:g}", answer.scenario, slo="ttft_p95=20s"
    )
    assert swept.points[0].usd_per_day == told["usd_per_day"]
    assert swept.points[0].ttft_p99_s == told["ttft_p99_s"]
    assert at(answer.scenario, told["settings"]) == answer.scenario


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"slo": ""}, "--slo"),
        ({"simulate": 0}, "--scale-to"),
        ({"fleet": None}, "--scale-to"),
        ({"scale_to": "queue=3"}, "--scale-to"),
        ({"workload": {**DAY, "arrivals": None}}, "workload"),
        ({"workload": {**DAY, "arrivals": "day:1e9/day"}}, "workload.arrivals"),
    ],
)
def test_what_cannot_be_answered_is_refused(more, field):
    with pytest.raises(KvroomError) as caught:
        searched(**({"scale_to": "concurrency=3"} | more))
    assert caught.value.field == field


def test_a_day_is_searched_at_its_busiest_time():
    """As many requests as are simulated are not those of the night."""
    found = searched(fleet=None)
    load = found.answers[0].scenario.workload
    asked = demand_of(load, "", 0)
    assert asked.requests_per_s == pytest.approx(1.8 * 1200 / 86400)
    assert found.answers[0].autoscaler is None
    assert "autoscaler" not in found.answers[0].to_dict()
