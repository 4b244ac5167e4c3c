"""What quantised checkpoints weigh, against the sizes of published files."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.models import hf, parts
from kvroom.models.dtypes import BF16
from kvroom.models.quantization.base import Quantisation
from kvroom.models.quantization.configs import from_config
from kvroom.models.quantization.ggml import BLOCK, TYPES, use_more_bits
from kvroom.models.spec import ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.models.weight_dtypes import WEIGHT_DTYPES, named

LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
}
LLAMA_3_8B = {
    **LLAMA_2_7B,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
LLAMA_3_70B = {
    **LLAMA_3_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
QWEN3_32B = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}
LINEAR = Tensor(name="self_attn.q_proj", rows=4096, columns=4096, part="attention")
DOWN = Tensor(name="mlp.down_proj", rows=4096, columns=14336, part="mlp")
EXPERT = Tensor(
    name="mlp.experts.up_proj", rows=768, columns=2048, count=128, active=8, part="expert"
)
SHARED = Tensor(name="mlp.shared_experts.up_proj", rows=768, columns=2048, part="shared_expert")
ROUTER = Tensor(name="mlp.gate", rows=128, columns=2048, part="router")
NORM = Tensor(name="input_layernorm", rows=4096, part="norm")
HEAD = Tensor(name="lm_head", rows=32000, columns=4096, part="head")
TABLE = Tensor(name="embed_tokens", rows=32000, columns=4096, part="embedding")
EVERY = (LINEAR, DOWN, EXPERT, SHARED, ROUTER, NORM, HEAD, TABLE)


def weight_bytes(spec: ModelSpec, q: Quantisation) -> int:
    loose = (*spec.embedding, *spec.head, *spec.beside)
    layers = enumerate(spec.each_layer())
    return sum(q.bytes_of(t) for t in loose) + sum(
        q.bytes_of(t, i) for i, layer in layers for t in layer.tensors
    )


# File sizes of bartowski/Meta-Llama-3.1-8B-Instruct-GGUF on the hub. All that they hold besides these
# tensors (header, tokenizer, 256 bytes of rotary factors) is the same in each.
@pytest.mark.parametrize(
    ("mix", "file_size"),
    [
        ("q8_0", 8_540_775_840),
        ("q6_k", 6_596_011_424),
        ("q5_k_m", 5_732_992_416),
        ("q5_k_s", 5_599_298_976),
        ("q4_k_m", 4_920_739_232),
        ("q4_k_s", 4_692_673_952),
        ("q3_k_l", 4_321_961_376),
        ("q3_k_m", 4_018_922_912),
        ("q2_k", 3_179_136_416),
    ],
)
def test_gguf_mixes_match_published_files_to_the_byte(mix, file_size):
    spec = hf.read(LLAMA_3_8B)
    assert weight_bytes(spec, named(mix, spec)) + 7_841_184 == file_size


# TheBloke/Llama-2-7B-GGUF: 4.08 GB (Q4_K_M), 3.83 GB (Q4_0), 7.16 GB (Q8_0), 3.30 GB (Q3_K_M);
# TheBloke/Llama-2-70B-GGUF: 41.42 GB; Qwen/Qwen3-32B-GGUF: 23.2 GB; the 8B as above, 4,447,667,616.
@pytest.mark.parametrize(
    ("config", "mix", "size"),
    [
        (LLAMA_3_8B, "iq4_xs", 4_447_667_616 - 7_841_184),
        (LLAMA_2_7B, "q4_k_m", 4.080e9),
        (LLAMA_2_7B, "q4_0", 3.825e9),
        (LLAMA_2_7B, "q8_0", 7.160e9),
        (LLAMA_2_7B, "q3_k_m", 3.297e9),
        ({**LLAMA_3_70B, "vocab_size": 32000}, "q4_k_m", 41.42e9),
        (QWEN3_32B, "q5_k_m", 23.21e9),
    ],
)
def test_gguf_mixes_weigh_what_published_files_do(config, mix, size):
    spec = hf.read(config)
    assert weight_bytes(spec, named(mix, spec)) == pytest.approx(size, rel=5e-4)


# safetensors of the hub: neuralmagic/RedHatAI Llama-3.1-8B FP8-dynamic 9.08 GB, w4a16 5.7 GB,
# Qwen/Qwen3-32B-FP8 34.3 GB, nvidia/Llama-3.1-8B-Instruct-FP4 6,027,861,376; meta's 70B in 141.1 GB.
@pytest.mark.parametrize(
    ("config", "dtype", "size"),
    [
        (LLAMA_3_70B, "bf16", 141_107_412_992),
        (LLAMA_3_8B, "fp8", 9.08e9),
        (LLAMA_3_8B, "int4", 5.70e9),
        (LLAMA_3_8B, "gptq_int4_g128", 5.73e9),
        (QWEN3_32B, "fp8_block", 34.33e9),
        (LLAMA_3_8B, "nvfp4", 6_027_861_376),
    ],
)
def test_safetensors_checkpoints_weigh_what_published_ones_do(config, dtype, size):
    spec = hf.read(config)
    assert weight_bytes(spec, named(dtype, spec)) == pytest.approx(size, rel=2e-3)


def test_gpt_oss_narrows_experts_alone():
    # openai/gpt-oss-20b: 13.76 GB of safetensors.
    layer = (
        *parts.attention(2880, 64, 8, 64, qkv_bias=True, o_bias=True),
        *parts.router(2880, 32, bias=True, name="mlp.router"),
        *parts.experts(2880, 2880, 32, 4, bias=True),
    )
    outside = (*parts.embedding(201_088, 2880), *parts.lm_head(201_088, 2880))
    raw = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    q = from_config(raw)
    assert q is not None
    total = 24 * sum(q.bytes_of(t, 0) for t in layer) + sum(q.bytes_of(t) for t in outside)
    assert total == pytest.approx(13.76e9, rel=1e-3)
    assert q.dtype_of(layer[0], 0) == BF16


@pytest.mark.parametrize("name", WEIGHT_DTYPES)
def test_every_name_answers_for_every_tensor(name):
    for spec in (None, hf.read(LLAMA_3_8B)):
        q = named(name.upper(), spec)
        assert all(q.bytes_of(t, 3) > 0 for t in EVERY)
        assert q.dtype_of(NORM, 0).bits >= 16
        assert q.dtype_of(ROUTER, 0).bits >= 16


@pytest.mark.parametrize("alias", ["float16", "bfloat16", "AWQ", "gptq", "nf4", "exl2_4", "w4a16"])
def test_aliases(alias):
    assert named(alias).linear.bits <= 16


def test_contract_names_are_all_there():
    wanted = [
        "bf16",
        "fp16",
        "fp8",
        "fp8_block",
        "int8",
        "q8_0",
        "q4_0",
        "q4_k_m",
        "q4_k_xl",
        "int4",
        "int4_g32",
        "gptq_int4_g128",
        "mxfp4",
        "nvfp4",
        "exl2_2.5",
        "exl2_3.0",
        "exl2_4.0",
        "exl2_5.0",
    ]
    assert set(wanted) <= set(WEIGHT_DTYPES)


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(KvroomError, match="q4_k_m") as e:
        named("q4_km")
    assert e.value.field == "weight_dtype"


@pytest.mark.parametrize("bits", [2.5, 3.0, 4.0, 5.0])
def test_exl2_averages_its_bits(bits):
    q = named(f"exl2_{bits}")
    stored = q.bytes_of(Tensor(name="mlp.up_proj", rows=4096, columns=4096, part="mlp"))
    assert stored == 4096 * 4096 * bits / 8
    assert q.dtype_of(HEAD).bits == 6
    assert q.dtype_of(TABLE).bits == 16


def test_use_more_bits_takes_the_ends_and_every_third():
    assert [i for i in range(32) if use_more_bits(i, 32)] == [
        0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31,
    ]  # fmt: skip


def test_ggml_sizes_match_the_gguf_package():
    gguf = pytest.importorskip("gguf")
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if int(kind) in BLOCK:
            assert BLOCK[int(kind)] == (block, size), kind
            assert TYPES[int(kind)].bytes_for(block * 4, 3) == 12 * size, kind
    assert len(BLOCK) >= 30


def config(**quantization):
    return {"num_hidden_layers": 4, "quantization_config": quantization}


def read(**quantization) -> Quantisation:
    found = from_config(config(**quantization))
    assert found is not None
    return found


def test_no_quantisation_is_none():
    assert from_config({}) is None
    assert from_config({"quantization_config": None}) is None
    assert from_config({"quantization_config": {}}) is None


def test_fp8_block_and_per_tensor():
    block = read(quant_method="fp8", weight_block_size=[128, 128])
    assert block.bytes_of(LINEAR, 0) == 4096 * 4096 + 4 * 32 * 32
    odd = Tensor(name="self_attn.kv_a_proj_with_mqa", rows=576, columns=7168, part="attention")
    assert block.bytes_of(odd, 0) == 576 * 7168 + 4 * 5 * 56
    static = read(quant_method="fp8", activation_scheme="static", weight_block_size=None)
    assert static.bytes_of(LINEAR, 0) == 4096 * 4096 + 4
    assert {block.dtype_of(t, 0) for t in (ROUTER, NORM, HEAD, TABLE)} == {BF16}
    assert not block.varies_by_layer


def test_deepseek_v4_has_four_bit_experts():
    q = from_config(
        {
            "expert_dtype": "fp4",
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        }
    )
    assert q is not None
    assert (q.dtype_of(EXPERT, 0).bits, q.dtype_of(SHARED, 0).bits) == (4, 8)


@pytest.mark.parametrize(
    "entry",
    [
        "model.layers.2.self_attn.q_proj",
        "model.language_model.layers.2.self_attn.q_proj",
        "language_model.model.layers.2.self_attn",
        "transformer.h.2.self_attn.q_proj",
        "model.layers.2.self_attn.qkv_proj",
        "layers.2.attn.q_proj",
        "model.layers.2.self_attn*",
        "model.layers.2.*",
        "model.layers.2",
        "*layers.2.self_attn*",
        r"re:.*layers\.2\.self_attn.*",
        "model.layers.2.self_attn.q_proj.weight",
    ],
)
def test_a_list_speaks_of_one_layer(entry):
    q = read(quant_method="fp8", modules_to_not_convert=[entry])
    assert [q.dtype_of(LINEAR, i).bits for i in range(4)] == [8, 8, 16, 8]
    assert q.varies_by_layer


@pytest.mark.parametrize(
    "entry",
    ["self_attn", "q_proj", "*self_attn*", "re:.*q_proj$", "model.layers.*.self_attn", "re:.*attn"],
)
def test_a_list_speaks_of_every_layer(entry):
    q = read(quant_method="fp8", ignored_layers=[entry])
    assert [q.dtype_of(LINEAR, i).bits for i in range(4)] == [16] * 4
    assert q.dtype_of(DOWN, 0).bits == 8


@pytest.mark.parametrize(
    "entry",
    [
        "vision_model.model.layers.2.self_attn.q_proj",
        "model.visual*",
        "mtp.layers.0*",
        "gate",
        "lm_head",
        "model.layers.22.self_attn.q_proj",
        "re:.*vision_tower.*",
        "model.layers.2.self_attn.k_proj",
    ],
)
def test_a_list_that_speaks_of_something_else(entry):
    q = read(quant_method="fp8", modules_to_not_convert=[entry])
    assert [q.dtype_of(LINEAR, i).bits for i in range(4)] == [8] * 4


def test_experts_are_met_under_their_numbered_and_fused_names():
    for entry in (
        "model.layers.1.mlp.experts",
        r"re:.*mlp\.experts\.\d+\.up_proj",
        "layers.1.ffn.experts",
    ):
        q = read(quant_method="fp8", modules_to_not_convert=[entry])
        assert q.dtype_of(EXPERT, 1).bits == 16
        assert q.dtype_of(SHARED, 1).bits == 8


def test_mtp_lists_speak_of_layers_past_the_last():
    q = read(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head", "mtp*"])
    assert [q.dtype_of(LINEAR, i).bits for i in (3, 4)] == [4, 16]
    table = {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}
    q = read(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=table)
    assert [q.dtype_of(LINEAR, i).bits for i in (0, 4)] == [8, 16]


def test_gptq_counts_scales_and_packed_zeros():
    q = read(quant_method="gptq", bits=4, group_size=128, desc_act=True)
    assert q.bytes_of(LINEAR, 0) == 4096 * 4096 // 2 + 4096 * 32 * 2 + 4096 * 32 // 2
    assert q.dtype_of(HEAD) == BF16
    three = read(quant_method="gptq", bits=3, group_size=-1)
    assert three.bytes_of(LINEAR, 0) == 4096 * 4096 * 3 // 8 + 4096 * 2 + 4096 * 3 // 8


def test_gptq_dynamic_rules():
    q = read(
        quant_method="gptq",
        bits=4,
        group_size=128,
        dynamic={r"-:.*layers\.0\..*": {}, r"+:.*down_proj.*": {"bits": 8}},
    )
    assert [q.dtype_of(LINEAR, i).bits for i in range(2)] == [16, 4]
    assert [q.dtype_of(DOWN, i).bits for i in range(2)] == [16, 8]


def test_awq():
    q = read(quant_method="awq", bits=4, group_size=128, zero_point=True)
    assert q.bytes_of(LINEAR, 0) == 4096 * 4096 // 2 + 4096 * 32 * 5 // 2


def test_compressed_tensors_channel_group_and_ignore():
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    q = read(
        quant_method="compressed-tensors",
        config_groups={"group_0": {"targets": ["Linear"], "weights": weights}},
        ignore=["lm_head", "re:.*gate$"],
        kv_cache_scheme={"num_bits": 8, "type": "float"},
    )
    assert q.bytes_of(LINEAR, 0) == 4096 * 4096 + 4 * 4096
    assert (q.dtype_of(HEAD), q.kv_dtype) == (BF16, "fp8")
    weights = {
        "num_bits": 4,
        "type": "int",
        "strategy": "group",
        "group_size": 32,
        "symmetric": True,
    }
    q = read(
        quant_method="compressed-tensors",
        config_groups={"group_0": {"targets": ["Linear"], "weights": weights}},
        ignore=["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
    )
    assert q.bytes_of(EXPERT, 0) == 128 * 768 * 2048 * 9 // 16
    assert (q.dtype_of(LINEAR, 0), q.dtype_of(SHARED, 0)) == (BF16, BF16)


def test_compressed_tensors_groups_by_name():
    q = read(
        quant_method="compressed-tensors",
        format="mixed-precision",
        config_groups={
            "group_0": {
                "targets": ["re:.*self_attn.*"],
                "weights": {
                    "num_bits": 8,
                    "type": "float",
                    "strategy": "block",
                    "block_structure": [128, 128],
                },
            },
            "group_1": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                "format": "nvfp4-pack-quantized",
            },
        },
        ignore=["lm_head"],
    )
    assert (q.dtype_of(LINEAR, 0).name, q.dtype_of(DOWN, 0).name) == ("fp8", "nvfp4")


def test_modelopt_mixed_precision_by_table():
    q = read(
        quant_method="modelopt",
        quant_algo="MIXED_PRECISION",
        quantized_layers={
            **{
                f"model.language_model.layers.{i}.self_attn.q_proj": {"quant_algo": "FP8"}
                for i in range(4)
            },
            "model.language_model.layers.1.mlp.down_proj": {
                "quant_algo": "W4A16_NVFP4",
                "group_size": 16,
            },
            "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        },
        kv_cache_quant_algo="FP8",
    )
    assert [q.dtype_of(DOWN, i).bits for i in range(3)] == [16, 4, 16]
    assert (q.dtype_of(LINEAR, 3).bits, q.dtype_of(HEAD).bits, q.kv_dtype) == (8, 4, "fp8")


def test_modelopt_that_narrows_only_the_cache():
    q = read(quant_method="modelopt", quant_algo=None, kv_cache_quant_algo="FP8")
    assert (q.dtype_of(LINEAR, 0), q.kv_dtype) == (BF16, "fp8")


@pytest.mark.parametrize(
    ("said", "bits", "size"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4, 4096 * 4096 * 9 // 16),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_use_double_quant": True,
            },
            4,
            4096 * 4096 // 2 + 4096 * 64,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, 4096 * 4096 + 4 * 4096),
        ({"quant_method": "exl2", "bits": 4.25}, 4, 4096 * 4096 * 4.25 / 8),
        ({"quant_method": "exl3", "bits": 3.0}, 3, 4096 * 4096 * 3 / 8),
        ({"quant_method": "fbgemm_fp8"}, 8, 4096 * 4096 + 4 * 4096),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
            4,
            4096 * 4096 * 17 // 32,
        ),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, 4, None),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, 4, None),
        ({"group_size": 64, "bits": 4}, 4, 4096 * 4096 * 9 // 16),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, 8, 4096 * 4096 + 4),
    ],
)
def test_other_methods(said, bits, size):
    q = read(**said)
    assert q.dtype_of(LINEAR, 0).bits == bits
    assert size is None or q.bytes_of(LINEAR, 0) == size


def test_an_unknown_method_warns():
    q = read(quant_method="spqr", bits=3)
    assert q.dtype_of(LINEAR, 0).bits == 3
    assert "spqr" in q.warnings[0]
    q = read(quant_method="something")
    assert (q.dtype_of(LINEAR, 0), len(q.warnings)) == (BF16, 1)


def test_nested_and_other_keys():
    said = {"quant_method": "fp8"}
    for raw in ({"text_config": {"quantization_config": said}}, {"compression_config": said}):
        q = from_config(raw)
        assert q is not None and q.dtype_of(LINEAR, 0).bits == 8


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ([], ""),
        ("fp8", ""),
        ({"quant_method": 3}, ".quant_method"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, ".weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [0, 1]}, ".weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, ".weight_block_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": "x"}, ".modules_to_not_convert"),
        ({"quant_method": "fp8", "modules_to_not_convert": [1]}, ".modules_to_not_convert"),
        ({"quant_method": "gptq", "bits": "four"}, ".bits"),
        ({"quant_method": "gptq", "bits": 0}, ".bits"),
        ({"quant_method": "gptq", "dynamic": []}, ".dynamic"),
        ({"quant_method": "compressed-tensors", "config_groups": 1}, ".config_groups"),
        ({"quant_method": "awq", "ignore": ["re:("]}, ".ignore"),
        ({"quant_method": "modelopt", "quant_algo": "FP7"}, ".quant_algo"),
        ({"quant_method": "modelopt", "quantized_layers": {"a": 1}}, ".quantized_layers.a"),
        ({"quant_method": "fp8", "ignore": ["re:(a+)+$"]}, ".ignore"),
    ],
)  # fmt: skip
def test_malformed_configs_name_the_key(said, key):
    with pytest.raises(KvroomError) as e:
        from_config({"quantization_config": said})
    assert e.value.field == f"quantization_config{key}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab.*:re(0]", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["weights", "targets", "num_bits", "type", "group_size", "quant_algo", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
KEYS = [
    "bits",
    "group_size",
    "weight_block_size",
    "modules_to_not_convert",
    "ignore",
    "config_groups",
    "quantized_layers",
    "quant_algo",
    "kv_cache_scheme",
    "dynamic",
    "head_bits",
    "load_in_8bit",
    "global_quant_config",
    "layer_quant_config",
    "zero_point",
    "format",
    "quant_type",
    "quantization",
    "extra_config",
    "modules_in_block_to_quantize",
    "mode",
]
METHODS = [
    "fp8",
    "gptq",
    "awq",
    "mxfp4",
    "bitsandbytes",
    "exl2",
    "compressed-tensors",
    "modelopt",
    "fbgemm_fp8",
    "quark",
    "torchao",
    "mlx",
    "other",
]


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5),
    st.sampled_from(METHODS) | st.none(),
)
def test_any_config_answers_or_names_a_key(said, method):
    try:
        q = from_config({"quantization_config": {**said, "quant_method": method}})
        if q is not None:
            assert all(q.bytes_of(t, 1) >= 0 for t in EVERY)
    except KvroomError as e:
        assert e.field.startswith("quantization_config")


def test_long_lists_are_quick():
    names = [
        f"model.layers.{i}.{m}"
        for i in range(94)
        for m in ("input_layernorm", "mlp.gate", "post_attention_layernorm", "self_attn.k_proj")
    ]
    spec = hf.read({**QWEN3_32B, "num_hidden_layers": 94})
    q = from_config(
        {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": names}}
    )
    assert q is not None
    weight_bytes(spec, q)
    start = time.process_time()
    for _ in range(20):
        weight_bytes(spec, q)
    assert (time.process_time() - start) / 20 < 0.005


def test_mlx_modules_of_their_own_width():
    """MLX writes what differs from the whole beside it, by the module's path."""
    q = read(
        bits=4,
        group_size=64,
        **{
            "model.layers.0.self_attn.q_proj": {"bits": 8, "group_size": 32},
            "model.layers.1.mlp.down_proj": False,
        },
    )
    assert q.dtype_of(LINEAR, 0).bits == 8
    assert q.dtype_of(LINEAR, 1).bits == 4
    assert q.dtype_of(DOWN, 1) is BF16
    assert q.dtype_of(TABLE).bits == 4
    assert q.bytes_of(LINEAR, 0) == 4096 * 4096 + 4096 * (4096 // 32) * 4
    assert (
        read(bits=4, group_size=64, **{"model.layers.0.mlp.gate": {"bits": 8}})
        .dtype_of(ROUTER, 0)
        .bits
        == 8
    )


def test_hqq_nests_its_bits():
    scheme = {"weight_quant_params": {"nbits": 4, "group_size": 64}, "scale_quant_params": None}
    q = read(quant_method="hqq", quant_config=scheme, skip_modules=["lm_head"])
    assert q.bytes_of(LINEAR, 0) == 4096 * 4096 * 9 // 16
    assert q.dtype_of(TABLE) is BF16
    by_module = read(
        quant_method="hqq",
        quant_config={"self_attn.q_proj": {"nbits": 2, "group_size": 64}, "mlp.up_proj": scheme},
    )
    assert by_module.dtype_of(LINEAR, 3).bits == 2
    assert by_module.dtype_of(DOWN, 3) is BF16


@pytest.mark.parametrize(
    ("said", "bits"),
    [
        ({"quant_method": "quanto", "weights": "int4"}, 4),
        ({"quant_method": "quanto", "weights": "float8"}, 8),
        ({"quant_method": "eetq", "weights": "int8"}, 8),
        ({"quant_method": "bitnet"}, 2),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, 4),
        (
            {
                "quant_method": "aqlm",
                "nbits_per_codebook": 16,
                "num_codebooks": 1,
                "in_group_size": 8,
            },
            2,
        ),
    ],
)
def test_the_words_of_single_tools(said, bits):
    q = read(**said)
    assert q.dtype_of(LINEAR, 0).bits == bits
    assert q.warnings == ()
