"""TensorRT-LLM's pools as its logs print them, and the rules one by one."""

from __future__ import annotations

from typing import Any

import pytest

import llama_models as m
from kvroom.answer.plan import Account, EngineCapacity, Plan
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB, MIB
from llama_models import asked

QWEN3_06B = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 40960,
}
LLAMA2_7B = m.llama(intermediate_size=11008, num_key_value_heads=32, vocab_size=32000)
NEMOTRON_NANO = {
    "model_type": "nemotron_h",
    "hidden_size": 4480,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "attention_head_dim": 128,
    "intermediate_size": 15680,
    "vocab_size": 131072,
    "max_position_embeddings": 131072,
}


def planned(config: dict[str, Any], **more: Any) -> Plan:
    return plan(asked(config, "tensorrt-llm", **({"gpu": "H100-SXM"} | more)))


def engine(config: dict[str, Any], **more: Any) -> EngineCapacity:
    found = planned(config, **more).capacity.engine
    assert found is not None
    return found


def of(made: Plan, name: str) -> Account:
    return next(a for a in made.memory.accounts if a.name == name)


def free(gib: float, **more: Any) -> dict[str, Any]:
    """A card that has so much free after the load and the estimation run."""
    known = {"weights": 0, "activations": 0, "runtime": 0, "graphs": 0, "visible": int(gib * GIB)}
    return {"gpu": m.HUGE, "known_bytes": known, **more}


def test_share_of_what_is_free() -> None:
    """A public log of Llama-3.1-8B with FP8 cache: available 17.83 GiB, 8,219 blocks of 32, 16.05 GiB."""
    found = engine(m.LLAMA_8B, **free(17.83, kv_dtype="fp8"))
    assert found.num_blocks == pytest.approx(8219, abs=3)  # GiB are printed with two digits
    assert found.block_tokens == 32
    assert found.kv_tokens == 32 * (found.num_blocks or 0)


@pytest.mark.parametrize(
    ("config", "size", "block", "tokens"),
    [
        # NVIDIA/TensorRT-LLM#1400: "Allocate 69524783104 bytes for k/v cache", 132,608 tokens (the
        # model's shapes follow from the two)
        (LLAMA2_7B, 69_524_783_104, 64, 132_608),
        (m.llama(num_key_value_heads=8), 5_248 * 131_072, 64, 5_248),  # 82 blocks of 64
    ],
)
def test_tokens_in_given_bytes(config: dict[str, Any], size: int, block: int, tokens: int) -> None:
    args = {"max_gpu_total_bytes": size, "tokens_per_block": block}
    assert engine(config, gpu=m.HUGE, args=args).kv_tokens == tokens


def test_tokens_in_the_printed_gib() -> None:
    """A public log of Qwen3-Reranker-0.6B on an H100: 68.69 GiB, 643,136 tokens."""
    found = engine(QWEN3_06B, gpu=m.HUGE, args={"max_gpu_total_bytes": int(68.69 * GIB)})
    assert found.kv_tokens == pytest.approx(643_136, abs=47 + 32)


def test_flags_alone_come_near() -> None:
    """The same log, from the card and the model: within the band, and 5 % of the middle."""
    found = engine(QWEN3_06B)
    assert found.kv_tokens == pytest.approx(643_136, rel=0.05)
    made = planned(QWEN3_06B)
    kv = of(made, "kv")
    assert kv.low_bytes <= 643_136 * 114_688 <= kv.high_bytes


def test_max_seq_len_is_cut_to_the_pool() -> None:
    """A recorded start: 5,248 tokens of pool, max_seq_len 5,185."""
    args = {"max_gpu_total_bytes": 5_248 * 131_072, "tokens_per_block": 64}
    made = planned(m.LLAMA_8B, gpu=m.HUGE, args=args)
    assert made.capacity.engine is not None
    assert made.capacity.engine.max_context_tokens == 5185
    assert "max_seq_len is cut to 5,185" in " ".join(made.warnings)
    assert not made.verdict.fits  # one request of the model's own length
    assert planned(m.LLAMA_8B, gpu=m.HUGE, args=args, context_tokens=5185).verdict.fits


