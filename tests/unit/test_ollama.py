"""Ollama's rules on top of llama.cpp."""

from __future__ import annotations

from typing import Any

import pytest

import llama_models as m
from kvroom.answer.plan import Plan
from kvroom.engines.llama_cpp import cache_sizes
from kvroom.engines.llama_cpp.ollama import auto_batch
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB, MIB
from llama_models import asked, deployed


def planned(config: dict[str, Any], **more: Any) -> Plan:
    return plan(asked(config, "ollama", **({"gpu": "RTX-4090", "weight_dtype": "q4_k_m"} | more)))


def test_cache_is_as_printed() -> None:
    """A public log: qwen3-30b-a3b at num_ctx 32768, 3.0 GiB of cache over GPU and host."""
    d = deployed(m.QWEN3_30B, "ollama", engine_version="0.12.5", args={"num_ctx": 32768})
    assert cache_sizes(d).attention == 3072 * MIB


@pytest.mark.parametrize(
    ("version", "memory", "gpus", "length"),
    [
        ("0.6.6", 80, 1, 2048),  # ollama/ollama#10452 made it 4,096
        ("0.6.7", 80, 1, 4096),
        ("0.15.4", 80, 1, 4096),
        ("0.15.5", 22, 1, 4096),
        ("0.15.5", 24, 1, 32768),
        ("0.30.0", 24, 2, 131072),  # 262,144, cut to the model's own
        (None, 80, 1, 131072),
    ],
)
def test_default_context_follows_the_memory(
    version: str | None, memory: int, gpus: int, length: int
) -> None:
    """ollama/ollama#14116: 4K, 32K, 256K by 24 and 48 GiB."""
    gpu = {**m.HUGE, "memory_bytes": memory * GIB}
    made = planned(m.LLAMA_8B, gpu=gpu, gpu_count=gpus, engine_version=version)
    assert made.scenario.context_tokens == length


