"""Gemma: windows, shared caches, embeddings for each layer, and what nested configs leave out."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read
from kvroom.models.kinds import SharedCache

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "vocab_size": 512,
}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
# google/gemma-3-4b-it: the text level leaves out heads, KV heads, head width and vocabulary
GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": SIGLIP,
}
GEMMA_2_2B = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 256000,
}
GEMMA_3N_E4B = {
    "model_type": "gemma3n_text",
    "hidden_size": 2048,
    "intermediate_size": [16384] * 35,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "vocab_size": 262400,
}
# google/gemma-4-26B-A4B, the text level
GEMMA_4_26B = {
    "model_type": "gemma4_text",
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 2,
    "hidden_size_per_layer_input": 0,
    "sliding_window": 1024,
    "enable_moe_block": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
    "vocab_size": 262144,
}


def stored(spec, tokens):
    return sum(kind.stored_bytes(tokens, BF16) * n for kind, n in spec.stores)


def test_gemma_3_takes_what_is_left_out_from_its_class():
    spec = read(GEMMA_3_4B)
    assert spec.params == 4_300_079_472
    assert spec.max_context_tokens == 131_072  # its linear scaling is included already
    window, full = spec.stores
    assert (window[0].kind, window[0].window, window[1]) == ("window", 1024, 29)
    assert (full[0].kind, full[0].kv_heads, full[0].k_dim, full[1]) == ("full", 4, 256, 5)
    assert stored(spec, 1) == 34 * 2 * 4 * 256 * 2
    towers = sum(t.elements for t in spec.beside)
    assert spec.active_params == spec.params - towers
    assert towers == 416_866_032 + 1152 * 2560 + 1152  # SigLIP 400M and the projector


def test_gemma_3_without_a_tower_says_so():
    alone = {k: v for k, v in GEMMA_3_4B.items() if k != "vision_config"}
    spec = read(alone)
    assert spec.beside == ()
    assert any("vision_config" in warning for warning in spec.warnings)


def test_gemma_2_alternates_starting_with_a_window():
    spec = read(GEMMA_2_2B)
    assert spec.params == 2_614_341_888
    assert [layer.stores[0].kind for layer in spec.each_layer()] == ["window", "full"] * 13
    assert stored(spec, 8192) == 13 * (8192 + 4096) * 2 * 4 * 256 * 2


@pytest.mark.parametrize(
    ("keys", "fulls"),
    [
        ({}, [5, 11]),
        ({"sliding_window_pattern": 3}, [2, 5, 8, 11]),
        ({"sliding_window": None}, list(range(12))),
        ({"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 10}, [0, 1]),
    ],
)
def test_gemma_3_pattern(keys, fulls):
    spec = read({"model_type": "gemma3_text", **SMALL, **keys})
    found = [i for i, layer in enumerate(spec.each_layer()) if layer.stores[0].kind == "full"]
    assert found == fulls


def test_a_bidirectional_gemma_is_an_encoder():
    spec = read({"model_type": "gemma3_text", **SMALL, "use_bidirectional_attention": True})
    assert not spec.generates
    assert spec.stores == ()


def test_gemma_3n_last_layers_store_nothing():
    spec = read(GEMMA_3N_E4B)
    assert spec.params == 6_835_235_568
    kinds = [layer.stores[0] for layer in spec.each_layer()]
    assert [isinstance(kind, SharedCache) for kind in kinds] == [False] * 20 + [True] * 15
    assert kinds[20].of == kinds[18]
    assert kinds[24].of == kinds[19]
    assert stored(spec, 8192) == 83_886_080
    assert kinds[34].read_bytes(8192, BF16) == kinds[19].stored_bytes(8192, BF16)


def test_gemma_4_full_layers_have_their_own_heads():
    spec = read(GEMMA_4_26B)
    assert spec.active_params == 3_822_530_560
    window, full = (kind for kind, _ in spec.stores)
    assert (window.kv_heads, window.k_dim) == (8, 256)
    assert (full.kv_heads, full.k_dim) == (2, 512)
    assert stored(spec, 8192) == 377_487_360
    last = list(spec.each_layer())[-1]
    assert "self_attn.v_proj" not in {t.name for t in last.tensors}


def test_gemma_4_shared_tail_may_be_twice_as_wide():
    keys = {"num_kv_shared_layers": 6, "hidden_size_per_layer_input": 16, "global_head_dim": 16}
    one = read({"model_type": "gemma4_text", **SMALL, "head_dim": 8, **keys})
    wide = {"use_double_wide_mlp": True}
    two = read({"model_type": "gemma4_text", **SMALL, "head_dim": 8, **keys, **wide})
    assert two.params - one.params == 6 * 3 * 160 * 64
    assert stored(one, 10) == stored(two, 10) == 10 * 2 * 4 * (5 * 8 + 16) * 2


def test_gemma_4_ends_with_a_full_layer_whatever_the_list_says():
    types = ["full_attention"] + ["sliding_attention"] * 11
    spec = read({"model_type": "gemma4_text", **SMALL, "layer_types": types})
    kinds = [layer.stores[0].kind for layer in spec.each_layer()]
    assert kinds == ["full"] + ["window"] * 10 + ["full"]


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ({**GEMMA_3N_E4B, "num_kv_shared_layers": 35}, "num_kv_shared_layers"),
        ({**GEMMA_3N_E4B, "num_kv_shared_layers": 31}, "num_kv_shared_layers"),
        ({**GEMMA_3N_E4B, "intermediate_size": [16384] * 3}, "intermediate_size"),
        ({**GEMMA_4_26B, "num_global_key_value_heads": 3}, "num_global_key_value_heads"),
        ({**GEMMA_4_26B, "num_experts": None}, "num_experts"),
        ({**GEMMA_4_26B, "top_k_experts": 129}, "top_k_experts"),
        ({"model_type": "gemma3"}, "text_config"),
        ({"model_type": "gemma3", "text_config": []}, "text_config"),
        ({"model_type": "gemma3", "text_config": {"model_type": "t5"}}, "text_config."),
        (
            {"model_type": "gemma3", "text_config": {"num_key_value_heads": 3}},
            "text_config.num_key_value_heads",
        ),
        ({**GEMMA_3_4B, "vision_config": {"model_type": "vjepa"}}, "vision_config.model_type"),
        ({**GEMMA_3_4B, "vision_config": {**SIGLIP, "patch_size": 0}}, "patch_size"),
    ],
)
def test_bad_input_names_its_key(shape, field):
    with pytest.raises(KvroomError) as caught:
        read(shape)
    assert field in caught.value.field
