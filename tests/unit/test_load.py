"""What people name a model by, and everything that can be wrong with it."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.models import hf
from kvroom.models import load as loading
from kvroom.models.load import load

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def catalogue(monkeypatch):
    known = {"llama-3-8b": hf.read(CONFIG), "qwen3-32b": hf.read(CONFIG)}

    def find(name):
        if name not in known:
            raise KvroomError("model", name, "is unknown", "")
        return known[name]

    fake = SimpleNamespace(
        find=find, names=lambda: list(known), known=lambda w: w if w in known else None
    )
    monkeypatch.setattr(loading, "catalogue", fake)
    return known


def refused(model, **kwargs) -> KvroomError:
    with pytest.raises(KvroomError) as e:
        load(model, **kwargs)
    assert e.value.fix
    return e.value


def test_by_value_and_by_path_are_the_same_model(folder):
    by_value = load({"config": CONFIG})
    by_path = load(str(folder / "config.json"))
    assert by_value.params == by_path.params == load(str(folder)).params
    assert by_path.source == by_value.source == "config"
    assert by_path.name == folder.name


def test_readings_are_cached_until_the_file_changes(folder):
    path = folder / "config.json"
    first = load(str(path))
    assert load(str(path)) is first
    assert load({"config": dict(CONFIG)}) is load({"config": dict(reversed(CONFIG.items()))})
    path.write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    os.utime(path, ns=(1, 1))
    assert load(str(path)).num_layers == 3


def test_hf_quant_config_beside_it_is_read(folder):
    said = {
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head"],
        }
    }
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    q = load(str(folder)).quantisation
    assert q is not None and (q.linear.name, q.kv_dtype) == ("nvfp4", "fp8")
    (folder / "hf_quant_config.json").write_text('{"quantization": 3}')
    assert refused(str(folder)).field == "quantization"


def test_a_name_that_says_more_than_its_config_warns(tmp_path):
    path = tmp_path / "Llama-3-NVFP4.json"
    path.write_text(json.dumps(CONFIG))
    assert "NVFP4" in load(str(path)).warnings[0]
    path.write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}))
    assert not load(str(path)).warnings


def test_an_index_beside_it_gives_the_bytes(folder):
    index = {"metadata": {"total_size": 999}, "weight_map": {"a": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load(str(folder)).file_bytes == 999


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   \n",
        b"{",
        json.dumps(CONFIG).encode()[:40],
        b"\x00\x01\x02\xff\xfe" * 100,
        b"\xff\xfe{\x00}\x00\x00",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"[]",
        b"null",
        b"3",
        b'"llama"',
        b"{} {}",
        b'{"hidden_size": ' + b"9" * 5000 + b"}",
        b"GGUF",
        b"GGUF\x03\x00\x00\x00",
    ],
)
def test_broken_files_are_refused(folder, data):
    (folder / "config.json").write_bytes(data)
    assert refused(str(folder)).field == "model"
    assert refused(str(folder / "config.json")).field == "model"


def test_a_huge_file_is_refused_before_it_is_read(folder):
    path = folder / "config.json"
    with path.open("wb") as file:
        file.truncate(10**11)
    start = time.process_time()
    assert "too large" in refused(str(path)).message
    assert time.process_time() - start < 0.5


def test_constants_that_json_lacks_are_read_but_no_size(folder):
    text = json.dumps(CONFIG)
    (folder / "config.json").write_text(text[:-1] + ', "time_step_limit": [0.0, Infinity]}')
    assert load(str(folder)).num_layers == 2
    (folder / "config.json").write_text(text.replace('"hidden_size": 64', '"hidden_size": NaN'))
    assert refused(str(folder)).field == "hidden_size"


def test_what_is_no_file_is_refused(tmp_path, catalogue):
    assert "folder without" in refused(str(tmp_path)).message
    assert "is not there" in refused(str(tmp_path / "config.json")).message
    assert "is not there" in refused("./llama-3-8b.json").message
    (tmp_path / "config.json").mkdir()
    assert "is a folder" in refused(str(tmp_path)).message
    os.mkfifo(tmp_path / "pipe.json")
    assert "no regular file" in refused(str(tmp_path / "pipe.json")).message
    assert "no regular file" in refused("/dev/zero").message
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    assert refused(str(tmp_path / "loop.json")).field == "model"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(folder):
    (folder / "config.json").chmod(0)
    assert "may not be read" in refused(str(folder)).message


@pytest.mark.parametrize("model", [None, 3, "", "  ", [], True, b"llama"])
def test_what_names_nothing_is_refused(model):
    assert refused(model).field == "model"


@pytest.mark.parametrize(
    "model", [{}, {"config": None}, {"config": []}, {"config": {"model_type": {1}}}, {"confg": {}}]
)
def test_bad_values_are_refused(model):
    assert refused(model).field == "model"


def test_a_deeply_nested_value_is_refused():
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert "deeply" in refused({"config": {**CONFIG, "x": deep}}).message


def test_names_come_from_the_catalogue(catalogue, tmp_path, monkeypatch):
    assert load("qwen3-32b") is catalogue["qwen3-32b"]
    assert "qwen3-32b" in refused("qwen3-32").fix
    # A folder that only shares the name does not hide the entry; a path does.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3-32b").mkdir()
    assert load("qwen3-32b") is catalogue["qwen3-32b"]
    assert refused("./qwen3-32b").field == "model"


def test_hub_ids_ask_the_hub_only_where_they_may(catalogue):
    with loading.asking(None):  # a command may have offered the hub
        unknown = refused("someone/llama-3-8b-tuned")
    assert "kvroom[hub]" in unknown.fix
    asked = []

    def fetch(name):
        asked.append(name)
        return CONFIG

    with loading.asking(fetch):
        assert load("someone/llama-3-8b-tuned").name == "someone/llama-3-8b-tuned"
        assert asked == ["someone/llama-3-8b-tuned"]
        refused("llama")
    assert len(asked) == 1


def test_a_hub_that_does_not_answer_leaves_the_name_to_be_read(catalogue):
    def fetch(name):
        raise KvroomError("model", name, "cannot be reached", "Check the network.")

    with loading.asking(fetch):
        spec = load("someone/llama-3-8b-FP8")
        assert refused("someone/sideways-8b").message == "cannot be reached"
    assert any("read as llama-3-8b, FP8" in w for w in spec.warnings)


def test_without_paths_no_file_is_touched(folder, catalogue):
    assert refused(str(folder), paths=False).field == "model"
    assert refused(str(folder / "config.json"), paths=False).field == "model"
    assert load("qwen3-32b", paths=False) is catalogue["qwen3-32b"]


@given(st.text(max_size=300))
def test_any_name_answers_or_refuses(name):
    def find(word):
        raise KvroomError("model", word, "is unknown", "")

    with pytest.MonkeyPatch.context() as patch:
        fake = SimpleNamespace(find=find, names=lambda: ["llama-3-8b"], known=lambda word: None)
        patch.setattr(loading, "catalogue", fake)
        assert refused(name, paths=False).field == "model"


def test_a_thousand_scenarios_on_one_model_parse_it_once(folder):
    start = time.process_time()
    for _ in range(1000):
        load(str(folder))
        load({"config": CONFIG})
    assert time.process_time() - start < 1.0
