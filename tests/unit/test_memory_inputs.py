"""Inputs that move memory: variables, connectors, partitions, widths, and how experts are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvroom.engines.overrides import stage_layers
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.hardware.catalogue import find
from kvroom.launchers.commands import read_command
from kvroom.models.load import load
from kvroom.planner.plan import Workings, work
from kvroom.scenario.offload import from_flags
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import Layout
from kvroom.units import GIB

MIB = 2**20


def asked(model: str, gpu: str, **keys: Any) -> Workings:
    card, _, count = gpu.partition(":")
    cards = {"gpu": card, "gpu_count": int(count or 1)}
    question = {"model": model, "context_tokens": 8192, "engine": "vllm", **cards, **keys}
    return work(Scenario.from_dict(question))


def account(w: Workings, name: str) -> int:
    return next(a.bytes for a in w.plan.memory.accounts if a.name == name)


# Tiers that flags ask for


@pytest.mark.parametrize(
    ("args", "ranks", "tiers"),
    [
        # vLLM, CacheConfig.kv_offloading_size: GiB of all ranks together
        ({"kv_offloading_size": 64}, 4, {"host": 64 * GIB}),
        # vLLM, OffloadingConnector
        (
            {
                "kv_transfer_config": {
                    "kv_connector": "OffloadingConnector",
                    "kv_connector_extra_config": {"cpu_bytes_to_use": 10**10},
                }
            },
            1,
            {"host": 10**10},
        ),
        # LMCache documentation, max_local_cpu_size: 5 GB a worker unless told
        ({"kv_transfer_config": '{"kv_connector": "LMCacheConnectorV1"}'}, 2, {"host": 10**10}),
        (
            {
                "kv_transfer_config": {"kv_connector": "LMCacheConnectorV1"},
                "LMCACHE_MAX_LOCAL_CPU_SIZE": 20,
                "LMCACHE_MAX_LOCAL_DISK_SIZE": 100,
            },
            1,
            {"host": 20 * 10**9, "nvme": 100 * 10**9},
        ),
        # SGLang, --hicache-size: GB a rank
        ({"enable_hierarchical_cache": True, "hicache_size": 30}, 2, {"host": 60 * 10**9}),
        ({"hicache_size": 30}, 2, {}),
        ({"kv_transfer_config": {"kv_connector": "NixlConnector"}}, 1, {}),
        ({"kv_transfer_config": "no JSON"}, 1, {}),
        ({"kv_offloading_size": "much"}, 1, {}),
    ],
)
def test_flags_ask_for_tiers(args: dict[str, Any], ranks: int, tiers: dict[str, int]) -> None:
    assert {t["kind"]: t["bytes"] for t in from_flags(args, ranks)} == tiers


def test_a_scenario_takes_the_tiers_of_its_flags() -> None:
    keys = {"model": "llama-3-8b", "gpu": "H100-SXM", "engine": "vllm"}
    scenario = Scenario.from_dict({**keys, "engine_args": {"kv_offloading_size": 8}})
    assert [(t.kind, t.bytes) for t in scenario.tiers] == [("host", 8 * GIB)]
    assert Scenario.from_dict(scenario.to_dict()) == scenario


def test_tiers_of_a_rank_count_the_cards_where_no_layout_is_stated() -> None:
    keys = {"model": "llama-3-8b", "gpu": "H100-SXM", "gpu_count": 4, "engine": "vllm"}
    args = {"kv_transfer_config": {"kv_connector": "LMCacheConnectorV1"}}
    scenario = Scenario.from_dict({**keys, "engine_args": args})
    assert [t.bytes for t in scenario.tiers] == [4 * 5 * 10**9]


def test_stated_tiers_win_over_flags() -> None:
    scenario = Scenario.from_dict(
        {
            "model": "llama-3-8b",
            "gpu": "H100-SXM",
            "tiers": [{"kind": "host", "bytes": 1 * GIB}],
            "engine_args": {"kv_offloading_size": 8},
        }
    )
    assert [t.bytes for t in scenario.tiers] == [1 * GIB]


def test_a_connector_that_is_no_tier_is_told() -> None:
    args = {"kv_transfer_config": {"kv_connector": "NixlConnector"}}
    told = asked("llama-3-8b", "H100-SXM", engine_args=args)
    assert any("NixlConnector is not followed" in w for w in told.plan.warnings)


# Variables


def test_variables_of_a_command_are_flags() -> None:
    command = read_command(
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 VLLM_ATTENTION_BACKEND=FLASHINFER VLLM_FANCY=1 "
        "vllm serve llama-3-8b"
    )
    args = command.keys["engine_args"]
    assert args["vllm_memory_profiler_estimate_cudagraphs"] == 0
    assert args["attention_backend"] == "FLASHINFER"
    assert any("VLLM_FANCY is not used" in w for w in command.warnings)


def test_graphs_stay_in_the_cache_where_their_estimate_is_off() -> None:
    args = {"vllm_memory_profiler_estimate_cudagraphs": 0}
    off = asked("llama-3-8b", "H100-SXM", engine_version="0.21.0", engine_args=args)
    on = asked("llama-3-8b", "H100-SXM", engine_version="0.21.0")
    assert off.answer.kv_bytes - on.answer.kv_bytes == pytest.approx(account(on, "graphs"), abs=MIB)


# Pipeline stages


def test_a_partition_deals_the_layers_out() -> None:
    llama = load("llama-3-8b")
    vllm = engine_of("vllm")
    assert stage_layers(vllm, {"VLLM_PP_LAYER_PARTITION": "20,12"}, llama, 2) == (20, 12)
    assert stage_layers(vllm, {}, llama, 2) == ()


@pytest.mark.parametrize("partition", ["20,13", "32", "10,10,12"])
def test_a_partition_has_every_layer_and_stage_once(partition: str) -> None:
    args = {"VLLM_PP_LAYER_PARTITION": partition}
    with pytest.raises(KvroomError) as refused:
        stage_layers(engine_of("vllm"), args, load("llama-3-8b"), 2)
    assert refused.value.field == "engine_args.vllm_pp_layer_partition"


def test_the_longer_stage_binds() -> None:
    even = asked("llama-3-8b", "L4:2", pp=2)
    uneven = asked("llama-3-8b", "L4:2", pp=2, engine_args={"vllm_pp_layer_partition": "24,8"})
    assert uneven.answer.rank.stage == 0
    assert uneven.answer.rank.weight_bytes > even.answer.rank.weight_bytes


# Widths


def test_in_32_bits_weights_and_cache_double() -> None:
    half = asked("llama-3.2-1b", "H100-SXM")
    whole = asked("llama-3.2-1b", "H100-SXM", engine_args={"dtype": "float32"})
    assert whole.plan.kv.bytes_per_token == 2 * half.plan.kv.bytes_per_token
    assert whole.answer.rank.weight_bytes == pytest.approx(2 * half.answer.rank.weight_bytes)


# Experts and attention over ranks


def test_data_parallel_ranks_cut_experts_between_them() -> None:
    # vLLM, FusedMoEParallelConfig: without expert parallel tp_size is that of tp × dp ranks.
    alone = asked("qwen3-30b-a3b", "H100-SXM:2", tp=2)
    shared = asked("qwen3-30b-a3b", "H100-SXM:2", dp=2)
    assert shared.deployment.layout.expert_dp == 2
    assert asked("llama-3-8b", "H100-SXM:2", dp=2).deployment.layout.expert_dp == 1
    whole = asked("qwen3-30b-a3b", "H200-SXM").answer.rank.weight_bytes
    assert shared.answer.rank.weight_bytes < 0.6 * whole
    assert shared.answer.rank.weight_bytes > alone.answer.rank.weight_bytes


def test_replicas_of_other_engines_keep_their_experts() -> None:
    shared = asked("qwen3-30b-a3b", "H200-SXM:2", dp=2, engine="sglang")
    whole = asked("qwen3-30b-a3b", "H200-SXM", engine="sglang")
    assert shared.answer.rank.weight_bytes == whole.answer.rank.weight_bytes


def test_attention_groups_each_hold_attention_whole() -> None:
    args = {"enable_dp_attention": True, "dp_size": 8}
    grouped = asked("deepseek-v3", "H200-SXM:8", tp=8, engine="sglang", engine_args=args)
    cut = asked("deepseek-v3", "H200-SXM:8", tp=8, engine="sglang")
    assert grouped.deployment.layout.attention_dp == 8
    assert grouped.answer.rank.weight_bytes > cut.answer.rank.weight_bytes + GIB


def test_ranks_of_a_layout() -> None:
    layout = Layout(tp=8, dp=2, expert_dp=2, attention_dp=4)
    assert (layout.expert_cut, layout.attention_ranks, layout.expert_replicas) == (16, 2, 2)
    assert Layout(tp=8, dp=2, ep=16, expert_dp=2).expert_cut == 1


# Cards


def test_what_an_engine_sees_of_a_card() -> None:
    # nvidia-smi's total less the 470 MiB that the driver keeps, where nobody printed what CUDA sees.
    card = find("H100-SXM")
    assert card.engine_bytes == pytest.approx(79.19 * GIB, rel=1e-4)


# Flags that nobody knows


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_newer_flag_is_told_and_not_refused(engine: str) -> None:
    told = asked("llama-3-8b", "H100-SXM", engine=engine, engine_args={"zeta_of_tomorrow": 3})
    assert any("zeta_of_tomorrow" in w for w in told.plan.warnings)


@pytest.mark.parametrize(
    ("engine", "flag"), [("vllm", "max_num_seq"), ("sglang", "gpu_memory_utilization")]
)
def test_a_mistyped_flag_and_another_engines_are_refused(engine: str, flag: str) -> None:
    with pytest.raises(KvroomError) as refused:
        asked("llama-3-8b", "H100-SXM", engine=engine, engine_args={flag: 1})
    assert refused.value.field == f"engine_args.{flag}"


# Pages of wide heads


def test_gemma_4s_wide_heads_take_pages_of_64_in_fp8_on_hopper() -> None:
    # vLLM 0.31, FlashAttention's block sizes: heads of 512 in FP8 need 64 tokens a page.
    def block(gpu: str, release: str) -> int | None:
        w = asked("gemma-4-26b-a4b", gpu, kv_dtype="fp8", engine_version=release)
        return w.plan.capacity.engine.block_tokens

    assert block("H100-SXM", "0.33.0") != block("H100-SXM", "0.30.0")
    assert block("A100-SXM-80", "0.33.0") == block("A100-SXM-80", "0.30.0")


def test_json_of_a_connector_is_read_like_its_object() -> None:
    inner = {"cpu_bytes_to_use": 5e9}
    config = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": inner}
    as_text = from_flags({"kv_transfer_config": json.dumps(config)}, 1)
    assert as_text == from_flags({"kv_transfer_config": config}, 1)
