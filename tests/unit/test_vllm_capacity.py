"""vLLM's own answers, release by release: blocks, printed tokens, concurrency, refusals.

Source of every row: the functions of that vLLM release themselves, run on a pretended H100 80 GB
(API server) with 40 GiB of cache and max_model_len 32,768.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.answer.plan import Plan
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

MODELS: dict[str, dict[str, Any]] = {
    "llama": {  # meta-llama/Llama-3.1-70B
        "model_type": "llama",
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "gemma": {  # google/gemma-3-27b-it, its text part
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "vocab_size": 262208,
    },
    "gpt_oss": {  # openai/gpt-oss-120b
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "num_hidden_layers": 36,
        "vocab_size": 201088,
    },
    "mistral": {  # mistralai/Mistral-7B-v0.1
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "deepseek": {  # deepseek-ai/DeepSeek-V3
        "model_type": "deepseek_v3",
        "max_position_embeddings": 163840,
        "hidden_size": 7168,
        "moe_layer_freq": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "vocab_size": 129280,
    },
    "sparse": {  # deepseek-ai/DeepSeek-V3.2
        "model_type": "deepseek_v32",
        "max_position_embeddings": 163840,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "vocab_size": 129280,
    },
    "delta": {  # Qwen/Qwen3-Next-80B-A3B
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "vocab_size": 151936,
    },
    "nemotron": {  # nvidia/Nemotron-H-56B-Base-8K
        "model_type": "nemotron_h",
        "hidden_size": 8192,
        "hybrid_override_pattern": "M-M-M-M*" + "-M-M-M-M-M*" * 9 + "-M-M-M-M-M-",
        "mamba_num_heads": 256,
        "num_attention_heads": 64,
        "ssm_state_size": 256,
        "vocab_size": 131072,
    },
    "granite": {  # ibm-granite/granite-4.0-h-small
        "model_type": "granitemoehybrid",
        "hidden_size": 4096,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "layer_types": ["attention" if i % 10 == 5 else "mamba" for i in range(40)],
        "mamba_d_state": 128,
        "num_local_experts": 72,
        "vocab_size": 100352,
    },
    "chunked": {  # meta-llama/Llama-4-Scout-17B-16E, its text part
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "num_attention_heads": 40,
        "num_hidden_layers": 48,
        "vocab_size": 202048,
    },
}

PLAIN: dict[str, Any] = {}
OFF = {"disable_hybrid_kv_cache_manager": True}
SMALL = {"max_num_batched_tokens": 2048}
SYNC = {"async_scheduling": False}
CACHED = {"enable_prefix_caching": True}
UNCACHED = {"enable_prefix_caching": False}

Row = tuple[str, str, dict[str, Any], dict[str, int], tuple[int, int, float] | None]

RECORDED: list[Row] = [
    ("0.8.5", "chunked", PLAIN, {}, (13653, 218448, 6.66650390625)),
    ("0.8.5", "gemma", PLAIN, {}, (5285, 84560, 2.58056640625)),
    ("0.8.5", "llama", PLAIN, {}, (8192, 131072, 4.0)),
    ("0.8.5", "llama", PLAIN, {"tp": 4}, (32768, 524288, 16.0)),
    ("0.9.2", "mistral", PLAIN, {}, (20480, 327680, 26.631989596879063)),
    ("0.9.2", "mistral", OFF, {}, (20480, 327680, 26.631989596879063)),
    ("0.10.2", "delta", PLAIN, {}, (3212, 436832, 50.1875)),
    ("0.10.2", "gpt_oss", PLAIN, {}, (72817, 582528, 28.34449202024134)),
    ("0.10.2", "gpt_oss", OFF, {}, (36408, 582528, 17.77734375)),
    ("0.10.2", "gpt_oss", SMALL, {}, (72817, 582528, 33.325858123569795)),
    ("0.10.2", "nemotron", PLAIN, {}, (504, 149760, 22.90909090909091)),
    ("0.11.0", "deepseek", PLAIN, {}, (9549, 611136, 18.650390625)),
    ("0.11.0", "granite", PLAIN, {}, (4964, 261888, 68.94444444444444)),
    ("0.12.0", "chunked", PLAIN, {}, (13653, 218448, 6.66650390625)),
    ("0.12.0", "chunked", OFF, {}, (13653, 218448, 6.66650390625)),
    ("0.12.0", "delta", CACHED, {}, (3212, 436832, 50.1875)),
    ("0.14.0", "chunked", PLAIN, {}, (54613, 218448, 10.6666015625)),
    ("0.14.0", "delta", CACHED, {}, (3212, 436832, 50.1875)),
    ("0.14.0", "gemma", PLAIN, {}, (32768, 74896, 5.947005444646098)),
    ("0.14.0", "gemma", OFF, {}, (5285, 84560, 2.58056640625)),
    ("0.14.0", "gpt_oss", SYNC, {}, (72817, 582528, 28.34449202024134)),
    ("0.14.0", "nemotron", CACHED, {}, (481, 147968, 4.294642857142857)),
    ("0.16.0", "delta", CACHED, {}, (3212, 436832, 47.940298507462686)),
    ("0.18.1", "deepseek", PLAIN, {}, (38199, 611184, 18.65185546875)),
    ("0.19.1", "nemotron", PLAIN, {}, (504, 149760, 22.90909090909091)),
    ("0.19.1", "nemotron", CACHED, {}, (481, 147968, 4.294642857142857)),
    ("0.20.0", "chunked", PLAIN, {}, (54613, 218448, 10.6666015625)),
    ("0.20.0", "delta", PLAIN, {}, (3212, 436832, 50.1875)),
    ("0.20.0", "delta", CACHED, {}, (3212, 436832, 47.940298507462686)),
    ("0.20.0", "gemma", PLAIN, {}, (32768, 74896, 5.947005444646098)),
    ("0.20.0", "gpt_oss", PLAIN, {}, (72817, 582528, 28.34449202024134)),
    ("0.20.0", "gpt_oss", SMALL, {}, (72817, 582528, 33.325858123569795)),
    ("0.20.0", "gpt_oss", SYNC, {}, (72817, 582528, 28.34449202024134)),
    ("0.20.0", "mistral", PLAIN, {}, (20480, 327680, 26.631989596879063)),
    ("0.20.0", "mistral", OFF, {}, (20480, 327680, 26.631989596879063)),
    ("0.20.2", "chunked", PLAIN, {}, (54613, 349523, 10.6666015625)),
    ("0.20.2", "delta", PLAIN, {}, (3212, 1644544, 50.1875)),
    ("0.20.2", "delta", CACHED, {}, (3212, 1570907, 47.940298507462686)),
    ("0.20.2", "gemma", PLAIN, {}, (32768, 194871, 5.947005444646098)),
    ("0.20.2", "gpt_oss", PLAIN, {}, (72817, 928792, 28.34449202024134)),
    ("0.20.2", "gpt_oss", SMALL, {}, (72817, 1092021, 33.325858123569795)),
    ("0.20.2", "gpt_oss", SYNC, {}, (72817, 928792, 28.34449202024134)),
    ("0.20.2", "granite", PLAIN, {}, (4964, 2259171, 68.94444444444444)),
    ("0.20.2", "granite", CACHED, {}, (3413, 260086, 7.937209302325582)),
    ("0.20.2", "mistral", PLAIN, {}, (20480, 872677, 26.631989596879063)),
    ("0.20.2", "mistral", OFF, {}, (20480, 872677, 26.631989596879063)),
    ("0.20.2", "nemotron", PLAIN, {}, (254, 594505, 18.142857142857142)),
    ("0.20.2", "nemotron", CACHED, {}, (248, 145115, 4.428571428571429)),
    ("0.22.1", "gemma", PLAIN, {}, (32768, 194871, 5.947005444646098)),
    ("0.22.1", "nemotron", PLAIN, {}, (254, 594505, 18.142857142857142)),
    ("0.22.1", "nemotron", CACHED, {}, (248, 145115, 4.428571428571429)),
    ("0.25.1", "chunked", PLAIN, {}, (54613, 349523, 10.6666015625)),
    ("0.25.1", "gpt_oss", PLAIN, {}, (72817, 928792, 28.34449202024134)),
    ("0.25.1", "gpt_oss", SMALL, {}, (72817, 1092021, 33.325858123569795)),
    ("0.25.1", "mistral", PLAIN, {}, (20480, 872677, 26.631989596879063)),
    ("0.25.1", "mistral", OFF, {}, (20480, 872677, 26.631989596879063)),
    ("0.26.0", "delta", PLAIN, {}, (3212, 1644544, 50.1875)),
    ("0.26.0", "delta", CACHED, {}, (3212, 1570907, 47.940298507462686)),
    ("0.26.0", "granite", PLAIN, {}, (4964, 2259171, 68.94444444444444)),
    ("0.26.0", "granite", CACHED, {}, (3413, 260086, 7.937209302325582)),
    ("0.26.0", "mistral", PLAIN, {}, (20480, 523878, 15.987509758001561)),
    ("0.26.0", "mistral", OFF, {}, (20480, 523878, 15.987509758001561)),
    ("0.28.0", "chunked", PLAIN, {}, (54613, 268864, 8.205078125)),
    ("0.28.0", "delta", PLAIN, {}, (3212, 1570907, 47.940298507462686)),
    ("0.28.0", "delta", UNCACHED, {}, (3212, 1644544, 50.1875)),
    ("0.28.0", "gemma", PLAIN, {}, (32768, 125115, 3.8182241901654628)),
    ("0.28.0", "gpt_oss", PLAIN, {}, (72817, 774445, 23.634209672184355)),
    ("0.28.0", "gpt_oss", SMALL, {}, (72817, 1031589, 31.48162559446606)),
    ("0.28.0", "nemotron", PLAIN, {}, (254, 416153, 12.7)),
    ("0.28.0", "nemotron", UNCACHED, {}, (254, 594505, 18.142857142857142)),
    ("0.29.0", "chunked", OFF, {}, (13653, 218448, 6.66650390625)),
    ("0.29.0", "chunked", PLAIN, {}, (54613, 268864, 8.205078125)),
    ("0.29.0", "nemotron", PLAIN, {}, (254, 416153, 12.7)),
    ("0.29.0", "nemotron", UNCACHED, {}, (254, 594505, 18.142857142857142)),
    ("0.32.0", "gpt_oss", OFF, {}, (36408, 582528, 17.77734375)),
    ("0.32.0", "llama", PLAIN, {"tp": 4}, (32768, 524288, 16.0)),
    ("0.32.0", "mistral", OFF, {}, (20480, 523878, 15.987509758001561)),
    ("0.33.0", "deepseek", PLAIN, {}, (38199, 611184, 18.65185546875)),
    ("0.33.0", "deepseek", PLAIN, {"tp": 8}, (38199, 611184, 18.65185546875)),
    ("0.33.0", "deepseek", PLAIN, {"tp": 8, "dcp": 8}, (38199, 4889472, 149.21484375)),
    ("0.33.0", "delta", UNCACHED, {}, (3212, 1644544, 50.1875)),
    ("0.33.0", "delta", PLAIN, {}, (3034, 1506335, 45.96969696969697)),
    ("0.33.0", "delta", PLAIN, {"tp": 4}, (10922, 3195465, 97.51785714285714)),
    ("0.33.0", "gemma", OFF, {}, (5285, 84560, 2.58056640625)),
    ("0.33.0", "gemma", PLAIN, {}, (32768, 125115, 3.8182241901654628)),
    ("0.33.0", "gemma", PLAIN, {"pp": 4}, (109226, 249554, 7.615813694045461)),
    ("0.33.0", "gpt_oss", SYNC, {}, (72817, 928792, 28.34449202024134)),
    ("0.33.0", "gpt_oss", PLAIN, {}, (72817, 774445, 23.634209672184355)),
    ("0.33.0", "gpt_oss", SMALL, {}, (72817, 1031589, 31.48162559446606)),
    ("0.33.0", "gpt_oss", PLAIN, {"pp": 2}, (145635, 1328184, 40.53298079599221)),
    ("0.33.0", "granite", PLAIN, {}, (4964, 1807337, 55.15555555555556)),
    ("0.33.0", "llama", PLAIN, {}, (8192, 131072, 4.0)),
    ("0.33.0", "llama", PLAIN, {"pp": 4}, (32768, 524288, 16.0)),
    ("0.33.0", "llama", PLAIN, {"tp": 16}, (65536, 1048576, 32.0)),
    ("0.33.0", "llama", PLAIN, {"tp": 8}, (65536, 1048576, 32.0)),
    ("0.33.0", "mistral", PLAIN, {}, (20480, 523878, 15.987509758001561)),
    ("0.33.0", "nemotron", PLAIN, {}, (254, 320118, 9.76923076923077)),
    ("0.33.0", "nemotron", PLAIN, {"tp": 8}, (2032, 2560945, 78.15384615384616)),
    ("0.33.0", "sparse", PLAIN, {}, (8568, 548352, 16.734375)),
    ("0.33.0", "sparse", PLAIN, {"tp": 8}, (8568, 548352, 16.734375)),
]
"""Release, model, flags, layout, and (blocks, printed tokens, concurrency), None where refused."""


def planned(model: str, release: str, flags: dict[str, Any], **more: Any) -> Plan:
    layout = {k: more[k] for k in ("tp", "pp", "dcp") if k in more}
    return plan(
        Scenario.from_dict(
            {
                "model": {"config": MODELS[model]},
                "gpu": "H100-SXM",
                "engine_version": release,
                "kv_dtype": more.get("kv", "auto"),
                "context_tokens": more.get("context", 32768),
                "engine_args": {"kv_cache_memory_bytes": more.get("cache", 40 * GIB), **flags},
                **layout,
            }
        )
    )


@pytest.mark.parametrize(
    ("release", "model", "flags", "layout", "answer"),
    RECORDED,
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_recorded(
    release: str,
    model: str,
    flags: dict[str, Any],
    layout: dict[str, int],
    answer: tuple[int, int, float] | None,
) -> None:
    made = planned(model, release, flags, **layout)
    engine = made.capacity.engine
    if answer is None:
        assert not made.verdict.fits
        return
    assert made.verdict.fits
    assert engine is not None
    assert (engine.num_blocks, engine.kv_tokens) == answer[:2]
    assert engine.max_concurrency == pytest.approx(answer[2], rel=1e-9)


def test_groups_of_unequal_pages_are_weighed_by_their_bytes() -> None:
    """Six public logs of DeepSeek-V4-Pro on four GB300 (vLLM 0.21.0, 1,000,000 tokens, batches of 8,192)
    print 39.26 GiB and 4,103,577 tokens, in Prathmesh234/mutliturn-inferenceX, results/dsv4_b1."""

    def printed(cache_bytes: int) -> int | None:
        question = Scenario(
            model="deepseek-v4-pro",
            gpu="GB300",
            gpu_count=4,
            tp=4,
            context_tokens=1_000_000,
            kv_dtype="fp8",
            engine="vllm",
            engine_version="0.21.0",
            engine_args={
                "block_size": 256,
                "max_num_seqs": 128,
                "max_num_batched_tokens": 8192,
                "kv_cache_memory_bytes": cache_bytes,
            },
        )
        engine = plan(question).capacity.engine
        assert engine is not None
        return engine.kv_tokens

    assert printed(28_446 * 1_482_048) == 4_103_577
    low, high = printed(round(39.255 * GIB)), printed(round(39.265 * GIB))
    assert low is not None and high is not None
    assert low <= 4_103_577 <= high


def held(version: str, blocks_bytes: int, **asked: Any) -> tuple[int | None, float | None]:
    engine = plan(
        Scenario.from_dict(
            {
                "engine": "vllm",
                "engine_version": version,
                "context_tokens": 32768,
                "engine_args": {"kv_cache_memory_bytes": blocks_bytes},
                **asked,
            }
        )
    ).capacity.engine
    assert engine is not None
    return engine.num_blocks, engine.max_concurrency


def test_heads_of_512_in_an_fp8_cache_take_pages_of_64_on_hopper() -> None:
    """Gemma 4 (25 windows of 8 heads of 256, 5 full layers of 2 heads of 512) in vLLM 0.33.0:
    ``FlashAttentionBackend.get_preferred_block_size`` gives 64 tokens; a window's page of 64 × 8 × 512
    bytes is twice a full layer's, whose block becomes 128 (``unify_kv_cache_spec_page_size``)."""
    page = 64 * 8 * 512
    found = held("0.33.0", 20 * GIB, model="gemma-4-26b-a4b", gpu="H100-SXM", kv_dtype="fp8")
    blocks = 20 * GIB // (5 * page)
    request = 5 * (-(-(1023 + 16384) // 64) + 1) + 32768 // 128
    assert found == (blocks, pytest.approx(blocks / request))


@pytest.mark.parametrize(("version", "batch"), [("0.22.1", 8192), ("0.33.0", 16384)])
def test_step_3_7_has_twelve_full_layers_and_three_groups_of_windows(
    version: str, batch: int
) -> None:
    """45 layers of 8 KV heads of 128, 33 with windows of 512 (its config): groups of 12, 11, 11, 11."""
    block = 12 * 16 * 2 * 2 * 128 * 2  # at tp 4 two heads a rank
    found = held(version, 40 * GIB, model="step-3.7-flash", gpu="H200-SXM", gpu_count=4, tp=4)
    blocks = 40 * GIB // block
    request = 32768 // 16 + 3 * (-(-(511 + batch) // 16) + 1)
    assert found == (blocks, pytest.approx(blocks / request))


def test_a_draft_beside_recurrent_state_widens_its_pages() -> None:
    """Qwen3.5's MTP layer is a 17th full layer; its two drafts keep two more columns of the convolution's
    state (10,240 × 2 bytes each), so that a block of attention is raised from 784 to 800 tokens."""
    plain = held("0.22.1", 20 * GIB, model="qwen3.5-27b", gpu="H100-SXM")
    drafted = held("0.22.1", 20 * GIB, model="qwen3.5-27b", gpu="H100-SXM", speculation="mtp:2")
    assert plain[0] == 20 * GIB // (16 * 784 * 4096)
    assert drafted[0] == 20 * GIB // (17 * 800 * 4096)


@pytest.mark.parametrize(
    ("version", "block"),
    [
        ("0.21.0", 31 * (37_440 + 8_640 + 1_728)),  # all sizes side by side, 31 times
        ("0.25.1", 31 * 37_440 + 30 * 8_640 + 31 * 1_728),  # each as often as a group has it
        ("0.27.0", 30 * 37_440 + 30 * 8_640 + 31 * 1_728),  # the largest group as it is
        ("0.33.0", 30 * 37_440 + 30 * 8_640 + 31 * 1_728),
    ],
)
def test_deepseek_v4s_block_by_release(version: str, block: int) -> None:
    """DeepSeek-V4-Pro has 30 layers that compress 4 to 1 with an indexer and 31 that compress 128;
    windows in all 61, cut in groups of 31 and 30. Sources: ``kv_cache_utils.py`` of the releases."""
    blocks, _ = held(version, 100 * block, model="deepseek-v4-pro", gpu="GB300", gpu_count=4, tp=4)
    assert blocks == 100
    blocks, _ = held(
        version, 100 * block - 1, model="deepseek-v4-pro", gpu="GB300", gpu_count=4, tp=4
    )
    assert blocks == 99
