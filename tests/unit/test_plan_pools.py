"""A plan of two pools: TTFT of the first, TPOT of the second, what binds; and what a plan leaves out."""

import json
import math

import pytest
from click.testing import CliRunner

from kvroom.errors import KvroomError
from kvroom.launchers.launch import launch
from kvroom.planner.explain import explain
from kvroom.planner.plan import plan, work
from kvroom.planner.simulate import simulate
from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.main import main
from kvroom.workloads.synthetic import parse

CHAT = {"input_tokens": 2000, "output_tokens": 150}
TWO = {"prefill": {"count": 2}, "decode": {"count": 2}}


def scenario(split=TWO, **more):
    workload = CHAT | more.pop("workload", {})
    base = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192}
    base |= {"engine": "vllm", "engine_version": "0.33.0", "disaggregation": split}
    return Scenario.from_dict(base | {"workload": workload} | more)


def open_plan(rate, split=TWO, **lengths):
    return plan(scenario(split, workload={"requests_per_s": rate} | lengths))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "split", "lengths"),
    [
        (5, TWO, (2000, 150)),
        (33, TWO, (2000, 150)),
        (26, TWO, (2000, 150)),
        (15, TWO | {"link_bytes_per_s": 3e9}, (2000, 150)),
        (15, TWO | {"link_bytes_per_s": 3e9, "layerwise": True}, (2000, 150)),
        (10, TWO, (6000, 50)),
        (36, {"prefill": {"count": 1}, "decode": {"count": 2, "gpu": "A100-80GB"}}, (300, 200)),
    ],
)
def test_the_closed_form_is_near_the_simulation(rate, split, lengths):
    prompt, answer = lengths
    line = f"arrivals=poisson:{rate}/s,input={prompt},output={answer},requests=1500"
    asked = scenario(
        split,
        workload={"input_tokens": prompt, "output_tokens": answer, "requests_per_s": rate},
    )
    w = work(asked)
    told = simulate(asked, parse(line, "--workload")).to_dict()
    calm = rate < 0.8 * w.split.pools.most
    first = w.plan.serving.ttft_engine_s
    assert first == pytest.approx(told["ttft_engine_s"]["mean"], rel=0.15 if calm else 0.25)
    assert w.plan.serving.ttft_front_end_s == told["ttft_front_end_s"]
    assert w.plan.serving.tpot_s == pytest.approx(told["tpot_s"]["mean"], rel=0.06)
    crossed = told["fleet"]["transfers"]["mean_s"]
    # In full steps prompts end together, and their caches cross one after the other.
    assert w.plan.pools.handover_s == pytest.approx(crossed, rel=0.25 if calm else 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "output", "split", "binds"),
    [
        (8, 150, TWO, "prefill"),
        (128, 150, TWO, "prefill"),
        (128, 80, TWO, "prefill"),
        (128, 40, TWO, "prefill"),
        (128, 150, TWO | {"link_bytes_per_s": 1e9}, "link"),
    ],
)
def test_a_loop_of_users_is_near_the_simulation(users, output, split, binds):
    asked = scenario(split, concurrency=users, workload={"output_tokens": output})
    w = work(asked)
    line = f"arrivals=closed:{users},input=2000,output={output},requests=2000"
    told = simulate(asked, parse(line, "--workload")).to_dict()
    assert w.plan.pools.binding == binds
    made = told["requests"]["completed"] / told["duration_s"]
    assert w.split.times.requests_per_s == pytest.approx(made, rel=0.06)
    assert w.plan.serving.tpot_s == pytest.approx(told["tpot_s"]["mean"], rel=0.06)
    # Little's law, once the queue of the start is over: whoever is under way is a user.
    cycle = w.plan.serving.ttft_engine_s + (output - 1) * w.plan.serving.tpot_s
    assert w.split.times.requests_per_s * cycle == pytest.approx(users, rel=1e-6)


