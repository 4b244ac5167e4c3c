"""Steps in the stages of a pipeline: laws of their times, and that plan and simulate give one answer."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import kvroom
from kvroom.latency.clock import PS_PER_S, Reach, StepClock, step_clock
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.pipeline import StagePipeline

FLAT = Reach(context_ps=0, pairs_ps=0)


def clock_of(*stages: int, handover_ps: int = 0) -> StepClock:
    """A pipeline whose stages take so long a step and a tenth of it for each request."""
    parts = tuple(
        StepClock(step_ps=each, request_ps=each // 10, token_ps=1, prompt_ps=0, reaches=(FLAT,))
        for each in stages
    )
    whole = StepClock(step_ps=sum(stages), request_ps=0, token_ps=0, prompt_ps=0, reaches=(FLAT,))
    return replace(whole, parts=parts, stages=len(stages), handover_ps=handover_ps)


def question(model: str, gpu: str, **keys: Any) -> dict[str, Any]:
    return {"model": model, "gpu": gpu, "context_tokens": 8192, **keys}


def test_a_lone_step_takes_the_sum_of_its_stages() -> None:
    clock = clock_of(100, 250, 50, handover_ps=7)
    start, end = StagePipeline(3).run(40, [(clock, [(10, 1)])])
    assert (start, end) == (40, 40 + 110 + 275 + 55 + 2 * 7)


@pytest.mark.parametrize("seed", range(20))
def test_no_stage_has_two_steps_and_the_slowest_sets_the_pace(seed: int) -> None:
    dice = random.Random(seed)
    stages = [dice.randint(50, 500) for _ in range(dice.randint(2, 6))]
    clock, count = clock_of(*stages), 200
    pipeline = StagePipeline(len(stages))
    ends = [pipeline.run(0, [(clock, [(10, 1)])])[1] for _ in range(count)]
    each = [stage + stage // 10 for stage in stages]
    gaps = [after - before for before, after in pairwise(ends)]
    assert ends[0] == sum(each)
    assert min(gaps) >= max(each)
    assert ends[-1] - ends[0] <= (count - 1) * max(*each, -(-sum(each) // len(stages)) + 1)


def test_a_step_enters_when_the_one_that_many_before_it_has_left() -> None:
    clock = clock_of(100, 100)
    pipeline = StagePipeline(1)  # each waits for the tokens of the one before
    ends = [pipeline.run(0, [(clock, [(0, 1)])])[1] for _ in range(3)]
    assert ends == [220, 440, 660]


def test_a_long_step_holds_up_a_round_by_its_way_through_all_stages() -> None:
    clock = clock_of(100, 100, 100, 100)
    pipeline, one = StagePipeline(4), [(clock, [(0, 1)])]
    ends = [pipeline.run(0, one)[1] for _ in range(8)]
    long = [(clock, [(0, 1000)])]
    ends.append(pipeline.run(0, long)[1])
    ends += [pipeline.run(0, one)[1] for _ in range(8)]
    more = 1100 - 110  # in a stage
    assert ends[-1] == pytest.approx(ends[0] + 16 * 110 + 4 * more, abs=4 * 110)


@pytest.mark.parametrize(
    ("model", "gpu", "pp"), [("llama-3.1-70b", "H100-SXM:4", 4), ("qwen3-30b-a3b", "H100-SXM:2", 2)]
)
@pytest.mark.parametrize("release", ["0.20.2", "0.33.0"])
def test_one_request_gains_a_token_in_the_sum_of_the_stages(
    model: str, gpu: str, pp: int, release: str
) -> None:
    asked = question(model, gpu, pp=pp, tp=1, engine_version=release)
    load = {"arrivals": "closed:1", "input": 1000, "output": 200, "requests": 3}
    seen = kvroom.simulate(**asked, workload=load).figures
    made = work(Scenario.from_dict({**asked, "workload": load}))
    assert made.timing is not None
    clock = step_clock(made.timing.clock)
    way = [sum(part.ps([(1000 + n, 1)]) for part in clock.parts) for n in range(199)]
    handed = (pp - 1) * (clock.handover_ps + clock.handover_token_ps)
    mean = sum(way) / len(way) + handed
    assert seen["tpot_s"]["mean"] * PS_PER_S == pytest.approx(mean, rel=1e-9)
    assert made.plan.serving.tpot_s == pytest.approx(seen["tpot_s"]["mean"], rel=0.002)
    if release == "0.20.2":
        return  # steps beyond the answer's end, which were scheduled before it, hold up the next prompt
    assert made.plan.serving.ttft_engine_s == pytest.approx(seen["ttft_engine_s"]["mean"], rel=0.01)


def test_a_full_pipeline_makes_no_more_steps_than_its_slowest_stage() -> None:
    asked = question("llama-3.1-70b", "H100-SXM:4", pp=4, tp=1)
    load = {"arrivals": "once", "input": 10, "output": 400, "requests": 64}
    seen = kvroom.simulate(**asked, workload=load).figures
    made = work(Scenario.from_dict(asked))
    assert made.timing is not None
    clock = step_clock(made.timing.clock)
    least = max(part.ps([(10, 1)] * 16) for part in clock.parts) / PS_PER_S
    whole = sum(part.ps([(410, 1)] * 16) for part in clock.parts) / PS_PER_S
    assert 4 * least <= seen["tpot_s"]["mean"] <= 1.1 * max(whole, 4 * least)


EVEN = {"input": "uniform:500-1500", "output": "uniform:100-300"}
ON_L4 = ("llama-3.1-8b", "L4:2", {"pp": 2, "tp": 1})
ON_H100 = ("llama-3.1-70b", "H100-SXM:4")
LOADS: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    (*ON_L4, {**EVEN, "arrivals": "closed:32", "requests": 400}),
    (
        *ON_H100,
        {"pp": 4, "tp": 1},
        {"arrivals": "closed:64", "input": 500, "output": "uniform:200-400", "requests": 600},
    ),
    (
        *ON_H100,
        {"pp": 2, "tp": 2},
        {**EVEN, "arrivals": "poisson:1.5/s", "requests": 500},
    ),
    (
        "qwen3-30b-a3b",
        "H100-SXM:2",
        {"pp": 2, "tp": 1},
        {"arrivals": "poisson:4/s", "input": 800, "output": 200, "requests": 500},
    ),
    (
        *ON_L4[:2],
        {**ON_L4[2], "engine_version": "0.20.2"},
        {**EVEN, "arrivals": "closed:16", "requests": 200},
    ),
)


@pytest.mark.parametrize(("model", "gpu", "keys", "load"), LOADS)
def test_plan_and_simulate_give_one_answer(
    model: str, gpu: str, keys: dict[str, Any], load: dict[str, Any]
) -> None:
    asked = question(model, gpu, workload=load, **keys)
    seen, made = kvroom.simulate(**asked).figures, kvroom.plan(**asked).serving
    assert made.tpot_s == pytest.approx(seen["tpot_s"]["mean"], rel=0.08)
    assert made.ttft_engine_s == pytest.approx(seen["ttft_engine_s"]["mean"], rel=0.2)


def test_who_plays_a_pipeline_as_one_step_says_so() -> None:
    load = {"arrivals": "closed:4", "input": 100, "output": 20, "requests": 8}
    for engine, said in (("vllm", False), ("sglang", True), ("tensorrt-llm", True)):
        asked = question("llama-3.1-8b", "H100-SXM:2", pp=2, tp=1, engine=engine, workload=load)
        notes = kvroom.simulate(**asked).figures["warnings"]
        assert any("is played as one step" in note for note in notes) == said


def test_a_pipeline_serves_from_tiers_behind_a_router_and_in_two_pools() -> None:
    load = {
        "arrivals": "closed:8",
        "input": 600,
        "output": 50,
        "requests": 40,
        "turns": 2,
        "prefix": "shared:2x256",
    }
    asked = question("llama-3.1-8b", "H100-SXM:2", pp=2, tp=1, workload=load)
    for more in (
        {"tiers": [{"kind": "host", "bytes": "8GiB"}]},
        {"replicas": 2, "routing": "prefix"},
    ):
        seen = kvroom.simulate(**asked, **more).figures
        assert seen["requests"]["completed"] == seen["requests"]["arrived"]


@pytest.mark.parametrize("seed", range(10))
def test_the_times_of_all_stages_are_those_of_each(seed: int) -> None:
    dice = random.Random(seed)
    made = work(Scenario.from_dict(question("gemma-3-27b", "H100-SXM:2", pp=2, tp=1)))
    assert made.timing is not None
    clock = step_clock(made.timing.clock)
    for _ in range(20):
        steps = [
            (dice.randint(0, 5000), 1 if dice.random() < 0.8 else dice.randint(2, 600))
            for _ in range(dice.randint(1, 40))
        ]
        assert clock.each_ps(steps) == [part.ps(steps) for part in clock.parts]


@pytest.mark.parametrize(("users", "entering"), [(8, 500), (64, 1000)])
def test_users_in_step_share_a_step_of_the_pipeline(users: int, entering: int) -> None:
    load = {"arrivals": f"closed:{users}", "input": entering, "output": 100, "requests": 6 * users}
    asked = question("llama-3.1-70b", "H100-SXM:4", pp=4, tp=1, workload=load)
    seen, made = kvroom.simulate(**asked).figures, kvroom.plan(**asked).serving
    assert made.tpot_s == pytest.approx(seen["tpot_s"]["mean"], rel=0.12)
    assert made.ttft_engine_s == pytest.approx(seen["ttft_engine_s"]["mean"], rel=0.2)
