# ruff: noqa: E501 - lines as engines print them and people paste them
"""Commands as people paste them."""

from typing import Any

import pytest

from kvroom.decisions.commands import read_command
from kvroom.decisions.launch import launch
from kvroom.errors import KvroomError
from kvroom.planning import work
from kvroom.scenario import Scenario

PASTED: dict[str, tuple[str, dict[str, Any]]] = {
    "vllm serve": (
        "vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 32K --max-num-seqs=64 --enforce-eager --port 8000",
        {
            "engine": "vllm", "model": "Qwen/Qwen3-8B", "tp": 2, "context_tokens": 32768,
            "engine_args": {"max_num_seqs": 64, "enforce_eager": True},
        },
    ),
    "the old module, with variables": (
        "CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 nohup python3 -m vllm.entrypoints.openai.api_server \\\n"
        "    --model meta-llama/Llama-2-70b-hf \\\n    --tensor-parallel-size 2 \\\n"
        "    --gpu_memory_utilization 0.85 --trust-remote-code --dtype half > serve.log 2>&1 &",
        {
            "engine": "vllm", "model": "meta-llama/Llama-2-70b-hf", "tp": 2,
            "engine_args": {"gpu_memory_utilization": 0.85},
        },
    ),
    "docker": (
        "sudo docker run --gpus all -v ~/.cache:/root/.cache -e HF_TOKEN=x -p 8000:8000 --ipc=host "
        "vllm/vllm-openai:v0.9.2 --model mistralai/Mistral-7B-v0.1 --kv-cache-dtype fp8 --max-model-len auto",
        {
            "engine": "vllm", "engine_version": "0.9.2", "model": "mistralai/Mistral-7B-v0.1",
            "kv_dtype": "fp8", "engine_args": {"max_model_len": -1},
        },
    ),
    "dotted and negative": (
        "vllm serve m --no-enable-prefix-caching --enable-expert-parallel -tp 4 "
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
        {
            "engine": "vllm", "model": "m", "tp": 4, "ep": 4,
            "engine_args": {
                "enable_prefix_caching": False,
                "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
            },
        },
    ),
    "several lines with variables": (
        "#!/bin/bash\nexport MODEL=acme/big  # whose isn't\nLEN=8192\n\n"
        "vllm serve $MODEL --max-model-len ${LEN} --max-num-seqs ${SEQS:-32} && echo done",
        {
            "engine": "vllm", "model": "acme/big", "context_tokens": 8192,
            "engine_args": {"max_num_seqs": 32},
        },
    ),
    "cpu": (
        "VLLM_CPU_KVCACHE_SPACE=4 vllm serve m",
        {"engine": "vllm", "model": "m", "engine_args": {"kv_cache_memory_bytes": 4 * 2**30}},
    ),
    "sglang": (
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 "
        "--enable-dp-attention --mem-fraction-static 0.8 --kv-cache-dtype fp8_e4m3 "
        "--cuda-graph-bs 1 2 4 --context-length 65536",
        {
            "engine": "sglang", "model": "deepseek-ai/DeepSeek-V3", "tp": 8, "kv_dtype": "fp8",
            "context_tokens": 65536,
            "engine_args": {
                "enable_dp_attention": True, "mem_fraction_static": 0.8, "cuda_graph_bs": "1 2 4",
                "dp_size": 8,
            },
        },
    ),
    "trtllm": (
        "mpirun -n 1 trtllm-serve serve Qwen/Qwen3-0.6B --tp_size 2 --max_seq_len 32768 "
        "--free_gpu_memory_fraction 0.8",
        {
            "engine": "tensorrt-llm", "model": "Qwen/Qwen3-0.6B", "tp": 2, "context_tokens": 32768,
            "engine_args": {"kv_cache_free_gpu_memory_fraction": 0.8},
        },
    ),
    "llama-server": (
        "./build/bin/llama-server -m /models/q.gguf -c 16384 -np 4 -ngl 99 -fa on -ctk q8_0 -ctv q8_0 --host 0.0.0.0",
        {
            "engine": "llama.cpp", "model": "/models/q.gguf", "kv_dtype": "q8_0",
            "engine_args": {
                "ctx_size": 16384, "parallel": 4, "n_gpu_layers": 99, "flash_attn": "on",
            },
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PASTED)
def test_pasted(name: str) -> None:
    text, expected = PASTED[name]
    read = read_command(text)
    assert read.keys == expected
    assert read.warnings == ()


def test_what_is_left_out_is_named() -> None:
    read = read_command("vllm serve m --no-such-flag 5 --max-num-seqs 8 stray")
    assert read.keys["engine_args"] == {"max_num_seqs": 8}
    assert any("--no-such-flag" in w for w in read.warnings)
    assert any("stray" in w for w in read.warnings)


def test_an_unset_variable_is_asked_for() -> None:
    read = read_command("vllm serve $MODEL")
    assert "model" not in read.keys
    assert "--model" in read.warnings[0]


def test_quantised_at_load() -> None:
    narrowed = read_command("vllm serve meta-llama/Meta-Llama-3-8B --quantization fp8")
    assert narrowed.keys["weight_dtype"] == "fp8"
    stored = read_command("vllm serve meta-llama/Meta-Llama-3-8B --quantization awq")
    assert "weight_dtype" not in stored.keys


@pytest.mark.parametrize("text", ["", "ls -l", "python train.py --model m", "docker run ubuntu"])
def test_no_engine(text: str) -> None:
    with pytest.raises(KvroomError, match="starts no engine"):
        read_command(text)


def test_an_open_quote() -> None:
    with pytest.raises(KvroomError, match="not closed"):
        read_command("vllm serve 'm --max-num-seqs 8")


def test_a_secret_is_not_kept() -> None:
    read = read_command("vllm serve m --api-key abc123 --hf-token xyz")
    assert "abc123" not in str(read.keys)
    assert "xyz" not in str(read.keys)


def test_a_model_by_value_has_no_command() -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    }  # fmt: skip
    scenario = Scenario.from_dict(
        {"model": {"config": config}, "gpu": "L40S", "context_tokens": 128}
    )
    with pytest.raises(KvroomError, match="nothing that an engine can load"):
        launch(work(scenario))


def test_an_engine_without_a_command() -> None:
    scenario = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L40S", "engine": "arithmetic"})
    with pytest.raises(KvroomError, match="no command"):
        launch(work(scenario))


def test_a_plan_that_does_not_fit_says_so() -> None:
    scenario = Scenario.from_dict({"model": "llama-3-70b", "gpu": "RTX-4090"})
    made = launch(work(scenario))
    assert any("Does not fit" in note for note in made.notes)
