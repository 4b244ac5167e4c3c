"""Safetensors headers and indexes, with the safetensors package as the oracle."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.models import safetensors
from kvroom.models.load import load

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": True,
}
ONE = {"a.weight": np.zeros((3, 5), np.float16), "b": np.ones((7,), np.float32)}


def written(tensors=ONE, metadata=None) -> bytes:
    numpy = pytest.importorskip("safetensors.numpy")
    data: bytes = numpy.save(tensors, metadata)
    return data


def by_hand(header: object) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def test_reads_what_the_package_writes(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(written(metadata={"format": "pt"}))
    for source in (path, str(path), path.read_bytes()):
        assert safetensors.read_header(source) == {
            "a.weight": ("F16", (3, 5), 30),
            "b": ("F32", (7,), 28),
        }


def test_a_prefix_with_the_header_is_enough():
    data = written()
    length = int.from_bytes(data[:8], "little")
    assert len(safetensors.read_header(data[: 8 + length])) == 2


def test_every_truncation_of_a_file_is_refused(tmp_path):
    data = written()
    path = tmp_path / "cut.safetensors"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(KvroomError) as e:
            safetensors.read_header(path)
        assert e.value.field == "model"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        (10**12).to_bytes(8, "little") + b"{}",
        by_hand([]),
        by_hand({"a": 1}),
        by_hand({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]}}),
        by_hand({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}),
        by_hand({"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}),
        by_hand({"a": {"dtype": 5, "shape": [2], "data_offsets": [0, 8]}}),
        by_hand({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}),
        by_hand({"a": {"dtype": "X", "shape": [2], "data_offsets": [0, 2**59]}}),
        by_hand({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}),
        (9).to_bytes(8, "little") + b"\x80" * 9,
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
    ],
)
def test_broken_headers_are_refused(data):
    with pytest.raises(KvroomError) as e:
        safetensors.read_header(data)
    assert e.value.field == "model"


@given(
    st.binary(max_size=200) | st.binary(max_size=60).map(lambda b: len(b).to_bytes(8, "little") + b)
)
def test_any_bytes_answer_or_refuse(data):
    try:
        safetensors.read_header(data)
    except KvroomError as e:
        assert e.field == "model"


def shards(folder, parts):
    numpy = pytest.importorskip("safetensors.numpy")
    table = {}
    for i, tensors in enumerate(parts, 1):
        name = f"model-{i:05}-of-{len(parts):05}.safetensors"
        numpy.save_file(tensors, folder / name)
        table.update(dict.fromkeys(tensors, name))
    index = {"metadata": {"total_size": 12345}, "weight_map": table}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    return path


def test_an_index_sums_its_files_where_they_are_there(tmp_path):
    path = shards(tmp_path, [ONE, {"c": np.zeros((10,), np.int8)}])
    index = safetensors.read_index(path)
    assert index.total_bytes == 68
    assert index.entries is not None and index.entries["c"].nbytes == 10
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    index = safetensors.read_index(path)
    assert (index.entries, index.total_bytes) == (None, 12345)
    assert index.names == {"a.weight", "b", "c"}


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"weight_map": []},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": "../secret.safetensors"}},
        {"weight_map": {"a": "/etc/passwd"}},
        {"weight_map": {"a": ""}},
    ],
)
def test_broken_indexes_are_refused(tmp_path, raw):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(KvroomError) as e:
        safetensors.read_index(path)
    assert e.value.field == "model"


def test_the_files_sizes_win_and_what_is_not_loaded_is_left_out(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tensors = {
        "model.embed_tokens.weight": np.zeros((100, 64), np.float16),
        "lm_head.weight": np.zeros((100, 64), np.float16),  # a copy of the tied table
        "model.layers.0.mlp.up_proj.weight": np.zeros((128, 64), np.float16),
        "model.layers.2.mlp.up_proj.weight": np.zeros((128, 64), np.float16),  # past the last: MTP
        "mtp.fc.weight": np.zeros((64, 64), np.float16),
    }
    path = shards(tmp_path, [tensors])
    spec = load(str(path))
    assert spec.file_bytes == (100 * 64 + 128 * 64) * 2
    assert spec.source == "safetensors header"
    assert load(str(tmp_path)).file_bytes == spec.file_bytes
    assert load(str(tmp_path)).source == "config"


def test_a_file_alone_asks_for_its_config(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(written())
    with pytest.raises(KvroomError, match=r"config\.json"):
        load(str(path))


PLAIN = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
}


def beside(folder, total=None, tensors=None, **config):
    """A folder with a config and an index of ``total`` bytes, or one file of ``tensors``."""
    (folder / "config.json").write_text(json.dumps({**PLAIN, **config}))
    if total is not None:
        index = {
            "metadata": {"total_size": total},
            "weight_map": {"model.norm.weight": "a.safetensors"},
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if tensors is not None:
        (folder / "model.safetensors").write_bytes(written(tensors))
    return load(str(folder))


def test_an_index_wins_over_arithmetic_at_16_bits_too(tmp_path):
    expected = 2 * beside(tmp_path).params
    near = beside(tmp_path, total=expected + 128)
    assert (near.file_bytes, near.warnings) == (expected + 128, ())
    far = beside(tmp_path, total=expected // 2)
    assert far.file_bytes == expected // 2
    assert "is it this model's config?" in far.warnings[0]
    plan = api.plan(str(tmp_path), gpu="H100-SXM", engine="arithmetic", context_tokens=128)
    assert plan.weights.bytes == expected // 2
    assert any("is it this model's config?" in w for w in plan.warnings)


def test_fp32_files_are_counted_as_they_are_loaded(tmp_path):
    params = beside(tmp_path).params
    spec = beside(tmp_path, total=4 * params)
    assert spec.file_bytes == 2 * params
    assert "16 bits" in spec.warnings[0]


def test_another_width_than_the_files_is_arithmetic(tmp_path):
    params = beside(tmp_path).params
    beside(tmp_path, total=2 * params + 64)
    plan = api.plan(
        str(tmp_path), gpu="H100-SXM", engine="arithmetic", weight_dtype="fp8", context_tokens=128
    )
    assert plan.weights.bytes < 2 * params