def test_the_smaller_bound_wins() -> None:
    """NVIDIA/TensorRT-LLM#2773: of max_gpu_total_bytes and the fraction the smaller; it bounds the
    cache, not the engine. max_tokens bounds it too."""
    args = {"max_gpu_total_bytes": 10 * GIB}
    assert planned(m.LLAMA_8B, args=args).memory.kv_bytes == pytest.approx(10 * GIB, rel=1e-3)
    wide = planned(m.LLAMA_8B).memory.kv_bytes
    assert planned(m.LLAMA_8B, args={"max_gpu_total_bytes": 10**12}).memory.kv_bytes == wide
    assert engine(m.LLAMA_8B, args={"max_tokens": 10_000}).kv_tokens == 10_000 // 32 * 32


def test_block_by_backend_and_age() -> None:
    assert engine(m.LLAMA_8B).block_tokens == 32
    assert engine(m.LLAMA_8B, args={"backend": "tensorrt"}).block_tokens == 64
    assert engine(m.LLAMA_8B, engine_version="0.17.0").block_tokens == 64
    assert engine(m.LLAMA_8B, args={"tokens_per_block": 128}).block_tokens == 128


def test_config_objects_and_their_fields() -> None:
    config = {"free_gpu_memory_fraction": 0.5, "tokens_per_block": 64}
    whole = engine(m.LLAMA_8B, args={"kv_cache_config": config})
    assert whole == engine(m.LLAMA_8B, args=config)
    assert whole == engine(m.LLAMA_8B, args={"kv_cache_config": str(config).replace("'", '"')})


@pytest.mark.parametrize(("dtype", "part"), [("fp8", 2), ("nvfp4", 32 / 9)])
def test_narrow_caches(dtype: str, part: float) -> None:
    size = {"max_gpu_total_bytes": 10 * GIB}
    wide = engine(m.LLAMA_8B, gpu=m.HUGE, args=size).kv_tokens or 0
    narrow = engine(m.LLAMA_8B, gpu=m.HUGE, args=size, kv_dtype=dtype).kv_tokens
    assert narrow == pytest.approx(part * wide, abs=64)


def test_heads_are_never_less_than_one() -> None:
    """The estimate divides 8 heads by 16 ranks; the pool keeps one on each."""
    found = planned(m.LLAMA_8B, gpu_count=16, gpu={**m.HUGE, "memory_bytes": 80 * 10**9})
    assert found.kv.bytes_per_token_per_gpu == 32 * 2 * 128 * 2
    assert found.memory.kv_bytes <= 80e9 * 0.9


def test_latents_are_on_every_rank_and_attention_dp_makes_pools() -> None:
    size = {"max_gpu_total_bytes": 20 * GIB}
    tp = planned(m.DEEPSEEK_V3, gpu_count=8, gpu=m.HUGE, args=size)
    dp = planned(m.DEEPSEEK_V3, gpu_count=8, gpu=m.HUGE, args={**size, "enable_attention_dp": True})
    assert tp.capacity.engine is not None
    assert tp.capacity.engine.kv_tokens == 20 * GIB // (61 * 576 * 2) // 32 * 32
    assert dp.capacity.engine == tp.capacity.engine
    held = int(tp.capacity.engine.max_concurrency or 0)
    assert f"Room for {held:,} request" in tp.verdict.sentence
    assert f"Room for {8 * held:,} request" in dp.verdict.sentence


def test_fp8_latents_keep_a_workspace() -> None:
    whole = planned(m.DEEPSEEK_V3, gpu_count=8, gpu="H200", kv_dtype="fp8", weight_dtype="int4")
    chunked = planned(m.DEEPSEEK_V3, gpu_count=8, gpu="H200", kv_dtype="fp8", weight_dtype="int4",
                      args={"enable_chunked_prefill": True})  # fmt: skip
    each, stored = 16 * (192 + 128), 61 * 576
    assert whole.memory.kv_bytes / chunked.memory.kv_bytes == pytest.approx(
        1 - each / (stored + each), rel=1e-3
    )


