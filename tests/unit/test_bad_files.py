"""Files that are no models, cards or Scenarios: each refused in one sentence, and soon."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvroom.engines.log_reprs import literal
from kvroom.errors import KvroomError
from kvroom.hardware.reader import resolve
from kvroom.launchers.commands import read_command
from kvroom.models import catalogue
from kvroom.models.load import load
from kvroom.ui import codec
from support import check_told

LLAMA = dict(catalogue.config_of("llama-3-8b"))
DEEP = 100_000


def config(**changes):
    return json.dumps({**LLAMA, **changes}).encode()


CONTENTS = {
    "nothing": b"",
    "blanks": b" \n\t ",
    "bytes": bytes(range(256)) * 400,
    "zeros": b"\0" * 1000,
    "half of it": config()[:100],
    "a list": b"[1, 2]",
    "a number": b"12",
    "text": b"model: llama",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a key": config(x=1)[:-2] + b"[" * DEEP + b"]" * DEEP + b"}",
    "50 MB": b'{"model_type": "llama", "x": "' + b"a" * 50_000_000 + b'"}',
    "long list": b'{"model_type": "llama", "x": [' + b"1," * 5_000_000 + b"1]}",
    "many digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 100_000 + b"}",
    "too many layers": config(num_hidden_layers=100_000),
    "too wide": config(hidden_size=10**15),
    "heads do not divide": config(num_attention_heads=33, num_key_value_heads=11),
    "groups do not divide": config(num_key_value_heads=7),
    "negative": config(num_hidden_layers=-1),
    "zero": config(num_attention_heads=0),
    "not a number": config(hidden_size=float("nan")),
    "no end": config(hidden_size=float("inf")),
    "a fraction": config(hidden_size=4096.5),
    "true for a number": config(hidden_size=True),
    "text for a number": config(hidden_size="4096"),
    "pattern too short": config(layer_types=["full_attention"] * 3),
    "pattern of no type": config(layer_types=["sideways"] * 32),
    "pattern as text": config(layer_types="LLLG"),
    "an unknown type, not plain": config(model_type="sideways", num_hidden_layers=None),
}
every_content = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)


def refused(reader, path):
    begun = time.process_time()
    with pytest.raises(KvroomError) as caught:
        reader(str(path))
    assert time.process_time() - begun < 1  # of the CPU's time, whoever else runs
    check_told(caught.value)
    return caught.value


@every_content
def test_a_config_that_is_none(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    refused(load, tmp_path / "config.json")


@every_content
def test_a_machine_file_that_is_none(tmp_path, content):
    for name in ("card.json", "card.toml"):
        (tmp_path / name).write_bytes(content)
        assert refused(resolve, tmp_path / name).field.startswith("gpu")


@pytest.mark.parametrize("name", ["nothing", "bytes", "half of it", "deep lists", "50 MB"])
def test_a_scenario_file_that_is_none(tmp_path, name):
    (tmp_path / "s.json").write_bytes(CONTENTS[name])
    error = refused(lambda path: codec.read_json(path, "--scenario"), tmp_path / "s.json")
    assert error.field == "--scenario"


@pytest.mark.parametrize("suffix", ["gguf", "safetensors", "safetensors.index.json"])
@pytest.mark.parametrize("name", ["nothing", "bytes", "zeros", "half of it", "deep lists", "50 MB"])
def test_a_weights_file_that_is_none(tmp_path, name, suffix):
    (tmp_path / "config.json").write_bytes(config())
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(CONTENTS[name])
    refused(load, path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    for name in ("config.json", "x.gguf", "card.toml"):
        os.mkfifo(tmp_path / name)
    refused(load, tmp_path / "config.json")
    refused(load, tmp_path / "x.gguf")
    refused(resolve, tmp_path / "card.toml")


def test_what_is_not_there(tmp_path):
    refused(load, tmp_path / "config.json")
    refused(resolve, tmp_path / "card.toml")
    refused(load, tmp_path)
    for name in ("a\0b.json", "x" * 5000 + ".json", "~nobody/config.json", "/"):
        refused(load, name)
        refused(resolve, name)


def test_a_key_that_is_wrong_is_named(tmp_path):
    path = tmp_path / "config.json"
    for name, field in {
        "too many layers": "num_hidden_layers",
        "heads do not divide": "num_attention_heads",
        "groups do not divide": "num_key_value_heads",
        "text for a number": "hidden_size",
        "pattern too short": "layer_types",
        "an unknown type, not plain": "model_type",
    }.items():
        path.write_bytes(CONTENTS[name])
        assert refused(load, path).field == field


def test_a_charts_settings_that_are_text_are_refused():
    """Found by ``benchmarks/fuzz.py``: a traceback before."""
    text = (
        "modelSpec:\n- modelURL: Qwen/Qwen3-8B\n  requestGPU: 2\n  vllmConfig: tensorParallelSize\n"
    )
    assert refused(read_command, text).field == "vllmConfig"


def test_what_is_no_literal_stays_text_without_a_word(recwarn):
    assert literal("1for x") == "1for x"
    assert not recwarn.list


def test_files_that_are_wrong_in_every_way():
    """A part of what ``benchmarks/fuzz.py`` reads: an answer or a KvroomError."""
    script = Path(__file__).parents[2] / "benchmarks/fuzz.py"
    done = subprocess.run(
        [sys.executable, script, "--count", "300", "--seed", "7"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout
