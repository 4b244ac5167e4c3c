"""What engines refuse as they start: every rule both ways."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.engines.base import StartRefusal
from kvroom.engines.sglang.start_rules import START_RULES as SGLANG
from kvroom.engines.tensorrt_llm.start_rules import START_RULES as TENSORRT_LLM
from kvroom.engines.vllm.start_rules import POOL_RULES
from kvroom.engines.vllm.start_rules import START_RULES as VLLM
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario

B8, B30, B235 = "llama-3.1-8b", "qwen3-30b-a3b", "qwen3-235b-a22b"
VERSION = {"vllm": "0.33.0", "sglang": "0.5.23", "tensorrt-llm": "1.2.0"}


def asked(model: str, gpu: str = "H100-SXM", **keys: Any) -> Workings:
    engine = keys.get("engine", "vllm")
    more = {"engine_version": VERSION[engine], "context_tokens": 8192, **keys}
    return work(Scenario.from_dict({"model": model, "gpu": gpu, **more}))


def against(model: str, gpu: str = "H100-SXM", **keys: Any) -> list[StartRefusal]:
    return list(asked(model, gpu, **keys).answer.refusals)


def flags(**args: Any) -> dict[str, Any]:
    return {"engine_args": args}


Asks = tuple[Any, str, dict[str, Any]]
PLAIN = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
DRAFT = {"method": "draft", "num_speculative_tokens": 3}
NGRAMS = {"speculative_algorithm": "NGRAM"}
TREES = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 4, "speculative_eagle_topk": 4}
EIGHT = {"engine": "sglang", "tp": 8}
OFFLOADED = {"kv_offloading_size": 10, "kv_offloading_backend": "native"}
MAMBA = "falcon-mamba-7b"
WHOLE = {"enable_chunked_prefill": False, "max_num_batched_tokens": 8192}
# rule: (engine's rule, a question that it refuses, one beside it that it lets through)
OWN = {"method": "draft", "model": "llama-3.2-1b", "num_speculative_tokens": 3}
SCOUT = {"engine": "sglang", "gpu_count": 8}
CASES: dict[str, tuple[str, Asks, Asks]] = {
    "card": (
        "card",
        (B8, "P40", {"weight_dtype": "int4"}),
        (B8, "V100-SXM2-32", {}),
    ),
    "SGLang's card": (
        "card",
        (B8, "V100-SXM2-32", {"engine": "sglang"}),
        (B8, "L4", {"engine": "sglang", "weight_dtype": "fp8"}),
    ),
    "TensorRT-LLM on AMD": (
        "vendor",
        (B8, "MI300X", {"engine": "tensorrt-llm"}),
        (B8, "H100-SXM", {"engine": "tensorrt-llm"}),
    ),
    "TensorRT-LLM on Turing": (
        "card",
        (B8, "T4", {"engine": "tensorrt-llm", "weight_dtype": "int4"}),
        (B8, "A10", {"engine": "tensorrt-llm", "weight_dtype": "int4"}),
    ),
    "cache type": (
        "cache_type",
        (B8, "H100-SXM", {"kv_dtype": "q8_0"}),
        (B8, "H100-SXM", {"kv_dtype": "fp8"}),
    ),
    "MXFP4 on Turing": (
        "weights_on_card",
        ("gpt-oss-20b", "T4", {"tp": 2}),
        ("gpt-oss-20b", "RTX-3090", {}),
    ),
    "FP8 weights on Turing before 0.14": (
        "weights_on_card",
        (B8, "T4", {"weight_dtype": "fp8", "engine_version": "0.12.0"}),
        (B8, "T4", {"weight_dtype": "fp8", "engine_version": "0.14.0"}),
    ),
    "bfloat16 on Turing": (
        "bf16_on_card",
        ("llama-3.2-1b", "T4", flags(dtype="bfloat16")),
        ("llama-3.2-1b", "T4", flags(dtype="half")),
    ),
    "FP8 cache on Ampere in 0.11.0": (
        "fp8_cache_on_card",
        (B8, "RTX-A6000", {"kv_dtype": "fp8", "engine_version": "0.11.0"}),
        (B8, "RTX-A6000", {"kv_dtype": "fp8", "engine_version": "0.12.0"}),
    ),
    "FP8 cache on Hopper in 0.11.0": (
        "fp8_cache_on_card",
        (B8, "RTX-4090", {"weight_dtype": "fp8", "kv_dtype": "fp8", "engine_version": "0.11.0"}),
        (B8, "H100-SXM", {"kv_dtype": "fp8", "engine_version": "0.11.0"}),
    ),
    "KV heads": ("kv_heads", ("phi-4", "H100-SXM", {"tp": 4}), ("phi-4", "H100-SXM", {"tp": 2})),
    "an MLP that ranks do not divide": (
        "mlp_width",
        ("qwen2.5-0.5b", "H100-SXM", {"tp": 7}),
        ("qwen2.5-0.5b", "H100-SXM", {"tp": 2}),
    ),
    "blocks of FP8 experts (vllm#17569)": (
        "quantisation_blocks",
        (B235, "H100-SXM", {"tp": 8, "weight_dtype": "fp8_block", "engine_version": "0.27.1"}),
        (B235, "H100-SXM", {"tp": 4, "weight_dtype": "fp8_block", "engine_version": "0.27.1"}),
    ),
    "the same with whole experts, no release named": (
        "quantisation_blocks",
        (B30, "H100-SXM", {"tp": 4, "weight_dtype": "fp8_block", "engine_version": None}),
        (B30, "H100-SXM", {"tp": 4, "ep": 4, "weight_dtype": "fp8_block", "engine_version": None}),
    ),
    "blocks refined since 0.29": (
        "quantisation_blocks",
        (B30, "H100-SXM", {"tp": 4, "weight_dtype": "fp8_block", "engine_version": "0.28.0"}),
        (B30, "H100-SXM", {"tp": 4, "weight_dtype": "fp8_block", "engine_version": "0.29.0"}),
    ),
    "experts cut over data-parallel ranks too": (
        "quantisation_blocks",
        (B30, "H100-SXM", {"tp": 2, "dp": 2, "weight_dtype": "fp8_block", "engine_version": None}),
        (B30, "H100-SXM", {"tp": 2, "dp": 1, "weight_dtype": "fp8_block", "engine_version": None}),
    ),
    "blocks of a dense layer that takes slices": (
        "quantisation_blocks",
        ("qwen2.5-0.5b", "H100-SXM", {"tp": 2, "weight_dtype": "fp8_block"}),
        ("qwen2.5-7b", "H100-SXM", {"tp": 2, "weight_dtype": "fp8_block"}),
    ),
    "SGLang's blocks": (
        "quantisation_blocks",
        (B235, "H100-SXM", {"engine": "sglang", "tp": 8, "weight_dtype": "fp8_block"}),
        (B235, "H100-SXM", {"engine": "sglang", "tp": 4, "weight_dtype": "fp8_block"}),
    ),
    "groups of four-bit weights": (
        "quantisation_groups",
        ("qwen2.5-72b", "H100-SXM", {"tp": 8, "weight_dtype": "gptq_int4_g128"}),
        ("qwen2.5-72b", "H100-SXM", {"tp": 1, "weight_dtype": "gptq_int4_g128"}),
    ),
    "the batch holds every sequence": (
        "batch",
        (B8, "H100-SXM", flags(max_num_batched_tokens=512, max_num_seqs=1024)),
        (B8, "H100-SXM", flags(max_num_batched_tokens=1024, max_num_seqs=1024)),
    ),
    "a whole image in a batch": (
        "whole_items",
        ("qwen2.5-vl-7b", "H100-SXM", flags(disable_chunked_mm_input=True)),
        (
            "qwen2.5-vl-7b",
            "H100-SXM",
            flags(disable_chunked_mm_input=True, max_num_batched_tokens=16384),
        ),
    ),
    "the share is free": (
        "free_memory",
        (B8, "H100-SXM", {"tp": 4, **flags(gpu_memory_utilization=0.99)}),
        (B8, "H100-SXM", {"tp": 4, **flags(gpu_memory_utilization=0.97)}),
    ),
    "the share is free of what others hold": (
        "free_memory",
        (B8, "H100-SXM", {"known_bytes": {"free_before_load": "70GiB"}}),
        (B8, "H100-SXM", {"known_bytes": {"free_before_load": "75GiB"}}),
    ),
    "a block of state a sequence (vllm#38632)": (
        "state_blocks",
        ("qwen3.5-27b", "H100-SXM", {"weight_dtype": "fp8", "engine_version": "0.22.0"}),
        (
            "qwen3.5-27b",
            "H100-SXM",
            {"weight_dtype": "fp8", "engine_version": "0.22.0", **flags(max_num_seqs=256)},
        ),
    ),
    "a class that was dropped": (
        "architecture",
        ({"config": {**PLAIN, "architectures": ["XverseForCausalLM"]}}, "H100-SXM", {}),
        (
            {"config": {**PLAIN, "architectures": ["XverseForCausalLM"]}},
            "H100-SXM",
            {"engine_version": "0.23.0"},
        ),
    ),
    "a class without stages, as 0.10.1 says of gpt-oss": (
        "stages",
        ("gpt-oss-120b", "H100-SXM", {"gpu_count": 2, "pp": 2, "engine_version": "0.10.1"}),
        ("gpt-oss-120b", "H100-SXM", {"gpu_count": 2, "pp": 2, "engine_version": "0.10.2"}),
    ),
    "a class that never has any": (
        "stages",
        ("zamba2-7b", "H100-SXM", {"gpu_count": 2, "pp": 2}),
        ("zamba2-7b", "H100-SXM", {}),
    ),
    "a connector without groups while the hybrid manager is on": (
        "connector_groups",
        (B8, "H100-SXM", {"engine_version": "0.16.0", **flags(kv_offloading_size=4)}),
        (B8, "H100-SXM", {"engine_version": "0.22.0", **flags(kv_offloading_size=4)}),
    ),
    "windows off, and a request longer than they are": (
        "windows_off",
        ("mistral-7b-v0.1", "H100-SXM", flags(disable_sliding_window=True)),
        (
            "mistral-7b-v0.1",
            "H100-SXM",
            {"context_tokens": 4096, **flags(disable_sliding_window=True)},
        ),
    ),
    "cached states without chunked prefill": (
        "chunked_states",
        ("qwen3.5-27b", "H100-SXM", {"weight_dtype": "fp8", **flags(**WHOLE)}),
        (
            "qwen3.5-27b",
            "H100-SXM",
            {"weight_dtype": "fp8", **flags(**WHOLE, enable_prefix_caching=False)},
        ),
    ),
    "no whole graphs, no such check": (
        "state_blocks",
        ("qwen3.5-27b", "H100-SXM", {"weight_dtype": "fp8", "engine_version": "0.20.0"}),
        ("qwen3.5-27b", "H100-SXM", {"weight_dtype": "fp8", "engine_version": "0.19.0"}),
    ),
    "Llama 4 by a kernel that nobody named, as 0.5.1 to 0.5.5 say": (
        "llama4_kernel",
        ("llama-4-scout", "H100-SXM", {**SCOUT, "engine_version": "0.5.5"}),
        ("llama-4-scout", "H100-SXM", {**SCOUT, "engine_version": "0.5.6"}),
    ),
    "SGLang's trees over pages": (
        "paged_trees",
        (
            B8,
            "H100-SXM",
            {"engine": "sglang", **flags(**TREES, page_size=16, attention_backend="torch_native")},
        ),
        (
            B8,
            "H100-SXM",
            {"engine": "sglang", **flags(**TREES, page_size=16, attention_backend="triton")},
        ),
    ),
    "SGLang's draft of another vocabulary": (
        "vocabularies",
        (B8, "H100-SXM", {"engine": "sglang", "speculation": {**DRAFT, "model": "qwen3-0.6b"}}),
        (B8, "H100-SXM", {"engine": "sglang", "speculation": {**DRAFT, "model": "llama-3.2-1b"}}),
    ),
    "SGLang's drafts with data-parallel attention": (
        "grouped_drafts",
        (
            "deepseek-v3",
            "H200-SXM",
            {**EIGHT, **flags(**NGRAMS, enable_dp_attention=True, dp_size=8)},
        ),
        ("deepseek-v3", "H200-SXM", {**EIGHT, **flags(**NGRAMS)}),
    ),
    "half a GB of HiCache": (
        "hicache_size",
        (
            B8,
            "H100-SXM",
            {"engine": "sglang", **flags(enable_hierarchical_cache=True, hicache_size=30.5)},
        ),
        (
            B8,
            "H100-SXM",
            {"engine": "sglang", **flags(enable_hierarchical_cache=True, hicache_size=30)},
        ),
    ),
    "offloading without a count of blocks": (
        "offloaded_blocks",
        (B8, "H100-SXM", {"engine_version": "0.12.0", **flags(**OFFLOADED)}),
        (B8, "H100-SXM", {"engine_version": "0.14.0", **flags(**OFFLOADED)}),
    ),
    "a draft model before 0.15": (
        "draft_model",
        (B8, "H100-SXM", {"engine_version": "0.13.0", "speculation": OWN}),
        (B8, "H100-SXM", {"engine_version": "0.15.0", "speculation": OWN}),
    ),
    "cached states a request apart": (
        "whole_states",
        (MAMBA, "H100-SXM", {"engine_version": "0.12.0", **flags(enable_prefix_caching=True)}),
        (MAMBA, "H100-SXM", {"engine_version": "0.15.0", **flags(enable_prefix_caching=True)}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_refuses_and_lets_through(name: str) -> None:
    rule, (model, gpu, keys), (other, card, more) = CASES[name]
    refused = asked(model, gpu, **keys)
    found = [r for r in refused.answer.refusals if r.rule == rule]
    assert found and found[0].message and found[0].source
    assert not refused.answer.starts and not refused.plan.verdict.fits
    assert refused.answer.refusals[0].message in refused.plan.verdict.sentence
    assert rule not in [r.rule for r in against(other, card, **more)]


@pytest.mark.parametrize(
    ("rule", "keys", "since", "before"),
    [
        ("cache_on_card", {"kv_dtype": "int8_per_token_head"}, "0.20.0", "0.19.0"),
        ("cache_on_card", {"kv_dtype": "fp16"}, "0.18.0", "0.17.0"),
        ("cache_on_card", {"engine": "sglang", "kv_dtype": "nvfp4"}, "0.5.5", "0.5.4"),
        ("drafting", {"engine": "sglang", "speculation": "ngram:3"}, "0.5.3", "0.5.2"),
        ("drafting", {"engine": "sglang", "speculation": OWN}, "0.5.2", "0.5.1"),
    ],
)
def test_a_word_that_a_release_lacks_is_refused_with_the_one_that_has_it(
    rule: str, keys: Any, since: str, before: str
) -> None:
    found = {r.rule: r for r in against(B8, "B200-SXM", **keys, engine_version=before)}
    assert since in found[rule].fix
    assert rule not in {r.rule for r in against(B8, "B200-SXM", **keys, engine_version=since)}


def test_a_width_taken_unasked_needs_no_word() -> None:
    for engine, version in (("vllm", "0.10.2"), ("sglang", "0.5.1")):
        keys = {"engine": engine, "engine_version": version, "kv_dtype": "bf16"}
        assert not against(B8, "H100-SXM", **keys)


def test_every_rule_is_tried() -> None:
    rules = {r.name for table in (VLLM, POOL_RULES, SGLANG, TENSORRT_LLM) for r in table}
    assert rules == {rule for rule, _, _ in CASES.values()}
    assert all(r.source for table in (VLLM, POOL_RULES, SGLANG, TENSORRT_LLM) for r in table)


@pytest.mark.parametrize(
    ("model", "gpu", "keys"),
    [
        ("qwen3.5-27b", "H100-SXM", {"weight_dtype": "fp8", "engine_version": "0.22.0"}),
        (B8, "H100-SXM", {"tp": 4, **flags(gpu_memory_utilization=0.99)}),
        ("llama-3.2-1b", "T4", flags(dtype="bfloat16")),
    ],
)
def test_the_flags_that_would_do_do(model: str, gpu: str, keys: dict[str, Any]) -> None:
    (refused,) = against(model, gpu, **keys)
    assert refused.args
    cured = {**keys, "engine_args": {**keys.get("engine_args", {}), **refused.args}}
    assert not against(model, gpu, **cured)


@pytest.mark.parametrize(
    ("share", "blocks"),
    [(0.95, 856)],  # Qwen3.6-27B-FP8 on an H100, vllm-project/recipes#551
)
def test_blocks_of_state_as_the_engine_counts_them(share: float, blocks: int) -> None:
    made = asked(
        "qwen3.5-27b", "H100-SXM", weight_dtype="fp8_block", engine_version="0.22.0",
        context_tokens=262_144, **flags(gpu_memory_utilization=share),
    )  # fmt: skip
    capacity = made.plan.capacity.engine
    assert capacity is not None and capacity.num_blocks == pytest.approx(blocks, rel=0.02)
