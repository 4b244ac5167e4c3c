"""Gated delta networks, Kimi Delta Attention and lightning attention.

Golden figures as in test_readers_state_space; Kimi-K3 has no class, its figures are those of the technical
report (2.78T parameters, 104.2B of them active without the token table) and of the published tensors.
"""

from __future__ import annotations

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read
from kvroom.models.kinds import ConvState, Latent, RecurrentState
from kvroom.models.spec import ModelSpec

NEXT = {  # Qwen/Qwen3-Next-80B-A3B-Instruct
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_hidden_layers": 48,
    "vocab_size": 151936,
}
QWEN_TEXT = {  # Qwen/Qwen3.5-35B-A3B
    "hidden_size": 2048,
    "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_hidden_layers": 40,
    "vocab_size": 248320,
}
QWEN = {
    "model_type": "qwen3_5_moe",
    "text_config": QWEN_TEXT,
    "vision_config": {"out_hidden_size": 2048},
}
DENSE = {  # Qwen/Qwen3.5-9B, all of it its class's own
    "model_type": "qwen3_5",
    "text_config": {"mamba_ssm_dtype": "float32"},
    "vision_config": {"out_hidden_size": 4096},
}
LINEAR = {  # moonshotai/Kimi-Linear-48B-A3B-Instruct
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27]},
    "num_attention_heads": 32,
    "num_hidden_layers": 27,
    "vocab_size": 163840,
}
K3 = {  # moonshotai/Kimi-K3
    "model_type": "kimi_k3",
    "text_config": {
        "attn_res_block_size": 12,
        "hidden_size": 7168,
        "intermediate_size": 33792,
        "latent_moe_use_norm": True,
        "linear_attn_config": {
            "full_attn_layers": [*range(4, 93, 4), 93],
            "num_heads": 96,
            "use_full_rank_gate": True,
        },
        "mla_use_output_gate": True,
        "moe_intermediate_size": 3072,
        "num_attention_heads": 96,
        "num_experts": 896,
        "num_experts_per_token": 16,
        "num_hidden_layers": 93,
        "num_shared_experts": 2,
        "q_lora_rank": 1536,
        "routed_expert_hidden_size": 3584,
    },
    "vision_config": {"qkv_hidden_size": 1536, "vt_num_attention_heads": 12},
}
MINIMAX = {  # MiniMaxAI/MiniMax-Text-01
    "model_type": "minimax_text_01",
    "attn_type_list": ([0] * 7 + [1]) * 10,
    "head_dim": 128,
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "vocab_size": 200064,
}
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
}
OLMO = {"model_type": "olmo_hybrid", **SMALL}
LING = {
    "model_type": "bailing_hybrid",
    **SMALL,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 8,
    "v_head_dim": 10,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 20,
}


def bytes_at(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * n for kind, n in spec.stores)


