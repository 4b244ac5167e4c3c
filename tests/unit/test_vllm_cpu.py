"""vLLM's CPU build: what its server printed with 1 GiB of cache and max_model_len 4,096 (0.32.0)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import models
from kvroom.answer.plan import EngineCapacity
from kvroom.engines import served_by
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

SETS = "avx512_bf16"


def described(folder: Path, sets: str) -> Path:
    """A CPU with the instruction ``sets``, as a file."""
    machine = folder / "cpu.toml"
    machine.write_text(
        f'name = "CPU"\nvendor = "cpu"\nsold_bytes = {24 * GIB}\nmemory_bytes_per_s = 2.6e10\n'
        f'compute_capability = "{sets}"\n'
    )
    return machine


def question(machine: Path, config: dict[str, Any], **args: Any) -> dict[str, Any]:
    """A config on ``machine`` with engine arguments, as keys of a Scenario."""
    return {
        "model": {"config": config},
        "gpu": str(machine),
        "engine_version": "0.32.0",
        "engine_args": {"kv_cache_memory_bytes": GIB, "max_model_len": 4096, **args},
    }


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """Asks about a config, with engine arguments, on a CPU with the instruction ``sets``."""

    def ask(config: dict[str, Any], sets: str = SETS, **args: Any) -> EngineCapacity:
        machine = described(tmp_path, sets)
        engine = plan(Scenario.from_dict(question(machine, config, **args))).capacity.engine
        assert engine is not None
        return engine

    return ask


@pytest.mark.parametrize(
    ("config", "args", "tokens", "concurrency", "block"),
    [
        (models.LLAMA, {}, 1_048_576, 256.0, 128),
        (models.LLAMA, {"kv_cache_dtype": "fp8"}, 2_097_152, 512.0, 128),
        (models.LLAMA, {"block_size": 32}, 1_048_576, 256.0, 32),
        (models.QWEN2, {}, 2_796_160, 682.66, 128),
        (models.MISTRAL, {}, 1_597_830, 390.10, 128),
        (models.GEMMA3, {}, 1_100_145, 268.59, 128),
        (models.MISTRAL, {"usage_context": "llm_class"}, 1_016_800, 248.24, 128),
        (models.GEMMA3, {"usage_context": "llm_class"}, 681_308, 166.34, 128),
        (models.GEMMA3_UNEVEN, {"max_num_batched_tokens": 700}, 780_335, 190.51, 128),
        (models.DEEPSEEK, {}, 233_008, 56.89, 16),
        (models.QWEN3_NEXT, {}, 1_032_192, 252.0, 640),
        (models.GRANITE, {}, 2_684_354, 655.36, 256),
        (models.MAMBA2, {}, 30_511_104, 7449.0, 4096),  # prefixes are not cached without attention
    ],
    ids=[
        *("plain", "fp8 cache", "blocks of 32", "tied and biased", "windows", "interleaved"),
        *("windows offline", "interleaved offline"),
        *("uneven windows", "latents", "gated delta nets", "Mamba hybrid", "state only"),
    ],
)
def test_what_it_printed(
    asked: Any,
    config: dict[str, Any],
    args: dict[str, Any],
    tokens: int,
    concurrency: float,
    block: int,
) -> None:
    engine = asked(config, **args)
    assert (engine.kv_tokens, engine.block_tokens) == (tokens, block)
    assert engine.max_concurrency == pytest.approx(concurrency, abs=0.00501)


def test_the_offline_class_takes_twice_as_much_at_once(asked: Any) -> None:
    server, offline = (
        asked(models.LLAMA, usage_context=context) for context in ("api_server", "llm_class")
    )
    assert (server.max_running_requests, offline.max_running_requests) == (128, 256)


def test_it_never_overlaps_steps(asked: Any) -> None:
    plain, over = (asked(models.MISTRAL, async_scheduling=on) for on in (False, True))
    assert plain == over


def test_nor_does_a_simulation_of_it(tmp_path: Path) -> None:
    machine = described(tmp_path, SETS)
    made = work(Scenario.from_dict(question(machine, models.LLAMA)))
    assert served_by(made.deployment, made.answer).steps_in_flight == 1


def test_its_instruction_sets_choose_its_kernels(asked: Any) -> None:
    """With AMX latents take blocks like any attention's; without AVX-512's BF16 state stays as it was."""
    assert asked(models.DEEPSEEK, "amx_tile avx512_bf16").block_tokens == 128
    assert asked(models.GRANITE, "none").block_tokens < asked(models.GRANITE).block_tokens
