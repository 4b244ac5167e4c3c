"""LMDeploy: its command lines and manifests, and the share of what its loaded model leaves free."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.launchers.launch import launch, shell
from kvroom.observe.logs.startup import read
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.observe.reconcile import reconcile
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB, MIB

KNOWN = {"visible": 80 * GIB, "weights": 16 * GIB, "runtime": 512 * MIB}
SERVE = "lmdeploy serve api_server meta-llama/Llama-3.1-8B-Instruct"


def of(known: dict[str, int] | None = None, **keys: Any) -> Plan:
    asked = {"model": "llama-3.1-8b", "gpu": "A100-SXM-80", "context_tokens": 8192}
    return plan(
        Scenario.from_dict({**asked, "engine": "lmdeploy", "known_bytes": known or KNOWN, **keys})
    )


def test_turbomind_takes_four_fifths_of_what_is_free() -> None:
    """LMDeploy documentation: cache_max_entry_count is a share of FREE memory once the weights are loaded."""
    made = of()
    assert made.memory.kv_bytes == int(0.8 * (80 * GIB - 16 * GIB - 512 * MIB))
    engine = made.capacity.engine
    assert engine is not None
    assert engine.block_tokens == 64
    assert engine.num_blocks == made.memory.kv_bytes // (64 * 131_072)


def test_the_pytorch_engine_keeps_its_logits_first() -> None:
    """ExecutorBase._get_runtime_size: (max_prefill_token_num + 2 × max_batches) × vocabulary × 2 bytes."""
    made = of(engine_args={"backend": "pytorch", "max_batch_size": 256})
    reserved = (8192 + 512) * 128_256 * 2
    assert made.memory.kv_bytes == int((80 * GIB - 16 * GIB - 512 * MIB - reserved) * 0.8)


def test_a_prefill_that_leaves_no_blocks_is_halved() -> None:
    known = {**KNOWN, "visible": 17 * GIB + 512 * MIB}  # 1 GiB is free
    made = of(known, context_tokens=512, engine_args={"backend": "pytorch", "max_batch_size": 128})
    reserved = (2048 + 256) * 128_256 * 2  # 8,192 and 4,096 leave fewer than 16 blocks of 8 MiB
    assert made.memory.kv_bytes == int((1 * GIB - reserved) * 0.8)


@pytest.mark.parametrize(
    ("card", "sequences"),
    [("A100-SXM-80", 384), ("H100-SXM", 1024), ("H200-SXM", 1024), ("L40S", 128)],
)
def test_sequences_follow_the_card(card: str, sequences: int) -> None:
    engine = of(gpu=card).capacity.engine
    assert engine is not None
    assert engine.max_running_requests == sequences


def test_integers_come_with_a_scale_and_a_zero_point() -> None:
    narrow = of(kv_dtype="int8")
    # 32 layers, keys and values, 8 heads of 128 bytes and 4 of scale and zero point
    assert narrow.kv.bytes_per_request == 8192 * 32 * 2 * 8 * (128 + 4)


def test_blocks_may_be_counted_out() -> None:
    for args in ({"num_gpu_blocks": 1000}, {"cache_max_entry_count": 1000}):
        engine = of(engine_args=args).capacity.engine
        assert engine is not None
        assert engine.num_blocks == 1000


@given(st.floats(0.05, 0.94), st.floats(0.01, 0.05))
def test_a_larger_share_is_never_less_room(share: float, more: float) -> None:
    small, large = (
        of(engine_args={"cache_max_entry_count": s}).memory.kv_bytes for s in (share, share + more)
    )
    assert small <= large


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("", {}),
        ("--tp 2 --session-len 32768", {"tp": 2, "context_tokens": 32768}),
        ("--quant-policy 8", {"kv_dtype": "int8_per_token_head"}),
        ("--quant-policy int4", {"kv_dtype": "int4_per_token_head"}),
        ("--quant-policy 0", {}),
        ("--model-format awq", {"weight_dtype": "int4"}),
        (
            "--cache-max-entry-count 0.5 --max-batch-size=64",
            {"engine_args": {"cache_max_entry_count": 0.5, "max_batch_size": 64}},
        ),
    ],
)
def test_a_command_line_is_a_question(flags: str, keys: dict[str, Any]) -> None:
    read = read_command(f"{SERVE} {flags} --server-port 23333")
    asked = dict(read.keys)
    assert asked.pop("engine") == "lmdeploy"
    assert asked.pop("model") == "meta-llama/Llama-3.1-8B-Instruct"
    asked["engine_args"] = {
        k: v for k, v in asked.get("engine_args", {}).items() if k != "server_port"
    }
    assert asked == {"engine_args": {}, **keys}


def test_a_checkpoint_that_says_its_width_is_not_told_again() -> None:
    read = read_command(
        "lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct-AWQ --model-format awq"
    )
    assert "weight_dtype" not in read.keys


def test_an_image_and_a_manifest() -> None:
    text = """\
services:
  api:
    image: openmmlab/lmdeploy:v0.9.2-cu12
    command: ["lmdeploy", "serve", "api_server", "Qwen/Qwen3-8B", "--tp", "2"]
