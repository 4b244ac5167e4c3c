"""Questions that people asked about memory, with the answers that maintainers or measurements gave."""

import pytest

from kvroom.units import GIB
from support import asked


def test_head_counts_and_bytes_not_bits() -> None:
    # vllm-project/vllm#22291: Qwen2.5-7B, not 1.53 MB a token; 0.16 GB measured for 3,072 tokens.
    plan = asked("qwen2.5-7b", "L40S", context_tokens=3072).plan
    assert plan.kv.bytes_per_token == 57_344
    assert plan.kv.bytes_per_request / GIB == pytest.approx(0.164, abs=0.001)


def test_printed_concurrency_is_a_minimum() -> None:
    # vllm-project/vllm#8031: 4.61x for 8,192 tokens is about 46 requests of 800.
    bytes_held = round(4.61 * 8192) * 131_072
    held = [
        asked(
            "llama-3.1-8b", "A100-SXM-40", engine="vllm", context_tokens=length,
            engine_args={"kv_cache_memory_bytes": bytes_held},
        ).plan.capacity.engine.max_concurrency
        for length in (8192, 800)
    ]  # fmt: skip
    assert held[0] == pytest.approx(4.61, abs=0.01)
    assert held[1] == pytest.approx(46, rel=0.03)


def test_405b_holds_less_than_its_context() -> None:
    # vllm-project/vllm#6746: FP8 on 8 × H100, 64,512 B a token and GPU, 79,392 tokens: 131,072 refused.
    w = asked(
        "llama-3.1-405b", "H100-SXM", tp=8, engine="vllm", engine_version="0.8.5",
        context_tokens=131_072, engine_args={"kv_cache_memory_bytes": round(4.77 * GIB)},
    )  # fmt: skip
    assert w.plan.kv.bytes_per_token_per_gpu == 64_512
    assert not w.answer.starts
    assert w.plan.capacity.engine.kv_tokens == 79_392
    assert w.plan.capacity.engine.max_context_tokens == 79_392


def test_decode_context_ranks_multiply_tokens() -> None:
    # vllm-project/recipes, Kimi-K2-Think: 46.80 GiB hold 715,072 tokens at TP8, 5,721,088 with DCP8.
    tokens = [
        asked(
            "kimi-k2", "H200-SXM", tp=8, dcp=dcp, engine="vllm", engine_version="0.11.1",
            engine_args={"kv_cache_memory_bytes": round(46.8 * GIB)},
        ).plan.capacity.engine.kv_tokens
        for dcp in (1, 8)
    ]  # fmt: skip
    assert tokens[0] == 715_072
    assert tokens[1] == pytest.approx(5_721_088, rel=0.0005)  # 46.80 is rounded


def test_the_cache_can_be_set_outright() -> None:
    # vllm-project/vllm#18121: blocks by num_gpu_blocks_override, or bytes, whatever the utilisation.
    blocks = asked(
        "llama-3.1-8b", "L40S", engine="vllm", context_tokens=8192,
        engine_args={"num_gpu_blocks_override": 1000},
    ).plan.capacity.engine  # fmt: skip
    assert blocks.num_blocks == 1000
    given = {
        asked(
            "llama-3.1-8b", "L40S", engine="vllm", context_tokens=8192,
            engine_args={"kv_cache_memory_bytes": 2**33, "gpu_memory_utilization": share},
        ).plan.capacity.engine.kv_tokens
        for share in (0.5, 0.9)
    }  # fmt: skip
    assert given == {65_536}


def _accounts(version: str, **args: object) -> dict[str, int]:
    w = asked(
        "llama-3.1-8b", "H100-SXM", engine="vllm", engine_version=version,
        engine_args={"gpu_memory_utilization": 0.9, **args},
    )  # fmt: skip
    return {a.name: a.bytes for a in w.plan.memory.accounts}


def test_the_graph_estimate_shrinks_the_cache() -> None:
    # vllm-project/vllm#45178: from 0.20 on an estimate of CUDA graphs comes off the cache.
    before, after = _accounts("0.19.0"), _accounts("0.21.0")
    assert after["graphs"] + after["unused"] > before["graphs"] + before["unused"]
    assert _accounts("0.21.0", VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0)["kv"] > after["kv"]
    assert _accounts("0.21.0", enforce_eager=True)["kv"] > after["kv"]


def test_utilisation_was_no_cap_on_all_use() -> None:
    # vllm-project/vllm#27951: graphs lay in the rest, beside the share that was asked for.
    a = _accounts("0.19.0")
    share = a["weights"] + a["activations"] + a["runtime"] + a["kv"]
    gpu = share + a["graphs"] + a["unused"]
    assert share == pytest.approx(0.9 * gpu, abs=2)


