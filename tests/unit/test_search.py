"""Search: what it chooses from, what it asks, the journal, and answers that hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

import kvroom
from kvroom.distributed.journal import Journal
from kvroom.distributed.workers import run_all
from kvroom.errors import KvroomError
from kvroom.hardware import all_devices
from kvroom.optimize.search.answers import why_not_first
from kvroom.optimize.search.closed_form import Question, closed, closed_split
from kvroom.optimize.search.demand import demand_of, objectives
from kvroom.optimize.search.hunt import Hunt
from kvroom.optimize.search.search import search
from kvroom.optimize.search.space import Space, candidates
from kvroom.planner.plan import work
from kvroom.planner.simulate import simulate
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.workloads.synthetic import of_workload

LENGTHS = {"input_tokens": 1000, "output_tokens": 100}
SMALL = Space(gpus=("L4", "L40S"), counts=(1, 2))


def base(model="llama-3-8b", **workload):
    asked = {"model": model, "gpu": "H100-SXM", "workload": {**LENGTHS, **workload}}
    return Scenario.from_dict(asked)


@pytest.fixture(scope="module")
def found():
    return search(base(concurrency=16), "ttft_p95=3s,tpot_p95=60ms", space=SMALL, simulate=3)


def test_answers_meet_the_objectives_cheapest_first(found):
    assert found.answers
    prices = [a.row["usd_per_hour"] for a in found.answers]
    assert prices == sorted(prices)
    for a in found.answers:
        assert a.simulated
        assert a.trial["met"]
        assert a.trial["slo"]["ttft_p95"] <= 3
        assert all(m >= 0 for m in a.margin.values())
    assert not found.answers[0].why
    assert all(a.why for a in found.answers[1:])
    assert found.answers[0].name in found.sentence


def test_an_answer_is_a_plan_that_can_be_asked_again(found):
    best = found.answers[0]
    plan = work(Scenario.from_dict(best.scenario.to_dict())).plan
    assert plan.cost.usd_per_hour == pytest.approx(best.row["usd_per_hour"])
    assert best.figures.step_s == plan.step.seconds
    assert best.figures.ttft_s == plan.serving.ttft_s


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ((1.0, 0.392, 3.0), (1.0, 0.389, 3.0), "a million tokens cost $0.392 against $0.389"),
        ((1.0, 2.5, 3.0), (1.0, 2.0, 3.0), "a million tokens cost $2.50 against $2.00"),
        ((1.0, 2.0, 3.0014), (1.0, 2.0, 3.001), "takes 3.0014 s a request against 3.0010 s"),
        ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0), "costs the same and takes as long"),
        (
            (0.0604, 2.0, 3.0),
            (0.06, 2.0, 3.0),
            "1.01 times as much: $0.0604 an hour against $0.0600",
        ),
    ],
)
def test_a_reason_has_the_digits_that_make_it_one(found, one, other, told):
    def answer(hour, tokens, seconds):
        row = {
            "usd_per_hour": hour,
            "usd_per_million_output_tokens": tokens,
            "e2e_s": seconds,
        }
        return replace(found.answers[0], row={**found.answers[0].row, **row})

    assert told in why_not_first(answer(*one), answer(*other))


def test_none_on_the_front_is_beaten(found):
    def point(a):
        return (a.row["usd_per_hour"], a.row["e2e_s"], -a.row["output_tokens_per_s"])

    points = [point(a) for a in found.answers]
    for i in found.pareto:
        assert not any(
            q != points[i] and all(x <= y for x, y in zip(q, points[i], strict=True))
            for q in points
        )
    assert 0 in found.pareto


def test_it_says_where_the_closed_form_is_not_borne_out(found):
    shares = found.searched["simulated_within_band"]
    assert set(shares) == {"ttft", "tpot"}
    for metric, share in shares.items():
        assert 0 <= share <= 1
        assert (f"of the simulated {metric.upper()}" in found.sentence) == (share < 0.8)


def test_json_holds_what_scripts_rely_on(found):
    told = json.loads(json.dumps(found.to_dict()))
    assert {"objective", "searched", "answers", "pareto", "journal"} <= set(told)
    for i, answer in enumerate(told["answers"]):
        assert answer["rank"] == i + 1
        assert {"scenario", "figures", "margin", "simulated"} <= set(answer)
        assert set(answer["margin"]) == {"ttft_p95", "tpot_p95"}
    page = found.to_html()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert len({tuple(r) for r in found.rows()}) == 1


def test_a_rate_takes_more_replicas_than_half_of_it():
    few, many = (
        search(base(requests_per_s=rate), "tpot_p95=80ms", space=SMALL, simulate=0)
        for rate in (2.0, 40.0)
    )
    assert few.answers[0].row["usd_per_hour"] < many.answers[0].row["usd_per_hour"]
    assert many.answers[0].scenario.replicas > 1


@pytest.mark.slow
def test_without_a_load_the_cheapest_tokens_are_sought():
    got = search(base(), "tpot_p95=60ms", space=SMALL, simulate=2)
    assert got.objective["minimise"] == "usd_per_million_output_tokens"
    prices = [a.row["usd_per_million_output_tokens"] for a in got.answers]
    assert prices == sorted(prices)


def test_the_same_seed_gives_the_same_answer(found):
    again = search(base(concurrency=16), "ttft_p95=3s,tpot_p95=60ms", space=SMALL, simulate=3)
    assert again.to_dict() == found.to_dict()


def test_what_cannot_be_met_gets_the_nearest():
    got = search(base(concurrency=4), "tpot_p95=1ms", space=SMALL, simulate=2)
    assert not got.answers
    assert "Nothing meets the objectives" in got.sentence
    assert got.nearest
    ratios = [x["ratio"] for x in got.nearest]
    assert ratios == sorted(ratios)
    assert ratios[0] > 1
    assert "it would do with tpot_p95=" in got.nearest[0]["why"]


@pytest.mark.slow
def test_a_rate_beyond_any_fleet_is_told():
    space = Space(gpus=("L4",), counts=(1,), max_gpus=64)
    got = search(base(requests_per_s=1e5), "tpot_p95=100ms", space=space, simulate=0)
    assert not got.answers
    assert got.sentence.startswith("No fleet of up to 64 GPUs carries this load")


def test_an_empty_space_is_told():
    none = search(base(), space=Space(gpus=("L4",), counts=(7,)), simulate=0)
    assert "Nothing to search" in none.sentence
    heavy = search(base("llama-3-70b"), space=Space(gpus=("L4",), counts=(1,)), simulate=0)
    assert heavy.sentence.startswith("None of")
    assert "Does not fit" in heavy.sentence or "Does not start" in heavy.sentence


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"gpus": ("H1000",)}, "gpu"),
        ({"counts": (0,)}, "--counts"),
        ({"engines": ("vlm",)}, "--engines"),
        ({"max_gpus": 0}, "--max-gpus"),
    ],
)
def test_a_space_that_is_wrong_is_refused(keys, field):
    with pytest.raises(KvroomError) as told:
        Space.from_dict(keys)
    assert told.value.field == field


@pytest.mark.parametrize(
    "text",
    [
        "ttft_p95=2s,ttft_p95=3s",
        "ttft_p50=3s,ttft_p95=2s",
        "e2e_p95=1s,ttft_p95=2s",
        "ttft_p96=2s",
    ],
)
def test_objectives_that_contradict_are_refused(text):
    with pytest.raises(KvroomError) as told:
        objectives(text)
    assert told.value.field == "--slo"


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        (None, "workload"),
        (Workload(**LENGTHS, static=True, concurrency=2), "static"),
        (Workload(**LENGTHS, concurrency=2, requests_per_s=1.0), "--rate"),
        (Workload(arrivals="once", input=10, output=10), "workload.arrivals"),
        (Workload(arrivals="closed:8", input=10, output=10, concurrency=4), "--users"),
    ],
)
def test_a_load_that_contradicts_itself_is_refused(workload, field):
    with pytest.raises(KvroomError) as told:
        demand_of(workload, "", 0)
    assert told.value.field == field


def test_a_made_up_workload_gives_its_mean_lengths():
    w = Workload(arrivals="poisson:2/s", input="lognormal:mean=1000:sigma=0.5", output="fixed:200")
    demand = demand_of(w, "", 0)
    assert demand.input_tokens == pytest.approx(1000, rel=0.05)
    assert demand.output_tokens == 200
    assert demand.requests_per_s == pytest.approx(2.0)
    assert demand.longest_tokens > 2000


def test_hardware_that_lacks_a_width_is_not_tried():
    asked = base("llama-3-8b", concurrency=1)
    trt = Scenario.from_dict({**asked.to_dict(), "engine": "tensorrt-llm"})
    space = Space(gpus=("A100-SXM-80", "H100-SXM"), counts=(1,), engines=("tensorrt-llm",))
    tried = {(c.keys["gpu"], c.keys["kv_dtype"]) for c in candidates(trt, space)}
    assert ("H100-SXM", "fp8") in tried
    assert ("A100-SXM-80", "fp8") not in tried


def test_experts_are_spread_over_data_parallel_ranks():
    space = Space(gpus=("H200-SXM",), counts=(8,))
    layouts = {
        tuple(c.keys[d] for d in ("tp", "pp", "dp", "ep"))
        for c in candidates(base("deepseek-v3"), space)
    }
    assert (1, 1, 8, 8) in layouts
    dense = {tuple(c.keys[d] for d in ("tp", "pp", "dp")) for c in candidates(base(), space)}
    assert dense == {(8, 1, 1), (4, 2, 1), (2, 4, 1)}


def test_more_users_never_need_fewer_cards():
    keys = {"gpu": "L4", "gpu_count": 1, "tp": 1, "pp": 1, "dp": 1, "ep": 1, "engine": "vllm"}
    keys |= {"weight_dtype": "fp8", "kv_dtype": "fp8"}
    gpus = []
    for users in (1, 8, 64, 512):
        load = {**LENGTHS, "concurrency": users}
        asked = Question(
            keys={"model": "llama-3-8b", "context_tokens": 4096},
            workload=load,
            slo="tpot_p95=80ms",
            seed=0,
            max_gpus=1024,
        )
        gpus.append(closed(asked, keys)["gpus"])
    assert gpus == sorted(gpus)
    assert gpus[0] < gpus[-1]


# The journal, and workers that die


def twice(unit):
    return unit["n"] * 2


def test_what_the_journal_holds_is_not_done_again(tmp_path):
    path = str(tmp_path / "journal")
    units = [{"n": n} for n in range(5)]
    with Journal(path, {"q": 1}) as journal:
        assert run_all("double", twice, units[:3], journal) == [0, 2, 4]
    done = []

    def counted(unit):
        done.append(unit["n"])
        return twice(unit)

    with Journal(path, {"q": 1}) as journal:
        assert run_all("double", counted, units, journal) == [0, 2, 4, 6, 8]
    assert done == [3, 4]


def test_a_line_that_a_kill_cut_off_is_dropped(tmp_path):
    path = tmp_path / "journal"
    with Journal(str(path), {"q": 1}) as journal:
        run_all("double", twice, [{"n": 1}, {"n": 2}], journal)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with Journal(str(path), {"q": 1}) as journal:
        assert len(journal.done) == 1
        assert run_all("double", twice, [{"n": 1}, {"n": 2}], journal) == [2, 4]
    assert path.read_bytes() == whole


def test_a_journal_of_another_search_is_refused(tmp_path):
    path = tmp_path / "journal"
    Journal(str(path), {"q": 1}).__exit__(None, None, None)
    with pytest.raises(KvroomError, match="another question"):
        Journal(str(path), {"q": 2})
    path.write_text("something else\n")
    with pytest.raises(KvroomError, match="no journal"):
        Journal(str(path), {"q": 1})
    assert path.read_text() == "something else\n"
    with pytest.raises(KvroomError, match="cannot be used"):
        Journal(str(tmp_path / "no" / "journal"), {})


@pytest.mark.slow
def test_a_search_goes_on_where_it_was_cut_off_and_ends_the_same(tmp_path, found):
    path = tmp_path / "journal"
    asked = (base(concurrency=16), "ttft_p95=3s,tpot_p95=60ms")
    whole = search(*asked, space=SMALL, simulate=3, journal=str(path))
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (1, len(lines) // 2, len(lines)):
        path.write_bytes(b"".join(lines[:kept]) + b'{"unit": "half')
        again = search(*asked, space=SMALL, simulate=3, journal=str(path))
        assert again.to_dict() == whole.to_dict()
        assert sorted(path.read_bytes().splitlines()) == sorted(b"".join(lines).splitlines())
    assert {**whole.to_dict(), "journal": None} == found.to_dict()


class Dying(Executor):
    """A pool whose workers die after each has done one unit."""

    def __init__(self):
        self.left = 1

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        if self.left:
            future.set_result(fn(*args, **kwargs))
        else:
            future.set_exception(BrokenExecutor("its worker died"))
        self.left -= 1 if self.left else 0
        return future


def test_units_of_workers_that_died_are_given_out_again():
    units = [{"n": n} for n in range(3)]
    assert run_all("double", twice, units, Journal(None, {}), pool=Dying) == [0, 2, 4]
    with pytest.raises(KvroomError) as told:
        run_all("double", twice, [{"n": n} for n in range(9)], Journal(None, {}), pool=Dying)
    assert told.value.field == "--cluster"


@pytest.mark.slow
def test_any_pool_gives_the_same_answer(found):
    threads = search(
        base(concurrency=16),
        "ttft_p95=3s,tpot_p95=60ms",
        space=SMALL,
        simulate=3,
        pool=lambda: ThreadPoolExecutor(2),
    )
    assert threads.to_dict() == found.to_dict()


KILLED = """
import os, signal, sys
from kvroom.optimize.search.search import search
from kvroom.optimize.search.space import Space
from kvroom.scenario.scenario import Scenario

