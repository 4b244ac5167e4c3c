"""Adapters, draft models and encoders: what they weigh and what cache they add."""

from __future__ import annotations

from typing import Any

import pytest

from engine import models
from kvroom.answer.plan import EngineCapacity, Plan
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB
from support import check_told

SMALL = models.LLAMA
LORA = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 16}


def asked(model: Any, **keys: Any) -> Plan:
    if isinstance(model, dict):
        model = {"config": model}
    return plan(Scenario.from_dict({"gpu": "H100-SXM", "engine": "vllm", **keys, "model": model}))


def accounts(made: Plan) -> dict[str, int]:
    assert sum(a.bytes for a in made.memory.accounts) == made.memory.gpu_bytes
    return {a.name: a.bytes for a in made.memory.accounts}


def capacity(made: Plan) -> EngineCapacity:
    assert made.capacity.engine is not None
    return made.capacity.engine


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (models.LLAMA, 1_671_168),  # with buffers for its table and head
        (models.QWEN2, 1_124_352),  # without
        (models.GEMMA3, 2_285_568),
        (models.DEEPSEEK, 2_482_176),
        (models.QWEN3_NEXT, 3_716_352),  # experts, routers, convolutions
        (models.GRANITE, 2_150_016),  # an A for each of five slices of in_proj
    ],
    ids=lambda x: x["model_type"] if isinstance(x, dict) else "",
)
def test_adapter_buffers_are_as_large_as_vllm_makes_them(config: dict[str, Any], size: int) -> None:
    """The bytes of the LoRA buffers of vLLM 0.32.0."""
    assert accounts(asked(config, engine_args=LORA))["adapters"] == size


def test_ranks_share_one_side_of_each_adapter() -> None:
    one = accounts(asked("llama-3-8b", engine_args=LORA))["adapters"]
    two = accounts(asked("llama-3-8b", tp=2, engine_args=LORA))["adapters"]
    both = accounts(asked("llama-3-8b", tp=2, engine_args={**LORA, "fully_sharded_loras": True}))[
        "adapters"
    ]
    assert one > two > both > one // 2  # table and head are whole on every rank


def test_adapters_of_chosen_modules_only() -> None:
    some = asked(SMALL, engine_args={**LORA, "lora_target_modules": ["q_proj", "v_proj"]})
    # 3 slots × 4 layers × 2 bytes × rank 16 × (inputs + outputs) of q and v
    assert accounts(some)["adapters"] == 3 * 4 * 2 * 16 * (256 + 256 + 256 + 64)


def test_experts_are_adapted_since_0_11_1() -> None:
    before, since = (
        accounts(asked(models.QWEN3_MOE, engine_version=v, engine_args=LORA))["adapters"]
        for v in ("0.11.0", "0.12.0")
    )
    # 3 slots × 4 layers × 2 bytes × 4 experts × 3 matrices × rank 16 × (256 + 128)
    assert since - before == 3 * 4 * 2 * 4 * 3 * 16 * (256 + 128)


def test_sglang_keeps_adapters_too_and_says_what_it_assumes() -> None:
    made = asked("llama-3-8b", engine="sglang", engine_args={"enable_lora": True})
    found = next(a for a in made.memory.accounts if a.name == "adapters")
    assert found.source == "assumed"
    assert found.low_bytes < found.bytes < found.high_bytes
    plain = asked("llama-3-8b", engine="sglang")
    assert capacity(made).kv_tokens < capacity(plain).kv_tokens  # type: ignore[operator]


def test_adapter_flags_without_adapters_are_told() -> None:
    made = asked("llama-3-8b", engine_args={"max_loras": 4, "max_lora_rank": 64})
    assert "no effect without enable_lora: max_loras, max_lora_rank" in made.warnings
    assert accounts(made) == accounts(asked("llama-3-8b"))
    on = asked("llama-3-8b", engine_args={"enable_lora": True, "max_loras": 4})
    assert not any("enable_lora" in w for w in on.warnings)


@pytest.mark.parametrize("on", [True, False])
def test_vllm_knows_some_ranks_only(on: bool) -> None:
    with pytest.raises(KvroomError, match="one of 1, 8, 16, 32, 64, 128, 256, 320, 512") as e:
        asked("llama-3-8b", engine_args={"enable_lora": on, "max_lora_rank": 24})
    check_told(e.value)
    assert e.value.field == "engine_args.max_lora_rank"
    asked("llama-3-8b", engine_args={"enable_lora": on, "max_lora_rank": "320"})
    asked("llama-3-8b", engine="sglang", engine_args={"enable_lora": on, "max_lora_rank": 24})


