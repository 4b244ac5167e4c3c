"""Decoders behind vision towers: Qwen VL, Kimi K2.5, GLM-4.5V, MiniMax-M3."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16, CACHE_DTYPES
from kvroom.models.hf import read
from kvroom.models.kinds import FullAttention, Indexer
from kvroom.models.spec import ModelSpec

# Shape keys of Qwen/Qwen2.5-VL-7B-Instruct
QWEN25_VL = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "vision_config": {"hidden_size": 1280, "out_hidden_size": 3584, "patch_size": 14},
}
# Shape keys of Qwen/Qwen2-VL-2B-Instruct
QWEN2_VL = {
    "model_type": "qwen2_vl",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 1536, "mlp_ratio": 4},
}
# Shape keys of Qwen/Qwen3-VL-2B-Instruct
QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
    },
    "tie_word_embeddings": True,
    "vision_config": {
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "out_hidden_size": 2048,
        "deepstack_visual_indexes": [5, 11, 17],
    },
}
# Shape keys of Qwen/Qwen3-VL-30B-A3B-Instruct
QWEN3_VL_MOE = {
    "model_type": "qwen3_vl_moe",
    "text_config": {
        "head_dim": 128,
        "hidden_size": 2048,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
    },
    "vision_config": {"out_hidden_size": 2048},
}
# Shape keys of moonshotai/Kimi-K2.5
KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "first_k_dense_replace": 1,
        "n_routed_experts": 384,
        "num_attention_heads": 64,
        "num_nextn_predict_layers": 0,
        "vocab_size": 163840,
    },
    "vision_config": {"vt_hidden_size": 1152, "mm_hidden_size": 1152, "vt_num_hidden_layers": 27},
}
# Shape keys of MiniMaxAI/MiniMax-M3's decoder
FREQ = [0] * 3 + [1] * 57
MINIMAX_M3 = {
    "model_type": "minimax_m3",
    "hidden_size": 6144,
    "num_hidden_layers": 60,
    "num_attention_heads": 64,
    "vocab_size": 200064,
    "moe_layer_freq": FREQ,
    "sparse_attention_config": {
        "sparse_attention_freq": FREQ,
        "sparse_block_size": 128,
        "sparse_topk_blocks": 16,
    },
}


def held(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * count for kind, count in spec.stores)


@pytest.mark.parametrize(
    ("config", "params", "bytes_a_token"),
    [
        # totals of the published files, routing biases apart
        (QWEN2_VL, 2_208_985_600, 28 * 1024),
        (QWEN25_VL, 8_292_166_656, 28 * 2048),
        (QWEN3_VL, 2_127_532_032, 28 * 4096),
        (QWEN3_VL_MOE, 31_070_754_032, 48 * 2048),
        (KIMI, 1_026_879_353_328, 61 * 1152),
        (MINIMAX_M3, 426_174_565_632, 60 * 2048 + 57 * 256),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else "",
)
def test_published_configs(config, params, bytes_a_token):
    spec = read(config)
    assert spec.params == params
    assert held(spec, 1000) == 1000 * bytes_a_token


@pytest.mark.parametrize("config", [QWEN2_VL, QWEN25_VL, QWEN3_VL, QWEN3_VL_MOE, KIMI])
def test_towers_lie_beside_the_decoder(config):
    spec = read(config)
    assert spec.beside
    assert {t.part for t in spec.beside} == {"encoder"}
    assert spec.active_params <= spec.params - sum(t.elements for t in spec.beside)
    assert spec.warnings == ()
    assumed = read({k: v for k, v in config.items() if k != "vision_config"})
    assert assumed.beside
    assert "vision_config" in assumed.warnings[0]


def test_text_keys_may_lie_at_the_top_or_below():
    text = {k: v for k, v in QWEN25_VL.items() if k not in ("model_type", "vision_config")}
    nested = {
        "model_type": "qwen2_5_vl",
        "text_config": text,
        "vision_config": QWEN25_VL["vision_config"],
    }
    assert read(nested).params == read(QWEN25_VL).params
    tied = {**nested, "text_config": {**text, "tie_word_embeddings": True}}
    assert read(QWEN25_VL).params - read(tied).params == 152064 * 3584


def test_nested_text_takes_its_class_defaults():
    spec = read({"model_type": "qwen3_vl", "text_config": {}})
    assert (spec.num_layers, spec.hidden_size, spec.kv_heads) == (32, 4096, 32)
    assert read({"model_type": "qwen3_vl_moe", "text_config": {}}).num_layers == 24
    assert read({"model_type": "qwen2_5_vl", "text_config": {}}).num_layers == 80


def test_text_models_alone():
    text = {"model_type": "qwen3_vl_text", "vocab_size": 151936, **QWEN3_VL["text_config"]}
    spec = read({**text, "tie_word_embeddings": True})
    whole = read(QWEN3_VL)
    assert spec.params == whole.params - sum(t.elements for t in whole.beside)


def test_qwen3_vl_moe_knows_no_windows():
    text = {**QWEN3_VL_MOE["text_config"], "use_sliding_window": True, "sliding_window": 64}
    assert held(read({**QWEN3_VL_MOE, "text_config": text}), 1000) == 1000 * 48 * 2048


def test_mergers_count_with_their_number():
    none = {**QWEN3_VL["vision_config"], "deepstack_visual_indexes": []}
    merger = 2 * 4096 + 4096 * 4096 + 4096 + 2048 * 4096 + 2048
    fewer = read({**QWEN3_VL, "vision_config": none})
    assert read(QWEN3_VL).params - fewer.params == 3 * merger


def test_glm_45v():
    # Shape keys of zai-org/GLM-4.5V
    config = {
        "model_type": "glm4v_moe",
        "text_config": {"head_dim": 128, "vocab_size": 151552, "use_qk_norm": False},
        "vision_config": {"intermediate_size": 10944},
    }
    spec = read(config)
    tower = sum(t.elements for t in spec.beside)
    assert spec.params - tower == 106_852_245_504  # GLM-4.5-Air's decoder
    assert held(spec, 1) == 46 * 4096
    assert spec.mtp == ()


def test_minimax_m3_reads_blocks_and_keeps_an_index_key_in_the_caches_width():
    kinds = [kind for kind, _ in read(MINIMAX_M3).stores]
    whole, picked = (k for k in kinds if isinstance(k, FullAttention))
    assert (whole.sparse_read, picked.sparse_read) == (None, 16 * 128)
    index = next(k for k in kinds if isinstance(k, Indexer))
    assert index.entry_bytes(BF16) == 256
    assert index.entry_bytes(CACHE_DTYPES["fp8"]) == 128


def test_minimax_m3_options():
    off = {**MINIMAX_M3["sparse_attention_config"], "use_sparse_attention": False}
    assert held(read({**MINIMAX_M3, "sparse_attention_config": off}), 1) == 60 * 2048
    named = ["full_attention"] * 50 + ["minimax_m3_sparse"] * 10
    assert held(read({**MINIMAX_M3, "layer_types": named}), 1) == 60 * 2048 + 10 * 256
    seeing = read({**MINIMAX_M3, "vision_config": {}})
    assert seeing.params - sum(t.elements for t in seeing.beside) == read(MINIMAX_M3).params


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**QWEN3_VL, "text_config": {"num_hidden_layers": -1}}, "text_config.num_hidden_layers"),
        ({**QWEN3_VL, "vision_config": {"depth": "24"}}, "vision_config.depth"),
        (
            {**QWEN3_VL, "vision_config": {"deepstack_visual_indexes": 3}},
            "vision_config.deepstack_visual_indexes",
        ),
        ({**QWEN2_VL, "vision_config": {"patch_size": [14, "a"]}}, "vision_config.patch_size"),
        ({**QWEN2_VL, "vision_config": 7}, "vision_config"),
        ({**KIMI, "vision_config": {"merge_kernel_size": 2}}, "vision_config.merge_kernel_size"),
        ({**KIMI, "text_config": {"n_routed_experts": "many"}}, "text_config.n_routed_experts"),
        (
            {**MINIMAX_M3, "sparse_attention_config": {"sparse_attention_freq": [1]}},
            "sparse_attention_config.sparse_attention_freq",
        ),
        (
            {**MINIMAX_M3, "sparse_attention_config": {"sparse_index_dim": 0}},
            "sparse_attention_config.sparse_index_dim",
        ),
        ({**MINIMAX_M3, "moe_layer_freq": [2] * 60}, "moe_layer_freq"),
    ],
)
def test_bad_input_names_its_key(config, field):
    with pytest.raises(KvroomError) as error:
        read(config)
    assert error.value.field == field