def tell(stage, done, total):
    if stage.startswith("simulations") and done == 1:
        os.kill(os.getpid(), signal.SIGKILL)

asked = Scenario.from_dict(
    {"model": "llama-3-8b", "gpu": "H100-SXM",
     "workload": {"input_tokens": 1000, "output_tokens": 100, "concurrency": 16}})
space = Space(gpus=("L4", "L40S"), counts=(1, 2))
search(asked, "ttft_p95=3s,tpot_p95=60ms", space=space, simulate=3, journal=sys.argv[1], progress=tell)
"""


@pytest.mark.slow
def test_a_killed_search_loses_only_what_was_in_flight(tmp_path, found):
    path = tmp_path / "journal"
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
    )
    assert process.returncode == -signal.SIGKILL
    before = len(path.read_bytes().splitlines())
    asked = (base(concurrency=16), "ttft_p95=3s,tpot_p95=60ms")
    new = []
    again = search(
        *asked, space=SMALL, simulate=3, journal=str(path), progress=lambda *told: new.append(told)
    )
    assert {**again.to_dict(), "journal": None} == found.to_dict()
    assert before > 2
    assert all(done == total for stage, done, total in new if stage == "closed form")
    first = next(done for stage, done, _ in new if stage.startswith("simulations"))
    assert first == 1


def test_the_python_call():
    got = kvroom.search(
        "llama-3-8b",
        slo="tpot_p95=60ms",
        users=8,
        workload=LENGTHS,
        space={"gpus": ["L40S"], "counts": [1]},
        simulate=1,
    )
    assert got.answers[0].scenario.gpu == "L40S"
    assert (
        kvroom.Scenario.from_dict(got.to_dict()["answers"][0]["scenario"])
        == got.answers[0].scenario
    )


def test_copies_of_heads_are_laid_out_over_the_context():
    """Eight tensor ranks hold each of four KV heads twice: two of them share a request's tokens."""
    from kvroom.models.load import load
    from kvroom.optimize.search.space import layouts

    dense = [x for x in layouts(load("qwen3-30b-a3b"), 8) if x["pp"] == 1 and x["tp"] == 8]
    assert {x["dcp"] for x in dense} == {1, 2}
    assert {x["dcp"] for x in layouts(load("gpt-oss-120b"), 8)} == {1}  # windows are not shared out
    latent = {x["dcp"] for x in layouts(load("deepseek-v3"), 8) if x["tp"] == 8}
    assert latent == {1, 2, 4, 8}