@pytest.mark.parametrize(
    ("engine", "args"),
    [("llama.cpp", {"lora": "a.gguf"}), ("tensorrt-llm", {"enable_lora": True})],
)
def test_adapters_of_engines_whose_buffers_are_not_known(engine: str, args: dict[str, Any]) -> None:
    made = asked("llama-3-8b", engine=engine, engine_args=args)
    assert any(f"not known for {engine}" in w for w in made.warnings)
    assert not any("adapters" in w for w in asked("llama-3-8b", engine=engine).warnings)


def test_prediction_layers_of_deepseek_add_one_layer_of_cache() -> None:
    """DeepSeek-V3 keeps 61 × 1,152 B a token, with its prediction layer 62 × 1,152 = 71,424 (SGLang
    0.5.23's own sum)."""
    keys = {"gpu": "H200", "tp": 8, "engine_version": "0.32.0"}
    args = {"kv_cache_memory_bytes": 40 * GIB}
    made = asked(
        "deepseek-v3", **keys, engine_args=args, speculation={"method": "mtp"}, context_tokens=32768
    )
    block = capacity(made).block_tokens
    assert block is not None
    assert capacity(made).num_blocks == 40 * GIB // (71_424 * block)
    assert accounts(made)["draft"] > GIB
    whole = asked("deepseek-v3", **keys, engine_args=args)
    assert made.weights == whole.weights  # the model's own


def test_sglang_charges_the_prediction_layer_in_its_cell() -> None:
    keys = {"gpu": "H200", "tp": 8, "engine": "sglang", "engine_version": "0.5.23"}
    free, weights = 140 * GIB, 85 * GIB
    known = {"free_before_load": free, "weights": weights}
    args = {"mem_fraction_static": 0.85, "page_size": 1, "attention_backend": "fa3"}
    made = asked(
        "deepseek-v3", **keys, known_bytes=known, engine_args=args, speculation={"method": "mtp"}
    )
    tokens = capacity(made).kv_tokens
    assert tokens is not None
    assert tokens == pytest.approx((free * 0.85 - weights) / 71_424, abs=2)
    assert "draft" not in accounts(made)  # measured weights hold it


@pytest.mark.parametrize(
    ("model", "layers", "state", "padding"),
    [("qwen3.5-27b", 16, 48, 3), ("qwen3.5-35b-a3b", 10, 30, 3)],
)
def test_a_prediction_layer_widens_a_hybrids_groups(
    model: str, layers: int, state: int, padding: int
) -> None:
    """vLLM logs "Add 3 padding layers", 6.25 % and 10 %, for these with MTP: groups are one longer.

    A drafted token widens the convolutions' state too, and a block holds as many tokens as the state's page.
    """
    args = {"kv_cache_memory_bytes": 20 * GIB}
    keys = {"engine_version": "0.25.1", "context_tokens": 65536}
    plain = capacity(asked(model, **keys, engine_args=args))
    drafting = capacity(asked(model, **keys, engine_args=args, speculation={"method": "mtp"}))
    assert -state % (layers + 1) == padding
    assert plain.num_blocks is not None
    assert drafting.num_blocks is not None
    assert plain.block_tokens is not None
    assert drafting.block_tokens is not None
    # one block holds as many pages as a group has layers
    layer_tokens = plain.num_blocks * plain.block_tokens * layers
    per_block = drafting.block_tokens * (layers + 1)
    assert drafting.num_blocks == pytest.approx(layer_tokens / per_block, abs=1)


def test_a_draft_model_brings_weights_and_cache_of_its_own() -> None:
    draft = {**SMALL, "num_hidden_layers": 2}
    made = asked(
        SMALL, speculation={"method": "draft", "model": {"config": draft}}, engine_version="0.32.0"
    )
    alone = asked(draft)
    assert accounts(made)["draft"] == alone.weights.bytes
    assert made.kv.bytes_per_request_per_gpu == 8192 * 6 * 2 * 64 * 2  # six layers' keys and values
    assert made.kv.bytes_per_request == 8192 * 4 * 2 * 64 * 2


def test_pipeline_stages_the_draft_is_on_the_last() -> None:
    keys = {"gpu": "H200", "tp": 8, "pp": 2}
    alone, drafting = (
        asked("deepseek-v3", **keys, engine="arithmetic", **more)
        for more in ({}, {"speculation": {"method": "mtp"}})
    )
    assert drafting.capacity.ceiling is not None
    assert alone.capacity.ceiling is not None
    assert drafting.capacity.ceiling.exact < alone.capacity.ceiling.exact
    assert accounts(drafting)["draft"] > 0


