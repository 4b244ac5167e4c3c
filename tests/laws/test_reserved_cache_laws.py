"""Laws of the engines that reserve their cache at the start: llama.cpp, Ollama, TensorRT-LLM."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import llama_models as m
from kvroom.answer.plan import Plan
from kvroom.engines.llama_cpp import cache_sizes
from kvroom.planner.plan import plan
from kvroom.units import GIB
from llama_models import asked, deployed

MODELS: dict[str, dict[str, Any]] = {
    "dense": m.LLAMA_8B,
    "experts": m.QWEN3_30B,
    "windows": m.GEMMA2_2B,
    "shared": m.GEMMA4_E4B,
    "latent": m.CODER_V2_LITE,
    "state": m.QWEN35_9B,
}
models = st.sampled_from(sorted(MODELS))
llamas = st.sampled_from(("llama.cpp", "ollama", "ik_llama.cpp"))
reserving = st.sampled_from(("llama.cpp", "ollama", "tensorrt-llm"))
lengths = st.integers(1, 60_000)
memories = st.integers(2 * GIB, 96 * GIB)
versions = st.sampled_from((None, "b5000", "b6000", "b7000", "b8000"))


def planned(model: str, engine: str, memory: int, **more: Any) -> Plan:
    gpu = {"name": "card", "memory_bytes": memory, "memory_bytes_per_s": 10**12}
    return plan(asked(MODELS[model], engine, gpu=gpu, **more))


@settings(max_examples=80)
@given(models, st.sampled_from(("llama.cpp", "ollama", "ik_llama.cpp", "tensorrt-llm")), memories,
       lengths, st.integers(1, 3), st.sampled_from((None, 1, 5)))  # fmt: skip
def test_accounts_add_up_and_bands_hold_the_middle(
    model: str, engine: str, memory: int, tokens: int, gpus: int, users: int | None
) -> None:
    gpus = gpus if engine != "tensorrt-llm" else 1
    more = {} if users is None else {"concurrency": users}
    made = planned(model, engine, memory, context_tokens=tokens, gpu_count=gpus, **more)
    assert sum(a.bytes for a in made.memory.accounts) == made.memory.gpu_bytes
    for a in made.memory.accounts:
        assert a.low_bytes <= a.bytes <= a.high_bytes, a
    found = made.capacity.engine
    assert found is not None
    assert found.low is not None
    assert found.max_concurrency is not None
    assert found.high is not None
    assert found.low <= found.max_concurrency <= found.high


@settings(max_examples=60)
@given(models, reserving, memories, memories, lengths)
def test_more_memory_never_holds_less_on_the_gpu(
    model: str, engine: str, a: int, b: int, tokens: int
) -> None:
    args = {"max_batch_size": 8} if engine == "tensorrt-llm" else {}
    less, more = (
        planned(model, engine, size, context_tokens=tokens, args=args) for size in sorted((a, b))
    )
    x, y = less.capacity.engine, more.capacity.engine
    assert x is not None
    assert y is not None
    assert (x.max_concurrency or 0) <= (y.max_concurrency or 0)
    assert less.verdict.fits <= more.verdict.fits


@settings(max_examples=60)
@given(models, llamas, versions, lengths, lengths, st.integers(1, 16), st.booleans())
def test_longer_contexts_and_more_slots_never_take_less(
    model: str, engine: str, version: str | None, a: int, b: int, slots: int, unified: bool
) -> None:
    def size(tokens: int, slots: int) -> int:
        args: dict[str, Any] = (
            {"num_ctx": tokens, "num_parallel": slots}
            if engine == "ollama"
            else {"ctx_size": tokens * slots, "parallel": slots, "kv_unified": unified}
        )
        build = version if engine == "llama.cpp" else None
        found = cache_sizes(deployed(MODELS[model], engine, engine_version=build, args=args))
        assert sum(found.on_gpus) <= found.attention + found.state
        return found.attention + found.state

    short, long = sorted((a, b))
    assert size(short, slots) <= size(long, slots)
    assert size(short, slots) <= size(short, slots + 1)


@settings(max_examples=40)
@given(models, lengths, st.integers(1, 8))
def test_windows_never_take_more_than_full_length(model: str, tokens: int, slots: int) -> None:
    args = {"ctx_size": tokens * slots, "parallel": slots}
    near = cache_sizes(deployed(MODELS[model], args=args)).attention
    full = cache_sizes(deployed(MODELS[model], args={**args, "swa_full": True})).attention
    assert near <= full


@settings(max_examples=40)
@given(models, st.integers(1, 4), st.integers(0, 60), st.integers(1, 4000))
def test_every_layer_lies_somewhere_once(model: str, gpus: int, layers: int, tokens: int) -> None:
    """What GPUs hold grows with n_gpu_layers, up to all of the cache."""

    def held(n: Any) -> int:
        args = {"ctx_size": tokens, "parallel": 1, "n_gpu_layers": n}
        found = cache_sizes(deployed(MODELS[model], gpu_count=gpus, args=args))
        return sum(found.on_gpus) if n != "all" else found.attention + found.state

    assert held(layers) <= held(layers + 1) <= held("all")
    assert held(1000) == held("all")


@settings(max_examples=40)
@given(st.sampled_from(("dense", "experts")), st.integers(6, 24), st.integers(256, 16_000))
def test_the_chosen_setting_is_the_most(model: str, gib: int, tokens: int) -> None:
    """kvroom's slots fit with every layer on the GPU, and one more would not."""
    more: dict[str, Any] = {"weight_dtype": "q4_0"}
    made = planned(model, "llama.cpp", gib * GIB, context_tokens=tokens, **more)
    found = made.capacity.engine
    assert found is not None
    slots = found.max_running_requests or 0
    if slots in (1, 256) or "layers" in " ".join(made.warnings):
        return
    each = (found.kv_tokens or 0) // slots
    for n, whole in ((slots, True), (slots + 1, False)):
        args = {"parallel": n, "ctx_size": n * each}
        again = planned(model, "llama.cpp", gib * GIB, args=args, **more)
        assert ("layers" not in " ".join(again.warnings)) is whole
