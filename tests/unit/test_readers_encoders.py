"""Models with an encoder: T5, BART, Whisper, Llama 3.2 Vision, LLaVA, Mistral 3, BERT and its kin."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read

T5_11B = {
    "model_type": "t5",
    "d_model": 1024,
    "d_ff": 65536,
    "d_kv": 128,
    "num_layers": 24,
    "num_heads": 128,
    "vocab_size": 32128,
}
FLAN_T5_XXL = {
    "model_type": "t5",
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_layers": 24,
    "num_heads": 64,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
BART_LARGE = {
    "model_type": "bart",
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "vocab_size": 50264,
}
WHISPER_TURBO = {
    "model_type": "whisper",
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 4,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "num_hidden_layers": 32,
    "num_mel_bins": 128,
    "vocab_size": 51866,
}
BERT_BASE = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 30522,
}
BGE_M3 = {
    "model_type": "xlm-roberta",
    "architectures": ["XLMRobertaModel"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 250002,
    "max_position_embeddings": 8194,
    "type_vocab_size": 1,
}
NOMIC = {
    "model_type": "nomic_bert",
    "n_embd": 768,
    "n_inner": 3072,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 30528,
    "type_vocab_size": 2,
    "n_positions": 8192,
}
MODERNBERT = {
    "model_type": "modernbert",
    "architectures": ["ModernBertModel"],
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "vocab_size": 50368,
}
MLLAMA_90B = {
    "model_type": "mllama",
    "text_config": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 100,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "cross_attention_layers": list(range(3, 100, 5)),
    },
    "vision_config": {"image_size": 560},
}
LLAVA_15_7B = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
    },
}
MISTRAL_SMALL_31 = {
    "model_type": "mistral3",
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "head_dim": 128,
        "vocab_size": 131072,
        "sliding_window": None,
    },
    "vision_config": {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
}


def stored(spec, tokens, encoder_tokens=0):
    return sum(kind.stored_bytes(tokens, BF16, encoder_tokens) * n for kind, n in spec.stores)


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        (T5_11B, 11_307_321_344),
        (FLAN_T5_XXL, 11_135_332_352),
        (BART_LARGE, 406_290_432),
        (WHISPER_TURBO, 808_878_080),
        (BERT_BASE, 109_514_298),
        (BGE_M3, 567_754_752),
        (NOMIC, 136_731_648),
        (MODERNBERT, 149_014_272),
        (MLLAMA_90B, 88_593_355_323),
        (LLAVA_15_7B, 7_063_427_072),
        (MISTRAL_SMALL_31, 24_011_361_280),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else "",
)
def test_published_totals(shape, params):
    assert read(shape).params == params


def test_decoder_layers_keep_their_own_and_the_encoders_tokens():
    spec = read(WHISPER_TURBO)
    assert spec.num_layers == 4  # num_hidden_layers is the encoder's
    assert spec.encoder_tokens == 1500
    assert spec.max_context_tokens == 448
    per_token = 4 * 2 * 20 * 64 * 2
    assert stored(spec, 10, 1500) == (10 + 1500) * per_token
    assert sum(kind.growth(BF16) * n for kind, n in spec.stores) == per_token


def test_t5_heads_are_d_kv_wide():
    assert stored(read(T5_11B), 1) == 24 * 2 * 128 * 128 * 2


def test_relative_positions_are_in_the_first_layer_or_in_all():
    shape = {**T5_11B, "feed_forward_proj": "gated-gelu"}
    t5, umt5 = read(shape), read({**shape, "model_type": "umt5"})
    assert umt5.params - t5.params == 2 * 23 * 32 * 128
    assert [run.count for run in t5.layers] == [1, 23]
    assert [run.count for run in umt5.layers] == [24]
    assert read({**T5_11B, "model_type": "mt5"}).params == t5.params


def test_mbart_has_a_last_norm_in_both_stacks():
    bart, mbart = read(BART_LARGE), read({**BART_LARGE, "model_type": "mbart"})
    assert mbart.params - bart.params == 2 * 2 * 1024


@pytest.mark.parametrize("shape", [BERT_BASE, BGE_M3, NOMIC, MODERNBERT])
def test_encoders_keep_and_generate_nothing(shape):
    spec = read(shape)
    assert not spec.generates
    assert spec.stores == ()
    assert spec.active_params == spec.params


def test_roberta_counts_positions_from_after_the_padding():
    assert read(BGE_M3).max_context_tokens == 8192


@pytest.mark.parametrize(
    ("architecture", "params"),
    [
        ("BertModel", 768 * 768 + 768),
        ("BertForMaskedLM", 768 * 768 + 768 + 2 * 768 + 30522),
        ("BertForSequenceClassification", 768 * 768 + 768 + 2 * 768 + 2),
        ("BertForTokenClassification", 2 * 768 + 2),
    ],
)
def test_what_stands_on_bert(architecture, params):
    spec = read({**BERT_BASE, "architectures": [architecture]})
    assert sum(t.elements for t in spec.head) == params


def test_a_classifier_has_a_row_for_each_label():
    one = {**BGE_M3, "architectures": ["XLMRobertaForSequenceClassification"]}
    two = read(one).params
    assert two - read({**one, "id2label": {"0": "LABEL_0"}}).params == 1025


def test_cross_layers_of_llama_vision_keep_the_image_only():
    spec = read(MLLAMA_90B)
    assert spec.encoder_tokens == 4 * 1601
    assert stored(spec, 1) == 80 * 2 * 8 * 128 * 2
    assert stored(spec, 1, 6404) - stored(spec, 1) == 20 * 6404 * 2 * 8 * 128 * 2
    cross = [i for i, layer in enumerate(spec.each_layer()) if layer.stores[0].kind == "cross"]
    assert cross == list(range(3, 100, 5))


def test_mistral_3_ties_as_its_text_level_says():
    tied = {**MISTRAL_SMALL_31["text_config"], "tie_word_embeddings": True}
    less = read({**MISTRAL_SMALL_31, "text_config": tied}).params
    assert read(MISTRAL_SMALL_31).params - less == 671_088_640


def test_ministral_3_with_and_without_a_tower():
    text = {**MISTRAL_SMALL_31["text_config"], "model_type": "ministral3"}
    whole = read({**MISTRAL_SMALL_31, "model_type": "ministral3", "text_config": text})
    assert whole.params == 24_011_361_280
    assert read(text).params == whole.params - sum(t.elements for t in whole.beside)


def test_llava_next_adds_the_end_of_a_row():
    text = LLAVA_15_7B["text_config"]
    with_row = read({**LLAVA_15_7B, "model_type": "llava_next"})
    assert with_row.params - read(LLAVA_15_7B).params == 4096
    layers = {**LLAVA_15_7B, "vision_feature_layer": [-2, -5]}
    assert read(layers).params - read(LLAVA_15_7B).params == 1024 * 4096
    mistral = {**text, "model_type": "mistral", "sliding_window": None}
    assert read({**LLAVA_15_7B, "text_config": mistral}).kv_heads == 8


def test_paligemma_is_gemma_behind_siglip():
    spec = read(
        {
            "model_type": "paligemma",
            "text_config": {
                "hidden_size": 2048,
                "intermediate_size": 16384,
                "num_hidden_layers": 18,
                "num_attention_heads": 8,
                "num_key_value_heads": 1,
                "vocab_size": 257216,
            },
            "vision_config": {
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_hidden_layers": 27,
                "image_size": 224,
                "patch_size": 14,
                "vision_use_head": False,
            },
        }
    )
    assert spec.params == 2_923_466_480  # google/paligemma-3b-pt-224
    assert spec.tied


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ({**T5_11B, "num_heads": 0}, "num_heads"),
        ({**T5_11B, "feed_forward_proj": 3}, "feed_forward_proj"),
        ({**BART_LARGE, "decoder_attention_heads": 7}, "decoder_attention_heads"),
        ({**WHISPER_TURBO, "decoder_layers": None}, "decoder_layers"),
        ({**WHISPER_TURBO, "num_mel_bins": "80"}, "num_mel_bins"),
        ({**BERT_BASE, "type_vocab_size": -1}, "type_vocab_size"),
        ({**BERT_BASE, "architectures": "BertModel"}, "architectures"),
        ({"model_type": "mllama"}, "text_config"),
        (
            {**MLLAMA_90B, "text_config": {"num_hidden_layers": 3}},
            "text_config.cross_attention_layers",
        ),
        ({**LLAVA_15_7B, "text_config": {"model_type": "gpt2"}}, "text_config."),
        ({**MISTRAL_SMALL_31, "spatial_merge_size": 1.5}, "spatial_merge_size"),
    ],
)
def test_bad_input_names_its_key(shape, field):
    with pytest.raises(KvroomError) as caught:
        read(shape)
    assert field in caught.value.field