def test_an_eagle_head_without_a_config_is_an_assumption() -> None:
    made = asked("llama-3-8b", speculation={"method": "eagle3", "num_speculative_tokens": 3})
    found = next(a for a in made.memory.accounts if a.name == "draft")
    assert found.source == "assumed"
    assert any("assumed (speculation.model)" in w for w in made.warnings)


def test_the_text_itself_drafts_for_nothing() -> None:
    """Without graphs, whose captured sizes are those of a step's drafts."""
    args = {"enforce_eager": True}
    plain = asked("llama-3-8b", engine_args=args)
    drafting = asked("llama-3-8b", engine_args=args, speculation={"method": "ngram"})
    assert accounts(plain) == accounts(drafting)
    assert plain.capacity == drafting.capacity


def test_flags_ask_for_drafting_as_a_scenario_does() -> None:
    said = {"method": "mtp", "num_speculative_tokens": 2}
    keys = {"gpu": "H200", "tp": 8}
    by_flag = asked("deepseek-v3", **keys, engine_args={"speculative_config": said})
    by_key = asked("deepseek-v3", **keys, speculation=said)
    assert by_flag.memory == by_key.memory
    assert by_flag.capacity == by_key.capacity
    nextn = asked(
        "deepseek-v3", **keys, engine="sglang", engine_args={"speculative_algorithm": "NEXTN"}
    )
    assert accounts(nextn)["draft"] > 0


def test_a_drafts_name_in_a_flag_need_not_be_known_here() -> None:
    config = {"model": "nobody/EAGLE3-head", "num_speculative_tokens": 3, "method": "eagle3"}
    made = asked("llama-3-8b", engine_args={"speculative_config": config})
    assert accounts(made)["draft"] > 0
    assert any("nobody/EAGLE3-head" in w for w in made.warnings)


@pytest.mark.parametrize(
    ("speculation", "field"),
    [
        ({"method": "mtp"}, "speculation.method"),
        ({"method": "draft"}, "speculation.model"),
        ({"method": "draft", "model": "no-such-model"}, "speculation.model"),
        ({"method": "eagel"}, "speculation.method"),
        ({"methods": "mtp"}, "speculation"),
        ({"method": "mtp", "num_speculative_tokens": 0}, "speculation.num_speculative_tokens"),
        ({"method": "eagle", "model": 7}, "speculation.model"),
        (7, "speculation"),
    ],
)
def test_what_cannot_draft_is_named(speculation: Any, field: str) -> None:
    with pytest.raises(KvroomError) as caught:
        asked("llama-3-8b", speculation=speculation)
    assert caught.value.field == field
    check_told(caught.value)


def test_encoding_images_takes_memory_while_vllm_measures() -> None:
    made = asked("qwen2.5-vl-7b")
    found = next(a for a in made.memory.accounts if a.name == "encoder")
    assert (found.source, found.low_bytes < found.bytes < found.high_bytes) == ("assumed", True)
    # A run with 16,384 image tokens printed 2.7 GiB of activations, the decoder's own among them.
    both = found.bytes + accounts(made)["activations"]
    assert both == pytest.approx(2.7 * GIB, rel=0.25)
    for args in ({"language_model_only": True}, {"limit_mm_per_prompt": {"image": 0, "video": 0}}):
        assert "encoder" not in accounts(asked("qwen2.5-vl-7b", engine_args=args))
    assert "encoder" not in accounts(asked("qwen2.5-vl-7b", known_bytes={"activations": GIB}))
    assert "encoder" not in accounts(asked("llama-3-8b"))


def test_llama_cpp_keeps_a_state_for_every_drafted_token() -> None:
    """Qwen3.5-27B's 149.62 MiB of state a sequence become 1,047 MiB where six tokens are drafted."""
    keys = {"engine": "llama.cpp", "engine_args": {"parallel": 1, "ctx_size": 8192}}
    plain, drafting = (
        asked("qwen3.5-27b", gpu="H200", **keys, **more)
        for more in ({}, {"speculation": {"method": "mtp", "num_speculative_tokens": 6}})
    )
    more = drafting.memory.kv_bytes - plain.memory.kv_bytes
    assert more / 2**20 == pytest.approx(6 * 149.62, abs=0.1)
    assert accounts(drafting)["draft"] > 0


def test_tensorrt_llm_counts_a_draft_too() -> None:
    keys = {"gpu": "H200", "tp": 8, "engine": "tensorrt-llm"}
    plain = asked("deepseek-v3", **keys)
    drafting = asked("deepseek-v3", **keys, speculation={"method": "mtp"})
    assert accounts(drafting)["draft"] > 0
    assert capacity(drafting).kv_tokens < capacity(plain).kv_tokens  # type: ignore[operator]
