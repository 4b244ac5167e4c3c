"""Names as people, hubs, paths and logs write them → the model, and how its weights are stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.launchers.launch import model_word
from kvroom.models import catalogue, names
from kvroom.models.load import load

WRITTEN = {
    "Qwen3-14B-FP8-dynamic": ("qwen3-14b", "fp8"),
    "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic": ("llama-3.3-70b", "fp8"),
    "Qwen/Qwen3-8B-FP8": ("qwen3-8b", "fp8_block"),
    "RedHatAI/Qwen3-32B-FP8-dynamic": ("qwen3-32b", "fp8"),
    "mlx-community/gpt-oss-20b-MXFP4-Q8": ("gpt-oss-20b", "mxfp4"),
    "moonshotai/Kimi-K2-Thinking": ("kimi-k2-thinking", None),
    "/models/openai--gpt-oss-120b": ("gpt-oss-120b", None),
    "/models/Qwen3.5-122B-A10B-FP8": ("qwen3.5-122b-a10b", "fp8"),
    "minimax-m2.5-nvfp4": ("minimax-m2.5-nvfp4", None),
    "someone/minimax-m2.7-awq": ("minimax-m2.7", "awq_int4_g128"),
    "nvidia/Llama-3.1-405B-Instruct-NVFP4": ("llama-3.1-405b", "nvfp4"),
    "kimi-k25-nvfp4": ("kimi-k2.5", "nvfp4"),
    "Meta-Llama-3.1-8B-Instruct-quantized.w8a8": ("llama-3.1-8b", "int8"),
    "neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w4a16": ("llama-3.1-8b", "int4"),
    "unsloth/mistral-7b-instruct-v0.3-bnb-4bit": ("mistral-7b", "nf4"),
    "Qwen/Qwen2.5-7B-Instruct-AWQ": ("qwen2.5-7b", "awq_int4_g128"),
    "Qwen/Qwen2.5-72B-Instruct-AWQ": ("qwen2.5-72b-awq", None),
    "Qwen2-72B-Instruct-GPTQ-Int8": ("qwen2-72b-gptq-int8", None),
    "Qwen/Qwen3-30B-A3B-GPTQ-Int4": ("qwen3-30b-a3b", "gptq_int4_g128"),
    "hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M": ("qwen3-8b", "q4_k_m"),
    "/data/Qwen3-8B-UD-Q4_K_XL.gguf": ("qwen3-8b", "q4_k_xl"),
    "MiniMax-M2.5-UD-Q3_K_XL-00001-of-00003.gguf": ("minimax-m2.5", "q3_k_l"),
    f"/root/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/{'9216db57' * 5}": (
        "qwen3-32b",
        None,
    ),
    "google/gemma-4-31b (autoround int4)": ("gemma-4-31b", "gptq_int4_g128"),
    "Qwen3-VL-2B (Qwen3VLForConditionalGeneration)": ("qwen3-vl-2b", None),
    "qwen3-30b-a3b-2507 Q8 (ctx 32k)": ("qwen3-30b-a3b-2507", "q8_0"),
    "Qwen2___5-3B": ("qwen2.5-3b", None),
    "Huihui-gpt-oss-20b-mxfp4-abliterated-v2": ("gpt-oss-20b", "mxfp4"),
    "llama3.1:8b-instruct-q4_K_M": ("llama-3.1-8b", "q4_k_m"),
    "deepseek-r1:70b": ("r1-distill-llama-70b", None),
    "nemotron-3-nano:30b": ("nemotron-3-nano-30b-a3b", None),
    "Qwen/Qwen3-4B-Thinking-2507-FP8": ("qwen3-4b-2507", "fp8_block"),
    "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8": ("qwen3-235b-a22b-2507", "fp8_block"),
    "unsloth/Qwen3-30B-A3B-Thinking-2507-GGUF:Q4_K_M": ("qwen3-30b-a3b-2507", "q4_k_m"),
    "google/gemma-3-27b-it-qat-q4_0-gguf": ("gemma-3-27b", "q4_0"),
    "google/gemma-3-4b-it-qat-q4_0-unquantized": ("gemma-3-4b", "bf16"),
    "google/gemma-3-12b-it-qat-int4-unquantized": ("gemma-3-12b", "bf16"),
    "lmstudio-community/gemma-3-27B-it-qat-GGUF": ("gemma-3-27b", "q4_0"),
    "gemma-3-27b-it-qat": ("gemma-3-27b", "q4_0"),
    "ai/gemma3-qat:4B": ("gemma-3-4b", "q4_0"),
    "mlx-community/gemma-3-27b-it-qat-4bit": ("gemma-3-27b", "int4"),
    "mlx-community/gemma-3-12b-it-qat-bf16": ("gemma-3-12b", "bf16"),
    "unsloth/gemma-3-27b-it-qat-GGUF:Q4_K_XL": ("gemma-3-27b", "q4_k_xl"),
    "ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g": ("gemma-3-27b", "gptq_int4_g128"),
}


@pytest.mark.parametrize(("text", "want"), WRITTEN.items(), ids=list(WRITTEN))
def test_model_and_width_are_told_apart(text, want):
    reading = names.read(text, catalogue.known)
    assert reading is not None
    assert (reading.name, reading.weight_dtype) == want


@pytest.mark.parametrize(
    "text",
    [
        "minimax-m2.9",
        "glm-5.9",
        "Kimi-K2.9-NVFP4",
        "someone/llama-3-8b-tuned",
        "",
        "/",
        "--",
        "x" * 5000,
    ],
)
def test_another_release_is_another_model(text):
    assert names.read(text, catalogue.known) is None


@pytest.mark.parametrize(
    ("written", "served"),
    {
        "Qwen/Qwen3-4B-Thinking-2507": "Qwen/Qwen3-4B-Thinking-2507",
        "qwen3-4b-thinking-2507": "Qwen/Qwen3-4B-Thinking-2507",
        "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B-Instruct",
        "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
        "llama-3.2-11b-vision": "meta-llama/Llama-3.2-11B-Vision-Instruct",
    }.items(),
)
def test_of_several_ids_the_one_that_was_written_is_served(written, served):
    assert model_word(written) == served


def test_what_was_taken_is_said():
    spec = load("Qwen3-14B-FP8-dynamic")
    assert any("read as qwen3-14b, FP8 per token" in w for w in spec.warnings)
    assert spec.quantisation is not None
    assert spec.quantisation.name == "fp8"


def test_a_width_that_the_checkpoint_has_anyway_changes_nothing():
    assert load("openai/gpt-oss-20b-mxfp4").quantisation == load("gpt-oss-20b").quantisation


def test_a_path_that_is_not_here_is_taken_by_its_name_and_said():
    spec = load("/models/Qwen3-8B-Q4_K_M.gguf")
    assert any("is not here" in w for w in spec.warnings)
    with pytest.raises(KvroomError, match="not there"):
        load("/models/qwen3-8b/config.json")


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", 262_144),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", 262_144),
        ("Qwen/Qwen3-4B-Instruct-2507", 262_144),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262_144),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 262_144),
        ("moonshotai/Kimi-K2-Instruct-0905", 262_144),
        ("Qwen/Qwen3-8B", 40_960),
        ("moonshotai/Kimi-K2-Instruct", 131_072),
    ],
)
def test_limits_of_releases_that_share_a_shape(name, limit):
    """Limits as the published configs state them (``max_position_embeddings``)."""
    assert load(name).max_context_tokens == limit


def test_mistral_of_the_first_release_slides():
    assert {s.kind for s, _ in load("mistralai/Mistral-7B-v0.1").stores} == {"window"}


@given(st.text(max_size=120))
def test_any_text_is_read_or_not(text):
    reading = names.read(text, catalogue.known)
    assert reading is None or reading.name in catalogue.names()


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2-72b-instruct-gptq-int4"])
def test_published_quantised_qwen_72b_divides_over_eight_ranks(name: str) -> None:
    for ranks in (2, 4, 8):
        assert api.plan(name, "A100-80", gpu_count=ranks, hub=False).verdict.starts
    unpadded = api.plan(
        "qwen2.5-72b", "A100-80", gpu_count=2, weight_dtype="awq_int4_g128", hub=False
    )
    assert unpadded.verdict.status == "would_not_start"