def test_memory_kept_free_is_no_room_for_the_default_context() -> None:
    gpu = {**m.HUGE, "memory_bytes": 24 * GIB}
    made = planned(m.LLAMA_8B, gpu=gpu, args={"gpu_overhead": 5 * GIB // 2})
    assert made.scenario.context_tokens == 4096  # 21.5 GiB


def test_parallel_multiplies_the_context() -> None:
    """ollama/ollama#9246: num_ctx 4096 with OLLAMA_NUM_PARALLEL=4 allocates 16,384 tokens."""
    args = {"num_ctx": 4096, "OLLAMA_NUM_PARALLEL": 4}
    made = planned(m.LLAMA_8B, args=args).capacity.engine
    assert made is not None
    assert (made.kv_tokens, made.max_concurrency, made.max_running_requests) == (16384, 4, 4)
    one = planned(m.LLAMA_8B, args={"num_ctx": 4096}).capacity.engine
    assert one is not None
    assert one.max_running_requests == 1


@pytest.mark.parametrize(
    ("version", "gpu", "slots"),
    [
        ("0.6.2", "RTX-4090", 4),  # ollama/ollama#9246: four where memory is there, else one
        ("0.6.2", "RTX-3060", 1),
        ("0.9.6", "RTX-4090", 2),  # #10468
        ("0.10.0", "RTX-4090", 1),  # #11330
    ],
)
def test_slots_that_nobody_asked_for(version: str, gpu: str, slots: int) -> None:
    made = planned(m.LLAMA_8B, gpu=gpu, args={"num_ctx": 16384}, engine_version=version)
    assert made.capacity.engine is not None
    assert made.capacity.engine.max_running_requests == slots
    assert made.capacity.engine.kv_tokens == 16384 * slots


@pytest.mark.parametrize(
    ("config", "version", "flash"),
    [
        (m.LLAMA_8B, "0.13.3", False),
        (m.LLAMA_8B, "0.13.4", True),
        (m.QWEN3_30B, "0.12.3", False),
        (m.QWEN3_30B, "0.12.4", True),
        (m.GEMMA3_270M, "0.12.5", False),
        (m.GEMMA3_270M, "0.12.6", True),
    ],
)
def test_a_narrow_cache_needs_flash_attention(
    config: dict[str, Any], version: str, flash: bool
) -> None:
    """Flash attention came to one family after another; without it the cache stays in 16 bits."""
    args = {"num_ctx": 4096, "kv_cache_type": "q8_0"}

    def cache(**more: Any) -> int:
        return cache_sizes(deployed(config, "ollama", args=more, engine_version=version)).attention

    wide, narrow = cache(num_ctx=4096, flash_attention=1), cache(**args, flash_attention=1)
    assert narrow * 32 == wide * 17
    assert cache(**args) == (narrow if flash else cache(num_ctx=4096))
    made = planned(config, args=args, engine_version=version)
    assert any("kv_cache_type q8_0 is not used" in w for w in made.warnings) is not flash


def test_some_models_are_served_one_at_a_time() -> None:
    made = planned(m.QWEN35_9B, args={"num_ctx": 4096, "num_parallel": 4})
    assert made.capacity.engine is not None
    assert made.capacity.engine.max_running_requests == 1
    assert any("num_parallel 4 is not used" in w for w in made.warnings)
    plain = planned(m.QWEN35_9B, args={"num_ctx": 4096, "num_parallel": 1})
    assert plain.capacity == made.capacity
    assert not any("num_parallel" in w for w in plain.warnings)


def test_its_own_engine_had_one_row_of_cells() -> None:
    """Gemma-3: before 0.30 a window of all slots and one batch; since then streams of their own."""
    args = {"num_ctx": 32768, "num_parallel": 2, "num_batch": 512}
    old = cache_sizes(deployed(m.GEMMA3_270M, "ollama", args=args, engine_version="0.20.0"))
    new = cache_sizes(deployed(m.GEMMA3_270M, "ollama", args=args, engine_version="0.30.0"))
    assert (old.cells, old.streams, new.cells, new.streams) == (65536, 1, 32768, 2)
    assert old.attention == (65536 * 3 + (2 * 512 + 512) * 15) * 1024
    assert new.attention == (65536 * 3 + 2 * (512 + 512) * 15) * 1024


def test_batch_grows_with_context_where_memory_allows() -> None:
    assert auto_batch(4 * GIB, 4096, 24 * GIB, True) == 512
    assert auto_batch(4 * GIB, 8192, 24 * GIB, True) == 1024
    assert auto_batch(4 * GIB, 65536, 24 * GIB, True) == 2048
    assert auto_batch(16 * GIB, 65536, 24 * GIB, True) == 1024
    assert auto_batch(20 * GIB, 65536, 24 * GIB, True) == 512
    assert auto_batch(4 * GIB, 65536, 8 * GIB, False) == 256


def test_a_small_model_takes_one_gpu() -> None:
    made = planned(m.LLAMA_8B, gpu_count=2, args={"num_ctx": 8192})
    assert "Ollama uses 1 of the 2 GPUs" in " ".join(made.warnings)
    spread = planned(m.LLAMA_8B, gpu_count=2, args={"num_ctx": 8192, "sched_spread": 1})
    assert spread.memory.kv_bytes < made.memory.kv_bytes


def test_the_reserve_of_its_own_engine_is_smaller() -> None:
    """457 MiB are left free of a GPU, and OLLAMA_GPU_OVERHEAD."""
    big = m.llama(hidden_size=8192, intermediate_size=28672, num_attention_heads=64,
                  num_hidden_layers=80)  # fmt: skip

    def left(**more: Any) -> int:
        args = {"num_ctx": 4096, **more.pop("args", {})}
        made = planned(big, args=args, **more)
        return next(a.bytes for a in made.memory.accounts if a.name == "unused")

    layer = 900_000_000
    assert 457 * MIB <= left(engine_version="0.20.0") < 457 * MIB + layer
    assert 1024 * MIB <= left() < 1024 * MIB + layer
    more = left(engine_version="0.20.0", args={"gpu_overhead": 2 * GIB})
    assert 457 * MIB + 2 * GIB <= more < 457 * MIB + 2 * GIB + layer


def test_unknown_options_name_the_nearest() -> None:
    with pytest.raises(KvroomError, match="num_parallel"):
        deployed(m.LLAMA_8B, "ollama", args={"num_paralel": 4})
    with pytest.raises(KvroomError, match="no flag of Ollama"):
        deployed(m.LLAMA_8B, "ollama", args={"ctx_size": 4096})


@pytest.mark.parametrize(
    "keys", [{"context_tokens": 65536}, {"engine_args": {"num_ctx": 65536}}], ids=["asked", "flag"]
)
def test_a_context_beyond_the_models_is_shortened_to_it(keys: dict[str, Any]) -> None:
    question = {"model": "llama-3-8b", "gpu": "RTX-4090", "engine": "ollama"}
    made = plan(Scenario.from_dict({**question, **keys}))
    own = plan(Scenario.from_dict({**question, "context_tokens": 8192}))
    assert made.kv == own.kv
    assert any("is shortened by Ollama to the model's own 8,192" in said for said in made.warnings)