def test_flags_of_engines_are_chosen_among():
    space = Space(
        gpus=("L4",), counts=(1,), engines=("vllm", "sglang"), shares=(0.8, 0.9), sequences=(8,)
    )
    found = list(candidates(base(), space))
    by_engine = {"vllm": set(), "sglang": set()}
    for c in found:
        by_engine[c.keys["engine"]].add(tuple(sorted(c.keys["engine_args"].items())))
    assert by_engine["vllm"] == {
        (("gpu_memory_utilization", share), ("max_num_seqs", 8)) for share in (0.8, 0.9)
    }
    assert by_engine["sglang"] == {
        (("max_running_requests", 8), ("mem_fraction_static", share)) for share in (0.8, 0.9)
    }
    answer = search(base(), "tpot_p95=1s", space=space, simulate=0)
    assert all(row["users"] <= 8 for row in answer.rows())
    assert "offload to disks and networks" in answer.to_dict()["left_out"]


# What is fixed, what is cheapest, what is kept


@pytest.mark.parametrize(
    ("fixed", "degrees"),
    [
        ({"tp": 2}, {(2, 1, 1), (2, 2, 1)}),
        ({"tp": 2, "dp": 2}, {(2, 1, 2)}),
        ({"pp": 4}, {(1, 4, 1)}),
        ({"tp": 1}, {(1, 1, 1), (1, 2, 1), (1, 4, 1)}),
    ],
    ids=str,
)
def test_degrees_that_are_fixed_hold_for_every_deployment(fixed, degrees):
    space = Space(gpus=("L40S",), counts=(1, 2, 4), layout=fixed)
    tried = {tuple(c.keys[d] for d in ("tp", "pp", "dp")) for c in candidates(base(), space)}
    assert tried == degrees


