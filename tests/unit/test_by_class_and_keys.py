"""Models without a reader: by the class that their config names, or by their keys alone."""

from __future__ import annotations

import pytest

from kvroom.errors import KvroomError
from kvroom.models import hf
from kvroom.models.kinds import FullAttention, Indexer, Latent, RecurrentState, SlidingWindow

APERTUS_70B = {
    "model_type": "apertus",
    "architectures": ["ApertusForCausalLM"],
    "hidden_act": "xielu",
    "hidden_size": 8192,
    "intermediate_size": 43008,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 131072,
    "max_position_embeddings": 65536,
}
AFM = {
    "model_type": "arcee",
    "architectures": ["ArceeForCausalLM"],
    "hidden_act": "relu2",
    "hidden_size": 2560,
    "intermediate_size": 18432,
    "num_hidden_layers": 36,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 128004,
}
NEW = {
    "model_type": "sideways",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}


def stores(spec):
    return [s for layer in spec.each_layer() for s in layer.stores]


@pytest.mark.parametrize(
    ("config", "low", "high"),
    [(APERTUS_70B, 70.59e9, 70.61e9), (AFM, 4.61e9, 4.63e9)],
    ids=["Apertus-70B", "AFM-4.5B"],
)
def test_blocks_without_a_gate(config, low, high):
    """Parameters as their publishers state them: 70.60B and 4.62B."""
    assert low < hf.read(config).params < high


def test_a_towers_bytes_lie_beside_a_known_text_model():
    """Voxtral Mini's default: Whisper's encoder and a projector beside a Llama (transformers 5.24)."""
    spec = hf.read({"model_type": "voxtral", "architectures": ["VoxtralForConditionalGeneration"]})
    assert spec.params == 4_676_271_104
    assert sum(t.elements for t in spec.beside) == 662_134_784
    assert spec.num_layers == 30


def test_a_width_that_the_table_does_not_know_is_said():
    from kvroom.models.hf import by_class

    name, entry = next(
        (n, e) for n, e in by_class.table().items() if e["fixed"] and not e["prefix"]
    )
    key, value = next((k, v) for k, v in entry["fixed"].items() if "." not in k)
    config = {"model_type": entry["type"], "architectures": [name], key: 2 * value}
    assert any(key in w and name in w for w in hf.read(config).warnings)


def test_the_class_tells_ling_2_5_from_ling_3():
    """Between its latent layers Ling 2.5 has lightning attention, Ling 3 KDA and a convolution."""
    config = {
        "model_type": "bailing_hybrid",
        "hidden_size": 1024,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "head_dim": 128,
        "vocab_size": 1000,
    }
    forms = {
        name: {
            s.form
            for s in stores(hf.read({**config, "architectures": [name]}))
            if isinstance(s, RecurrentState)
        }
        for name in ("BailingMoeV2_5ForCausalLM", "BailingHybridForCausalLM")
    }
    assert forms == {
        "BailingMoeV2_5ForCausalLM": {"lightning"},
        "BailingHybridForCausalLM": {"kda"},
    }


def test_a_re_saved_config_ties_as_its_outermost_level_says():
    text = {
        **{k: v for k, v in NEW.items() if k != "model_type"},
        "model_type": "qwen2",
        "tie_word_embeddings": True,
    }
    outer = {"model_type": "llava_onevision", "text_config": text, "tie_word_embeddings": False}
    assert hf.read(outer).tied
    assert not hf.read({**outer, "transformers_version": "5.2.0"}).tied


def test_an_unknown_type_is_a_decoder_by_its_keys():
    spec = hf.read(NEW)
    attention, mlp = 2 * 1024 * 1024 + 2 * 1024 * 256, 3 * 1024 * 4096
    assert spec.params == 2 * 32000 * 1024 + 1024 + 8 * (attention + mlp + 2 * 1024)
    assert "sideways" in spec.warnings[0]


def test_what_is_taken_from_which_key_is_said():
    spec = hf.read(
        {
            **NEW,
            "hidden_act": "relu2",
            "n_routed_experts": 32,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 256,
            "n_shared_experts": 1,
            "first_k_dense_replace": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 4,
            "sliding_window": 512,
            "flux_capacitor": 88,
        }
    )
    said = spec.warnings[0]
    for word in (
        "without gate from relu2",
        "32 experts from n_routed_experts in 6 of 8",
        "flux_capacitor",
    ):
        assert word in said
    assert [type(s) for s in stores(spec)] == [SlidingWindow, FullAttention] * 4
    experts = [t for layer in spec.each_layer() for t in layer.tensors if t.part == "expert"]
    assert sum(t.elements for t in experts) == 6 * 32 * 2 * 1024 * 256
    assert {t.active for t in experts} == {4}


def test_latents_and_their_indexer_by_keys():
    keys = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    index = {"index_head_dim": 128, "index_n_heads": 16, "index_topk": 2048}
    kinds = stores(hf.read({**NEW, **keys, **index}))
    assert {type(s) for s in kinds} == {Latent, Indexer}


def test_a_wrapped_text_model_keeps_its_tower():
    tower = {
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "patch_size": 14,
    }
    spec = hf.read({"model_type": "wrapped", "text_config": NEW, "vision_config": tower})
    bare = hf.read(NEW)
    assert spec.params - bare.params == sum(t.elements for t in spec.beside) > 4 * 12 * 256 * 256
    assert any("vision_config" in w for w in spec.warnings)


def test_nothing_to_read_is_refused():
    with pytest.raises(KvroomError, match="names no layers") as e:
        hf.read({"model_type": "sideways", "vocab_size": 10})
    assert e.value.field == "model_type"
