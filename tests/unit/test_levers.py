"""Levers: what each changes, needs and brings; the reference case; the split of a gain."""

from __future__ import annotations

import json

import pytest

import kvroom
from kvroom.engines.registry import all_engines, engine_of
from kvroom.errors import KvroomError
from kvroom.hardware import find
from kvroom.optimize.levers.catalogue import levers_of
from kvroom.optimize.levers.published import CACHE_QUALITY, LATENCY, WEIGHT_QUALITY
from kvroom.optimize.levers.rank import changed, levers
from kvroom.optimize.levers.waterfall import shapley
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import work
from kvroom.planner.verdict import requests_held
from kvroom.scenario.scenario import Scenario

REFERENCE = {
    "model": "llama-3-70b",
    "gpu": "80GB",
    "gpu_count": 4,
    "context_tokens": 32768,
    "engine": "arithmetic",
}


def question(**keys):
    return Scenario.from_dict({**REFERENCE, **keys})


@pytest.fixture(scope="module")
def reference():
    return levers(question())


def by_id(found):
    return {p.lever.id: p for p in found.levers}


def test_the_reference_case(reference):
    assert reference.before.requests == 16
    assert reference.binding == "kv_memory"
    first = reference.first
    assert first.lever.id == "kv_dtype=fp8"
    assert first.after.requests == 33
    assert first.changes == {"kv_dtype": "fp8"}
    assert first.moves_binding
    assert "16 → 33 requests" in reference.sentence


def test_every_figure_is_that_of_a_plan_of_the_changed_question(reference):
    for p in reference.levers:
        made = work(Scenario.from_dict({**laid_out(question())[0].to_dict(), **p.changes}))
        held = requests_held(made.deployment, made.answer, made.plan.capacity.ceiling)
        assert p.after.requests == held
        assert p.after.step_s == made.plan.step.seconds
        assert p.after.ttft_s == made.plan.serving.ttft_s


def test_levers_are_ranked_and_easy_ones_keep_everything(reference):
    requests = [p.after.requests for p in reference.levers]
    assert requests == sorted(requests, reverse=True)
    for p in reference.levers:
        if p.easy:
            assert p.lever.quality.small
            assert not {"model", "gpu", "gpu_count", "context_tokens"} & set(p.changes)


def test_the_waterfall_sums_to_the_gain(reference):
    gain = reference.together[0].after.requests - reference.before.requests
    assert sum(share for _, share in reference.waterfall) == pytest.approx(gain)
    assert {name for name, _ in reference.waterfall} == set(reference.together[0].ids)


def test_each_kind_of_lever_is_there():
    ids = {x.id for x in levers_of(work(question(engine="vllm", engine_version="0.20.0")))}
    for known in (
        "kv_dtype=fp8",
        "weight_dtype=int4",
        "gpu_count=8,tp=8",
        "tp=2,pp=2",
        "gpu_count=8,dp=2",
        "gpu_memory_utilization=0.95",
        "max_num_batched_tokens=2048",
        "enforce_eager=true",
        "engine_version=0.33.0",
        "context_tokens=16384",
        "model=qwen3-next-80b-a3b",
    ):
        assert known in ids


def test_experts_and_decode_context_ranks_where_the_model_has_use_for_them():
    dense = {x.id for x in levers_of(work(question()))}
    assert not any(x.startswith(("ep=", "dcp=")) for x in dense)
    latent = work(Scenario.from_dict({"model": "deepseek-v3", "gpu": "H200-SXM", "tp": 8}))
    assert {"ep=8", "dcp=8"} <= {x.id for x in levers_of(latent)}


def test_what_a_lever_changes_is_merged_with_what_was_asked():
    asked = question(engine="vllm", engine_args={"max_num_seqs": 8})
    lever = next(x for x in levers_of(work(asked)) if x.id == "gpu_memory_utilization=0.95")
    assert changed(asked, [lever]) == {
        "engine_args": {"max_num_seqs": 8, "gpu_memory_utilization": 0.95}
    }


@pytest.mark.parametrize("flag", ["free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction"])
def test_a_share_is_raised_under_the_name_that_it_was_given(flag):
    asked = question(engine="tensorrt-llm", engine_args={flag: 0.8})
    shares = [x for x in levers_of(work(asked)) if x.family == "share"]
    assert [x.patch for x in shares] == [{"engine_args": {flag: 0.95}}]
    full = question(engine="tensorrt-llm", engine_args={flag: 0.97})
    assert not [x for x in levers_of(work(full)) if x.family == "share"]


def test_where_nothing_fits_it_says_so_and_tries_enough_cards():
    found = levers(question(gpu="80GB", gpu_count=1, tp=1))
    assert found.sentence.startswith("Does not fit: the weights need 131.4 GiB")
    small = levers(question(gpu="L4", gpu_count=1, context_tokens=2048))
    assert by_id(small)["gpu_count=8,tp=8"].after.requests > 0


