"""GGUF headers, with the gguf package as the oracle that writes them."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.models import gguf, hf
from kvroom.models.gguf_config import ARCHITECTURES, config_of
from kvroom.models.load import load

oracle = pytest.importorskip("gguf")
Type = oracle.GGMLQuantizationType

LLAMA = {
    "block_count": 2,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "context_length": 4096,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}
SHAPES = {
    "token_embd.weight": (256, 1000),
    "output_norm.weight": (256,),
    "output.weight": (256, 1000),
    **{
        f"blk.{i}.{name}.weight": shape
        for i in range(2)
        for name, shape in {
            "attn_norm": (256,),
            "attn_q": (256, 256),
            "attn_k": (256, 128),
            "attn_v": (256, 128),
            "attn_output": (256, 256),
            "ffn_norm": (256,),
            "ffn_gate": (256, 512),
            "ffn_up": (256, 512),
            "ffn_down": (512, 256),
        }.items()
    },
}


def type_of(name, shape):
    if len(shape) == 1:
        return Type.F32
    wide = name == "output.weight" or name.startswith("blk.1.attn_v")
    return Type.Q6_K if wide else Type.Q4_K


def nbytes(shape, kind):
    block, size = oracle.GGML_QUANT_SIZES[kind]
    return math.prod(shape) // block * size


def write(path, arch="llama", keys=LLAMA, shapes=SHAPES, *, kind=type_of, order="LITTLE", more=()):
    writer = oracle.GGUFWriter(path, arch, endianess=oracle.GGUFEndian[order])
    writer.add_name("Tiny")
    writer.add_file_type(15)
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_array(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)
    for key, value in more:
        writer.add_array(key, value)
    for name, shape in shapes.items():
        what = kind(name, shape)
        block, size = oracle.GGML_QUANT_SIZES[what]
        if len(shape) == 1:
            writer.add_tensor(name, np.zeros(shape, np.float32))
        else:
            rows = np.zeros((shape[1], shape[0] // block * size), np.uint8)
            writer.add_tensor(name, rows, raw_dtype=what)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def header_only(path) -> bytes:
    """The file without its weights."""
    first = min(t.data_offset for t in oracle.GGUFReader(path).tensors)
    return path.read_bytes()[:first]


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_reads_what_the_package_writes(tmp_path, order):
    tokens = ("tokenizer.ggml.tokens", [f"t{i}" for i in range(1000)])
    path = write(tmp_path / "m.gguf", order=order, more=[tokens])
    found = gguf.read_header(path)
    assert found.metadata["llama.block_count"] == 2
    assert found.metadata["tokenizer.ggml.tokens"] == gguf.Counted(1000)
    assert set(found.tensors) == set(SHAPES)
    for name, shape in SHAPES.items():
        kind = type_of(name, shape)
        assert found.tensors[name] == (shape, int(kind), nbytes(shape, kind)), name


def test_a_file_is_a_model_with_its_own_sizes(tmp_path):
    path = write(tmp_path / "m.gguf")
    spec = load(str(path))
    assert (spec.name, spec.source, spec.num_layers, spec.kv_heads) == ("Tiny", "gguf header", 2, 2)
    assert spec.params == sum(math.prod(s) for s in SHAPES.values())
    assert spec.file_bytes == sum(nbytes(s, type_of(n, s)) for n, s in SHAPES.items())
    assert not spec.warnings
    q = spec.quantisation
    assert q is not None and q.name == "q4_k_m"
    by_arithmetic = sum(q.bytes_of(t) for t in (*spec.embedding, *spec.head)) + sum(
        q.bytes_of(t, i) for i, layer in enumerate(spec.each_layer()) for t in layer.tensors
    )
    assert by_arithmetic == spec.file_bytes


def test_the_header_alone_is_enough(tmp_path):
    path = write(tmp_path / "m.gguf")
    assert gguf.read(header_only(path)).file_bytes == load(str(path)).file_bytes


def test_tied_when_there_is_no_output(tmp_path):
    shapes = {n: s for n, s in SHAPES.items() if n != "output.weight"}
    spec = load(str(write(tmp_path / "m.gguf", shapes=shapes)))
    assert spec.tied
    assert spec.params == sum(math.prod(s) for s in shapes.values())


def test_a_file_that_holds_more_than_its_keys_say_is_told(tmp_path):
    shapes = {**SHAPES, "blk.0.attn_extra.weight": (256, 4096)}
    spec = load(str(write(tmp_path / "m.gguf", shapes=shapes)))
    assert "parameters" in spec.warnings[0]


def test_parts_are_summed_where_they_are_there(tmp_path):
    whole = load(str(write(tmp_path / "m.gguf"))).file_bytes
    names = list(SHAPES)
    halves = [{n: SHAPES[n] for n in names[:9]}, {n: SHAPES[n] for n in names[9:]}]
    paths = [
        write(tmp_path / f"p-0000{i}-of-00002.gguf", shapes=half)
        for i, half in enumerate(halves, 1)
    ]
    assert [gguf.read(p).file_bytes for p in paths] == [whole, whole]
    paths[1].unlink()
    alone = gguf.read(paths[0])
    assert alone.file_bytes is None
    assert "missing" in alone.warnings[0]
    paths[0].unlink()
    write(paths[1], shapes=halves[1])
    with pytest.raises(KvroomError, match="p-00001-of-00002"):
        gguf.read(paths[1])


def test_every_truncation_is_refused(tmp_path):
    data = header_only(write(tmp_path / "m.gguf"))
    end = len(data)
    last = struct.pack("<I", int(Type.Q4_K))
    for size in range(end - 64):
        with pytest.raises(KvroomError) as e:
            gguf.read(data[:size])
        assert e.value.field == "model"
    assert last in data


@pytest.mark.slow
@given(st.data())
def test_any_flipped_bytes_answer_or_refuse(tmp_path_factory, data):
    if not hasattr(test_any_flipped_bytes_answer_or_refuse, "header"):
        path = write(tmp_path_factory.mktemp("g") / "m.gguf")
        test_any_flipped_bytes_answer_or_refuse.header = header_only(path)
    raw = bytearray(test_any_flipped_bytes_answer_or_refuse.header)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        gguf.read(bytes(raw))
    except KvroomError as e:
        assert e.field == "model"


@given(st.binary(max_size=200))
def test_any_bytes_answer_or_refuse(data):
    for raw in (data, b"GGUF" + data, b"GGUF\x03\x00\x00\x00" + data):
        with pytest.raises(KvroomError) as e:
            gguf.read(raw)
        assert e.value.field == "model"


def pair(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def start(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


@pytest.mark.parametrize(
    "data",
    [
        start(version=1),
        start(version=4),
        start(tensors=2**60),
        start(pairs=2**60),
        start(pairs=1) + struct.pack("<Q", 2**62),
        start(pairs=1) + pair("a", 8, struct.pack("<Q", 2**63)),
        start(pairs=1) + pair("a", 9, struct.pack("<IQ", 4, 2**62)),
        start(pairs=1) + pair("a", 9, struct.pack("<IQ", 8, 2**62)),
        start(pairs=1) + pair("a", 9, struct.pack("<IQ", 9, 2**62)),
        start(pairs=1) + pair("a", 9, struct.pack("<IQ", 9, 1) * 50),
        start(pairs=1) + pair("a", 77, b""),
        start(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**31),
        start(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 2**63, 0, 0),
        start(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 5, 12, 0),
        start(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 5, 999, 0),
        start(),
        start(pairs=1) + pair("general.architecture", 4, struct.pack("<I", 7)),
    ],
)
def test_hostile_headers_are_refused(data):
    with pytest.raises(KvroomError) as e:
        gguf.read(data)
    assert e.value.field == "model"
    assert e.value.fix


def test_an_unknown_architecture_is_read_from_its_own_tensors(tmp_path):
    spec = load(str(write(tmp_path / "m.gguf", arch="qwen33")))
    assert spec.params == sum(math.prod(shape) for shape in SHAPES.values())
    assert spec.kv_heads == 2
    assert any("qwen33" in w for w in spec.warnings)


@pytest.mark.parametrize("lost", ["block_count", "embedding_length"])
def test_a_missing_key_is_named(tmp_path, lost):
    keys = {k: v for k, v in LLAMA.items() if k != lost}
    with pytest.raises(KvroomError, match=rf"llama\.{lost}"):
        load(str(write(tmp_path / "m.gguf", keys=keys)))


def test_a_type_not_known_here_is_measured_by_its_place():
    name = struct.pack("<Q", 1)
    tensors = (
        name + b"a" + struct.pack("<IQIQ", 1, 256, 999, 0),
        name + b"b" + struct.pack("<IQIQ", 1, 8, 0, 96),
    )
    found = gguf.read_header(start(tensors=2) + b"".join(tensors))
    assert found.tensors["a"].nbytes == 96
    assert found.tensors["b"].nbytes == 32


# --- architectures -----------------------------------------------------------------------------


def keys(arch: str, **said):
    metadata = {f"{arch}.{k.replace('__', '.')}": v for k, v in said.items()}
    return {"general.architecture": arch, **metadata}


COMMON = {
    "block_count": 4,
    "embedding_length": 512,
    "attention__head_count": 8,
    "feed_forward_length": 1024,
}


def test_mixtral_has_no_architecture_of_its_own():
    found = config_of(keys("llama", **COMMON, expert_count=8, expert_used_count=2), {}, "m")
    assert (found["model_type"], found["num_local_experts"]) == ("mixtral", 8)


@pytest.mark.parametrize("lengths", [(576, 512, 192, 128), (192, 128, None, None)])
def test_latent_attention_reads_old_and_new_lengths(lengths):
    key, value, key_mla, value_mla = lengths
    found = config_of(
        keys(
            "deepseek2",
            **COMMON,
            attention__kv_lora_rank=512,
            attention__q_lora_rank=1536,
            rope__dimension_count=64,
            attention__key_length=key,
            attention__value_length=value,
            attention__key_length_mla=key_mla,
            attention__value_length_mla=value_mla,
        ),
        {},
        "m",
    )
    dims = (found["qk_nope_head_dim"], found["qk_rope_head_dim"], found["v_head_dim"])
    assert dims == (128, 64, 128)


def test_next_token_layers_are_not_layers():
    found = config_of(
        keys("glm4moe", **{**COMMON, "block_count": 5}, nextn_predict_layers=1), {}, "m"
    )
    assert (found["num_hidden_layers"], found["num_nextn_predict_layers"]) == (4, 1)


def test_hybrids_tell_their_layers_by_kv_heads():
    ssm = {
        "ssm__inner_size": 1024,
        "ssm__state_size": 128,
        "ssm__time_step_rank": 16,
        "ssm__group_count": 1,
        "ssm__conv_kernel": 4,
    }
    kv = [0, 0, 2, 0]
    found = config_of(keys("granitehybrid", **COMMON, **ssm, attention__head_count_kv=kv), {}, "m")
    assert found["layer_types"] == ["mamba", "mamba", "attention", "mamba"]
    more = {**COMMON, "feed_forward_length": [0, 1024, 0, 1024]}
    found = config_of(keys("nemotron_h", **more, **ssm, attention__head_count_kv=kv), {}, "m")
    assert found["hybrid_override_pattern"] == "M-*-"
    found = config_of(
        keys("lfm2", **COMMON, shortconv__l_cache=3, attention__head_count_kv=kv), {}, "m"
    )
    assert found["layer_types"] == ["conv", "conv", "full_attention", "conv"]


def test_windows_alternate_as_the_architecture_does():
    found = config_of(
        keys("gemma3", **{**COMMON, "block_count": 6}, attention__sliding_window=512), {}, "m"
    )
    assert found["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"]


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_every_architecture_answers_or_names_a_key(arch):
    for said in (COMMON, {}, {**COMMON, "attention__head_count_kv": [1], "block_count": "x"}):
        try:
            assert config_of(keys(arch, **said), {}, "m")["model_type"]
        except KvroomError as e:
            assert e.field == "model"


EVERYTHING = {
    **COMMON,
    "context_length": 8192,
    "attention__head_count_kv": 2,
    "attention__key_length": 64,
    "attention__sliding_window": 256,
    "attention__kv_lora_rank": 128,
    "attention__key_length_mla": 96,
    "attention__value_length_mla": 64,
    "attention__indexer__head_count": 4,
    "attention__indexer__key_length": 64,
    "attention__indexer__top_k": 128,
    "rope__dimension_count": 32,
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 256,
    "expert_shared_feed_forward_length": 256,
    "leading_dense_block_count": 1,
    "ssm__inner_size": 1024,
    "ssm__state_size": 64,
    "ssm__time_step_rank": 16,
    "ssm__group_count": 1,
    "ssm__conv_kernel": 4,
    "shortconv__l_cache": 3,
}
HYBRID = {"nemotron_h", "nemotron_h_moe", "granitehybrid", "jamba", "lfm2", "lfm2moe"}


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_every_architecture_is_read_into_a_model(arch):
    said = dict(EVERYTHING)
    if arch in HYBRID:
        said["attention__head_count_kv"] = [0, 0, 2, 0]
        said["feed_forward_length"] = [1024, 0, 0, 1024] if "nemotron" in arch else 1024
    if arch.startswith(("deepseek", "glm-dsa")) or "moe" not in arch:
        said["expert_count"] = 8 if arch in ("deepseek", "deepseek2", "glm-dsa") else 0
    if arch == "mamba":
        said["attention__head_count"] = said["attention__head_count_kv"] = 0
    shapes = {"token_embd.weight": (512, 1000), "output.weight": (512, 1000)}
    spec = hf.read(config_of(keys(arch, **said), shapes, "m"))
    assert (spec.num_layers, spec.hidden_size, spec.vocab_size) == (4, 512, 1000)
    assert spec.max_context_tokens in (8192, None)
