"""What vLLM changed from one release to the next, as its own code answers.

Blocks are those that vLLM 0.32.0 itself gives (its own ``EngineCore``, asked without a card through
``--engine-python``); refusals are those of its configuration's code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvroom.answer.plan import Plan
from kvroom.engines import served_by
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

LLAMA = {  # meta-llama/Llama-3.1-8B
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
MISTRAL = {  # mistralai/Mistral-7B-v0.1
    **LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 32000,
    "sliding_window": 4096, "max_position_embeddings": 32768,
}  # fmt: skip
HUNYUAN = {  # tencent/Hunyuan-A13B-Instruct with its cross-layer attention on
    **LLAMA, "model_type": "hunyuan_v1_moe", "architectures": ["HunYuanMoEV1ForCausalLM"],
    "intermediate_size": 3072, "num_experts": 64, "moe_topk": 8, "num_shared_expert": 1,
    "vocab_size": 128167, "use_cla": True, "cla_share_factor": 2, "attention_head_dim": 128, "head_dim": 128,
}  # fmt: skip
GRANITE = {  # ibm-granite/granite-4.0-h-small, few layers
    "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
    "hidden_size": 4096, "num_hidden_layers": 10, "num_attention_heads": 32,
    "num_key_value_heads": 8, "layer_types": ["attention" if i == 5 else "mamba" for i in range(10)],
    "mamba_d_state": 128, "num_local_experts": 72, "vocab_size": 100352,
    "max_position_embeddings": 131072,
}  # fmt: skip
MAMBA = {  # state-spaces/mamba-2.8b-hf
    "model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 2560,
    "num_hidden_layers": 64, "vocab_size": 50280, "state_size": 16, "intermediate_size": 5120,
}  # fmt: skip
QWEN3_NEXT = {  # Qwen/Qwen3-Next-80B-A3B-Instruct, few layers
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "num_experts": 64, "num_experts_per_tok": 10,
    "moe_intermediate_size": 512, "vocab_size": 151936, "max_position_embeddings": 262144,
}  # fmt: skip
SKIP = "kv_cache_dtype_skip_layers"


def test_a_long_prompt_that_is_alone_is_held_to_the_threshold_before_0_31() -> None:
    """By the source of both; a script with a threshold of 5 and 16 tokens a step differs between them so."""

    def limit(version: str) -> int:
        made = work(
            Scenario.from_dict(
                {
                    "model": {"config": LLAMA}, "gpu": "H100-SXM", "engine_version": version,
                    "engine_args": {"long_prefill_token_threshold": 100},
                }
            )
        )  # fmt: skip
        return served_by(made.deployment, made.answer).setup.config.prefill_limit(1)

    assert limit("0.30.0") == 100
    assert limit("0.31.0") == 0


def planned(
    config: dict[str, Any], version: str, *, context: int | None = 8192, **more: Any
) -> Plan:
    args = more.pop("args", {})
    return plan(
        Scenario.from_dict(
            {
                "model": {"config": config},
                "gpu": "H100-SXM",
                "engine_version": version,
                "context_tokens": context,
                "engine_args": {"kv_cache_memory_bytes": 10 * GIB, **args},
                **more,
            }
        )
    )


def blocks(made: Plan) -> tuple[int | None, int | None, int | None]:
    engine = made.capacity.engine
    assert engine is not None
    return engine.num_blocks, engine.block_tokens, engine.kv_tokens


@pytest.mark.parametrize(
    ("version", "asked"), [("0.28.0", 10240), ("0.29.0", 5120), ("0.32.0", 5120)]
)
def test_hunyuans_layers_share_no_cache_since_0_29(version: str, asked: int) -> None:
    assert blocks(planned(HUNYUAN, version))[0] == asked


def test_skipped_windows_keep_the_models_width() -> None:
    made = planned(MISTRAL, "0.32.0", kv_dtype="fp8", args={SKIP: ["sliding_window"]})
    assert blocks(made) == (5120, 16, 81760)
    assert blocks(planned(MISTRAL, "0.32.0", kv_dtype="fp8"))[0] == 10240


def test_skipped_layers_are_wide_beside_narrow_ones_of_longer_blocks() -> None:
    made = planned(LLAMA, "0.32.0", kv_dtype="fp8", args={SKIP: ["0", "1"]})
    assert blocks(made) == (4818, 32, 154176)


def test_skipped_layers_that_are_none_are_refused() -> None:
    with pytest.raises(Exception, match="names no layers"):
        planned(LLAMA, "0.32.0", kv_dtype="fp8", args={SKIP: ["first"]})


def test_windows_that_are_off_bound_a_request() -> None:
    off = {"disable_sliding_window": True}
    refused = planned(MISTRAL, "0.32.0", args=off)
    assert not refused.verdict.starts
    assert "4,096 tokens at most" in refused.verdict.sentence
    untold = planned(MISTRAL, "0.32.0", context=None, args=off)
    assert any("4,096 tokens at most" in note for note in untold.warnings)
    assert blocks(untold) == (5120, 16, 81920)
    made = planned(MISTRAL, "0.32.0", context=4096, args=off)
    assert made.verdict.starts
    assert blocks(made) == (5120, 16, 81920)


def test_states_are_cached_only_with_chunked_prefill() -> None:
    args = {"enable_prefix_caching": True, "enable_chunked_prefill": False}
    args["max_num_batched_tokens"] = 8192
    made = planned(GRANITE, "0.32.0", args=args)
    assert not made.verdict.starts
    assert "only with chunked prefill" in made.verdict.sentence
    assert planned(GRANITE, "0.32.0", args={**args, "enable_prefix_caching": False}).verdict.starts


@pytest.mark.parametrize(("version", "starts"), [("0.23.0", True), ("0.24.0", False)])
def test_an_architecture_that_was_dropped_is_said(version: str, starts: bool) -> None:
    made = planned({**LLAMA, "architectures": ["XverseForCausalLM"]}, version)
    assert made.verdict.starts == starts
    assert starts or "vLLM dropped XverseForCausalLM after 0.23.0" in made.verdict.sentence


def test_state_alone_on_a_cpu_has_the_blocks_that_are_set_first(tmp_path: Path) -> None:
    cpu = {"name": "CPU", "vendor": "cpu", "sold_bytes": 64 * GIB, "memory_bytes_per_s": 25e9}
    (machine := tmp_path / "cpu.json").write_text(json.dumps(cpu))
    made = planned(MAMBA, "0.32.0", gpu=str(machine), args={"enable_prefix_caching": True})
    assert blocks(made)[1] == 16


@pytest.mark.parametrize(("version", "starts"), [("0.10.1.1", False), ("0.10.2", True)])
@pytest.mark.parametrize("named", [True, False])
def test_a_class_that_came_later_is_said(version: str, starts: bool, named: bool) -> None:
    """``Qwen3NextForCausalLM`` is in the registry from 0.10.2 on; a config may name its type alone."""
    model = {**QWEN3_NEXT, **({"architectures": ["Qwen3NextForCausalLM"]} if named else {})}
    made = planned(model, version)
    assert made.verdict.starts == starts
    said = "vLLM 0.10.1 has no Qwen3NextForCausalLM; it came with 0.10.2: vLLM 0.10.2 or newer"
    assert starts or said in made.verdict.sentence


def test_transformers_own_class_stands_in_for_a_plain_decoder_that_came_later() -> None:
    seed = {
        **LLAMA,
        "model_type": "seed_oss",
        "head_dim": 128,
        "architectures": ["SeedOssForCausalLM"],
    }
    made = planned(seed, "0.9.0")
    assert made.verdict.starts
    note = "vLLM 0.9.0 has no SeedOssForCausalLM of its own (it came with 0.10.2)"
    assert any(note in each for each in made.warnings)
    assert not any("of its own" in each for each in planned(seed, "0.33.0").warnings)


@pytest.mark.parametrize(
    ("version", "more", "why"),
    [
        ("0.8.5", {"pp": 2}, "pipeline stages without Ray"),
        ("0.9.0", {"pp": 2}, "pipeline stages without Ray"),
        ("0.9.1", {"pp": 2}, ""),
        ("0.9.0", {"pp": 2, "args": {"distributed_executor_backend": "mp"}}, ""),
        ("0.9.1", {"args": {"scheduling_policy": "priority"}}, "--scheduling-policy"),
        ("0.10.0", {"args": {"scheduling_policy": "priority"}}, ""),
        ("0.10.1", {"gpu": "V100-SXM2-32"}, "compute capability 7.0"),
        ("0.10.2", {"gpu": "V100-SXM2-32"}, ""),
        ("0.9.1", {"gpu": "L40S", "kv_dtype": "fp8"}, "an FP8 cache on compute capability 8.9"),
        ("0.9.1", {"kv_dtype": "fp8"}, ""),
        ("0.8.5", {"gpu": "L40S", "args": {"VLLM_USE_V1": 1}}, ""),
        ("0.9.1", {"args": {"VLLM_USE_V1": 0}}, "VLLM_USE_V1=0"),
        ("0.11.0", {"args": {"VLLM_USE_V1": 0}}, ""),
    ],
)  # fmt: skip
def test_what_falls_back_to_the_first_engine_is_said(
    version: str, more: dict[str, object], why: str
) -> None:
    """``_is_v1_supported_oracle`` of each release's ``engine/arg_utils.py``."""
    made = planned(LLAMA, version, **more)
    said = [each for each in made.warnings if "first engine, V0" in each]
    assert bool(said) == bool(why)
    assert not why or f"({why})" in said[0]


@pytest.mark.parametrize(
    ("version", "starts"), [("0.11.2", True), ("0.13.0", False), ("0.15.0", True)]
)
def test_states_alone_are_cached_at_a_requests_length(version: str, starts: bool) -> None:
    """As 0.11.2 prints it, 862 blocks of 8,192 tokens; 0.13.0 asserts that its hashes' blocks are as long."""
    made = planned(MAMBA, version, args={"enable_prefix_caching": True})
    assert made.verdict.starts == starts
    assert version != "0.11.2" or blocks(made)[::2] == (862, 7_061_504)
    told = {"enable_prefix_caching": True, "block_size": 16}
    assert planned(MAMBA, version, args=told).verdict.starts
