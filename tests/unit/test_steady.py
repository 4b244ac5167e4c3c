"""The steady state in closed form against simulations of it, past their first waves."""

from math import ceil

import pytest

from kvroom.optimize.search.closed_form import Question, served_of
from kvroom.optimize.search.trial import SteadyTrial
from kvroom.planner.plan import place, work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario

VARIED = {
    "input": "lognormal:mean=1000:sigma=0.7:min=16:max=6000",
    "output": "lognormal:mean=200:sigma=0.6:min=4:max=1000",
}


def both(workload, gpu="H100-SXM", **keys):
    """(closed form, simulated TTFT, simulated TPOT) of the means of llama-3-8b."""
    asked = {"model": "llama-3-8b", "gpu": gpu, "context_tokens": 8192, **keys}
    question = Question(keys={}, workload=workload, slo="", seed=0, max_gpus=8)
    demand = question.demand()
    scenario = Scenario.from_dict(asked)
    served = served_of(scenario, place(scenario), demand)
    if demand.users is not None:
        users, times = demand.users, served.times(demand.users)
    else:
        users, times = served.at_rate(demand.requests_per_s, 4096)
    met = SteadyTrial(after=2 * ceil(users))
    serve(work(scenario), demand.requests(users, 1), on_over=met)
    return times, met.mean_s(met.ttft_ps), met.mean_s(met.tpot_ps)


@pytest.mark.parametrize("gpu", ["H100-SXM", "A100-SXM-80"])
@pytest.mark.parametrize("tokens", [500, 1500, 6000])
@pytest.mark.parametrize("users", [1, 8, 24])
def test_requests_alike_keep_company(gpu, tokens, users):
    times, ttft, tpot = both(
        {"input_tokens": tokens, "output_tokens": 200, "concurrency": users}, gpu
    )
    assert times.ttft_s == pytest.approx(ttft, rel=0.15)
    assert times.tpot_s == pytest.approx(tpot, rel=0.06)


@pytest.mark.parametrize(
    "load",
    [{"concurrency": 8}, {"concurrency": 32}, {"requests_per_s": 2.0}, {"requests_per_s": 8.0}],
    ids=str,
)
def test_requests_of_many_lengths(load):
    times, ttft, tpot = both({**VARIED, **load})
    assert times.ttft_s == pytest.approx(ttft, rel=0.3)
    assert times.tpot_s == pytest.approx(tpot, rel=0.1)


def test_one_step_at_a_time_waits_less():
    load = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 24}
    ahead, _, _ = both(load)
    alone, ttft, _ = both(load, engine_args={"async_scheduling": False})
    assert alone.queued_s < ahead.queued_s
    assert alone.ttft_s == pytest.approx(ttft, rel=0.15)


def test_more_arrivals_than_it_serves_have_no_steady_state():
    load = {"input_tokens": 4000, "output_tokens": 10, "requests_per_s": 1.0}
    question = Question(keys={}, workload=load, slo="", seed=0, max_gpus=8)
    scenario = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "context_tokens": 8192})
    served = served_of(scenario, place(scenario), question.demand())
    assert served.steady.open_arrivals(1000.0) is None
    users, times = served.at_rate(1000.0, 16)
    assert users == 16
    assert times.requests_per_s < 1000


def test_a_prompt_passes_every_stage_of_a_pipeline():
    load = {"input_tokens": 1500, "output_tokens": 200, "concurrency": 8}
    times, ttft, tpot = both(load, "A100-SXM-80", gpu_count=2, pp=2)
    assert times.ttft_s == pytest.approx(ttft, rel=0.15)
    assert times.tpot_s == pytest.approx(tpot, rel=0.06)
    alone, by_itself, _ = both(load | {"concurrency": 1}, "A100-SXM-80", gpu_count=2, pp=2)
    one, _, _ = both(load | {"concurrency": 1}, "A100-SXM-80")
    assert alone.ttft_s == pytest.approx(by_itself, rel=0.05)
    assert alone.ttft_s > 0.9 * one.ttft_s  # two cards one after the other are no faster than one
