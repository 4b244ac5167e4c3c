"""Sparse decoders whose layers differ in what they see: gpt-oss, Llama 4, MiMo-V2, Step-3.5."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16
from kvroom.models.hf import read
from kvroom.models.kinds import ChunkedAttention, FullAttention, SlidingWindow
from kvroom.models.spec import ModelSpec

# Shape keys of openai/gpt-oss-20b
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_local_experts": 32,
    "vocab_size": 201088,
}
# Shape keys of XiaomiMiMo/MiMo-V2-Flash
MIMO_V2 = {
    "model_type": "mimo_v2_flash",
    "hidden_size": 4096,
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "vocab_size": 152576,
    "sliding_window": 128,
    "sliding_window_size": 128,
    "hybrid_layer_pattern": [0 if i == 0 or i % 6 == 5 else 1 for i in range(48)],
    "moe_layer_freq": [0] + [1] * 47,
    "n_shared_experts": None,
}
# Shape keys of stepfun-ai/Step-3.7-Flash's decoder
STEP = {
    "model_type": "step3p5",
    "hidden_size": 4096,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "vocab_size": 128896,
    "sliding_window": 512,
    "layer_types": ["sliding_attention" if i % 4 else "full_attention" for i in range(45)],
}
# Shape keys of meta-llama/Llama-4-Scout-17B-16E
SCOUT = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_local_experts": 16,
        "no_rope_layers": [],
        "vocab_size": 202048,
    },
    "vision_config": {
        "hidden_size": 1408,
        "image_size": 336,
        "vision_output_dim": 4096,
    },
}


def held(spec: ModelSpec, tokens: int) -> int:
    return sum(kind.stored_bytes(tokens, BF16) * count for kind, count in spec.stores)


def test_gpt_oss():
    spec = read(GPT_OSS)
    assert spec.params == 20_914_757_184  # the published total
    assert spec.active_params == 20_914_757_184 - 24 * 28 * (3 * 2880 * 2880 + 3 * 2880)
    assert held(spec, 8192) == 12 * 2048 * (128 + 8192)
    first, second = [type(layer.stores[0]) for layer in spec.each_layer()][:2]
    assert (first, second) == (SlidingWindow, FullAttention)
    assert read({**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}).params == (
        116_829_156_672
    )


def test_gpt_oss_layer_types_win():
    spec = read({**GPT_OSS, "layer_types": ["full_attention"] * 24, "sliding_window": None})
    assert held(spec, 8192) == 24 * 2048 * 8192


def test_mimo_v2_window_layers_have_heads_of_their_own():
    spec = read(MIMO_V2)
    assert spec.params == 308_778_768_832  # the published total without prediction layers
    assert held(spec, 8192) == 9 * 4 * 320 * 2 * 8192 + 39 * 8 * 320 * 2 * 128
    assert spec.kv_heads == 8
    own = {k: v for k, v in MIMO_V2.items() if k not in ("hybrid_layer_pattern", "moe_layer_freq")}
    assert read(own).layers == spec.layers


def test_mimo_v2_sinks_follow_their_flags():
    spec = read(
        {**MIMO_V2, "add_swa_attention_sink_bias": False, "add_full_attention_sink_bias": True}
    )
    assert read(MIMO_V2).params - spec.params == (39 - 9) * 64


def test_step():
    spec = read(STEP)
    assert spec.params == 195_844_496_640
    assert held(spec, 8192) == 4096 * (12 * 8192 + 33 * 512)
    sparse = [any(t.part == "expert" for t in layer.tensors) for layer in spec.each_layer()]
    assert sparse == [False] * 3 + [True] * 42


def test_step_options():
    wide = read({**STEP, "attention_other_setting": {"num_attention_heads": 96}})
    # 32 more query heads in each window layer: query, output and gate
    assert wide.params - read(STEP).params == 33 * 32 * (2 * 128 + 1) * 4096
    assert held(wide, 4096) == held(read(STEP), 4096)
    assert wide.q_heads == 96
    listed = read({**STEP, "moe_layers_enum": "3, 5,44"})
    assert sum(any(t.part == "expert" for t in layer.tensors) for layer in listed.each_layer()) == 3
    assert read({**STEP, "num_nextn_predict_layers": 3}).mtp[0].count == 3


def test_step_tower_is_added_and_assumed_aloud():
    spec = read({**STEP, "model_type": "step3p7"})
    assert spec.params == 197_825_511_424
    assert spec.active_params == 10_875_690_240
    assert "vision_config" in spec.warnings[0]


def test_llama4_scout():
    spec = read(SCOUT)
    assert spec.params == 108_641_793_536  # the published total
    assert spec.active_params == 17_172_894_720
    chunked, full = (kind for kind, _ in spec.stores)
    assert isinstance(chunked, ChunkedAttention)
    assert isinstance(full, FullAttention)
    assert [count for _, count in spec.stores] == [36, 12]
    assert held(spec, 32_768) == 4096 * (36 * 8192 + 12 * 32_768)
    assert chunked.read_bytes(8193, BF16) == 4096  # a new chunk has just begun
    assert spec.warnings == ()


def test_llama4_maverick_has_experts_in_every_second_layer():
    text = {**SCOUT["text_config"], "interleave_moe_layer_step": 2, "num_local_experts": 128}
    spec = read({**SCOUT, "text_config": text})
    sparse = [any(t.part == "expert" for t in layer.tensors) for layer in spec.each_layer()]
    assert sparse == [False, True] * 24
    assert spec.params - sum(t.elements for t in spec.beside) == 400_711_848_960


def test_llama4_options():
    text = SCOUT["text_config"]
    none = read({**text, "attention_chunk_size": None})
    assert [type(kind) for kind, _ in none.stores] == [FullAttention]
    listed = read({**text, "no_rope_layers": [1] * 40 + [0] * 8, "moe_layers": [0]})
    assert [count for _, count in listed.stores] == [40, 8]
    assert [run.count for run in listed.layers] == [1, 39, 8]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**GPT_OSS, "layer_types": ["sliding_attention"] * 23}, "layer_types"),
        ({**GPT_OSS, "sliding_window": 0}, "sliding_window"),
        ({**MIMO_V2, "hybrid_layer_pattern": [0] * 47}, "hybrid_layer_pattern"),
        ({**MIMO_V2, "hybrid_layer_pattern": [2] * 48}, "hybrid_layer_pattern"),
        ({**MIMO_V2, "swa_num_key_value_heads": 7}, "swa_num_key_value_heads"),
        ({**STEP, "sliding_window": None}, "sliding_window"),
        ({**STEP, "moe_layers_enum": "3,x"}, "moe_layers_enum"),
        ({**STEP, "moe_layers_enum": 3}, "moe_layers_enum"),
        (
            {**STEP, "attention_other_setting": {"num_attention_heads": 0}},
            "attention_other_setting.num_attention_heads",
        ),
        ({**SCOUT, "text_config": []}, "text_config"),
        ({**SCOUT, "text_config": {"num_key_value_heads": 7}}, "text_config.num_key_value_heads"),
        ({**SCOUT, "text_config": {"no_rope_layers": [1]}}, "text_config.no_rope_layers"),
        ({**SCOUT, "vision_config": {"patch_size": "14"}}, "vision_config.patch_size"),
    ],
)
def test_bad_input_names_its_key(config, field):
    with pytest.raises(KvroomError) as error:
        read(config)
    assert error.value.field == field
