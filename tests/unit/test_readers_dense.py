"""Plain decoders: parameters, cache bytes and class defaults, with figures of published models."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 512,
}


def config(model_type, **keys):
    return {"model_type": model_type, **SMALL, **keys}


def grows(spec):
    return sum(kind.growth(BF16) * n for kind, n in spec.stores)


def kinds(spec):
    return [layer.stores[0].kind[0] for layer in spec.each_layer()]


# Shapes of the published configs; totals as their safetensors files count them.
LLAMA_3_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
MISTRAL_7B = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "sliding_window": 4096,
    "max_position_embeddings": 32768,
}
COMMAND_R_PLUS = {
    "model_type": "cohere",
    "hidden_size": 12288,
    "intermediate_size": 33792,
    "num_hidden_layers": 64,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "vocab_size": 256000,
    "use_qk_norm": True,
}
OLMO_2_32B = {
    "model_type": "olmo2",
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "vocab_size": 100352,
}
STARCODER_2_7B = {
    "model_type": "starcoder2",
    "hidden_size": 4608,
    "intermediate_size": 18432,
    "num_hidden_layers": 32,
    "num_attention_heads": 36,
    "num_key_value_heads": 4,
    "vocab_size": 49152,
    "sliding_window": 4096,
}
QWEN_1_8B = {
    "model_type": "qwen",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "kv_channels": 128,
    "vocab_size": 151936,
    "no_bias": True,
}
CHATGLM3_6B = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "ffn_hidden_size": 13696,
    "num_layers": 28,
    "num_attention_heads": 32,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "kv_channels": 128,
    "padded_vocab_size": 65024,
    "add_qkv_bias": True,
    "seq_length": 8192,
}
GLM_4_32B = {
    "model_type": "glm4",
    "hidden_size": 6144,
    "intermediate_size": 23040,
    "num_hidden_layers": 61,
    "num_attention_heads": 48,
    "attention_bias": False,
    "vocab_size": 151552,
}


@pytest.mark.parametrize(
    ("shape", "params", "bytes_per_token"),
    [
        (LLAMA_3_70B, 70_553_706_496, 327_680),
        (MISTRAL_7B, 7_241_732_096, 0),
        (COMMAND_R_PLUS, 103_810_674_688, 262_144),
        (OLMO_2_32B, 32_234_279_936, 262_144),
        (STARCODER_2_7B, 7_173_923_840, 0),
        (QWEN_1_8B, 1_836_828_672, 196_608),
        (CHATGLM3_6B, 6_243_584_000, 28_672),
        (GLM_4_32B, 32_566_081_536, 62_464),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else "",
)
def test_published_totals(shape, params, bytes_per_token):
    spec = read(shape)
    assert spec.params == params
    assert grows(spec) == bytes_per_token
    assert spec.active_params == params


def test_mistral_window_absent_is_the_class_and_null_is_none():
    absent = {k: v for k, v in MISTRAL_7B.items() if k != "sliding_window"}
    [(window, layers)] = read(absent).stores
    assert (window.window, layers) == (4096, 32)
    assert window.stored_bytes(100_000, BF16) * layers == 536_870_912
    assert grows(read({**MISTRAL_7B, "sliding_window": None})) == 131_072


def test_llama_slides_only_where_layer_types_say_so():
    types = ["sliding_attention", "full_attention"] * 4
    assert kinds(read(config("llama", sliding_window=16))) == ["f"] * 8
    assert kinds(read(config("llama", sliding_window=16, layer_types=types))) == ["w", "f"] * 4


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"sliding_window": 16}, "ffffffff"),
        ({"sliding_window": 16, "use_sliding_window": True}, "ffffffff"),
        ({"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 6}, "ffffffww"),
        ({"use_sliding_window": True, "max_window_layers": 0}, "ffffffff"),
    ],
)
@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_qwen_windows_are_off_unless_switched_on(kind, keys, expected):
    assert "".join(kinds(read(config(kind, **keys)))) == expected


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        ("cohere2", {}, "wwwfwwwf"),
        ("cohere2", {"sliding_window_pattern": 2}, "wfwfwfwf"),
        ("olmo3", {}, "wwwfwwwf"),
        ("exaone4", {"num_key_value_heads": 8}, "wwwfwwwf"),
        ("exaone4", {"num_key_value_heads": 8, "sliding_window_pattern": "LLG"}, "wwfwwfwf"),
        ("exaone4", {"num_key_value_heads": 8, "sliding_window": None}, "ffffffff"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 9}, "fffwfffw"),
        ("smollm3", {"sliding_window": 9}, "ffffffff"),
        ("phi3", {"sliding_window": 9}, "wwwwwwww"),
        ("phi3", {"sliding_window": None}, "ffffffff"),
        ("starcoder2", {}, "ffffffff"),
        ("ministral", {"layer_types": ["full_attention"] + ["sliding_attention"] * 7}, "fwwwwwww"),
        ("ministral3", {}, "ffffffff"),
    ],
)
def test_interleaved_windows(kind, keys, expected):
    assert "".join(kinds(read(config(kind, **keys)))) == expected


@pytest.mark.parametrize(
    ("kind", "kv_heads", "head_dim", "tied"),
    [
        ("llama", 8, 8, False),
        ("mistral", 8, 8, False),
        ("ministral3", 8, 128, False),
        ("qwen2", 8, 8, False),
        ("qwen3", 8, 128, False),
        ("granite", 8, 8, False),
        ("seed_oss", 8, 128, False),
        ("smollm3", 4, 8, True),
        ("internlm3", 2, 128, False),
        ("glm", 2, 128, False),
        ("glm4", 2, 128, False),
        ("cohere", 8, 8, True),
        ("cohere2", 8, 8, True),
        ("starcoder2", 2, 8, True),
        ("olmo2", 8, 8, False),
        ("internlm2", 8, 8, False),
    ],
)
def test_class_defaults(kind, kv_heads, head_dim, tied):
    spec = read(config(kind))
    store = spec.stores[0][0]
    assert (store.kv_heads, store.k_dim, spec.tied) == (kv_heads, head_dim, tied)


def test_biases_are_counted():
    plain = read(config("llama")).params
    attention = read(config("llama", attention_bias=True)).params
    both = read(config("llama", attention_bias=True, mlp_bias=True)).params
    assert attention - plain == 8 * 4 * 64
    assert both - attention == 8 * (2 * 160 + 64)
    assert read(config("qwen2")).params - plain == 8 * 3 * 64


def test_norms_of_queries_and_keys():
    heads = {"num_key_value_heads": 2}
    plain = read(config("llama", head_dim=8, **heads)).params
    assert read(config("qwen3", head_dim=8, **heads)).params - plain == 8 * 2 * 8
    assert read(config("olmo2", **heads)).params - plain == 8 * (64 + 16)
    assert read(config("olmo", **heads)).params - plain == -(8 * 2 * 64 + 64)


def test_fused_projections_keep_their_names_and_their_cuts():
    tensors = read(config("phi3", num_key_value_heads=2)).layers[0].layer.tensors
    fused = [t for t in tensors if t.name == "self_attn.qkv_proj"]
    assert [(t.rows, t.split, t.units) for t in fused] == [
        (64, "column", 8),
        (16, "kv", 2),
        (16, "kv", 2),
    ]


def test_deci_has_kv_heads_by_layer():
    spec = read(config("deci", num_key_value_heads_per_layer=[4, 4, 2, 2, 2, 1, 4, 4]))
    assert [run.count for run in spec.layers] == [2, 3, 1, 2]
    assert grows(spec) == (4 * 4 + 3 * 2 + 1) * 2 * 8 * 2
    assert spec.kv_heads == 4


def nas_blocks():
    full = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 3.0}}
    return [
        full,
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.5}},
        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        {"attention": {"n_heads_in_group": 8, "window_length": 16}, "ffn": {"no_op": True}},
        full,
    ]


def test_nemotron_nas_blocks():
    shape = config("nemotron-nas", num_hidden_layers=5, block_configs=nas_blocks())
    spec = read(shape)
    # 2·3·64/3 = 128 and 2·1.5·64/3 = 64, both up to 256
    full = 64 + 2 * 64 * 64 + 2 * 16 * 64 + 64 + 3 * 64 * 256
    narrow = 64 + 3 * 64 * 256
    linear = 64 + 64 * 64
    window = 64 + 2 * 64 * 64 + 2 * 8 * 64
    assert spec.params == 2 * full + narrow + linear + window + 2 * 512 * 64 + 64
    assert [len(layer.stores) for layer in spec.each_layer()] == [1, 0, 0, 1, 1]
    assert grows(spec) == 2 * 2 * 16 * 2
    assert spec.kv_heads == 2


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        (config("llama", num_key_value_heads=3), "num_key_value_heads"),
        (config("llama", num_attention_heads="eight"), "num_attention_heads"),
        (config("llama", hidden_size=None), "hidden_size"),
        (config("llama", num_hidden_layers=10**6), "num_hidden_layers"),
        (config("llama", num_attention_heads=7), "num_attention_heads"),
        (config("llama", attention_bias="yes"), "attention_bias"),
        (config("llama", layer_types=["full_attention"] * 3), "layer_types"),
        (config("llama", layer_types=["chunked_attention"] * 8), "layer_types"),
        (config("llama", layer_types="full_attention"), "layer_types"),
        (config("mistral", sliding_window=-1), "sliding_window"),
        (config("cohere2", sliding_window_pattern=0), "sliding_window_pattern"),
        (config("exaone4", num_key_value_heads=8, sliding_window_pattern="LXG"), "pattern"),
        (config("smollm3", no_rope_layers=[1]), "no_rope_layers"),
        (config("deci", num_key_value_heads_per_layer=[3] * 8), "per_layer"),
        (config("nemotron-nas", block_configs=[{}]), "block_configs"),
        (config("nemotron-nas", block_configs=[7] * 8), "block_configs[0]"),
        (config("nemotron-nas", block_configs=[{}] * 8), "block_configs[0].ffn.ffn_mult"),
        ({**CHATGLM3_6B, "multi_query_group_num": 5}, "multi_query_group_num"),
        (config("qwen3", rope_scaling={"rope_type": "yarn", "factor": "four"}), "factor"),
    ],
)
def test_bad_input_names_its_key(shape, field):
    with pytest.raises(KvroomError) as caught:
        read(shape)
    assert field in caught.value.field


@pytest.mark.parametrize(
    ("keys", "limit"),
    [
        ({}, None),
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 32768, "seq_length": 8192}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"type": "longrope", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"type": "su"}}, 4096),
        ({"rope_scaling": {"rope_type": "default"}}, 4096),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 4096),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 16384),
        (
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 16.0,
                    "original_max_position_embeddings": 16384,
                }
            },
            262144,
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0},
                    "sliding_attention": {"rope_type": "default"},
                }
            },
            32768,
        ),
    ],
)
def test_context_limit(keys, limit):
    if "rope_scaling" in keys or "rope_parameters" in keys:
        keys = {"max_position_embeddings": 4096, **keys}
    assert read(config("llama", **keys)).max_context_tokens == limit
