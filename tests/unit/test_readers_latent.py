"""Latent attention and DeepSeek-V4's compressed one: DeepSeek, Kimi K2, GLM-5."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16, CACHE_DTYPES
from kvroom.models.hf import read
from kvroom.models.kinds import Compressed, Indexer, Latent, TiedWindow
from kvroom.models.spec import ModelSpec

# Shape keys of deepseek-ai/DeepSeek-V2-Lite
V2_LITE = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "q_lora_rank": None,
    "vocab_size": 102400,
}
# Shape keys of deepseek-ai/DeepSeek-V3
V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 163840,
}
V32 = {**V3, "model_type": "deepseek_v32"}
# Shape keys of moonshotai/Kimi-K2-Instruct
KIMI = {
    **V3,
    "model_type": "kimi_k2",
    "first_k_dense_replace": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_nextn_predict_layers": 0,
    "vocab_size": 163840,
}
# Shape keys of zai-org/GLM-5
GLM5 = {
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "vocab_size": 154880,
    "head_dim": 64,
}
# GLM-5.2 lets the first three and then every fourth layer run the indexer
GLM52 = {**GLM5, "index_topk_freq": 4, "index_skip_topk_offset": 3}
# Shape keys of deepseek-ai/DeepSeek-V4-Flash
V4 = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
}


def held(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * count for kind, count in spec.stores)


@pytest.mark.parametrize(
    ("config", "params", "active", "bytes_at_8192"),
    [
        # params: totals of the published files without prediction layers and routing biases
        (V2_LITE, 15_706_484_224, 15_706_484_224 - 26 * 58 * 3 * 2048 * 1408, 27 * 576 * 2 * 8192),
        (V3, 671_026_404_352, 37_552_282_624, 61 * 576 * 2 * 8192),
        (V32, 671_877_929_216, 38_403_807_488, 61 * (1152 + 132) * 8192),
        (KIMI, 1_026_408_209_408, 1_026_408_209_408 - 60 * 376 * 3 * 7168 * 2048, 61 * 1152 * 8192),
        (GLM5, 743_911_199_232, 41_784_709_632, 78 * (1152 + 132) * 8192),
        (GLM52, 743_377_000_704, 41_250_511_104, (78 * 1152 + 21 * 132) * 8192),
        (V4, 284_332_230_231, 13_799_622_231, 56_664_064),
    ],
    ids=["v2-lite", "v3", "v3.2", "kimi-k2", "glm-5", "glm-5.2", "v4-flash"],
)
def test_published_configs(config, params, active, bytes_at_8192):
    spec = read(config)
    assert spec.params == params
    assert spec.active_params == active
    assert held(spec, 8192) == bytes_at_8192


def test_the_latent_is_whole_on_every_rank():
    (kind, _count), *_ = read(V3).stores
    assert kind.stored_bytes(100, BF16) == kind.on_rank(8).stored_bytes(100, BF16)
    assert (read(V3).q_heads, read(V3).kv_heads) == (128, 1)


def test_down_projections_are_replicated_and_up_projections_cut_at_heads():
    split = {t.name: (t.split, t.units) for t in read(V3).layers[0].layer.tensors}
    assert split["self_attn.q_a_proj"][0] == "replicated"
    assert split["self_attn.kv_a_proj_with_mqa"][0] == "replicated"
    assert split["self_attn.q_b_proj"] == ("column", 128)
    assert split["self_attn.o_proj"] == ("row", 128)


def test_a_null_query_rank_means_none_and_an_absent_one_the_default():
    names = {t.name for t in read(V2_LITE).layers[0].layer.tensors}
    assert "self_attn.q_proj" in names
    absent = {k: v for k, v in V2_LITE.items() if k != "q_lora_rank"}
    assert "self_attn.q_a_proj" in {t.name for t in read(absent).layers[0].layer.tensors}


def test_sparse_attention_stores_all_and_reads_topk():
    latent = next(kind for kind, _ in read(V32).stores if isinstance(kind, Latent))
    assert latent.stored_bytes(100_000, BF16) == 1152 * 100_000
    assert latent.read_bytes(100_000, BF16) == 1152 * 2048
    index = next(kind for kind, _ in read(V32).stores if isinstance(kind, Indexer))
    assert index.read_bytes(100_000, BF16) == 132 * 100_000
    assert index.entry_bytes(CACHE_DTYPES["fp8"]) == 132  # FP8 with scales whatever the cache is


@pytest.mark.parametrize(
    "said",
    [
        {"indexer_types": ["full"] * 3 + ["shared", "shared", "shared", "full"] * 19},
        {"index_topk_pattern": "FFF" + "SSSF" * 19},
        {"index_topk_freq": 4, "index_skip_topk_offset": 3},
    ],
)
def test_shared_layers_have_no_indexer_but_read_sparsely(said):
    spec = read({**GLM5, "num_hidden_layers": 79, **said})
    assert sum(n for kind, n in spec.stores if isinstance(kind, Indexer)) == 22
    assert {kind.sparse_read for kind, _ in spec.stores if isinstance(kind, Latent)} == {2048}


def test_prediction_layers_are_beside_the_parameters():
    spec = read(V3)
    layer = spec.layers[-1].layer.params
    assert spec.mtp_params == layer + 2 * 7168 * 7168 + 3 * 7168
    assert read({**V3, "num_nextn_predict_layers": 0}).params == spec.params
    assert read(KIMI).mtp == ()


def test_mlp_layer_types_win_over_the_count_of_dense_layers():
    kinds = ["sparse"] + ["dense"] * 60
    sparse = [
        any(t.part == "expert" for t in layer.tensors)
        for layer in read({**V3, "intermediate_size": 64, "mlp_layer_types": kinds}).each_layer()
    ]
    assert sparse == [True] + [False] * 60


def test_glm_flash():
    config = {
        "model_type": "glm4_moe_lite",
        "hidden_size": 2048,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "vocab_size": 154880,
    }
    spec = read(config)
    assert spec.params == 29_943_390_976  # GLM-4.7-Flash, sold as 30B-A3B
    assert held(spec, 1) == 47 * 1152


def test_v4_layers():
    kinds = dict(read(V4).stores)
    near = next(k for k in kinds if isinstance(k, TiedWindow))
    assert kinds[near] == 43
    assert near.stored_bytes(10_000, BF16) == 128 * 512 * 2  # one vector is key and value
    picked, whole = sorted((k for k in kinds if isinstance(k, Compressed)), key=lambda k: k.ratio)
    assert (kinds[picked], kinds[whole]) == (21, 20)
    assert picked.read_bytes(100_000, BF16) == 512 * 1024
    assert whole.read_bytes(100_000, BF16) == 100_000 // 128 * 1024
    index = next(k for k in kinds if isinstance(k, Indexer))
    assert index.stored_bytes(10_000, BF16) == 2500 * 132


def test_v4_layers_by_name():
    named = {0: "sliding_attention", 4: "compressed_sparse_attention"}
    types = [named.get(r, "heavily_compressed_attention") for r in V4["compress_ratios"]]
    by_name = read({**V4, "compress_ratios": None, "layer_types": types})
    assert by_name.layers == read(V4).layers
    slower = read({**V4, "compress_ratios": None, "layer_types": types, "compress_rate_hca": 256})
    assert held(slower, 8192) < held(by_name, 8192)
    assert read({**V4, "model_type": "deepseek_ref"}).params == read(V4).params


def test_v4_default_pattern_is_pros():
    spec = read({**V4, "num_hidden_layers": 5, "compress_ratios": None})
    ratios = [k.ratio for layer in spec.each_layer() for k in layer.stores[1:2]]
    assert ratios == [128, 128, 128, 4, 128]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**V3, "num_key_value_heads": 3}, "num_key_value_heads"),
        ({**V3, "kv_lora_rank": 0}, "kv_lora_rank"),
        ({**V3, "qk_rope_head_dim": "64"}, "qk_rope_head_dim"),
        ({**V3, "n_shared_experts": 1.5}, "n_shared_experts"),
        ({**V3, "mlp_layer_types": ["dense"] * 60}, "mlp_layer_types"),
        ({**V3, "num_experts_per_tok": 300}, "num_experts_per_tok"),
        ({**V32, "index_topk": 0}, "index_topk"),
        ({**GLM5, "indexer_types": ["full"] * 77}, "indexer_types"),
        ({**GLM5, "indexer_types": ["half"] * 78}, "indexer_types"),
        ({**GLM5, "index_topk_pattern": "FX" * 39}, "index_topk_pattern"),
        ({**GLM5, "index_topk_pattern": 5}, "index_topk_pattern"),
        ({**V4, "compress_ratios": [0] * 42}, "compress_ratios"),
        ({**V4, "compress_ratios": [-4] * 44}, "compress_ratios"),
        ({**V4, "o_groups": 7}, "o_groups"),
        ({**V4, "layer_types": ["full_attention"] * 43}, "layer_types"),
        ({**V4, "layer_types": ["sliding_attention"] * 43, "compress_rates": 4}, "compress_rates"),
    ],
)
def test_bad_input_names_its_key(config, field):
    with pytest.raises(KvroomError) as error:
        read(config)
    assert error.value.field == field
