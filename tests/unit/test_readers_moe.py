"""Decoders with grouped attention and routed experts: shapes of published configs, class defaults."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read
from kvroom.models.kinds import FullAttention, SharedCache, SlidingWindow
from kvroom.models.spec import ModelSpec

# Shape keys of mistralai/Mixtral-8x7B-v0.1
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "sliding_window": None,
}
# Shape keys of Qwen/Qwen3-30B-A3B
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}
# Shape keys of Qwen/Qwen1.5-MoE-A2.7B
QWEN2_MOE = {
    "model_type": "qwen2_moe",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 151936,
    "sliding_window": 32768,
    "use_sliding_window": False,
}
# Shape keys of allenai/OLMoE-1B-7B-0924
OLMOE = {
    "model_type": "olmoe",
    "hidden_size": 2048,
    "intermediate_size": 1024,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "vocab_size": 50304,
}
# Shape keys of microsoft/Phi-mini-MoE-instruct
PHIMOE = {
    "model_type": "phimoe",
    "hidden_size": 4096,
    "intermediate_size": 960,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "head_dim": 128,
    "attention_bias": True,
    "lm_head_bias": True,
    "vocab_size": 32064,
    "sliding_window": 2047,
}
# Shape keys of databricks/dbrx-instruct
DBRX = {
    "model_type": "dbrx",
    "d_model": 6144,
    "n_heads": 48,
    "n_layers": 40,
    "max_seq_len": 32768,
    "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}
# Shape keys of MiniMaxAI/MiniMax-M2.5
MINIMAX_M2 = {
    "model_type": "minimax_m2",
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "num_hidden_layers": 62,
    "num_attention_heads": 48,
    "vocab_size": 200064,
}
# Shape keys of zai-org/GLM-4.5-Air
GLM_AIR = {
    "model_type": "glm4_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "head_dim": 128,
    "attention_bias": True,
    "vocab_size": 151552,
    "num_nextn_predict_layers": 1,
}
# Shape keys of baidu/ERNIE-4.5-21B-A3B-PT
ERNIE = {
    "model_type": "ernie4_5_moe",
    "hidden_size": 2560,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "vocab_size": 103424,
}
# Shape keys of tencent/Hunyuan-A13B-Instruct
HUNYUAN = {
    "model_type": "hunyuan_v1_moe",
    "attention_head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 3072,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_experts": 64,
    "moe_topk": [8] * 32,
    "num_shared_expert": [1] * 32,
    "vocab_size": 128167,
    "tie_word_embeddings": True,
}
# Shape keys of deepseek-ai/deepseek-moe-16b
DEEPSEEK_MOE = {
    "model_type": "deepseek",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "vocab_size": 102400,
}
# Shape keys of XiaomiMiMo/MiMo-7B-Base
MIMO = {
    "model_type": "mimo",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 151680,
    "num_nextn_predict_layers": 1,
}
PUBLISHED = [MIXTRAL, QWEN3_MOE, QWEN2_MOE, OLMOE, PHIMOE, DBRX, MINIMAX_M2, GLM_AIR, ERNIE]
PUBLISHED += [HUNYUAN, DEEPSEEK_MOE, MIMO]


def held(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * count for kind, count in spec.stores)


@pytest.mark.parametrize(
    ("config", "params", "idle", "bytes_at_4096"),
    [
        # params: totals of the published files (routing biases apart); idle: layers with experts ×
        # experts that a token skips × 3 matrices; bytes: layers × 2 × kv heads × head_dim × 2 × tokens
        (MIXTRAL, 46_702_792_704, 32 * 6 * 3 * 4096 * 14336, 131_072 * 4096),
        (QWEN3_MOE, 30_532_122_624, 48 * 120 * 3 * 2048 * 768, 98_304 * 4096),
        (QWEN2_MOE, 14_315_784_192, 24 * 56 * 3 * 2048 * 1408, 196_608 * 4096),
        (OLMOE, 6_919_161_856, 16 * 56 * 3 * 2048 * 1024, 131_072 * 4096),
        (PHIMOE, 7_647_632_704, 32 * 14 * 3 * 4096 * 960, 131_072 * 2047),
        (DBRX, 131_596_523_520, 40 * 12 * 3 * 6144 * 10752, 163_840 * 4096),
        (MINIMAX_M2, 228_689_748_992, 62 * 248 * 3 * 3072 * 1536, 253_952 * 4096),
        (GLM_AIR, 106_852_245_504, 45 * 120 * 3 * 4096 * 1408, 188_416 * 4096),
        (ERNIE, 21_825_437_888, 27 * 58 * 3 * 2560 * 1536, 57_344 * 4096),
        (HUNYUAN, 80_393_183_232, 32 * 56 * 3 * 4096 * 3072, 131_072 * 4096),
        (DEEPSEEK_MOE, 16_375_728_128, 27 * 58 * 3 * 2048 * 1408, 229_376 * 4096),
        (MIMO, 7_622_619_136, 0, 147_456 * 4096),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else "",
)
def test_published_configs(config, params, idle, bytes_at_4096):
    spec = read(config)
    assert spec.params == params
    assert spec.active_params == params - idle
    assert held(spec, 4096) == bytes_at_4096


def test_a_window_that_is_a_number_holds_in_every_layer():
    spec = read({**MIXTRAL, "sliding_window": 4096})
    assert [type(kind) for kind, _ in spec.stores] == [SlidingWindow]
    assert held(spec, 100_000) == held(spec, 4096)


def test_class_defaults_of_left_out_keys():
    bare = {
        k: v
        for k, v in MIXTRAL.items()
        if k not in ("num_key_value_heads", "num_local_experts", "num_experts_per_tok")
    }
    assert read(bare).params == read(MIXTRAL).params
    assert held(read(bare), 1) == held(read(MIXTRAL), 1)


def test_a_null_is_not_the_class_default():
    # its class takes null key-value heads for as many as query heads, and only absent ones for 8
    assert held(read({**MIXTRAL, "num_key_value_heads": None}), 1) == 4 * held(read(MIXTRAL), 1)


def test_qwen_dense_layers():
    spec = read({**QWEN3_MOE, "intermediate_size": 6144, "mlp_only_layers": [0, 1]})
    assert [run.count for run in spec.layers] == [2, 46]
    stepped = read({**QWEN3_MOE, "intermediate_size": 6144, "decoder_sparse_step": 2})
    assert stepped.num_layers == 48 == len(stepped.layers)
    none = read({**QWEN3_MOE, "intermediate_size": 6144, "num_experts": 0})
    assert none.active_params == none.params


def test_qwen2_windows_alternate_below_max_window_layers():
    spec = read({**QWEN2_MOE, "use_sliding_window": True, "max_window_layers": 4})
    assert [count for kind, count in spec.stores if isinstance(kind, SlidingWindow)] == [2]


def test_a_tied_head_keeps_its_bias():
    tied = read({**PHIMOE, "tie_word_embeddings": True})
    assert read(PHIMOE).params - tied.params == 32064 * 4096
    assert any(t.name == "lm_head.bias" for t in tied.head)


def test_experts_shared_experts_and_routers_are_told_apart():
    parts = {t.part for run in read(GLM_AIR).layers for t in run.layer.tensors}
    assert {"expert", "shared_expert", "router", "mlp", "attention", "norm"} == parts


def test_glm_options():
    more = read({**GLM_AIR, "use_qk_norm": True})
    assert more.params - read(GLM_AIR).params == 46 * 2 * 128
    assert read({**GLM_AIR, "num_nextn_predict_layers": 0}).mtp == ()
    # one layer with experts behind a [hidden, 2 × hidden] projection and three norms
    layer = read(GLM_AIR).layers[-1].layer.params
    assert read(GLM_AIR).mtp_params == layer + 2 * 4096 * 4096 + 3 * 4096


def test_ernie_places_its_experts():
    spec = read({**ERNIE, "moe_layer_interval": 2, "moe_layer_end_index": 3})
    sparse = [any(t.part == "expert" for t in layer.tensors) for layer in spec.each_layer()]
    assert [i for i, s in enumerate(sparse) if s] == [1, 3]


def test_ernie_dense_is_tied_and_may_have_biases():
    config = {
        "model_type": "ernie4_5",
        "hidden_size": 1024,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "vocab_size": 103424,
    }
    assert read(config).params == 360_748_032  # published as 0.36B
    biases = 2048 + 2 * 256 + 1024 + 2 * 3072 + 1024
    assert read({**config, "use_bias": True}).params - read(config).params == 18 * biases


def test_hunyuan_cross_layer_attention_keeps_every_second_layer():
    spec = read({**HUNYUAN, "use_cla": True, "cla_share_factor": 2})
    assert held(spec, 100) * 2 == held(read(HUNYUAN), 100)
    assert {type(kind) for kind, _ in spec.stores} == {FullAttention, SharedCache}
    lost = 16 * (2 * 8 * 128 * 4096 + 128)
    assert read(HUNYUAN).params - spec.params == lost


def test_hunyuan_dense_has_no_experts():
    config = {**HUNYUAN, "model_type": "hunyuan_v1_dense"}
    assert read(config).active_params == read(config).params


def test_mimo_prediction_layer_is_one_dense_layer_behind_a_projection():
    spec = read(MIMO)
    layer = spec.layers[0].layer.params
    assert spec.mtp_params == layer + 2 * 4096 * 4096 + 3 * 4096


@pytest.mark.parametrize("model_type", ["granitemoe", "granitemoeshared"])
def test_granite(model_type):
    config = {
        "model_type": model_type,
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "num_local_experts": 4,
        "shared_intermediate_size": 48 if model_type.endswith("shared") else None,
    }
    layer = 4 * 64 * 64 + 4 * 64 + 4 * 3 * 64 * 32 + 2 * 64
    shared = 3 * 64 * 48 if model_type.endswith("shared") else 0
    assert read(config).params == 2 * 100 * 64 + 64 + 2 * (layer + shared)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({**MIXTRAL, "num_key_value_heads": 5}, "num_key_value_heads"),
        ({**MIXTRAL, "num_local_experts": 0}, "num_local_experts"),
        ({**MIXTRAL, "hidden_size": None}, "hidden_size"),
        ({**QWEN3_MOE, "mlp_only_layers": 3}, "mlp_only_layers"),
        ({**QWEN3_MOE, "decoder_sparse_step": 0}, "decoder_sparse_step"),
        ({**QWEN2_MOE, "layer_types": ["full_attention"]}, "layer_types"),
        ({**QWEN2_MOE, "layer_types": ["wide"] * 24}, "layer_types"),
        ({**DBRX, "attn_config": 8}, "attn_config"),
        ({**DBRX, "ffn_config": {"moe_num_experts": "16"}}, "ffn_config.moe_num_experts"),
        ({**GLM_AIR, "head_dim": None}, "num_attention_heads"),
        ({**GLM_AIR, "attention_bias": "yes"}, "attention_bias"),
        ({**GLM_AIR, "num_nextn_predict_layers": -1}, "num_nextn_predict_layers"),
        ({**DEEPSEEK_MOE, "moe_layer_freq": [0, 1]}, "moe_layer_freq"),
        ({**HUNYUAN, "moe_topk": [8] * 31}, "moe_topk"),
        ({**HUNYUAN, "moe_topk": 65}, "moe_topk"),
        ({**ERNIE, "moe_layer_interval": 0}, "moe_layer_interval"),
    ],
)
def test_bad_input_names_its_key(config, field):
    with pytest.raises(KvroomError) as error:
        read(config)
    assert error.value.field == field


@pytest.mark.parametrize("config", PUBLISHED, ids=lambda c: c["model_type"])
def test_equal_layers_are_one_object(config):
    spec = read(config)
    assert len({id(run.layer) for run in spec.layers}) == len({run.layer for run in spec.layers})
    assert sum(run.count for run in spec.layers) == spec.num_layers