def test_what_the_question_fixes_is_fixed():
    asked = Scenario.from_dict(
        {**base(concurrency=4).to_dict(), "tp": 2, "gpu_count": 2, "replicas": 3}
    )
    got = search(asked, space=SMALL, simulate=1)
    assert {(a.scenario.tp, a.scenario.replicas) for a in got.answers} == {(2, 3)}


def again(answer, slo, replicas):
    """Whether ``simulate`` of an answer with so many replicas meets the objectives."""
    asked = Scenario.from_dict({**answer.scenario.to_dict(), "replicas": replicas})
    told = simulate(asked, of_workload(asked.workload), slo=objectives(slo)).to_dict()
    return all(kept["met"] for kept in told["slo"].values()), told


GRID = [
    ({**LENGTHS, "concurrency": 60, "requests": 600}, "ttft_p95=1s,tpot_p95=15ms"),
    (
        {
            "input": "lognormal:mean=800:sigma=0.6",
            "output": "uniform:50-250",
            "requests_per_s": 40,
            "requests": 600,
        },
        "ttft_p95=400ms,tpot_p95=30ms",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("load", "slo"), GRID, ids=["users", "rate"])
def test_nothing_of_a_grid_is_cheaper(load, slo):
    """Every deployment, with every number of replicas that would be cheaper, simulated."""
    asked = Scenario.from_dict({"model": "llama-3.1-8b", "gpu": "L4", "workload": load})
    space = Space(gpus=("L4", "L40S"), counts=(1, 2), kv_dtypes=("auto",), splits=False)
    found = search(asked, slo, space=space, simulate=1)
    best = found.answers[0]
    assert found.searched["proven"]
    replicas = best.scenario.replicas
    assert replicas > 1
    assert again(best, slo, replicas)[0]
    assert not again(best, slo, replicas - 1)[0]
    for c in candidates(asked, space):
        own = Scenario.from_dict({**best.scenario.to_dict(), **c.keys, "replicas": 1})
        price, n = work(own).plan.cost.usd_per_hour, 1
        while n * price < best.row["usd_per_hour"]:
            one = replace(best, scenario=own)
            assert not again(one, slo, n)[0], (c.name, n)
            n += 1


def test_plan_search_and_simulate_of_an_answer_agree(found):
    best = found.answers[0]
    serving = work(best.scenario).plan.serving
    _, told = again(best, "ttft_p95=3s,tpot_p95=60ms", best.scenario.replicas)
    for metric in ("ttft", "tpot"):
        low, high = (getattr(serving, f"{metric}_{end}_s") for end in ("low", "high"))
        assert best.row[f"{metric}_s"] == pytest.approx(getattr(serving, f"{metric}_s"))
        assert low <= told[f"{metric}_s"]["mean"] <= high
        assert best.trial[f"{metric}_s"] == told[f"{metric}_s"]["mean"]


def test_pools_that_cannot_meet_the_objectives_are_passed_over():
    load = {"input_tokens": 2000, "output_tokens": 300, "concurrency": 400}
    asked = Scenario.from_dict({"model": "llama-3.1-70b", "gpu": "H200-SXM", "workload": load})
    space = Space(gpus=("H200-SXM",), counts=(1, 2, 4), max_gpus=64)
    assert search(asked, "ttft_p95=2s,tpot_p95=50ms", space=space, simulate=1).sentence


def test_answers_differ_in_more_than_the_cache(found):
    kinds = [(a.name.replace("fp8", "").replace("auto", "")) for a in found.answers]
    assert len(set(kinds)) > 1
    layouts = [
        (a.scenario.gpu, a.scenario.gpu_count, a.scenario.tp, a.scenario.weight_dtype)
        for a in found.answers
    ]
    assert len(set(layouts)) == len(layouts)


@pytest.mark.slow
def test_the_best_of_each_card():
    space = Space(gpus=("L4", "L40S", "H100-SXM"), counts=(1,))
    got = search(base(concurrency=8), "tpot_p95=60ms", space=space, simulate=1, per="gpu")
    assert [a.scenario.gpu for a in got.answers] == ["L40S", "L4", "H100-SXM"] or len(
        {a.scenario.gpu for a in got.answers}
    ) == 3
    prices = [a.row["usd_per_hour"] for a in got.answers]
    assert prices == sorted(prices)
    with pytest.raises(KvroomError):
        search(base(concurrency=8), space=space, per="card")


def test_cards_without_a_price_are_kept_with_their_number():
    bare = next(d.name for d in all_devices() if d.usd_per_hour is None and d.flops("bf16"))
    got = search(base(concurrency=2), space=Space(gpus=("L40S", bare), counts=(1, 2)), simulate=0)
    assert bare not in {a.scenario.gpu for a in got.answers}
    assert [x["scenario"]["gpu"] for x in got.unpriced] in ([bare], [])
    priced = Scenario.from_dict({**base(concurrency=2).to_dict(), "prices": {bare: 0.01}})
    told = search(priced, space=Space(gpus=("L40S", bare), counts=(1, 2)), simulate=0)
    assert not told.unpriced
    if got.unpriced:
        assert told.answers[0].scenario.gpu == bare


def test_turns_and_think_time_are_part_of_the_load():
    chat = {"input": 400, "output": 100, "turns": 4}
    asked = base(**chat, arrivals="closed:60")
    space = Space(gpus=("L4",), counts=(1,), kv_dtypes=("auto",), tiers=("none",))
    quick, slow = (
        search(
            Scenario.from_dict(
                {**asked.to_dict(), "workload": {**chat, "arrivals": "closed:60", **more}}
            ),
            "tpot_p95=80ms",
            space=space,
            simulate=0,
        )
        for more in ({}, {"think": "uniform:20s-40s"})
    )
    assert slow.answers[0].row["gpus"] < quick.answers[0].row["gpus"]
    assert slow.answers[0].scenario.workload.think == "uniform:20s-40s"


def test_pools_are_as_few_as_serve():
    load = {"input_tokens": 2000, "output_tokens": 150, "requests_per_s": 30.0}
    asked = Question(
        keys={"model": "llama-3-8b", "context_tokens": 8192, "engine": "vllm"},
        workload=load,
        slo="ttft_p95=1s,tpot_p95=20ms",
        seed=0,
        max_gpus=64,
    )
    keys = {"gpu": "H100-SXM", "gpu_count": 1, "tp": 1}
    unit = {
        "question": asked.to_dict(),
        "keys": keys,
        "prefill": {},
        "usd": [3.0, 3.0],
        "cards": [1, 1],
    }
    row = closed_split({**unit, "budget": 39.0})
    split = row["keys"]["disaggregation"]
    counts = {name: split[name]["count"] for name in ("prefill", "decode")}
    assert row["meets"]
    for name in counts:
        fewer = {n: {"count": c - (n == name)} for n, c in counts.items()}
        if fewer[name]["count"]:
            assert not closed(asked, {**keys, "disaggregation": fewer})["meets"]
    few = closed_split({**unit, "budget": 3.0 * sum(counts.values())})
    assert "refused" in few


def test_pools_of_two_cards_cost_what_both_do():
    load = {"input_tokens": 4000, "output_tokens": 200, "requests_per_s": 12.0}
    question = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "workload": load})
    space = Space(gpus=("H100-SXM", "L40S"), counts=(1,), kv_dtypes=("auto",), drafts=("none",))
    hunt = Hunt(
        question=Question(
            keys={"model": "llama-3-8b", "context_tokens": 8192, "engine": "vllm"},
            workload=load,
            slo="ttft_p95=2s,tpot_p95=50ms",
            seed=0,
            max_gpus=64,
        ),
        space=space,
        base=question,
        journal=Journal(None, {}),
        pool=None,
        progress=None,
        simulate=0,
    )
    rows, _ = hunt.scored()
    found = hunt._pools(rows, 1000.0)
    mixed = [x for x in found if "gpu" in x.candidate.keys["disaggregation"]["prefill"]]
    assert {(x.candidate.keys["gpu"], x.candidate.kind) for x in mixed}
    for x in mixed:
        split = x.candidate.keys["disaggregation"]
        usd = sum(x.row["pool_usd"][name] * split[name]["count"] for name in split)
        assert x.row["usd_per_hour"] == pytest.approx(usd)
        assert x.usd(1) == pytest.approx(usd)
        keys = {**x.candidate.keys, "model": "llama-3-8b", "context_tokens": 8192, "workload": load}
        plan = work(Scenario.from_dict(keys)).plan
        assert plan.cost.usd_per_hour == pytest.approx(usd)
        assert {plan.pools.prefill.gpu, plan.pools.decode.gpu} == {"H100-SXM", "L40S"}


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["closed form", "simulations from 5"])
def test_an_interrupted_search_answers_with_what_it_knows(stage):
    def interrupt(at, done, total):
        if at == stage and done == 1:
            raise KeyboardInterrupt

    space = Space(gpus=("L4", "L40S", "A100-SXM-80", "H100-SXM"), counts=(1, 2, 4))
    asked = base(concurrency=100, requests=400)
    got = search(asked, "tpot_p95=40ms", space=space, progress=interrupt)
    assert got.searched["stopped"]
    assert not got.searched["proven"]
    assert got.answers
    assert "stopped" in got.sentence
    assert got.answers[0].simulated == (stage != "closed form")


