# ruff: noqa: E501 - command lines and logs as they are
"""Three hundred questions over every command, the same ones each time, for ``answers.py``.

A question is a command line; the files that it names lie in ``FILES``, which are written into an empty
folder first. What is drawn is drawn with a fixed seed, from names listed here.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SEED = 14


@dataclass(frozen=True)
class Question:
    """One command line, by a name that stays."""

    name: str
    args: tuple[str, ...]
    stdin: str | None = None


DENSE = (
    "llama-3-8b", "llama-3-70b", "llama-3.1-8b", "llama-3.1-405b", "llama-3.2-1b", "qwen2.5-7b",
    "qwen2.5-32b", "qwen3-8b", "qwen3-32b-fp8", "mistral-7b", "mistral-nemo", "llama-2-70b",
    "codellama-34b", "mistral-7b-v0.1", "ministral-8b", "qwen1.5-72b",
)  # fmt: skip
OTHERS = (
    "gemma-3-27b", "gemma-2-9b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3",
    "deepseek-v2-lite", "deepseek-v3.2", "deepseek-v4-flash", "qwen3-next-80b-a3b", "qwen3.5-27b",
    "mamba-codestral-7b", "kimi-linear-48b-a3b", "gpt-oss-20b", "gpt-oss-120b", "llama-4-scout",
    "qwen2.5-vl-7b", "kimi-k2", "glm-4-32b", "falcon-7b",
)  # fmt: skip
CARDS = (
    "80GB", "H100-SXM", "H100-PCIe", "H200-SXM", "A100-SXM-80", "L40S", "RTX-4090", "B200-SXM",
    "MI300X", "A100-PCIe-40", "RTX-3090", "L4", "DGX-Spark-GB10",
)  # fmt: skip
ENGINES = (
    ("arithmetic", ""), ("vllm", ""), ("vllm", "0.33.0"), ("vllm", "0.11.0"), ("vllm", "0.8.5"),
    ("sglang", ""), ("sglang", "0.4.10"), ("sglang", "0.5.9"), ("tensorrt-llm", ""),
    ("llama.cpp", ""), ("ollama", ""), ("lmdeploy", ""),
)  # fmt: skip

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
    "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "tied": {**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 16},
    "mistral": {
        **LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
        "sliding_window": 4096,
    },
    "mamba2": {
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 1024,
        "num_hidden_layers": 8, "state_size": 128, "num_heads": 32, "head_dim": 64, "expand": 2,
        "n_groups": 1, "conv_kernel": 4, "vocab_size": 32000, "torch_dtype": "bfloat16",
    },
    "deepseek": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "hidden_size": 2048, "intermediate_size": 4096, "moe_intermediate_size": 512,
        "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 16,
        "kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4,
        "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "vocab_size": 32000,
        "max_position_embeddings": 65536, "torch_dtype": "bfloat16",
    },
    "bert": {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768,
        "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
    },
}  # fmt: skip

VLLM_LOG = """\
INFO [utils.py:1] non-default args: {'model': 'llama-3.1-8b', 'max_model_len': 8192, 'gpu_memory_utilization': 0.9}
INFO [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='llama-3.1-8b', max_seq_len=8192, tensor_parallel_size=1, kv_cache_dtype=auto
INFO [gpu_model_runner.py:1] Model loading took 14.9889 GiB and 2.1 seconds
INFO [gpu_worker.py:298] Available KV cache memory: 54.17 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 443,760 tokens
INFO [kv_cache_utils.py:868] Maximum concurrency for 8,192 tokens per request: 54.17x
INFO [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.99 GiB for weight, 1.97 GiB for peak activation, 0.14 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory.
"""
SGLANG_LOG = """\
[2025-07-18 19:50:58] server_args=ServerArgs(model_path='qwen3-8b', context_length=32768, kv_cache_dtype='auto', mem_fraction_static=0.85, tp_size=1, dp_size=1, ep_size=1, page_size=1, device='cuda')
[2025-07-18 19:51:00 TP0] Load weight begin. avail mem=78.45 GB
[2025-07-18 19:51:58 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=63.00 GB, mem usage=15.45 GB.
[2025-07-18 19:51:58 TP0] KV Cache is allocated. #tokens: 373000, K size: 25.61 GB, V size: 25.61 GB
[2025-07-18 19:52:09 TP0] Capture cuda graph end. Time elapsed: 9.20 s. mem usage=1.10 GB. avail mem=10.13 GB.
[2025-07-18 19:52:10 TP0] max_total_num_tokens=373000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=32768, available_gpu_mem=10.13 GB
"""
TRT_LOG = """\
[11/04/2025-03:36:05] [TRT-LLM] [I] TensorRT LLM version: 1.0.0
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 31.84 GiB, available: 17.83 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).
"""
LLAMA_CPP_LOG = """\
build: 6700 (79c1160b) with cc for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23306 MiB free
llama_model_loader: loaded meta data with 32 key-value pairs and 399 tensors from /models/Qwen3-8B-Q4_K_M.gguf (version GGUF V3)
print_info: file type   = Q4_K - Medium
load_tensors: offloaded 37/37 layers to GPU
load_tensors:        CUDA0 model buffer size =  4458.00 MiB
load_tensors:   CPU_Mapped model buffer size =   333.84 MiB
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 32768
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: kv_unified    = false
llama_kv_cache:      CUDA0 KV buffer size =  4608.00 MiB
llama_kv_cache: size = 4608.00 MiB (  8192 cells,  36 layers,  4/4 seqs), K (f16): 2304.00 MiB, V (f16): 2304.00 MiB
llama_context:      CUDA0 compute buffer size =   310.00 MiB
"""
OLLAMA_LOG = """\
time=2025-10-01T10:00:00Z level=INFO source=routes.go:1475 msg="server config" env="map[OLLAMA_CONTEXT_LENGTH:4096 OLLAMA_FLASH_ATTENTION:true OLLAMA_KV_CACHE_TYPE:q8_0 OLLAMA_NUM_PARALLEL:2]"
time=2025-10-01T10:00:00Z level=INFO source=routes.go:1528 msg="Listening on [::]:11434 (version 0.12.3)"
time=2025-10-01T10:00:01Z level=INFO source=types.go:131 msg="inference compute" id=GPU-1f library=cuda variant=v12 compute=8.6 driver=12.4 name="NVIDIA GeForce RTX 3090" total="23.6 GiB" available="23.3 GiB"
print_info: general.name     = Qwen3 8B
print_info: file type   = Q4_K - Medium
llama_context: n_ctx         = 8192
llama_kv_cache:      CUDA0 KV buffer size =   612.00 MiB
llama_kv_cache: size =  612.00 MiB (  4096 cells,  36 layers,  2/2 seqs), K (q8_0):  306.00 MiB, V (q8_0):  306.00 MiB
"""
POD = """
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.9.2
    env: [{name: LENGTH, value: "8192"}]
    args: [--model, llama-3-8b, --max-model-len, $(LENGTH), '-tp=2']
"""
HELM = """
servingEngineSpec:
  modelSpec:
  - name: "m"
    repository: "vllm/vllm-openai"
    tag: "v0.9.2"
    modelURL: "llama-3-8b"
    vllmConfig:
      tensorParallelSize: 2
      maxModelLen: 8192
      extraArgs: []
"""
BENCH = {
    "backend": "vllm", "model_id": "llama-3.1-8b", "max_concurrency": 32, "duration": 150.87,
    "completed": 32, "total_input_tokens": 65_536, "total_output_tokens": 65_536,
    "request_throughput": 32 / 150.87, "mean_ttft_ms": 1279.56, "mean_tpot_ms": 70.14,
    "mean_itl_ms": 70.14,
}  # fmt: skip


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _mooncake() -> str:
    draw = random.Random(SEED)
    rows, at = [], 0
    for i in range(120):
        at += draw.randrange(20, 600)
        shared = [draw.randrange(4)] * draw.randrange(1, 4)
        ids = [10 * n + d for d, n in enumerate(shared)] + [1000 + i]
        length = 512 * (len(ids) - 1) + draw.randrange(1, 512)
        rows.append(
            {
                "timestamp": at,
                "input_length": length,
                "output_length": draw.randrange(1, 200),
                "hash_ids": ids,
            }
        )
    return _lines(rows)


def _bailian() -> str:
    draw = random.Random(SEED + 1)
    rows = []
    for i in range(60):
        root = i - i % 3
        length = 16 * (4 + 4 * (i % 3)) + 5
        ids = [1000 * root + n for n in range(length // 16 + 1)]
        rows.append(
            {"chat_id": i, "parent_chat_id": -1 if i == root else i - 1, "timestamp": 0.5 * i,
             "input_length": length, "output_length": draw.randrange(5, 60), "type": "text",
             "turn": 1 + i % 3, "hash_ids": ids}
        )  # fmt: skip
    return _lines(rows)


def _token_ids() -> str:
    rows = [
        {"arrival_time_ns": 40_000_000 * i, "input_tok_ids": [*range(64), *range(100 * i, 100 * i + 30)],
         "output_tok_ids": list(range(10 + i % 7))}
        for i in range(40)
    ]  # fmt: skip
    return _lines(rows)


def _script(seed: int, **engine: Any) -> str:
    draw = random.Random(seed)
    requests = []
    for i in range(40):
        head = [[1000 * draw.randrange(3), 16 * draw.randrange(1, 5)]]
        tail = [[100_000 + 1000 * i, draw.randrange(1, 90)]]
        requests.append(
            {"arrival_step": 3 * i // 2, "prompt": head + tail,
             "output": [[900_000 + 1000 * i, draw.randrange(1, 40)]], "priority": draw.randrange(3)}
        )  # fmt: skip
    plain = {
        "num_gpu_blocks": 60, "groups": [{"type": "full", "block_size": 16}],
        "max_num_batched_tokens": 128, "max_num_seqs": 8, "enable_prefix_caching": True,
        "max_model_len": 512,
    }  # fmt: skip
    return json.dumps({"engine": {**plain, **engine}, "requests": requests})


SCENARIOS: dict[str, dict[str, Any]] = {
    "a": {"model": "llama-3-70b", "gpu": "H100-SXM", "gpu_count": 4, "context_tokens": 32768},
    "b": {
        "model": "llama-3-70b", "gpu": "H100-SXM", "gpu_count": 4, "context_tokens": 32768,
        "kv_dtype": "fp8", "concurrency": 16,
        "workload": {"input_tokens": 1024, "output_tokens": 256},
    },
    "c": {"model": "deepseek-v3", "gpu": "H200-SXM", "gpu_count": 8, "engine": "sglang"},
    "d": {
        "model": "llama-3-8b", "gpu": "L4", "engine": "vllm", "engine_version": "0.11.0",
        "engine_args": {"gpu_memory_utilization": 0.85}, "speculation": {"method": "ngram"},
    },
    "inline": {
        "model": "qwen3-8b", "concurrency": 4,
        "gpu": {
            "name": "mine", "memory_bytes": 48 * 10**9, "memory_bytes_per_s": 9e11,
            "flops_per_s": {"bf16": 1.8e14}, "link_bytes_per_s": 2.5e10,
            "host_link_bytes_per_s": 2.5e10,
        },
    },
    "measured": {
        "model": "llama-3.1-8b", "gpu": "H100-SXM", "context_tokens": 8192,
        "known_bytes": {"weights": 16_094_593_024, "activations": 2_115_275_980},
    },
    "given": {
        "model": "llama-3-70b", "gpu": "H100-SXM", "gpu_count": 2, "tp": 2,
        "engine_args": {"kv_cache_memory_bytes": 8 * 2**30}, "context_tokens": 8192,
    },
    "wrong": {"model": "llama-3-8b", "gpu": "L4", "kvdtype": "fp8"},
    "overcommitted": {
        "model": "llama-3-70b", "gpu": "L4", "concurrency": 4, "allow_overcommit": True,
    },
}  # fmt: skip


def link(scenario: dict[str, Any]) -> str:
    """The address that the page of version 1 gave for a question."""
    packed = base64.urlsafe_b64encode(json.dumps(scenario, separators=(",", ":")).encode())
    return "http://127.0.0.1:8642/#s=1." + packed.decode().rstrip("=")


def files() -> dict[str, str]:
    """Every file that a question names: name → text."""
    written = {f"{name}.json": json.dumps(value) for name, value in SCENARIOS.items()}
    for name, config in CONFIGS.items():
        written[f"{name}/config.json"] = json.dumps(config)
    manual = [
        {"timestamp": 0, "input_length": 40, "output_length": 8, "hash_ids": [1, 2, 3]},
        {"timestamp": 1500, "input_length": 64, "output_length": 9, "hash_ids": [1, 2, 4, 5]},
        {"timestamp": 1600, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]},
    ]
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2023-11-16 18:15:{i % 60:02d}.{i:03d}0000,{200 + 37 * i % 900},{10 + 13 * i % 150}\n"
        for i in range(50)
    )
    burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
        f"{2 * i},ChatGPT,{100 + 53 * i % 700},{20 + 7 * i % 90},{120 + 60 * i % 790},Conversation log\n"
        for i in range(50)
    )
    bad = json.dumps({"timestamp": 1, "input_length": -5, "output_length": 3})
    groups = [
        {"type": "full", "block_size": 16},
        {"type": "sliding_window", "block_size": 16, "window": 48},
    ]
    return written | {
        "chat.jsonl": _lines(manual), "bad.jsonl": _lines(manual) + bad + "\n",
        "mooncake.jsonl": _mooncake(), "bailian.jsonl": _bailian(), "ids.jsonl": _token_ids(),
        "azure.csv": azure, "burst.csv": burst, "empty.jsonl": "",
        "script.json": _script(1), "script-window.json": _script(2, groups=groups),
        "script-small.json": _script(3, num_gpu_blocks=34),
        "script-priority.json": _script(4, policy="priority", num_gpu_blocks=40),
        "script-plain.json": _script(5, enable_prefix_caching=False, watermark=0.05),
        "script-wrong.json": _script(6, block_sizes=16),
        "vllm.log": VLLM_LOG, "sglang.log": SGLANG_LOG, "trt.log": TRT_LOG,
        "llama.log": LLAMA_CPP_LOG, "ollama.log": OLLAMA_LOG, "nothing.log": "nothing here\n",
        "serve.sh": SERVE, "pod.yaml": POD, "values.yaml": HELM, "bench.json": json.dumps(BENCH),
        "machine.toml": 'name = "half"\nmemory_bytes = 40000000000\nmemory_bytes_per_s = 1.6e12\n',
        "lines.jsonl": _lines([SCENARIOS[k] for k in ("a", "b", "c", "d", "inline")]),
        "lines-bad.jsonl": _lines([SCENARIOS["a"], SCENARIOS["wrong"]]) + "{\n\n",
    }  # fmt: skip


def _drawn(draw: random.Random) -> list[str]:
    """One drawn question of ``plan``."""
    engine, version = draw.choice(ENGINES)
    model = draw.choice(DENSE if draw.random() < 0.5 else OTHERS)
    count = draw.choice((1, 1, 2, 4, 8))
    args = [model, "--gpu", f"{draw.choice(CARDS)}:{count}", "--engine", engine]
    if version:
        args += ["--engine-version", version]
    if draw.random() < 0.7:
        args += ["--context", draw.choice(("2K", "4096", "8K", "32K", "100000"))]
    maybe = {
        "--kv-dtype": ("bf16", "fp8", "auto"), "--weight-dtype": ("fp8", "int4", "nvfp4", "bf16"),
        "--replicas": ("2", "3"),
    }  # fmt: skip
    for flag, values in maybe.items():
        if draw.random() < 0.25:
            args += [flag, draw.choice(values)]
    load = draw.random()
    if load < 0.6:
        args += ["--input-tokens", draw.choice(("200", "1K", "3000"))]
        args += ["--output-tokens", draw.choice(("64", "300", "1K"))]
        who = draw.choice(("--users", "--rate", "--concurrency", "--static"))
        if who == "--static":
            args += ["--static", "--users", "8"]
        elif who == "--rate":
            args += [who, draw.choice(("0.5", "2", "12"))]
        else:
            args += [who, draw.choice(("1", "16", "64", "500"))]
        if draw.random() < 0.3:
            args += ["--shared-prefix-tokens", "128"]
    elif load < 0.8:
        args += ["--concurrency", draw.choice(("1", "32", "256"))]
    if count == 8 and draw.random() < 0.5:
        args += draw.choice(
            (["--pp", "2"], ["--dp", "2"], ["--dp", "8", "--ep", "8"], ["--tp", "8"])
        )
    return args


PLANS = """\
llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic
llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic --concurrency 16
llama-3-70b --gpu H100-SXM:4 --tier host:512GiB --tier nvme:4TB:write=back --users 200 --input-tokens 4K --output-tokens 200
llama-3-8b --gpu H100-SXM --tiers [{"kind":"host","bytes":1073741824}] --input-tokens 1K --output-tokens 100 --users 16
llama-3-70b --gpu H100-SXM:4 --speculation eagle3:3 --input-tokens 1K --output-tokens 300 --users 8
deepseek-v3 --gpu H200-SXM:8 --speculation mtp:1:acceptance=0.8 --input-tokens 1K --output-tokens 300 --users 8
qwen3-32b --gpu H100-SXM:2 --speculation ngram --input-tokens 1K --output-tokens 300 --users 8
qwen3-32b --gpu H100-SXM:2 --speculation {"method":"draft","model":"qwen3-0.6b","num_speculative_tokens":4} --users 4 --input-tokens 512 --output-tokens 128
llama-3-70b --gpu H100-SXM:4 --disaggregation {"prefill":{"count":1},"decode":{"count":2}} --input-tokens 3000 --output-tokens 200 --rate 2
deepseek-v3 --gpu H100-SXM:16 --input-tokens 2K --output-tokens 256 --users 128
llama-3.1-405b --gpu H100-SXM:16 --pp 2 --tp 8 --context 16K
deepseek-v3 --gpu H200-SXM:8 --dp 8 --ep 8 --tp 1 --engine sglang
deepseek-v3 --gpu H200-SXM:8 --tp 8 --dcp 8
gemma-3-27b --gpu H100-SXM --engine sglang --context 32K
gpt-oss-120b --gpu H100-SXM:2 --engine sglang --users 64 --input-tokens 1K --output-tokens 500
qwen3-next-80b-a3b --gpu H200-SXM:2 --engine sglang
llama-3.2-1b --gpu RTX-4090 --engine vllm --engine-arg max_num_seqs=64 --engine-arg enforce_eager=true
llama-3.2-1b --gpu RTX-4090 --engine vllm --engine-arg enable_lora=true --engine-arg max_loras=4
llama-3.2-1b --gpu RTX-4090 --engine vllm --engine-version 9.9.9
llama-3.2-1b --gpu RTX-4090 --engine vllm --engine-arg nobody_knows=1
qwen3-8b --gpu RTX-3090 --engine llama.cpp --weight-dtype q4_k_m --kv-dtype q8_0 --engine-arg ctx_size=16384 --engine-arg parallel=4
qwen3-32b --gpu RTX-3090 --engine llama.cpp --weight-dtype q4_k_m --engine-arg n_gpu_layers=40
llama-3.1-8b --gpu RTX-3090 --engine ollama --engine-arg num_parallel=2 --engine-arg num_ctx=8192
llama-3-8b --gpu L40S --known-bytes weights=15GiB --known-bytes activations=2GiB
llama-3-8b --gpu L40S --workload arrivals=poisson:2/s,input=lognormal:mean=1000:sigma=0.8,output=fixed:200
llama-3-8b --gpu L40S --lengths {"input":{"mean":500},"output":{"mean":100}} --users 4
llama-3-8b --gpu H100-SXM:2 --replicas 2 --routing prefix:stale=50ms --users 32 --input-tokens 1K --output-tokens 100 --shared-prefix-tokens 512
llama-3-8b --gpu H100-SXM --fleet {"start":{"seconds":20}} --rate 3 --input-tokens 1K --output-tokens 100
whisper-large-v3 --gpu L4
bert-base --gpu L4
flan-t5-xxl --gpu L4
llama --gpu L4
tied --gpu L4 --engine arithmetic
mistral --gpu L4 --context 16K --users 16 --input-tokens 6K --output-tokens 100
mamba2 --gpu L4 --users 16 --input-tokens 6K --output-tokens 100
deepseek --gpu L4 --users 16 --input-tokens 6K --output-tokens 100
bert/config.json --gpu L4
llama-3-8b --gpu machine.toml
llama-3-8b --gpu {"name":"x","memory_bytes":24000000000,"memory_bytes_per_s":9e11}
--scenario a.json
--scenario b.json
--scenario c.json
--scenario d.json
--scenario inline.json
--scenario measured.json
--scenario given.json
--scenario overcommitted.json
llama-3-70b --gpu L4 --strict
llama-3-8b --gpu H100-SXM --strict
llama-3-8b --gpu H100-SXM --context 1M
llama-3-70b --gpu RTX-4090:2 --weight-dtype int4 --concurrency 64 --strict"""

SWEEPS = (
    "batch=1..64", "context=1K..64K", "tp=1,2,4,8", "kv_dtype=bf16,fp8", "gpu=L4,L40S,H100-SXM",
    "context=1K,3K,9K",
)  # fmt: skip

COMMANDS = (
    "vllm serve qwen3-8b -tp 2 --max-model-len 32K --max-num-seqs=64 --enforce-eager --port 8000",
    "python3 -m vllm.entrypoints.openai.api_server --model llama-2-70b --tensor-parallel-size 2",
    "docker run --gpus all vllm/vllm-openai:v0.9.2 --model mistral-7b --kv-cache-dtype fp8",
    "python -m sglang.launch_server --model-path deepseek-v3 --tp 8 --dp 8 --enable-dp-attention "
    "--mem-fraction-static 0.8 --kv-cache-dtype fp8_e4m3 --context-length 65536",
    "trtllm-serve serve qwen3-0.6b --tp_size 2 --max_seq_len 32768 --free_gpu_memory_fraction 0.8",
    "llama-server -m qwen3-8b -c 16384 -np 4 -ngl 99 -fa on -ctk q8_0 -ctv q8_0",
    "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=4 ollama run llama3.1:8b-instruct-q8_0 hello",
    "vllm serve deepseek-v3 -tp 8 --speculative-config "
    """'{"method": "deepseek_mtp", "num_speculative_tokens": 2}'""",
    "vllm serve llama-3-8b --no-such-flag $X --max-num-seqs 8 stray",
    "vllm serve qwen3-235b-a22b -tp 4 --enable-expert-parallel --no-enable-prefix-caching",
    "pod.yaml",
    "values.yaml",
)

HARDWARE = "llama-3-8b --gpu H100-SXM --context 8K --engine-version 0.33.0"
LOAD = "arrivals=poisson:5/s,input=lognormal:mean=400:sigma=0.8,output=100,requests=120"
SIMULATIONS = f"""\
{HARDWARE} --workload {LOAD}
{HARDWARE} --workload {LOAD} --seed 7
{HARDWARE} --workload {LOAD} --seeds 2
{HARDWARE} --workload {LOAD} --slo ttft_p95=10s,tpot_p50=1ms
{HARDWARE} --workload {LOAD} --replicas 3 --routing round-robin
{HARDWARE} --workload {LOAD} --replicas 2 --routing least-loaded
{HARDWARE} --workload {LOAD} --replicas 2 --routing session
{HARDWARE} --workload {LOAD} --per-request rows.jsonl
{HARDWARE} --workload {LOAD} --describe
{HARDWARE} --workload arrivals=closed:8,input=200,output=50,requests=80
{HARDWARE} --workload arrivals=uniform:1/s,input=160,output=160,turns=4,think=5s,requests=40
{HARDWARE} --workload arrivals=poisson:8/s,input=900,output=60,prefix=shared:4x512,requests=120
{HARDWARE} --workload arrivals=poisson:8/s,input=900,output=60,prefix=shared:4x512,requests=120 --replicas 2 --routing prefix:stale=50ms
{HARDWARE} --workload arrivals=poisson:8/s,input=900,output=60,prefix=shared:4x512,requests=120 --tier host:16GiB
{HARDWARE} --workload {LOAD} --fleet {{"start":{{"seconds":5}}}} --replicas 2
{HARDWARE} --trace mooncake.jsonl
{HARDWARE} --trace mooncake.jsonl --describe
{HARDWARE} --trace bailian.jsonl
{HARDWARE} --trace ids.jsonl
{HARDWARE} --trace azure.csv
{HARDWARE} --trace burst.csv
{HARDWARE} --trace bad.jsonl --skip-bad-lines
{HARDWARE} --trace bad.jsonl
{HARDWARE} --trace mooncake.jsonl --engine-arg enable_prefix_caching=false
{HARDWARE} --trace mooncake.jsonl --tier host:1GiB --tier nvme:1TB --engine-arg kv_cache_memory_bytes=2147483648
llama-3-8b --gpu L4 --weight-dtype fp8 --context 4K --trace mooncake.jsonl
llama-3-8b --gpu RTX-4090 --context 4K --weight-dtype fp8 --workload arrivals=poisson:1/s,input=800,output=200,requests=40 --cliff kv_blocks=300..1200
qwen3-8b --gpu H100-SXM --engine sglang --workload {LOAD}
qwen3-8b --gpu H100-SXM --engine sglang --trace mooncake.jsonl
gemma-3-27b --gpu H100-SXM:2 --context 8K --workload {LOAD}
qwen3.5-27b --gpu H100-SXM:2 --context 8K --workload {LOAD}
qwen3-8b --gpu H100-SXM --engine tensorrt-llm --context 8K --workload {LOAD}
qwen3-8b --gpu RTX-4090 --engine llama.cpp --weight-dtype q4_k_m --engine-arg ctx_size=16384 --engine-arg parallel=4 --workload arrivals=poisson:1/s,input=300,output=60,requests=30
llama-3-70b --gpu H100-SXM:4 --context 8K --speculation eagle3:3 --workload arrivals=poisson:2/s,input=400,output=100,requests=60
llama-3-70b --gpu H100-SXM:4 --tp 4 --context 8K --disaggregation {{"prefill":{{"count":1}},"decode":{{"count":1}}}} --workload arrivals=poisson:2/s,input=400,output=100,requests=60
--script script.json
--script script-window.json
--script script-small.json
--script script-priority.json
--script script-plain.json
--script script-wrong.json"""

REUSES = """\
chat.jsonl --block-tokens 16 --policy lru --policy belady --capacity 2,100
chat.jsonl --model llama-3-70b --kv-dtype fp8 --hbm 1MiB --nvme 1TB
mooncake.jsonl --policy lru --policy lru-tail --policy fifo --policy lfu --policy belady --capacity 5,20,100
mooncake.jsonl
bailian.jsonl --policy lru --capacity 10,50
ids.jsonl --block-tokens 32
bad.jsonl --skip-bad-lines
--workload arrivals=poisson:8/s,input=900,output=60,prefix=shared:4x512,requests=60 --block-tokens 16
mooncake.jsonl --model gemma-3-27b --hbm 1GB --tier host:1TB"""

RECONCILES = """\
vllm.log --gpu H100-SXM
vllm.log
vllm.log --gpu H100-SXM --calibrate written.json
vllm.log --gpu H100-SXM --engine-arg gpu_memory_utilization=0.8
sglang.log --gpu H100-SXM
trt.log --model llama-3.1-8b --gpu RTX-5090
llama.log
ollama.log
nothing.log"""

LAUNCHES = """\
llama-3-70b --gpu H100-SXM:4 --context 32K --engine vllm
llama-3-70b --gpu H100-SXM:4 --context 32K --engine vllm --format helm
llama-3-70b --gpu H100-SXM:4 --context 32K --engine vllm --engine-version 0.9.2 --kv-dtype fp8
deepseek-v3 --gpu H200-SXM:8 --engine sglang --context 32K
qwen3-8b --gpu H100-SXM --engine sglang --engine-version 0.4.10
qwen3-8b --gpu H100-SXM --engine tensorrt-llm --context 16K
qwen3-8b --gpu RTX-3090 --engine llama.cpp --weight-dtype q4_k_m --kv-dtype q8_0 --context 16K
llama-3.1-8b --gpu RTX-3090 --engine ollama --weight-dtype q4_k_m --context 8K
llama-3-70b --gpu H100-SXM:8 --tp 4 --dp 2 --engine vllm --users 64 --input-tokens 1K --output-tokens 100
llama-3-70b --gpu L4 --engine vllm
llama-3-8b --gpu L4 --engine arithmetic
deepseek-v3 --gpu H200-SXM:8 --speculation mtp:1 --engine vllm"""

OTHER_COMMANDS = """\
compare a.json b.json
compare a.json b.json c.json
calibrate vllm.log --gpu H100-SXM
calibrate vllm.log vllm.log --gpu H100-SXM --out ours.json
calibrate bench.json --gpu H100-SXM
levers llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic
levers llama-3-8b --gpu L4 --users 16 --input-tokens 1K --output-tokens 100
levers llama-3-8b --gpu L4 --users 16 --input-tokens 1K --output-tokens 100 --by cost --all
levers deepseek-v3 --gpu H200-SXM:8 --engine sglang --users 32 --input-tokens 1K --output-tokens 100 --by step
levers llama-3-70b --gpu L4
search llama-3-8b --workload input=800,output=100 --users 8 --slo ttft_p95=3s,tpot_p95=80ms --gpus L4,L40S --counts 1 --simulate 0 --jobs 1
search llama-3-8b --workload input=800,output=100 --users 8 --slo ttft_p95=3s,tpot_p95=80ms --gpus L4,L40S --counts 1 --simulate 1 --jobs 1
search llama-3-8b --input-tokens 800 --output-tokens 100 --rate 4 --gpu L40S:2 --simulate 0 --jobs 1
search llama-3-8b --workload input=800,output=100 --users 8 --slo ttft_p95=1ms --gpus L4 --counts 1 --simulate 0 --jobs 1
models
models llama-3-70b
models deepseek-v3
models gemma-3-27b
models qwen3.5-27b
models mamba2
models deepseek-v4-flash
gpus
gpus H100-SXM
gpus RTX-4090
gpus machine.toml
schema
watch watched.jsonl
prove proof_vllm_0.32.0.json"""

ERRORS = """\
plan
plan llama-3-8b
plan llama-3-80b --gpu h100
plan llama-3-8b --gpu h1000
plan llama-3-8b --gpu h100:0
plan llama-3-8b --gpu h100:4 --gpu-count 8
plan llama-3-8b --gpu h100:4 --tp 3
plan llama-3-8b --gpu h100 --tp two
plan llama-3-8b --gpu h100 --context -5
plan llama-3-8b --gpu h100 --context 8G
plan llama-3-8b --gpu h100 --kv-dtype fp9
plan llama-3-8b --gpu h100 --weight-dtype q4
plan llama-3-8b --gpu h100 --engine vlm
plan llama-3-8b --gpu h100 --tiers {
plan llama-3-8b --gpu {"name":"x"}
plan llama-3-8b --gpu h100 --engine-arg x
plan llama-3-8b --gpu h100 --engine sglang --engine-arg mem_fraction_static=2
plan llama-3-8b --gpu h100 --known-bytes weights=80G
plan llama-3-8b --gpu h100 --speculation medusa:x
plan llama-3-8b --gpu h100 --tier tape:1TB
plan http://127.0.0.1:8642/#s=1.abc
plan http://127.0.0.1:8642/#s=2.e30
plan --scenario nowhere.json
plan --scenario wrong.json
plan --jsonl nowhere.jsonl
plan llama-3-8b --gpu h100 --csv
plan llama-3-8b --gpu h100 --sweep speed=1..2
plan --nothing
compare a.json
compare a.json nowhere.json
models llama-3-80b
gpus h1000
simulate llama-3-8b --gpu H100-SXM
simulate llama-3-8b --gpu H100-SXM --trace nowhere.jsonl
simulate llama-3-8b --gpu H100-SXM --workload arrivals=sometimes
simulate bert-base --gpu H100-SXM --workload input=1,output=1
simulate llama-3-8b --gpu H100-SXM --trace empty.jsonl
reuse nowhere.jsonl
reuse chat.jsonl --policy magic
reconcile nowhere.log
reconcile vllm.log --gpu nothing
calibrate nothing.log
search llama-3-8b --users 8 --input-tokens 100 --output-tokens 10 --gpus H1000
levers llama-3-8b --gpu L4 --by beauty
watch nowhere.jsonl
prove nowhere.json"""

TEXTS = """\
plan llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic
plan llama-3-8b --gpu L4 --users 16 --input-tokens 1K --output-tokens 100 --explain
compare a.json b.json
simulate llama-3-8b --gpu H100-SXM --workload arrivals=closed:8,input=200,output=50,requests=20
reconcile vllm.log --gpu H100-SXM
launch llama-3-70b --gpu H100-SXM:4 --context 32K --engine vllm
models llama-3-8b
gpus H100-SXM
reuse chat.jsonl --block-tokens 16
plan llama-3-8b --gpu L4 --sweep batch=1..8 --csv
plan llama-3-8b --gpu L4 --sweep context=1K..16K
watch watched.jsonl --trace made.jsonl"""
SERVE = "TP=1\nif [ $GPUS = 8 ]; then TP=8; fi\nvllm serve openai/gpt-oss-120b -tp $TP\n"
CHECKS = """serve.sh pod.yaml values.yaml --gpu H100-SXM
serve.sh --gpu H100-SXM --set TP=2 --expect concurrency=4
serve.sh
nothing.log --gpu H100-SXM
nothing.log --skip-others"""
"""``check``, with one finding, one that fits, and files that cannot be read."""
HELPED = (
    "", "calibrate", "check", "compare", "gpus", "launch", "levers", "models", "plan", "probe", "prove",
    "reconcile", "reuse", "schema", "search", "serve", "simulate", "watch",
)  # fmt: skip


def questions() -> Iterator[Question]:
    """All of them, in an order that stays."""
    draw = random.Random(SEED)
    for i in range(66):
        yield Question(f"plan/drawn/{i:02d}", ("plan", *_drawn(draw), "--json"))
    for i, text in enumerate(PLANS.splitlines()):
        yield Question(f"plan/{i:02d}", ("plan", *text.split(" "), "--json"))
    for i in range(12):
        yield Question(f"plan/explained/{i:02d}", ("plan", *_drawn(draw), "--explain", "--json"))
    for key in SWEEPS:
        args = (
            "plan",
            "llama-3-70b",
            "--gpu",
            "H100-SXM:8",
            "--engine",
            "vllm",
            "--sweep",
            key,
            "--json",
        )
        yield Question(f"plan/sweep/{key.partition('=')[0]}{len(key)}", args)
    for i, command in enumerate(COMMANDS):
        args = ("plan", "--from-command", command, "--gpu", "H200-SXM")
        yield Question(f"plan/from-command/{i:02d}", (*args, "--json"))
    for i in range(8):
        yield Question(f"plan/link/{i}", ("plan", *_drawn(draw), "--link"))
    for name in ("a", "b", "c", "d", "inline"):
        yield Question(f"plan/linked/{name}", ("plan", link(SCENARIOS[name]), "--json"))
    query = "http://127.0.0.1:8642/?model=llama-3-8b&gpu=L4:2&context=4K&users=8&kv=fp8"
    yield Question("plan/linked/query", ("plan", query, "--json"))
    yield Question(
        "compare/links", ("compare", link(SCENARIOS["a"]), link(SCENARIOS["c"]), "--json")
    )
    yield Question("plan/jsonl/good", ("plan", "--jsonl", "lines.jsonl"))
    yield Question("plan/jsonl/bad", ("plan", "--jsonl", "lines-bad.jsonl"))
    yield Question("plan/jsonl/stdin", ("plan", "--jsonl", "-"), json.dumps(SCENARIOS["a"]) + "\n")
    yield Question(
        "plan/scenario/stdin", ("plan", "--scenario", "-", "--json"), json.dumps(SCENARIOS["b"])
    )
    groups = {"simulate": SIMULATIONS, "reuse": REUSES, "reconcile": RECONCILES, "launch": LAUNCHES}
    for command, texts in groups.items():
        for i, text in enumerate(texts.splitlines()):
            yield Question(f"{command}/{i:02d}", (command, *text.split(" "), "--json"))
    for i, text in enumerate(OTHER_COMMANDS.splitlines()):
        yield Question(f"{text.split()[0]}/other/{i:02d}", (*text.split(" "), "--json"))
    for i, text in enumerate(CHECKS.splitlines()):
        yield Question(f"check/{i:02d}", ("check", *text.split(" "), "--json"))
    for i, text in enumerate(ERRORS.splitlines()):
        yield Question(f"errors/{i:02d}", (*text.split(" "), "--json"))
    for i, text in enumerate(TEXTS.splitlines()):
        yield Question(f"text/{i:02d}", tuple(text.split(" ")))
    for command in HELPED:
        yield Question(f"text/help/{command or 'kvroom'}", (*command.split(), "--help"))