@pytest.mark.parametrize(
    ("config", "params", "active", "per_token", "state"),
    [
        (NEXT, 79_674_391_296, 3_874_929_408, 24_576, 39_518_208),
        (QWEN, 35_107_181_936, 3_454_988_928, 20_480, 64_389_120),
        (DENSE, 9_409_813_744, 8_953_803_264, 32_768, 51_511_296),
        (LINEAR, 49_122_675_072, 3_484_453_248, 8_064, 43_417_600),
        (K3, 2_779_931_752_544, 105_363_935_328, 27_648, 449_372_160),
        (MINIMAX, 456_089_655_296, 48_403_306_496, 40_960, 146_800_640),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else str(v),
)
def test_published_models(
    config: dict[str, object], params: int, active: int, per_token: int, state: int
) -> None:
    spec = read(config)
    assert spec.params == params
    assert spec.active_params == active
    for tokens in (1, 1024, 131_072):
        assert bytes_at(spec, tokens) == per_token * tokens + state


def test_a_delta_layer_keeps_a_matrix_for_each_value_head() -> None:
    state, conv = read(NEXT).layers[0].layer.stores
    assert state == RecurrentState(heads=32, head_elements=128 * 128, form="gdn")
    assert conv == ConvState(channels=((16, 128), (16, 128), (32, 128)), columns=3)
    assert conv.on_rank(8) == ConvState(channels=((2, 128), (2, 128), (4, 128)), columns=3)


def test_every_fourth_layer_attends_in_full() -> None:
    assert [run.count for run in read(NEXT).layers] == [3, 1] * 12
    other = read({**NEXT, "full_attention_interval": 6})
    assert [run.count for run in other.layers] == [5, 1] * 8


def test_dense_layers_of_qwen3_next() -> None:
    spec = read({**NEXT, "mlp_only_layers": [1], "decoder_sparse_step": 2})
    sparse = [any(t.part == "expert" for t in layer.tensors) for layer in spec.each_layer()]
    assert sparse == [i % 2 == 1 and i != 1 for i in range(48)]
    none = read({**NEXT, "num_experts": 0})
    assert not any(t.part == "expert" for run in none.layers for t in run.layer.tensors)


def test_the_query_projection_also_makes_the_output_gate() -> None:
    full = read(NEXT).layers[1].layer
    rows = {t.name: t.rows for t in full.tensors}
    assert rows["self_attn.q_proj"] == 2 * 16 * 256
    assert rows["self_attn.k_proj"] == 2 * 256


def test_a_text_model_is_its_decoder_alone() -> None:
    text = read({"model_type": "qwen3_5_moe_text", **QWEN_TEXT})
    whole = read(QWEN)
    assert text.params == whole.params - sum(t.elements for t in whole.beside)
    assert text.layers == whole.layers
    assert (text.layer_names, whole.layer_names) == (
        "model.layers",
        "model.language_model.layers",
    )


def test_a_prediction_layer_is_full_attention_with_experts() -> None:
    spec = read(QWEN)
    assert spec.mtp_params == 844_640_768
    assert [kind.kind for kind in spec.mtp[0].layer.stores] == ["full"]


def test_kda_layers_are_counted_from_one() -> None:
    kinds = [layer.stores[0].kind for layer in read(LINEAR).each_layer()]
    assert [i for i, kind in enumerate(kinds) if kind == "latent"] == [3, 7, 11, 15, 19, 23, 26]
    assert not any(t.part == "expert" for t in read(LINEAR).layers[0].layer.tensors)


def test_kda_is_cut_at_heads_and_the_latent_is_not() -> None:
    stores = [kind.on_rank(8) for kind, _ in read(LINEAR).stores]
    assert [kind.entry_bytes(BF16) for kind in stores] == [
        32 // 8 * 128 * 128 * 4,
        3 * 32 // 8 * 128 * 3 * 2,
        (512 + 64) * 2,
    ]
    assert isinstance(stores[2], Latent)


def test_the_parts_of_kimi_k3_weigh_what_is_published() -> None:
    spec = read(K3)
    layers = list(spec.each_layer())

    def gigabytes(layer: int, *names: str) -> float:
        return 2 * sum(t.elements for t in layers[layer].tensors if t.name in names) / 1e9

    def gemms(layer: int) -> float:
        tensors = layers[layer].tensors
        mixing = [t for t in tensors if t.name.startswith("self_attn.") and t.is_matrix]
        return 2 * sum(t.elements for t in mixing) / 1e9

    assert round(69 * gemms(0), 3) == 61.214
    assert round(24 * gemms(3), 3) == 11.145
    shared = [f"block_sparse_moe.shared_experts.{m}_proj" for m in ("gate", "up", "down")]
    assert round(92 * gigabytes(1, *shared), 3) == 24.310
    assert round(gigabytes(0, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), 3) == 1.453
    experts = sum(t.elements for t in layers[1].tensors if t.part == "expert")
    assert (
        round(92 * experts * 17 / 32 / 1e9, 3) == 1446.456
    )  # MXFP4: 4 bits and a scale byte for 32


def test_minimax_in_words_is_minimax_in_numbers() -> None:
    words = {k: v for k, v in MINIMAX.items() if k != "attn_type_list"}
    words |= {
        "model_type": "minimax",
        "layer_types": (["linear_attention"] * 7 + ["full_attention"]) * 10,
    }
    assert read(words).layers == read(MINIMAX).layers


def test_lightning_attention_has_no_convolution() -> None:
    assert read(MINIMAX).layers[0].layer.stores == (
        RecurrentState(heads=64, head_elements=128 * 128, form="lightning"),
    )


def test_a_shared_block_beside_minimax_experts() -> None:
    more = read({**MINIMAX, "shared_intermediate_size": 1000})
    assert more.params - read(MINIMAX).params == 80 * (3 * 6144 * 1000 + 6144)


def test_olmo_hybrid_derives_its_linear_heads() -> None:
    state = read(OLMO).layers[0].layer.stores[0]
    assert state == RecurrentState(heads=4, head_elements=12 * 24, form="gdn")
    assert [run.count for run in read(OLMO).layers] == [3, 1, 2]
    assert read({**OLMO, "num_hidden_layers": 2}).layers[1].layer.stores[0].kind == "full"


def test_ling_gates_latent_attention_with_one_number_a_head() -> None:
    layers = list(read(LING).each_layer())
    assert [layer.stores[0].kind for layer in layers] == ["state"] * 5 + ["latent"]
    gates = [t.rows for layer in layers for t in layer.tensors if t.name == "self_attn.g_proj"]
    assert gates == [32] * 5 + [4]


@pytest.mark.parametrize(
    ("config", "change", "field"),
    [
        (NEXT, {"linear_num_key_heads": 5}, "linear_num_key_heads"),
        (NEXT, {"layer_types": ["full_attention"] * 47}, "layer_types"),
        (NEXT, {"layer_types": ["mlp"] * 48}, "layer_types"),
        (NEXT, {"num_experts_per_tok": 513}, "num_experts_per_tok"),
        (NEXT, {"hidden_size": None}, "hidden_size"),
        (QWEN, {"text_config": []}, "text_config"),
        (QWEN, {"text_config": {"linear_key_head_dim": 0}}, "text_config.linear_key_head_dim"),
        (QWEN, {"vision_config": {"depth": "deep"}}, "vision_config.depth"),
        (
            LINEAR,
            {"linear_attn_config": {"full_attn_layers": [0]}},
            "linear_attn_config.full_attn_layers",
        ),
        (
            LINEAR,
            {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}},
            "linear_attn_config.kda_layers",
        ),
        (LINEAR, {"num_experts_per_token": 257}, "num_experts_per_token"),
        (LINEAR, {"kv_lora_rank": -1}, "kv_lora_rank"),
        (K3, {"vision_config": {"merge_kernel_size": 2}}, "vision_config.merge_kernel_size"),
        (MINIMAX, {"attn_type_list": [0] * 79}, "attn_type_list"),
        (MINIMAX, {"attn_type_list": [2] * 80}, "attn_type_list"),
        (MINIMAX, {"num_key_value_heads": 7}, "num_key_value_heads"),
        (OLMO, {"linear_num_value_heads": 6}, "linear_num_key_heads"),
        (LING, {"layer_group_size": 0}, "layer_group_size"),
    ],
)
def test_bad_input_names_its_key(
    config: dict[str, object], change: dict[str, object], field: str
) -> None:
    with pytest.raises(KvroomError) as caught:
        read({**config, **change})
    assert caught.value.field == field