"""
    keys = read_command(text).keys
    assert (keys["engine"], keys["engine_version"], keys["tp"]) == ("lmdeploy", "0.9.2", 2)


def test_launch_and_back() -> None:
    asked = Scenario.from_dict(
        {"model": "llama-3.1-8b", "gpu": "A100-SXM-80", "gpu_count": 2, "tp": 2, "kv_dtype": "int8",
         "engine": "lmdeploy", "context_tokens": 32768, "engine_args": {"max_batch_size": 64}}
    )  # fmt: skip
    command = shell(launch(work(asked)))
    assert "lmdeploy serve api_server meta-llama/Llama-3.1-8B" in command
    assert "--quant-policy 8" in command
    back = read_command(command).keys
    assert back["tp"] == 2
    assert back["context_tokens"] == 32768
    assert back["kv_dtype"] == "int8_per_token_head"
    assert back["engine_args"]["max_batch_size"] == 64


@pytest.mark.parametrize(
    "args",
    [
        {"gpu_memory_utilization": 0.9},
        {"cache_max_entry_cout": 0.8},
        {"backend": "cuda"},
        {"tp": 3},
    ],
)
def test_what_it_does_not_take_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(KvroomError):
        of(engine_args=args)


@pytest.mark.parametrize("backend", ["turbomind", "pytorch"])
def test_a_session_longer_than_the_cache_is_cut_and_no_refusal(backend: str) -> None:
    """TurboMind prints "`session_len` truncated to 42880 due to limited KV cache memory" (turbomind/engine)
    and serves on; the PyTorch engine takes the smaller of both (``_get_max_session_len``)."""
    known = {**KNOWN, "visible": 20 * GIB}
    made = of(known, context_tokens=131_072, engine_args={"backend": backend})
    assert made.verdict.sentence.startswith("Not one request fits")
    assert "The longest request that fits is" in made.verdict.sentence


def test_it_does_not_start_without_a_block() -> None:
    known = {**KNOWN, "visible": 16 * GIB + 513 * MIB}
    made = of(known)
    assert made.verdict.sentence.startswith("Does not start")
    assert "less than one block" in made.verdict.sentence


def test_data_parallel_ranks_of_the_pytorch_engine_have_attention_of_their_own() -> None:
    read = read_command(f"{SERVE} --backend pytorch --dp 4 --tp 4")
    assert (read.keys["dp"], read.keys.get("tp", 1)) == (4, 1)
    assert not any("dp" in warning for warning in read.warnings)


ASKED = (
    "2025-11-20 10:00:01,123 - lmdeploy - INFO - async_engine.py:304 - input backend={backend}, "
    "backend_config={name}(dtype='auto', tp=2, dp=1, session_len=32768, max_batch_size=128, "
    "cache_max_entry_count=0.7, {more}, quant_policy=8)\n"
)
PYTORCH_CACHE = (
    "2025-11-20 10:00:51,123 - lmdeploy - INFO - base.py:194 - Building CacheEngine with config: \n"
    "CacheConfig(max_batches=128, block_size=64, num_cpu_blocks=0, num_gpu_blocks=5816, window_size=-1, "
    "cache_max_entry_count=0.7, max_prefill_token_num=4096, quant_policy=8, device_type='cuda').\n"
)
TURBOMIND_CACHE = (
    "[TM][INFO] [BlockManager] block_size = {size} MB\n"
    "[TM][INFO] [BlockManager] max_block_count = 5816\n"
    "[TM][INFO] [BlockManager] chunk_size = 5816\n"
)


def told(text: str) -> StartupLog:
    return read(io.BytesIO(text.encode()))


def test_what_the_pytorch_engine_prints() -> None:
    asked = ASKED.format(backend="pytorch", name="PytorchEngineConfig", more="block_size=64")
    log = told(asked + PYTORCH_CACHE)
    assert log.engine == "lmdeploy"
    assert log.printed == {"num_blocks": 5816, "block_size": 64, "kv_tokens": 5816 * 64}
    assert log.question == {
        "engine": "lmdeploy",
        "tp": 2,
        "context_tokens": 32768,
        "kv_dtype": "int8_per_token_head",
        "engine_args": {
            "max_batch_size": 128,
            "cache_max_entry_count": 0.7,
            "max_prefill_token_num": 4096,
            "backend": "pytorch",
        },
    }
    made = reconcile(log, {"model": "llama-3.1-8b", "gpu": "A100-SXM-80"})
    assert made.predicted["kv_tokens"] > 0


@pytest.mark.parametrize(("size", "block"), [("8", None), ("8.250", 8.25 * MIB)])
def test_what_turbomind_prints(size: str, block: float | None) -> None:
    more = "cache_block_seq_len=128"
    asked = ASKED.format(backend="turbomind", name="TurbomindEngineConfig", more=more)
    log = told(asked + TURBOMIND_CACHE.format(size=size))
    assert log.printed["kv_tokens"] == 5816 * 128
    assert log.printed.get("kv_available_bytes") == (block and 5816 * block)
    assert "backend" not in log.question["engine_args"]


def test_what_its_pytorch_engine_refuses_with() -> None:
    asked = ASKED.format(backend="pytorch", name="PytorchEngineConfig", more="block_size=64")
    log = told(asked + "RuntimeError: No enough gpu memory for kv cache.\n")
    assert log.refusals == ("No enough gpu memory for kv cache",)
