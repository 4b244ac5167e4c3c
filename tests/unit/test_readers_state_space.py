"""Mamba, its hybrids with attention, Zamba and Nemotron-H.

Golden figures are those of the published configs named beside them, whose parameter counts are also what
transformers' classes build; cache bytes follow from the shapes.
"""

from __future__ import annotations

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16, FP32
from kvroom.models.hf import read
from kvroom.models.kinds import ConvState, FullAttention, RecurrentState
from kvroom.models.spec import ModelSpec

MAMBA = {  # state-spaces/mamba-2.8b-hf
    "model_type": "mamba",
    "hidden_size": 2560,
    "num_hidden_layers": 64,
    "vocab_size": 50280,
}
CODESTRAL = {  # mistralai/Mamba-Codestral-7B-v0.1
    "model_type": "mamba2",
    "hidden_size": 4096,
    "num_hidden_layers": 64,
    "vocab_size": 32768,
}
JAMBA = {  # ai21labs/Jamba-v0.1
    "model_type": "jamba",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 65536,
}
FALCON_H1 = {  # tiiuae/Falcon-H1-34B-Instruct
    "model_type": "falcon_h1",
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 21504,
    "mamba_d_head": 128,
    "mamba_d_ssm": 4096,
    "mamba_n_groups": 2,
    "mamba_n_heads": 32,
    "num_attention_heads": 20,
    "num_hidden_layers": 72,
    "num_key_value_heads": 4,
    "vocab_size": 261120,
}
ZAMBA2 = {  # Zyphra/Zamba2-1.2B
    "model_type": "zamba2",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "layers_block_type": (["mamba"] * 5 + ["hybrid"]) * 6 + ["mamba"] * 2,
    "n_mamba_heads": 64,
    "num_attention_heads": 32,
    "num_hidden_layers": 38,
    "use_shared_attention_adapter": True,
    "vocab_size": 32000,
}
NANO = {  # nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba_num_heads": 64,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "vocab_size": 131072,
}
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
}
BAMBA = {"model_type": "bamba", **SMALL, "mamba_n_heads": 8, "attn_layer_indices": [1, 4]}
GRANITE = {
    "model_type": "granitemoehybrid",
    **SMALL,
    "mamba_n_heads": 8,
    "layer_types": ["mamba", "attention"] * 3,
}


def bytes_at(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * n for kind, n in spec.stores)


def growth(spec: ModelSpec) -> int:
    return int(sum(kind.growth(BF16) * n for kind, n in spec.stores))