def test_a_whole_prompt_in_one_batch_costs_cache() -> None:
    # vllm-project/vllm#10517: without chunked prefill the profile runs max_model_len tokens at once.
    sizes = [
        asked(
            "llama-3.1-8b", "RTX-3090", engine="vllm", engine_version="0.11.1", context_tokens=29_000,
            engine_args={"enable_chunked_prefill": chunked},
        ).plan.memory.kv_bytes
        for chunked in (False, True)
    ]  # fmt: skip
    assert sizes[0] < sizes[1] - 2**29


@pytest.mark.parametrize(("kv_dtype", "block"), [("auto", 528), ("fp8", 1056)])
def test_state_sets_the_block(kv_dtype: str, block: int) -> None:
    # vllm-project/vllm#54458: 16 × ceil(state page / (16 × bytes a token)); Qwen3.5-9B printed 528
    # and, with an FP8 cache, 1,056.
    w = asked(
        "qwen3.5-9b", "RTX-3090", engine="vllm", engine_version="0.24.0", kv_dtype=kv_dtype,
        context_tokens=32_768, engine_args={"kv_cache_memory_bytes": 2**33},
    )  # fmt: skip
    assert w.plan.capacity.engine.block_tokens == block


def test_tokens_of_a_hybrid_depend_on_the_context() -> None:
    # vllm-project/vllm#51041: the printed tokens are concurrency × max_model_len, no rate.
    tokens = [
        asked(
            "qwen3-next-80b-a3b", "H200-SXM", engine="vllm", engine_version="0.24.0",
            context_tokens=length, engine_args={"kv_cache_memory_bytes": 20 * GIB},
        ).plan.capacity.engine.kv_tokens
        for length in (8192, 262_144)
    ]  # fmt: skip
    assert tokens[1] > 1.2 * tokens[0]


def test_ranks_share_heads() -> None:
    # huggingface/transformers#48566: Qwen3-32B on 4 ranks holds four times the tokens in as many bytes.
    tokens = [
        asked(
            "qwen3-32b", "H100-SXM", tp=tp, engine="vllm", context_tokens=8192,
            engine_args={"kv_cache_memory_bytes": 2 * GIB},
        ).plan.capacity.engine.kv_tokens
        for tp in (1, 4)
    ]  # fmt: skip
    assert tokens[1] == 4 * tokens[0]


def test_sglang_that_cannot_start_wants_a_larger_fraction() -> None:
    # sgl-project/sglang#322: weights that fill the fraction refuse the start; a larger one mends it.
    small, large = (
        asked(
            "llama-3-70b", "H100-SXM", tp=2, engine="sglang", context_tokens=8192,
            engine_args={"mem_fraction_static": share},
        )
        for share in (0.8, 0.93)
    )  # fmt: skip
    assert not small.answer.starts
    assert large.answer.starts


def test_llama_cpp_windows_hold_the_batch_too() -> None:
    # ggml-org/llama.cpp#13194: a window of 1,024 takes 1,024 + 512 cells, whatever the context.
    w = asked(
        "gemma-3-27b", "H100-SXM", engine="llama.cpp", weight_dtype="q4_0",
        engine_args={"ctx_size": 32_768, "parallel": 1},
    )  # fmt: skip
    assert w.plan.capacity.engine.window_tokens == 1536


def test_ollama_multiplies_context_by_parallel() -> None:
    # ollama/ollama#9246: num_ctx 4,096 × 4 slots is 16,384 tokens.
    w = asked(
        "llama-3-8b", "RTX-4090", engine="ollama", engine_args={"num_ctx": 4096, "num_parallel": 4}
    )
    assert w.plan.capacity.engine.kv_tokens == 16_384


@pytest.mark.parametrize(
    ("gpu", "tokens"), [("RTX-4060-Ti-16", 4096), ("L40S", 32_768), ("A100-SXM-80", 131_072)]
)
def test_ollamas_default_context_follows_memory(gpu: str, tokens: int) -> None:
    # ollama/ollama#14116: below 24 GiB 4,096, to 48 GiB 32,768, then 262,144 (here the model's limit).
    assert asked("llama-3.1-8b", gpu, engine="ollama").deployment.context_tokens == tokens


def test_tensorrt_llm_has_a_hard_cap() -> None:
    # NVIDIA/TensorRT-LLM#2773: max_gpu_total_bytes or the fraction, whichever is smaller.
    w = asked(
        "llama-3-8b",
        "H100-SXM",
        engine="tensorrt-llm",
        engine_args={"max_gpu_total_bytes": 10 * GIB},
    )
    assert w.plan.memory.kv_bytes == 10 * GIB