def test_paging_and_a_shared_prefix_against_reservation():
    load = {
        "input_tokens": 4000,
        "output_tokens": 500,
        "shared_prefix_tokens": 1000,
        "concurrency": 16,
    }
    found = by_id(levers(question(workload=load)))
    capacity = work(question(workload=load)).plan.capacity
    assert found["paging"].after.requests == capacity.expected.requests
    assert found["prefix_caching"].after.requests == capacity.shared.requests
    assert 16 < found["paging"].after.requests < found["prefix_caching"].after.requests
    paged = levers(question(engine="vllm", gpu="H100-SXM", workload=load))
    assert not {"paging", "prefix_caching"} & set(by_id(paged))


def test_hardware_that_cannot_leaves_a_lever_out():
    found = levers(question(gpu="A100-SXM-80", engine="tensorrt-llm", context_tokens=8192))
    out = {x.id: x.why for x in found.left_out}
    assert out["kv_dtype=fp8"] == "A100-SXM-80 is not Ada or later"
    assert "kv_dtype=fp8" not in by_id(found)


def test_versions_that_cannot_leave_a_lever_out():
    need, card = engine_of("vllm").support.cache["fp8"], find("H100-SXM")
    assert need.refusal("vLLM", "0.3.3", card) == "vLLM 0.3.3 is older than 0.4.2"
    assert need.refusal("vLLM", "0.4.2", card) is None
    assert need.refusal("vLLM", "nightly", card) is None


def test_every_published_effect_and_need_has_a_source():
    for table in (CACHE_QUALITY, WEIGHT_QUALITY, LATENCY):
        for effect in table.values():
            assert effect.source.strip()
            assert effect.effect.strip()
            assert effect.loss_ratio is None or 0 <= effect.loss_ratio < 1
    for engine in all_engines():
        for needs in (engine.support.cache, engine.support.weights):
            for need in needs.values():
                assert need.source.strip()
                assert need.flag or need.checkpoint


def test_json_holds_what_scripts_rely_on(reference):
    told = json.loads(json.dumps(reference.to_dict()))
    assert {"before", "levers", "together", "waterfall"} <= set(told)
    figures = {"requests", "step_s", "token_s", "ttft_s", "usd_per_million_output_tokens"}
    assert set(told["before"]) == figures
    for lever in told["levers"]:
        assert {"id", "label", "changes", "after", "needs", "quality", "moves_binding"} <= set(
            lever
        )
        assert set(lever["after"]) == figures
    fp8 = next(x for x in told["levers"] if x["id"] == "kv_dtype=fp8")
    assert fp8["quality"]["source"] == "SGLang documentation, Quantized KV Cache"


def test_named_levers_together():
    found = levers(question(), together=["kv_dtype=fp8", "weight_dtype=fp8"])
    assert set(found.together[0].ids) == {"kv_dtype=fp8", "weight_dtype=fp8"}
    for wrong in (["kv_dtype=fp9"], ["kv_dtype=fp8", "kv_dtype=int8"]):
        with pytest.raises(KvroomError):
            levers(question(), together=wrong)


def test_a_ranking_that_is_none_is_refused():
    with pytest.raises(KvroomError) as told:
        levers(question(), by="request")
    assert told.value.fix == "Did you mean requests?"


def test_a_model_that_keeps_no_cache_has_an_answer():
    found = levers(Scenario.from_dict({"model": "bge-m3", "gpu": "L4", "engine": "arithmetic"}))
    assert found.before.requests is None
    assert found.first is None
    assert found.to_html().endswith("</html>\n")


def test_the_python_call_and_its_shapes():
    found = kvroom.levers(
        "llama-3-8b", "RTX-4090", engine="vllm", context_tokens="8K", by="requests"
    )
    page = found.to_html()
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "kv_dtype=fp8" in page
    assert found.rows()[0]["id"] == found.levers[0].lever.id
    assert len({tuple(r) for r in found.rows()}) == 1


def test_a_split_of_two_that_need_each_other():
    assert shapley(["a", "b"], lambda s: 10.0 * (len(s) == 2)) == {"a": 5.0, "b": 5.0}
    assert shapley([], lambda s: 1.0) == {}


def test_beyond_eight_the_split_is_drawn_and_the_same_each_time():
    players = [f"p{i}" for i in range(12)]

    def value(pulled):
        return sum(int(p[1:]) for p in pulled) ** 2

    once, again = shapley(players, value), shapley(players, value)
    assert once == again
    assert sum(once.values()) == pytest.approx(66**2)
    assert once["p0"] < once["p11"]