def test_what_is_slowest_binds():
    calm = open_plan(1).pools
    assert calm.binding == "prefill"
    assert open_plan(1, TWO | {"link_bytes_per_s": 1e9}).pools.binding == "link"
    assert open_plan(1, output_tokens=1500).pools.binding == "decode"
    more = open_plan(1, {"prefill": {"count": 4}, "decode": {"count": 2}}).pools
    assert more.prefill.requests_per_s == pytest.approx(2 * calm.prefill.requests_per_s)
    assert more.decode.requests_per_s == calm.decode.requests_per_s


def test_the_link_that_is_needed_holds_up_nobody():
    slow = open_plan(1, TWO | {"link_bytes_per_s": 1e9}).pools
    needed = slow.needs_link_bytes_per_s
    for share, binds in ((1.001, "prefill"), (0.999, "link")):
        assert open_plan(1, TWO | {"link_bytes_per_s": needed * share}).pools.binding == binds


def test_more_than_the_pools_serve_is_told_with_the_number():
    most = open_plan(1).pools.prefill.requests_per_s
    assert open_plan(most * 0.99).serving.ttft_s is not None
    over = open_plan(most * 1.01)
    assert over.serving.ttft_s is None
    assert over.serving.output_tokens_per_s == pytest.approx(most * 150)
    assert f"{most:,.3g} requests a second (the prefill pool)" in over.warnings[0]
    (warned,) = open_plan(1, TWO | {"link_bytes_per_s": 1e9}).warnings
    assert "links of 1 GB/s a replica hold up both pools" in warned


@pytest.mark.parametrize("key", ["prefill", "decode"])
def test_a_faster_pool_serves_no_later(key):
    times = []
    for count in (1, 2, 3):
        s = open_plan(18, TWO | {key: {"count": count}}).serving
        times.append((s.ttft_s or math.inf) + 149 * s.tpot_s)
    assert times == sorted(times, reverse=True)


def test_an_answer_of_one_token_is_not_handed_over():
    made = open_plan(5, output_tokens=1)
    assert made.pools.handover_s == 0
    assert made.pools.link_requests_per_s is made.pools.decode.requests_per_s is None
    json.dumps(made.to_dict(), allow_nan=False)


def test_both_pools_are_paid_for_and_have_to_fit():
    big = {"prefill": {"count": 1, "tp": 4}, "decode": {"count": 3, "tp": 2}}
    one = plan(scenario(None))
    assert plan(scenario(big)).cost.usd_per_hour == pytest.approx(10 * one.cost.usd_per_hour)
    small = {
        "prefill": {"gpu": {"name": "small", "memory_bytes": 16e9, "memory_bytes_per_s": 1e12}}
    }
    made = plan(scenario(small))
    assert not made.verdict.fits
    assert made.verdict.sentence.startswith("A replica of the prefill pool: Does not")
    assert not made.pools.prefill.fits
    assert made.pools.decode.fits


def test_memory_is_that_of_a_decode_replica():
    made = plan(scenario({"prefill": {"count": 1}, "decode": {"gpu": "H200-SXM"}}))
    alone = plan(scenario(None, gpu="H200-SXM"))
    assert made.memory == alone.memory
    assert made.scenario.gpu == "H100-SXM"


def test_every_figure_of_pools_is_explained():
    made = work(scenario(workload={"requests_per_s": 20}))
    found = {e.figure: e for e in explain(made)}
    for name in ("tpot_s", "ttft_s", "output_tokens_per_s"):
        e = found[f"serving.{name}"]
        assert e.value == getattr(made.plan.serving, name)
        assert eval(e.numbers.replace("×", "*")) == pytest.approx(e.value)
    for name in ("pools.prefill.requests_per_s", "pools.decode.requests_per_s"):
        assert eval(found[name].numbers.replace("×", "*")) == pytest.approx(found[name].value)
    price = found["cost.usd_per_hour"]
    assert eval(price.numbers.replace("×", "*")) == pytest.approx(made.plan.cost.usd_per_hour)


