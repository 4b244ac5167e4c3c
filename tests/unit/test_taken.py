"""Anything dropped or pasted on the page: what it is told for, what is taken and what is left."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.models.catalogue import config_of
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.taken import take

ASKED: dict[str, Any] = {
    "model": "llama-3-70b", "gpu": "H100-SXM", "gpu_count": 8,
    "workload": {"input_tokens": 1000, "output_tokens": 200, "concurrency": 16}, "concurrency": 16,
}  # fmt: skip
LOG = b"""\
INFO 10-01 09:00:00 [core.py:93] Initializing a V1 LLM engine (v0.12.0) with config: \
model='Qwen/Qwen3-32B', speculative_config=None, tensor_parallel_size=2, max_seq_len=32768
INFO 10-01 09:00:40 [gpu_model_runner.py:3259] Model loading took 30.59 GiB memory and 20.1 seconds
INFO 10-01 09:00:59 [kv_cache_utils.py:1229] GPU KV cache size: 321,504 tokens
INFO 10-01 09:00:59 [kv_cache_utils.py:1234] Maximum concurrency for 32,768 tokens per request: 9.81x
"""


def rows(found: dict[str, Any]) -> dict[str, Any]:
    return {row["key"]: row["value"] for row in found["taken"]}


def test_a_command_fills_what_it_says_and_the_rest_stays() -> None:
    found = take(
        b"docker run vllm/vllm-openai --model Qwen/Qwen3-32B --tensor-parallel-size 4 "
        b"--kv-cache-dtype fp8 --max-model-len 32768 --nonsense 3",
        ASKED,
    )
    assert found["kind"] == "command"
    assert rows(found)["tp"] == 4 and rows(found)["kv_dtype"] == "fp8"
    assert found["scenario"]["gpu_count"] == 4
    assert {"gpu", "workload", "concurrency"} <= set(found["kept"])
    left = " ".join(found["left"])
    assert "--nonsense" in left and "names no card" in left and "4 of the page's 8 cards" in left
    api.plan(**found["scenario"])


def test_a_manifest_names_its_card() -> None:
    text = """\
services:
  llm:
    image: vllm/vllm-openai:v0.12.0
    command: --model meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64
"""
    found = take(text.encode(), ASKED, "compose.yaml")
    assert found["kind"] == "command"
    assert found["scenario"]["engine_args"]["max_num_seqs"] == 64
    assert found["scenario"]["engine_version"] == "0.12.0"


def test_no_file_that_a_command_names_is_opened(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(dict(config_of("qwen3-8b"))))
    found = take(f"vllm serve {tmp_path} -tp 2".encode(), ASKED)
    assert found["scenario"]["model"] == "llama-3-70b"
    assert any("not in the catalogue" in text for text in found["left"])


def test_a_log_fills_the_fields_and_is_reconciled() -> None:
    found = take(gzip.compress(LOG), ASKED, "start.log.gz")
    assert found["kind"] == "log"
    assert found["scenario"]["model"] == "Qwen/Qwen3-32B"
    assert found["scenario"]["engine_version"] == "0.12.0"
    assert found["scenario"]["workload"] == ASKED["workload"]
    assert found["figure"]["file"]["difference"]["sentence"].startswith(
        "The engine printed 9.8 where"
    )
    assert any("gpu is not in the file" in text for text in found["left"])


def test_a_config_becomes_the_model() -> None:
    config = {**config_of("qwen3-8b"), "architectures": ["Qwen3ForCausalLM"]}
    found = take(json.dumps(config).encode(), {**ASKED, "weight_dtype": "fp8"})
    assert found["kind"] == "config"
    assert found["scenario"]["model"]["config"]["hidden_size"] == config["hidden_size"]
    assert "weight_dtype" not in found["scenario"]


def test_a_trace_fills_lengths_and_rate() -> None:
    lines = [
        {"timestamp": 500 * number, "input_length": 100 + 100 * (number % 2), "output_length": 50}
        for number in range(5)
    ]
    found = take("\n".join(map(json.dumps, lines)).encode(), ASKED, "trace.jsonl")
    assert found["kind"] == "trace"
    workload = found["scenario"]["workload"]
    assert (workload["input_tokens"], workload["output_tokens"]) == (140, 50)
    assert workload["requests_per_s"] == 2.0 and "concurrency" not in found["scenario"]
    assert any("prompts of 100 to 200 tokens" in text for text in found["left"])


def test_a_card_a_scenario_a_plan_and_a_link() -> None:
    card = {"name": "mine", "memory_bytes": 24 * 10**9, "memory_bytes_per_s": 1e12}
    assert take(json.dumps(card).encode(), ASKED)["scenario"]["gpu"] == card
    other = {"model": "qwen3-8b", "gpu": "L4"}
    assert take(json.dumps(other).encode(), ASKED)["scenario"] == other
    plan = api.plan(**other)
    told = take(json.dumps(plan.to_dict()).encode(), ASKED)["scenario"]
    assert told["model"] == "qwen3-8b" and told["gpu"] == "L4"
    link = Scenario.from_dict(other).link("https://example.org/plan")
    assert take(link.encode(), ASKED)["scenario"] == other


@pytest.mark.parametrize("text", ["hello world", "", "   \n", "{broken", "\x00\x01\x02"])
def test_what_is_nothing_is_refused_with_what_could_be(text: str) -> None:
    with pytest.raises(KvroomError) as caught:
        take(text.encode(), ASKED, "notes.txt")
    assert "launch command" in caught.value.fix


def test_a_command_that_is_wrong_says_so() -> None:
    with pytest.raises(KvroomError, match="tensor-parallel-size"):
        take(b"vllm serve Qwen/Qwen3-32B --tensor-parallel-size", ASKED)