def test_windows_share_memory_equally() -> None:
    size = {"max_gpu_total_bytes": 20 * GIB}

    def found(version: str, **more: Any) -> EngineCapacity:
        return engine(m.GPT_OSS_120B, gpu=m.HUGE, engine_version=version, args={**size, **more})

    row = 18 * 2 * 8 * 64 * 2
    derived = found("1.3.0")
    assert derived.kv_tokens == derived.window_tokens == 10 * GIB // row // 32 * 32
    flat = found("1.0.0")
    assert (flat.window_tokens, flat.kv_tokens) == (None, 20 * GIB // (2 * row) // 32 * 32)
    told = found("1.0.0", max_attention_window=[128, 131072])
    assert told.kv_tokens == derived.kv_tokens
    moved = found("1.4.0")  # NVIDIA/TensorRT-LLM#16942: the manager V2
    assert (moved.max_concurrency or 0) > (derived.max_concurrency or 0)


def test_state_takes_a_slot_for_every_request() -> None:
    made = engine(NEMOTRON_NANO, args={"max_batch_size": 64}, context_tokens=8192)
    assert (made.state_slots, made.max_concurrency) == (65, 64)
    refused = planned(NEMOTRON_NANO)
    assert not refused.verdict.fits
    assert "max_batch_size" in refused.verdict.sentence
    assert refused.memory.kv_bytes == 0


def test_cross_attention_has_a_pool_of_its_own() -> None:
    t5 = {
        "model_type": "t5",
        "d_model": 1024,
        "d_kv": 64,
        "d_ff": 4096,
        "num_heads": 16,
        "num_layers": 24,
        "vocab_size": 32128,
    }
    args = {"max_gpu_total_bytes": 10 * GIB, "backend": "tensorrt"}
    more = {"gpu": m.HUGE, "context_tokens": 64, "encoder_tokens": 640}
    row = 24 * 2 * 1024 * 2
    found = engine(t5, args=args, **more)
    assert found.kv_tokens == 5 * GIB // row // 64 * 64
    assert found.max_concurrency == 5 * GIB // row // 64 / 10
    most = engine(t5, args={**args, "cross_kv_cache_fraction": 0.9}, **more)
    assert (most.max_concurrency or 0) > (found.max_concurrency or 0)


def test_weights_that_do_not_fit() -> None:
    made = planned(m.llama(num_hidden_layers=320))
    assert not made.verdict.fits
    assert made.verdict.binding == "weights"


@pytest.mark.parametrize(
    ("args", "field", "word"),
    [
        ({"free_gpu_mem_fraction": 0.9}, "engine_args.free_gpu_mem_fraction", "free_gpu_memory"),
        ({"kv_cache_config": {"max_token": 1}}, "engine_args.max_token", "max_tokens"),
        ({"tokens_per_block": 48}, "engine_args.tokens_per_block", "64"),
        ({"free_gpu_memory_fraction": 1.5}, "engine_args.free_gpu_memory_fraction", "1"),
        ({"tp_size": 4}, "engine_args.tp_size", "tp"),
        ({"kv_cache_config": "fast"}, "engine_args.kv_cache_config", "max_tokens"),
    ],
)
def test_wrong_flags_name_what_is_right(args: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(KvroomError) as caught:
        planned(m.LLAMA_8B, args=args)
    assert caught.value.field == field
    assert word in caught.value.fix


def test_unknown_versions_take_the_nearest() -> None:
    for text in (None, "", "main", "9.9.9"):
        assert any("1.4.0" in w for w in planned(m.LLAMA_8B, engine_version=text).warnings)


def test_known_bytes_take_the_place_of_estimates() -> None:
    """Free is what the card has less the four; a docs' log: 79.10 GiB, engine 6,695 MiB, execution
    context 1,134.01 MiB, buffers 43.29 and 180.30 MB, available 70.48 GiB, 63.44 GiB of cache."""
    known = {
        "visible": int(79.10 * GIB),
        "weights": 6695 * MIB,
        "activations": 1134 * MIB,
        "runtime": int((79.10 - 70.48) * GIB) - (6695 + 1134) * MIB,
        "graphs": 0,
    }
    config = LLAMA2_7B
    made = planned(config, known_bytes=known, engine_version="0.17.0", kv_dtype="fp8")
    assert made.capacity.engine is not None
    assert made.capacity.engine.num_blocks == pytest.approx(4060, abs=5)
    assert of(made, "runtime").source == "measured"


def test_a_stage_that_only_shares_caches_has_no_pool() -> None:
    keys = {"gpu": "H100-SXM", "gpu_count": 3, "pp": 3, "engine": "tensorrt-llm"}
    made = plan(Scenario.from_dict({"model": "gemma-3n-e4b", "context_tokens": 4096, **keys}))
    assert made.verdict.fits
    assert made.kv.bytes_per_request_per_gpu > 0