def test_a_static_batch_in_pools_is_told_not_timed():
    made = plan(scenario(workload={"static": True}))
    assert made.serving.ttft_s is None
    assert any("static batch" in w for w in made.warnings)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"disaggregation": []}, "disaggregation"),
        ({"disaggregation": 0}, "disaggregation"),
        ({"disaggregation": TWO | {"prefill": {"count": 0}}}, "disaggregation.prefill.count"),
        ({"disaggregation": TWO | {"link_bytes_per_s": 0}}, "disaggregation.link_bytes_per_s"),
        ({"disaggregation": TWO | {"decode": {"gpu": "nope"}}}, "disaggregation.decode.gpu"),
        ({"disaggregation": TWO | {"decode": {"tp": 3}}}, "disaggregation.decode.tp"),
        ({"disaggregation": TWO | {"decode": {"kv_dtype": "fp8"}}}, "disaggregation"),
        ({"fleet": {"nonsense": 1}}, "fleet"),
        ({"fleet": {"pools": [{"gpu": "L40S"}, {"tp": 0}]}}, "fleet.pools[1].tp"),
        ({"fleet": {"pools": [{"count": 2}]}, "replicas": 4}, "replicas"),
        ({"fleet": {"autoscale": {"min": 3, "max": 1}}}, "fleet.autoscale.min"),
        ({"fleet": {"failures": {"at": [{"replica": 7}]}}}, "fleet.failures.at[0].replica"),
        ({"routing": "prefx"}, "routing"),
    ],
)
def test_a_plan_refuses_what_a_simulation_would(keys, field):
    with pytest.raises(KvroomError) as refused:
        asked = scenario(TWO if "disaggregation" in keys else None)
        plan(Scenario.from_dict(asked.to_dict() | keys))
    assert refused.value.field == field


def test_what_a_plan_leaves_out_is_told_and_a_simulation_does_not_say_so():
    asked = scenario(
        None,
        workload={"requests_per_s": 9000},
        replicas=8,
        routing="least-loaded",
        fleet={"start": {"seconds": 1}},
    )
    told = plan(asked).warnings
    (left,) = [w for w in told if "left out here" in w]
    assert left.startswith("routing, fleet.start: ")
    line = "arrivals=poisson:90/s,input=200,output=20,requests=100"
    made = simulate(asked, parse(line, "--workload"))
    assert not [w for w in made.warnings if "left out" in w or "without end" in w]
    assert [w for w in told if "without end" in w]


def test_pools_in_text_fit_a_terminal():
    split = json.dumps({"prefill": {"count": 2, "tp": 8}, "decode": {"count": 16, "tp": 8}})
    line = "plan llama-3-70b --gpu H100-SXM --context 8K --rate 3 --input-tokens 2000"
    args = [*line.split(), "--output-tokens", "100", "--disaggregation", split, "--all"]
    made = CliRunner().invoke(main, args)
    assert made.exit_code == 0, made.output
    assert "16 of 8 x H100-SXM" in made.output
    assert max(map(len, made.output.splitlines())) <= 80


@pytest.mark.parametrize("keys", [{"split": TWO}, {"split": None, "fleet": {"pools": [{}]}}])
def test_a_launch_says_what_it_does_not_write(keys):
    made = launch(work(scenario(**keys)))
    assert [note for note in made.notes if "is not written: this starts one copy" in note]
    assert not [n for n in launch(work(scenario(None))).notes if "is not written" in n]


def test_a_start_at_once_is_seen_in_the_first_tokens_of_a_loop():
    """The mean one of 64 users on two engines finds half of the other 31 before it."""
    w = work(scenario(concurrency=64))
    pools, times = w.split.pools, w.split.times
    assert times.start_s == pytest.approx(pools.burst * 15.5 * pools.full_s)
    assert times.ttft_s == pytest.approx(times.ttft_engine_s + times.front_end_s + times.start_s)
    assert open_plan(5).serving.ttft_start_s == 0