def test_shares_are_checked():
    with pytest.raises(KvroomError, match="shares"):
        Space.from_dict({"shares": [1.5]})


def test_what_can_never_be_met_is_refused():
    for text in ("tpot_p95=0s", "ttft_p95=0ms,tpot_p95=50ms"):
        with pytest.raises(KvroomError) as told:
            objectives(text)
        assert told.value.field.startswith("--slo ")


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ({"gpu": ["L4"]}, "space", "gpu"),
        ({"counts": 2}, "space.counts", 2),
        ({"gpus": "L4"}, "space.gpus", "L4"),
        ({"kv_dtypes": ["auto", "fp7"]}, "--kv-dtypes", "fp7"),
        ({"weight_dtypes": ["own", "int3x"]}, "weight_dtype", "int3x"),
        ({"budgets": [0]}, "--budgets", 0),
        ({"sequences": ["8"]}, "--sequences", "8"),
        ([1], "space", [1]),
    ],
)
def test_a_choice_that_is_none_is_refused_before_any_work(keys, field, value):
    with pytest.raises(KvroomError) as told:
        Space.from_dict(keys)
    assert (told.value.field, told.value.value) == (field, value)


def test_a_model_that_writes_nothing_is_told_so():
    told = search(base("bge-m3"), space=Space(gpus=("L4",), counts=(1,)), simulate=0)
    assert "bge-m3 writes no tokens" in told.sentence


def test_why_none_runs_names_the_value():
    told = search(base(), space=Space(gpus=("L4",), counts=(1,), budgets=(-5,)), simulate=0)
    assert "max_num_batched_tokens -5 is below 1" in told.sentence


def test_the_python_call_takes_a_card_of_the_question():
    got = kvroom.search("llama-3-8b", gpu="L4", users=8, workload=LENGTHS, simulate=0)
    assert {a.scenario.gpu for a in got.answers} == {"L4"}
