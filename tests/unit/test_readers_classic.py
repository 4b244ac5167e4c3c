"""GPT-2 and its kin: three Falcons, two GPTs, one KV head or many."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}
STARCODER = {
    "model_type": "gpt_bigcode",
    "n_embd": 6144,
    "n_head": 48,
    "n_layer": 40,
    "n_inner": 24576,
    "n_positions": 8192,
    "vocab_size": 49152,
}
GPTJ_6B = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "vocab_size": 50400}
GPT_NEO_27B = {
    "model_type": "gpt_neo",
    "hidden_size": 2560,
    "num_layers": 32,
    "num_heads": 20,
    "vocab_size": 50257,
    "attention_types": [[["global", "local"], 16]],
}
GPT_NEOX_20B = {
    "model_type": "gpt_neox",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "vocab_size": 50432,
}
OPT_350M = {
    "model_type": "opt",
    "hidden_size": 1024,
    "ffn_dim": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "word_embed_proj_dim": 512,
    "vocab_size": 50272,
    "do_layer_norm_before": False,
}
OPT_125M = {
    "model_type": "opt",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 50272,
}
BLOOM_560M = {
    "model_type": "bloom",
    "n_embed": 1024,
    "n_layer": 24,
    "num_attention_heads": 16,
    "vocab_size": 250880,
}
MPT_7B = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}
FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "vocab_size": 65024,
    "multi_query": True,
}
FALCON_40B = {
    "model_type": "falcon",
    "hidden_size": 8192,
    "num_attention_heads": 128,
    "num_hidden_layers": 60,
    "num_kv_heads": 8,
    "new_decoder_architecture": True,
    "vocab_size": 65024,
}
FALCON_RW = {
    "model_type": "falcon",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_hidden_layers": 24,
    "vocab_size": 50304,
    "multi_query": False,
    "parallel_attn": False,
    "bias": True,
    "alibi": True,
}
PHI_2 = {
    "model_type": "phi",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 51200,
}


def grows(spec):
    return sum(kind.growth(BF16) * n for kind, n in spec.stores)


@pytest.mark.parametrize(
    ("shape", "params", "bytes_per_token"),
    [
        (GPT2, 124_439_808, 36_864),
        (STARCODER, 15_517_456_384, 20_480),
        (GPTJ_6B, 6_050_882_784, 458_752),
        (GPT_NEO_27B, 2_651_307_520, 163_840),
        (GPT_NEOX_20B, 20_554_567_680, 1_081_344),
        (OPT_350M, 331_196_416, 98_304),
        (OPT_125M, 125_239_296, 36_864),
        (BLOOM_560M, 559_214_592, 98_304),
        (MPT_7B, 6_649_286_656, 524_288),
        (FALCON_7B, 6_921_720_704, 8_192),
        (FALCON_40B, 41_303_293_952, 122_880),
        (FALCON_RW, 1_311_625_216, 196_608),
        (PHI_2, 2_779_683_840, 327_680),
    ],
)
def test_published_totals(shape, params, bytes_per_token):
    spec = read(shape)
    assert spec.params == params
    assert grows(spec) == bytes_per_token


def test_phi_in_its_first_form_is_the_same_model():
    first = {
        "model_type": "phi-msft",
        "n_embd": 2560,
        "n_head": 32,
        "n_head_kv": None,
        "n_inner": None,
        "n_layer": 32,
        "vocab_size": 51200,
    }
    assert read(first).params == read(PHI_2).params


def test_falcon_under_its_first_names():
    old = {
        "model_type": "RefinedWeb",
        "hidden_size": 8192,
        "n_head": 128,
        "n_head_kv": 8,
        "n_layer": 60,
        "vocab_size": 65024,
    }
    assert read(old).params == read(FALCON_40B).params
    assert grows(read(old)) == 122_880
    assert read({**FALCON_7B, "model_type": "RefinedWebModel"}).params == 6_921_720_704


def test_falcon_11b_has_one_norm_before_parallel_halves():
    two = read(FALCON_40B)
    one = read({**FALCON_40B, "num_ln_in_parallel_attn": 1})
    assert two.params - one.params == 60 * 2 * 8192


def test_multi_query_off_gives_every_head_its_own():
    assert grows(read({**STARCODER, "multi_query": False})) == 48 * 20_480


def test_gpt_neo_alternates_a_window_of_256():
    spec = read(GPT_NEO_27B)
    windows = [getattr(layer.stores[0], "window", None) for layer in spec.each_layer()]
    assert windows == [None, 256] * 16
    by_layer = {k: v for k, v in GPT_NEO_27B.items() if k != "attention_types"}
    by_layer["attention_layers"] = ["global", "local"] * 16
    assert read(by_layer) == spec


def test_mpt_options_of_llm_foundry():
    plain = read(MPT_7B).params
    grouped = read({**MPT_7B, "attn_config": {"kv_n_heads": 8}})
    assert plain - grouped.params == 32 * 2 * 24 * 128 * 4096
    assert grows(grouped) == 524_288 // 4
    one = read({**MPT_7B, "attn_config": {"attn_type": "multiquery_attention"}})
    assert grows(one) == 524_288 // 32
    learned = read({**MPT_7B, "max_seq_len": 100, "attn_config": {"alibi": False}})
    assert learned.params - plain == 100 * 4096


def test_a_tied_head_keeps_its_bias():
    untied, tied = read(GPTJ_6B), read({**GPTJ_6B, "tie_word_embeddings": True})
    assert untied.params - tied.params == 50400 * 4096


def test_codegen_is_gptj_with_a_fused_projection():
    assert read({**GPTJ_6B, "model_type": "codegen"}).params == read(GPTJ_6B).params


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ({**GPT2, "n_head": 7}, "n_head"),
        ({**GPT2, "n_layer": 0}, "n_layer"),
        ({**GPT2, "n_inner": "wide"}, "n_inner"),
        ({**FALCON_40B, "num_kv_heads": 3}, "num_kv_heads"),
        ({**MPT_7B, "attn_config": "alibi"}, "attn_config"),
        ({**MPT_7B, "attn_config": {"kv_n_heads": 5}}, "attn_config.kv_n_heads"),
        ({**GPT_NEO_27B, "attention_types": [["global", "local"], 16]}, "attention_types"),
        ({**GPT_NEO_27B, "attention_types": [[["global"], 3]]}, "attention_types"),
        ({**PHI_2, "intermediate_size": float("nan")}, "intermediate_size"),
        ({k: v for k, v in BLOOM_560M.items() if k != "vocab_size"}, "vocab_size"),
    ],
)
def test_bad_input_names_its_key(shape, field):
    with pytest.raises(KvroomError) as caught:
        read(shape)
    assert field in caught.value.field
