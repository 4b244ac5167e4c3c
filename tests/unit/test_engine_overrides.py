"""Flags and widths that change what an engine loads, or that it refuses."""

import pytest

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.units import GIB
from support import ask


def weights(plan: Plan) -> int:
    return next(a.bytes for a in plan.memory.accounts if a.name == "weights")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_weights_in_host_memory(engine: str) -> None:
    whole = ask("llama-3-8b", "L40S", engine=engine)
    part = ask("llama-3-8b", "L40S", engine=engine, engine_args={"cpu_offload_gb": 10})
    assert weights(whole) - weights(part) == 10 * GIB
    assert part.memory.kv_bytes > whole.memory.kv_bytes + 9 * GIB
    assert any("cpu_offload_gb" in w for w in part.warnings)
    most = ask("llama-3-8b", "L40S", engine=engine, engine_args={"cpu_offload_gb": 100})
    assert 0 < weights(most) < 3 * GIB  # tables and head stay
    with pytest.raises(KvroomError):
        ask("llama-3-8b", "L40S", engine=engine, engine_args={"cpu_offload_gb": "much"})


def test_overrides_of_the_config_are_applied() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    args = {"hf_overrides": {"num_hidden_layers": 18, "rope_scaling": yarn}}
    plan = ask("qwen3-8b", "L40S", engine="vllm", engine_args=args)
    assert sum(g.count for g in plan.kv.layers) == 18
    assert plan.scenario.context_tokens == 131_072
    plan = ask(
        "qwen3-8b",
        "L40S",
        engine="vllm",
        engine_args={"rope_scaling": yarn},
        context_tokens=100_000,
    )
    assert not any("own limit" in w for w in plan.warnings)
    args = {"json_model_override_args": '{"num_hidden_layers": 18}'}
    assert (
        sum(g.count for g in ask("qwen3-8b", "L40S", engine="sglang", engine_args=args).kv.layers)
        == 18
    )
    with pytest.raises(KvroomError, match="changes the model"):
        ask(
            "qwen3-8b",
            "L40S",
            engine="vllm",
            engine_args={"hf_overrides": {"architectures": ["X"]}},
        )


def test_rope_scale_of_llama_cpp_raises_the_models_limit() -> None:
    args = {"rope_scaling": "yarn", "rope_scale": 4}
    asked = {"engine": "llama.cpp", "context_tokens": 100_000, "weight_dtype": "q4_k_m"}
    assert any("own limit" in w for w in ask("qwen3-8b", "L40S", **asked).warnings)
    plan = ask("qwen3-8b", "L40S", engine_args=args, **asked)
    assert not any("own limit" in w for w in plan.warnings)


def test_a_file_of_options_is_said_not_to_be_read() -> None:
    said = read_command("vllm serve llama-3-8b --config serve.yaml").warnings
    assert any("serve.yaml is not read" in w for w in said)
    plan = ask("llama-3-8b", "L40S", engine="vllm", engine_args={"config": "serve.yaml"})
    assert any("serve.yaml is not read" in w for w in plan.warnings)
    text = "cat > serve.yaml <<'EOF'\nmax-model-len: 4096\nEOF\nvllm serve llama-3-8b --config serve.yaml"
    assert read_command(text).keys["context_tokens"] == 4096


@pytest.mark.parametrize(
    "command", ["vllm serve llama-3-8b -q foo", "sglang serve --model x --quantization foo"]
)
def test_a_quantisation_that_does_not_exist(command: str) -> None:
    with pytest.raises(KvroomError, match="is no quantisation") as e:
        read_command(command)
    assert "awq" in e.value.fix
    assert read_command("vllm serve llama-3-8b -q fp8").keys["weight_dtype"] == "fp8"


def test_batches_that_vllm_refuses() -> None:
    args = {"max_num_batched_tokens": 128, "max_num_seqs": 256}
    plan = ask("llama-3-8b", "L40S", engine="vllm", engine_args=args)
    assert not plan.verdict.fits
    assert "max_num_seqs" in plan.verdict.sentence
    args = {"max_num_batched_tokens": 2048, "enable_chunked_prefill": False}
    plan = ask("llama-3-8b", "L40S", engine="vllm", engine_args=args)
    assert not plan.verdict.fits
    assert "chunked prefill" in plan.verdict.sentence
    assert ask(
        "llama-3-8b", "L40S", engine="vllm", engine_args=args, context_tokens=2048
    ).verdict.fits


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_cache_types_that_an_engine_does_not_have(engine: str) -> None:
    plan = ask("llama-3-8b", "L40S", engine=engine, kv_dtype="q4_0")
    assert not plan.verdict.fits
    assert "no cache type q4_0" in plan.verdict.sentence
    assert "fp8" in plan.verdict.sentence
    assert ask("llama-3-8b", "L40S", engine=engine, kv_dtype="fp8").verdict.fits


def test_cards_that_an_engine_does_not_run_on() -> None:
    def said(engine: str, gpu: str) -> str:
        return ask("llama-3.2-1b", gpu, engine=engine).verdict.sentence

    assert "NVIDIA GPUs only" in said("tensorrt-llm", "MI300X")
    assert "NVIDIA GPUs only" not in said("tensorrt-llm", "H100-SXM")
    assert "compute capability 7.0" in said("vllm", "P40")
    assert "compute capability 7" not in said("vllm", "V100-SXM2-32")


def test_jamba_is_no_model_of_sglang() -> None:
    plan = ask("jamba-v0.1", "H100-SXM", gpu_count=4, engine="sglang", context_tokens=8192)
    assert [(g.kind, g.count) for g in plan.kv.layers] == [("full", 32)]
    assert plan.kv.bytes_per_token == 32 * 2 * 8 * 128 * 2
    assert any("no model of SGLang" in w for w in plan.warnings)
    other = ask("jamba-v0.1", "H100-SXM", gpu_count=4, engine="vllm", context_tokens=8192)
    assert {g.kind for g in other.kv.layers} == {"full", "state", "conv"}
