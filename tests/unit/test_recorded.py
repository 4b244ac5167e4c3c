"""Recordings and metrics texts, held against the prediction as start-up logs are."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvroom.engines.vllm.metrics import METRICS
from kvroom.observe.prometheus import read
from kvroom.observe.recorded import read_file
from kvroom.observe.recording import Recorder
from kvroom.observe.watch import Watcher
from kvroom.ui.cli.main import main

TEXT = gzip.decompress(
    (Path(__file__).parents[1] / "golden" / "vllm_0.32.0_metrics.txt.gz").read_bytes()
).decode()
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}  # fmt: skip
CPU = {"name": "CPU", "memory_bytes": 24 * 2**30, "memory_bytes_per_s": 2e10}
PRINTED = {"num_blocks": 20, "block_size": 128, "kv_tokens": 2560, "max_concurrency": 2.5}
"""What vLLM 0.32.0 told of its cache on a CPU, started with 20 blocks and 1,024 tokens."""


@pytest.fixture
def room(tmp_path):
    (tmp_path / "metrics.txt").write_text(TEXT)
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    reading = read(TEXT)
    with Recorder(str(tmp_path / "run.jsonl")) as recorder:
        asked = {"model": {"config": MODEL}, "gpu": CPU, "context_tokens": 1024}
        recorder.header("http://127.0.0.1:8000/metrics", reading, asked)
        recorder.sample(Watcher().take(0.0, reading), reading)
    return tmp_path


def reconciled(*args):
    done = CliRunner().invoke(
        main, ["reconcile", *map(str, args), "--engine-version", "0.32.0", "--json"]
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_recording_agrees_with_its_plan(room):
    found = reconciled(room / "run.jsonl")
    assert found["printed"] == PRINTED
    assert {k: found["predicted"][k] for k in PRINTED} == PRINTED


def test_a_metrics_text_agrees_with_the_plan(room):
    found = reconciled(
        room / "metrics.txt",
        "--model",
        room / "config.json",
        "--gpu",
        json.dumps(CPU),
        "--context",
        1024,
    )
    assert found["printed"] == PRINTED
    assert {k: found["predicted"][k] for k in PRINTED} == PRINTED


def test_what_metrics_do_not_tell_is_asked_for(room):
    assert "gpu" in reconciled(room / "metrics.txt")["missing"]


def test_flags_in_the_caches_labels():
    info = {
        "gpu_memory_utilization": "0.85", "num_gpu_blocks_override": "None", "block_size": "32",
        "user_specified_block_size": "True", "enable_prefix_caching": "False",
        "kv_cache_memory_bytes": "1073741824",
    }  # fmt: skip
    assert METRICS.flags(info) == {
        "gpu_memory_utilization": 0.85, "block_size": 32, "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 2**30,
    }  # fmt: skip


@pytest.mark.parametrize(
    "content", [b"", b"INFO nothing here\n", b"\x00\xff", b'{"kvroom_recording": 2}\n']
)
def test_other_files_are_neither(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_file(str(path)) is None