@pytest.mark.parametrize(
    ("config", "params", "per_token", "state"),
    [
        (MAMBA, 2_768_345_600, 0, 12_451_840),
        (CODESTRAL, 7_285_403_648, 0, 138_149_888),
        (JAMBA, 51_570_323_328, 16_384, 8_716_288),
        (FALCON_H1, 33_642_221_312, 147_456, 153_206_784),
        (ZAMBA2, 1_205_078_912, 98_304, 20_886_016),
        (NANO, 31_577_937_344, 6_144, 49_082_368),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else str(v),
)
def test_published_models(
    config: dict[str, object], params: int, per_token: int, state: int
) -> None:
    spec = read(config)
    assert spec.params == params
    assert growth(spec) == per_token
    for tokens in (1, 1024, 131_072):
        assert bytes_at(spec, tokens) == per_token * tokens + state


def test_active_parameters_leave_out_idle_experts() -> None:
    assert read(NANO).active_params == 3_580_073_408
    assert read(JAMBA).active_params == 12_110_311_296


def test_a_mamba_layer_keeps_state_and_the_last_inputs_of_its_convolution() -> None:
    (run,) = read(MAMBA).layers
    assert run.layer.stores == (
        RecurrentState(heads=5120, head_elements=16, form="mamba1"),
        ConvState(channels=((5120, 1),), columns=3),
    )


def test_mamba2_groups_are_replicated_where_ranks_outnumber_them() -> None:
    (run,) = read(CODESTRAL).layers
    state, conv = (kind.on_rank(16) for kind in run.layer.stores)
    assert state == RecurrentState(heads=8, head_elements=64 * 128, form="mamba2")
    assert conv == ConvState(channels=((8, 64), (1, 128), (1, 128)), columns=3)


def test_in_proj_rows_of_groups_are_cut_at_groups() -> None:
    (run,) = read(CODESTRAL).layers
    rows = {(t.split, t.units): t.rows for t in run.layer.tensors if t.name == "mixer.in_proj"}
    assert rows == {("column", 128): 2 * 8192 + 128, ("kv", 8): 2 * 8 * 128}


@pytest.mark.parametrize("key", ["mamba_ssm_cache_dtype", "mamba_ssm_dtype"])
def test_the_config_may_ask_for_a_wider_state(key: str) -> None:
    (run,) = read({**CODESTRAL, key: "float32"}).layers
    assert run.layer.stores[0].entry_bytes(BF16) == 4 * 128 * 64 * 128


def test_nemotron_h_keeps_its_state_in_fp32_unless_told_otherwise() -> None:
    assert FP32 in {getattr(kind, "dtype", None) for kind, _ in read(NANO).stores}
    told = read({**NANO, "mamba_ssm_cache_dtype": "bfloat16"})
    assert bytes_at(read(NANO), 1) - bytes_at(told, 1) == 2 * 23 * 64 * 64 * 128


def test_every_falcon_h1_layer_keeps_both_caches() -> None:
    (run,) = read(FALCON_H1).layers
    assert [kind.kind for kind in run.layer.stores] == ["full", "state", "conv"]


def test_jamba_alternates_by_periods() -> None:
    kinds = [
        "full" if layer.stores[0].kind == "full" else "state" for layer in read(JAMBA).each_layer()
    ]
    assert [i for i, kind in enumerate(kinds) if kind == "full"] == [4, 12, 20, 28]


def test_a_shared_block_weighs_once_and_keeps_a_cache_at_each_use() -> None:
    spec = read(ZAMBA2)
    uses = [layer for layer in spec.each_layer() if layer.stores[0].kind == "full"]
    assert len(uses) == 6
    names = [{t.name for t in layer.tensors} for layer in uses]
    at = "shared_transformer.self_attn.q_proj"
    assert [at in n for n in names] == [True] + [False] * 5
    assert spec.warnings


def test_two_shared_blocks_weigh_twice() -> None:
    base = {"model_type": "zamba2", **SMALL, "layers_block_type": ["mamba", "hybrid"] * 3}
    one, two = read(base), read({**base, "num_mem_blocks": 2})
    norms, q, k, v, o, mlp = 128 + 64, 128 * 128, 64 * 128, 64 * 128, 64 * 128, 3 * 64 * 96
    assert two.params - one.params == norms + q + k + v + o + mlp


def test_zamba_patterns_repeat_after_three_layers() -> None:
    spec = read({"model_type": "zamba", **SMALL, "num_hidden_layers": 12})
    held = [layer.stores[0].kind for layer in spec.each_layer()]
    assert [i for i, kind in enumerate(held) if kind == "full"] == [2, 7]


def test_bamba_attends_where_told() -> None:
    held = [layer.stores[0].kind for layer in read(BAMBA).each_layer()]
    assert held == ["state", "full", "state", "state", "full", "state"]


def test_granite_without_experts_is_dense() -> None:
    spec = read({**GRANITE, "num_local_experts": 0})
    assert spec.active_params == spec.params
    assert {t.part for run in spec.layers for t in run.layer.tensors}.isdisjoint(
        {"expert", "router"}
    )


def test_granite_names_one_matrix_for_gate_and_up() -> None:
    found = [
        t
        for t in read(GRANITE).layers[0].layer.tensors
        if t.name == "block_sparse_moe.input_linear"
    ]
    assert [(t.rows, t.columns, t.count, t.active) for t in found] == [(96, 64, 8, 2)] * 2


def test_nemotron_in_words_is_nemotron_in_letters() -> None:
    words = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    pattern = "M*-E"
    letters = {**NANO, "hybrid_override_pattern": pattern, "num_hidden_layers": 4}
    spelled = {k: v for k, v in letters.items() if k != "hybrid_override_pattern"}
    spelled["layers_block_type"] = [words[letter] for letter in pattern]
    assert read(letters).layers == read(spelled).layers


def test_a_latent_space_narrows_the_experts_only() -> None:
    wide, narrow = read(NANO), read({**NANO, "moe_latent_size": 1024})
    experts = 2 * 128 * 1856 * (2688 - 1024)
    assert wide.params - narrow.params == 23 * (experts - 2 * 2688 * 1024)


def test_prediction_layers_stay_out_of_params() -> None:
    spec = read({**NANO, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"})
    assert spec.params == read(NANO).params
    assert spec.mtp_params == 1_335_325_824
    assert [run.layer.stores for run in spec.mtp][1] == ()
    assert isinstance(spec.mtp[0].layer.stores[0], FullAttention)


def test_ties_follow_the_class() -> None:
    assert read(MAMBA).tied
    assert not read(CODESTRAL).tied
    assert not read({**NANO, "tie_word_embeddings": True}).tied


@pytest.mark.parametrize(
    ("config", "change", "field"),
    [
        (MAMBA, {"hidden_size": "wide"}, "hidden_size"),
        (MAMBA, {"num_hidden_layers": None}, "num_hidden_layers"),
        (MAMBA, {"time_step_rank": -1}, "time_step_rank"),
        (MAMBA, {"mamba_ssm_dtype": "float33"}, "mamba_ssm_dtype"),
        (MAMBA, {"mamba_ssm_dtype": 32}, "mamba_ssm_dtype"),
        (CODESTRAL, {"num_heads": 96}, "num_heads"),
        (JAMBA, {"num_key_value_heads": 5}, "num_key_value_heads"),
        (JAMBA, {"attn_layer_offset": 8}, "attn_layer_offset"),
        (JAMBA, {"num_experts_per_tok": 17}, "num_experts_per_tok"),
        (BAMBA, {"attn_layer_indices": [6]}, "attn_layer_indices"),
        (GRANITE, {"mamba_n_heads": 7}, "mamba_n_heads"),
        (GRANITE, {"mamba_d_head": 17}, "mamba_d_head"),
        (GRANITE, {"layer_types": ["mamba"] * 5}, "layer_types"),
        (GRANITE, {"layer_types": ["mamba"] * 5 + ["lstm"]}, "layer_types"),
        (GRANITE, {"layer_types": [["mamba"]] * 6}, "layer_types"),
        (FALCON_H1, {"mamba_n_heads": 0}, "mamba_n_heads"),
        (ZAMBA2, {"layers_block_type": ["mamba"] * 37}, "layers_block_type"),
        (ZAMBA2, {"layers_block_type": None}, "layers_block_type"),
        (ZAMBA2, {"num_mem_blocks": 0}, "num_mem_blocks"),
        (NANO, {"hybrid_override_pattern": "ME"}, "hybrid_override_pattern"),
        (NANO, {"hybrid_override_pattern": "X" * 52}, "hybrid_override_pattern"),
        (NANO, {"hybrid_override_pattern": 7}, "hybrid_override_pattern"),
    ],
)
def test_bad_input_names_its_key(
    config: dict[str, object], change: dict[str, object], field: str
) -> None:
    with pytest.raises(KvroomError) as caught:
        read({**config, **change})
    assert caught.value.field == field
