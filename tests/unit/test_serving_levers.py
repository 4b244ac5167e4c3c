"""Levers of how requests are served: drafts in a Plan, tiers and pools by serving who comes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kvroom.errors import KvroomError
from kvroom.optimize.levers.lever import SAME
from kvroom.optimize.levers.rank import levers
from kvroom.optimize.levers.served import ServedFigures
from kvroom.planner.plan import plan
from kvroom.planner.simulate import simulate
from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.main import main
from kvroom.workloads.synthetic import of_workload

pytestmark = pytest.mark.slow

CHATS = {
    "arrivals": "poisson:6/s",
    "input": "fixed:1500",
    "output": "fixed:100",
    "turns": 4,
    "think": "3s",
    "requests": 120,
}


def question(**keys):
    base = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "concurrency": 8}
    return Scenario.from_dict(
        base | {"engine": "vllm", "engine_version": "0.33.0", "replicas": 3} | keys
    )


@pytest.fixture(scope="module")
def served():
    small = {"num_gpu_blocks_override": 1500}
    return levers(question(workload=CHATS, engine_args=small), simulate=True)


def ids(rows):
    return {x.lever.id for x in rows}


def test_drafts_are_levers_of_the_step():
    found = levers(question(), by="step")
    by_id = {p.lever.id: p for p in found.levers}
    assert {"speculation=eagle3", "speculation=ngram"} <= set(by_id)
    assert "speculation=mtp" not in by_id  # it has no prediction layers
    eagle = by_id["speculation=eagle3"]
    assert eagle.after.token_s < found.before.token_s < eagle.after.step_s
    assert eagle.after.requests <= found.before.requests
    assert eagle.lever.quality.small and not eagle.easy  # a head has to be trained
    assert "an EAGLE-3 head trained for this model" in eagle.lever.needs
    assert by_id["speculation=ngram"].easy
    assert "assumed" in eagle.lever.label
    made = plan(question(speculation={"method": "eagle3"}))
    assert eagle.after.token_s == made.step.seconds / made.step.tokens_per_request
    ranked = [p.after.token_s for p in found.levers]
    assert ranked == sorted(ranked)


def test_prediction_layers_where_the_model_has_them():
    keys = {"model": "deepseek-v3", "gpu": "H200-SXM", "gpu_count": 8, "replicas": 1}
    assert "speculation=mtp" in ids(levers(question(**keys)).levers)


def test_drafts_that_are_asked_can_be_left():
    asked = {"method": "ngram", "acceptance_rate": 0.02}
    found = levers(question(speculation=asked, concurrency=256), by="step")
    none = next(p for p in found.levers if p.lever.id == "speculation=null")
    assert none.changes == {"speculation": None}
    assert none.after.token_s < found.before.token_s
    assert not {"speculation=ngram", "speculation=eagle3"} & ids(found.levers)


def test_what_only_serving_shows_is_left_out_with_the_reason():
    found = levers(question())
    why = {x.id: x.why for x in found.left_out}
    assert {"tiers=host", "tiers=host+nvme", "disaggregation=1:2", "disaggregation=2:1"} <= set(why)
    assert "--simulate" in why["tiers=host"]
    assert found.served_before is None and not found.served
    assert found.to_dict()["served"] is None


def test_each_figure_is_that_of_a_simulation_of_the_changed_question(served):
    assert {"tiers=host", "disaggregation=1:2", "speculation=ngram"} <= ids(served.served)
    cases = [({}, served.served_before), *((x.changes, x.after) for x in served.served)]
    for changes, after in cases:
        changed = Scenario.from_dict(served.scenario.to_dict() | dict(changes))
        told = simulate(changed, of_workload(changed.workload)).to_dict()
        hours = told["duration_s"] / 3600
        gpu_hours = told["fleet"]["gpu_hours"] if "fleet" in told else hours * changed.replicas
        price = served_price(changed) * gpu_hours / told["output_tokens_per_s"] / hours / 3600 * 1e6
        assert after == ServedFigures(
            ttft_s=told["ttft_s"]["mean"],
            ttft_p95_s=told["ttft_s"]["p95"],
            tpot_s=told["tpot_s"]["mean"],
            output_tokens_per_s=told["output_tokens_per_s"],
            prefix_hit_ratio=told["prefix_hit_ratio"],
            usd_per_million_output_tokens=pytest.approx(price),
        )


def served_price(scenario):
    from kvroom.hardware import find

    return find(scenario.gpu).usd_per_hour


def test_they_do_what_they_are_for(served):
    by_id = {x.lever.id: x for x in served.served}
    before = served.served_before
    host = by_id["tiers=host"]
    assert host.after.prefix_hit_ratio > before.prefix_hit_ratio
    assert host.after.ttft_s < before.ttft_s
    assert host.lever.quality == SAME and host.lever.latency is None
    assert by_id["disaggregation=1:2"].after.tpot_s < before.tpot_s
    assert by_id["speculation=ngram"].after.tpot_s < before.tpot_s
    rates = [x.after.output_tokens_per_s for x in served.served]
    assert rates == sorted(rates, reverse=True)


def test_one_replica_is_split_into_halves_where_it_can():
    found = levers(question(replicas=1, gpu_count=2, workload=CHATS), simulate=True)
    half = next(x for x in found.served if x.lever.id == "disaggregation=1:1,tp=1")
    assert half.changes["disaggregation"]["prefill"] == {"count": 1, "tp": 1, "gpu_count": 1}
    big = levers(
        question(model="llama-3-70b", replicas=1, gpu_count=2, workload=CHATS), simulate=True
    )
    assert "would not start" in {x.id: x.why for x in big.left_out}["disaggregation=1:1,tp=1"]


def test_engines_and_machines_that_cannot():
    found = levers(question(engine="llama.cpp", engine_version=None, workload=CHATS), simulate=True)
    why = {x.id: x.why for x in found.left_out}
    assert why["tiers=host"] == "not known of llama.cpp"
    assert why["disaggregation=1:2"] == "not known of llama.cpp"
    sglang = levers(question(engine="sglang", engine_version=None, workload=CHATS), simulate=True)
    assert "tiers=host" not in {x.id for x in sglang.left_out}  # it has a tier of its own


def test_serving_takes_a_workload():
    with pytest.raises(KvroomError) as e:
        levers(question(), simulate=True)
    assert e.value.field == "workload"


def test_the_command_shows_and_writes_them(tmp_path):
    page = tmp_path / "levers.html"
    asked = ["levers", "llama-3-8b", "--gpu", "H100-SXM", "--context", "8K", "--replicas", "2"]
    load = "arrivals=poisson:6/s,input=fixed:1500,output=fixed:50,turns=3,think=3s,requests=60"
    done = CliRunner().invoke(main, [*asked, "--workload", load, "--simulate", "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "The workload's requests, served with each alone" in done.output
    assert "disaggregation=1:1" in done.output
    assert "disaggregation=1:1" in page.read_text()
    told = CliRunner().invoke(main, [*asked, "--workload", load, "--simulate", "--json"])
    rows = json.loads(told.stdout)["served"]
    assert {"tiers=host", "disaggregation=1:1"} <= {x["id"] for x in rows["levers"]}
    assert rows["before"]["tpot_s"] > 0


def test_a_first_lever_says_what_it_assumes():
    found = levers(question(engine_args={"kv_cache_dtype": "fp8"}, weight_dtype="fp8"), by="step")
    assert found.first.lever.id == "speculation=ngram"
    assert "ms a token" in found.sentence and "0.4 of them kept (assumed)" in found.sentence
