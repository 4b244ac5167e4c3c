"""What vLLM's CPU build prints at start-up equals what kvroom says, to the block.

Needs the environment that ``make engine`` installs; skipped without it. One start takes some 20 s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import models, server
from kvroom.answer import EngineCapacity, Plan
from kvroom.planning import plan
from kvroom.scenario import Scenario
from kvroom.units import GIB

pytestmark = pytest.mark.engine

CPU = {"name": "CPU", "vendor": "cpu", "sold_bytes": 24 * GIB, "memory_bytes_per_s": 25e9}
USUAL = {"max_model_len": 4096, "kv_cache_memory_bytes": GIB}

CASES: dict[str, tuple[models.Config, dict[str, Any]]] = {
    "plain": (models.LLAMA, {}),
    "fp8 cache": (models.LLAMA, {"kv_cache_dtype": "fp8"}),
    "blocks of 32": (models.LLAMA, {"block_size": 32}),
    "tied and biased": (models.QWEN2, {}),
    "windows": (models.MISTRAL, {}),
    "interleaved windows": (models.GEMMA3, {}),
    "uneven windows, small batches": (models.GEMMA3_UNEVEN, {"max_num_batched_tokens": 700}),
    "windows in full": (models.GEMMA3, {"disable_hybrid_kv_cache_manager": True}),
    "latents": (models.DEEPSEEK, {}),
    "gated delta nets": (models.QWEN3_NEXT, {}),
    "Mamba hybrid": (models.GRANITE, {}),
    "Mamba hybrid, no prefix cache": (models.GRANITE, {"enable_prefix_caching": False}),
    "state only": (models.MAMBA2, {}),
}


def flags(args: dict[str, Any]) -> list[str]:
    """Engine arguments as they are typed."""
    made: list[str] = []
    for name, value in args.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            made.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            made += [f"--{flag}", str(value)]
    return made


def said(config: models.Config, machine: Path, args: dict[str, Any]) -> Plan:
    """kvroom's Plan for the same question."""
    return plan(
        Scenario.from_dict(
            {
                "model": {"config": config},
                "gpu": str(machine),
                "engine": "vllm",
                "engine_version": server.RELEASE,
                "engine_args": args,
            }
        )
    )


def capacity(made: Plan) -> EngineCapacity:
    assert made.capacity.engine is not None
    return made.capacity.engine


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "cpu.toml"
    path.write_text("\n".join(f"{k} = {v!r}" for k, v in CPU.items()))
    return path


@pytest.mark.parametrize("case", CASES)
def test_what_it_prints_is_what_kvroom_says(case: str, tmp_path: Path, machine: Path) -> None:
    config, args = CASES[case]
    args = {**USUAL, **args}
    engine = capacity(said(config, machine, args))
    with server.running(tmp_path, config, *flags(args)) as run:
        assert run.address, run.log[-4000:]
        assert run.tokens == engine.kv_tokens
        assert run.concurrency == pytest.approx(engine.max_concurrency, abs=0.00501)
        cache = run.cache()
        assert int(cache["num_gpu_blocks"]) == engine.num_blocks
        assert int(cache["block_size"]) == engine.block_tokens
        assert len(run.complete(range(7, 27), 4)) == 4


def test_it_refuses_a_request_that_the_cache_cannot_hold(tmp_path: Path, machine: Path) -> None:
    config = {**models.LLAMA, "max_position_embeddings": 2**22}
    args = {**USUAL, "max_model_len": 2**22}
    made = said(config, machine, args)
    assert not made.verdict.fits
    with server.running(tmp_path, config, *flags(args)) as run:
        assert not run.address
        assert run.longest == capacity(made).max_context_tokens
