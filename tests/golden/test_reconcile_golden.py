# ruff: noqa: E501 - lines as engines print them
"""Start-ups that people published, from their flags and from their printed bytes.

The figures are those of the logs named; the lines around them are written here.
"""

import io
from typing import Any

import pytest

from kvroom.observe.logs.startup import read
from kvroom.observe.reconcile import Reconciliation, reconcile


def vllm(version: str, share: float, context: int, cache: float, tokens: int, **args: Any) -> str:
    given = {
        "model": "org/model",
        "gpu_memory_utilization": share,
        "max_model_len": context,
        **args,
    }
    tp = args.get("tensor_parallel_size", 1)
    return (
        f"INFO [utils.py:1] non-default args: {given}\n"
        f"INFO [core.py:1] Initializing a V1 LLM engine (v{version}) with config: model='org/model', "
        f"max_seq_len={context}, tensor_parallel_size={tp}, enforce_eager=False, kv_cache_dtype=auto\n"
        f"INFO [gpu_worker.py:1] Available KV cache memory: {cache} GiB\n"
        f"INFO [kv_cache_utils.py:1] GPU KV cache size: {tokens:,} tokens\n"
        f"INFO [kv_cache_utils.py:2] Maximum concurrency for {context:,} tokens per request: "
        f"{tokens / context:.2f}x\n"
    )


def sglang(share: float, tp: int, pools: str, tokens: int, **args: Any) -> str:
    more = "".join(f", {k}={v!r}" for k, v in args.items())
    return (
        f"server_args=ServerArgs(model_path='org/model', tp_size={tp}, mem_fraction_static={share}{more})\n"
        f"[TP0] KV Cache is allocated. #tokens: {tokens}, {pools}\n"
        f"[TP0] max_total_num_tokens={tokens}, chunked_prefill_size=8192, context_len=40960\n"
    )


CASES: dict[str, tuple[str, dict[str, Any], int, float]] = {
    # name: (log, what it is asked for, printed tokens, how far the flags alone may be off)
    "Qwen3-8B FP8 on an L4, vLLM 0.10.2": (
        vllm("0.10.2", 0.8662, 2048, 8.98, 65_376, max_num_seqs=224),
        {"model": "qwen3-8b", "gpu": "L4", "weight_dtype": "fp8"},
        65_376,
        0.05,
    ),
    "Qwen2.5-14B on an H100, vLLM 0.21.0": (
        vllm("0.21.0", 0.92, 4096, 41.43, 226_240),
        {"model": "qwen2.5-14b", "gpu": "H100-SXM"},
        226_240,
        0.05,
    ),
    "Llama-3.2-1B FP8 on an L4, vLLM 0.11.2": (
        vllm("0.11.2", 0.8662, 2048, 17.2, 563_744, max_num_seqs=288),
        {"model": "llama-3.2-1b", "gpu": "L4", "weight_dtype": "fp8"},
        563_744,
        0.06,
    ),
    "Kimi-K2 on 8 H200, vLLM 0.11": (
        vllm("0.11.1", 0.9, 262_144, 46.8, 715_072, tensor_parallel_size=8),
        {"model": "kimi-k2", "gpu": "H200-SXM:8", "weight_dtype": "int4_g32"},
        715_072,
        0.3,
    ),
    "Qwen3-235B FP8 on 4 H100, SGLang": (
        sglang(0.93, 4, "K size: 8.23 GB, V size: 8.23 GB", 367_404),
        {"model": "qwen3-235b-a22b", "gpu": "H100-SXM:4", "weight_dtype": "fp8_block", "engine_version": "0.4.10"},
        367_404,
        0.15,
    ),
    "Qwen3.8-27B FP8 (Qwen3.5-27B's shapes) on an H100, SGLang": (
        sglang(0.85, 1, "K size: 10.08 GB, V size: 10.08 GB", 330_323, max_running_requests=32),
        {"model": "qwen3.5-27b", "gpu": "H100-SXM", "weight_dtype": "fp8_block"},
        330_323,
        0.05,
    ),
}  # fmt: skip


def of(name: str) -> Reconciliation:
    log, keys, _, _ = CASES[name]
    keys = dict(keys)
    card, colon, count = keys["gpu"].partition(":")
    if colon:
        keys.update(gpu=card, gpu_count=int(count))
    return reconcile(read(io.BytesIO(log.encode())), keys)


@pytest.mark.parametrize("name", CASES)
def test_given_the_printed_bytes(name: str) -> None:
    answer = of(name)
    assert answer.missing == ()
    assert answer.printed["kv_tokens"] == CASES[name][2]
    assert answer.given_bytes["kv_tokens"] == pytest.approx(CASES[name][2], rel=0.005)


@pytest.mark.parametrize("name", CASES)
def test_from_the_flags_alone(name: str) -> None:
    answer = of(name)
    assert answer.predicted["kv_tokens"] == pytest.approx(CASES[name][2], rel=CASES[name][3])
    lines = {a.name: a for a in answer.accounts}
    assert lines["kv"].printed_bytes == answer.printed["kv_available_bytes"]
    assert lines["kv"].flag
