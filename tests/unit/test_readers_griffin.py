"""RecurrentGemma and LFM2. Golden figures as in test_readers_state_space."""

from __future__ import annotations

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read
from kvroom.models.kinds import ConvState, SlidingWindow
from kvroom.models.spec import ModelSpec

GRIFFIN = {  # google/recurrentgemma-9b
    "model_type": "recurrent_gemma",
    "hidden_size": 4096,
    "intermediate_size": 24576,
    "num_attention_heads": 16,
    "num_hidden_layers": 38,
    "num_key_value_heads": 1,
    "vocab_size": 256000,
}
LFM2 = {  # LiquidAI/LFM2-1.2B
    "model_type": "lfm2",
    "block_dim": 2048,
    "block_ff_dim": 12288,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "vocab_size": 65536,
}
SPARSE = {
    "model_type": "lfm2_moe",
    "hidden_size": 64,
    "intermediate_size": 96,
    "layer_types": ["conv", "conv", "full_attention", "conv"],
    "moe_intermediate_size": 20,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def bytes_at(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * n for kind, n in spec.stores)


def test_recurrentgemma() -> None:
    spec = read(GRIFFIN)
    assert spec.params == 8_579_977_216
    assert spec.tied
    state = 26 * (4096 * 4 + 4096 * 3 * 2)  # fp32 state, bf16 convolution
    window = 12 * 2 * 256 * 2
    assert bytes_at(spec, 1) == state + window
    assert bytes_at(spec, 131_072) == state + window * 2048
    assert [run.count for run in spec.layers] == [2, 1] * 12 + [2]


def test_the_window_is_the_configs() -> None:
    kinds = [kind for kind, _ in read({**GRIFFIN, "attention_window_size": 100}).stores]
    assert [k.window for k in kinds if isinstance(k, SlidingWindow)] == [100]


def test_lfm2_keeps_two_columns_in_convolution_layers() -> None:
    spec = read(LFM2)
    assert spec.params == 1_170_340_608
    assert bytes_at(spec, 8192) == 100_745_216
    assert ConvState(channels=((2048, 1),), columns=2) in dict(spec.stores)


@pytest.mark.parametrize(
    ("change", "inner"),
    [
        ({}, 8192),
        ({"block_auto_adjust_ff_dim": False}, 12288),
        ({"block_ffn_dim_multiplier": 1.3}, 10752),
        ({"block_ffn_dim_multiplier": None, "block_ff_dim": 100}, 66),
        ({"block_multiple_of": 1000}, 9000),
        ({"block_ff_dim": None, "intermediate_size": 3000}, 2048),
    ],
)
def test_lfm2_rounds_its_feed_forward_width(change: dict[str, object], inner: int) -> None:
    spec = read({**LFM2, **change})
    rows = {t.name: t.rows for t in spec.layers[0].layer.tensors}
    assert rows["feed_forward.w1"] == inner


def test_lfm2_attends_everywhere_where_nothing_says_otherwise() -> None:
    spec = read({**LFM2, "full_attn_idxs": None})
    assert [kind.kind for kind, _ in spec.stores] == ["full"]


def test_tie_embedding_is_lfm2s_own_word() -> None:
    assert read(LFM2).tied
    assert not read({**LFM2, "tie_embedding": False}).tied


def test_lfm2_moe_starts_dense() -> None:
    spec = read(SPARSE)
    sparse = [any(t.part == "expert" for t in layer.tensors) for layer in spec.each_layer()]
    assert sparse == [False, False, True, True]
    assert spec.params - spec.active_params == 2 * 3 * 64 * 20 * 4  # four of eight experts idle


@pytest.mark.parametrize(
    ("config", "change", "field"),
    [
        (GRIFFIN, {"lru_width": 4100}, "lru_width"),
        (GRIFFIN, {"block_types": []}, "block_types"),
        (GRIFFIN, {"block_types": ["mamba"]}, "block_types"),
        (GRIFFIN, {"conv1d_width": 0}, "conv1d_width"),
        (LFM2, {"full_attn_idxs": [16]}, "full_attn_idxs"),
        (LFM2, {"full_attn_idxs": 3}, "full_attn_idxs"),
        (LFM2, {"block_ffn_dim_multiplier": "big"}, "block_ffn_dim_multiplier"),
        (LFM2, {"num_key_value_heads": 3}, "num_key_value_heads"),
        (SPARSE, {"layer_types": ["conv"]}, "layer_types"),
        (SPARSE, {"num_experts_per_tok": 9}, "num_experts_per_tok"),
    ],
)
def test_bad_input_names_its_key(
    config: dict[str, object], change: dict[str, object], field: str
) -> None:
    with pytest.raises(KvroomError) as caught:
        read({**config, **change})
    assert caught.value.field == field
