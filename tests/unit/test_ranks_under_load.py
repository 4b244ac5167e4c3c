"""Data-parallel ranks around shared experts under open arrivals: the closed form against the simulator."""

import pytest

from kvroom.latency.ranks import shares, steady
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import of_workload


def question(requests=500, **keys):
    load = {"input_tokens": 2000, "output_tokens": 60, "requests": requests}
    rate = keys.pop("rate")
    return Scenario.from_dict(
        {
            "context_tokens": 8192,
            "tp": 1,
            **keys,
            "workload": {**load, "requests_per_s": rate},
        }
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "qwen3-30b-a3b", "gpu": "H100-SXM", "dp": 4, "ep": 4, "rate": 20},
        {"model": "deepseek-v3", "gpu": "B200-SXM", "dp": 8, "ep": 8, "rate": 6},
        {"model": "deepseek-v3", "gpu": "B200-SXM", "dp": 8, "ep": 8, "rate": 6}
        | {"engine": "sglang"},
    ],
    ids=["qwen3-30b-a3b", "deepseek-v3", "sglang"],
)
def test_ranks_that_are_dealt_requests_in_turn_take_as_long_as_they_are_played(keys):
    made = work(question(**{"engine": "vllm", **keys}))
    played = serve(made, of_workload(made.plan.scenario.workload), warmup=100).to_dict()
    assert made.times.tpot_s == pytest.approx(played["tpot_s"]["mean"], rel=0.15)
    assert made.times.ttft_s == pytest.approx(played["ttft_s"]["mean"], rel=0.1)


def test_steps_follow_one_another_as_what_comes_in_them_says():
    assert shares(2.0, [0, 1, 3, 9]) == pytest.approx([0.1353, 0.2707, 0.4511, 0.1429], abs=1e-3)
    assert sum(shares(5000.0, [100, 4900, 5100, 9000])) == pytest.approx(1.0)
    # Where a step lasts as long whatever it computes, its prompts are Poisson.
    assert steady([2.0] * 4, [0, 1, 3, 9]) == pytest.approx(shares(2.0, [0, 1, 3, 9]))
    # Longer steps are followed by fuller ones.
    full = steady([0.5, 1.0, 2.0, 3.0], [0, 1, 3, 9])
    assert full[0] < shares(0.5, [0, 1, 3, 9])[0]


def test_more_requests_to_ranks_never_make_steps_shorter():
    keys = {"model": "deepseek-v3", "gpu": "B200-SXM", "engine": "vllm", "dp": 8, "ep": 8}
    made = [work(question(**keys, rate=rate)).times for rate in (0.5, 1, 2, 4, 8, 16)]
    each = [times.tpot_s for times in made if not times.saturated]
    assert each == sorted(each) and len(each) > 3
