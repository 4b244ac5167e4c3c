# ruff: noqa: E501 - lines as engines print them and people paste them
"""Start-up lines of SGLang, TensorRT-LLM, llama.cpp, ik_llama.cpp and Ollama."""

import io

from kvroom.observe.logs.startup import read
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.observe.reconcile import reconcile
from kvroom.units import GIB, MIB


def of(text: str) -> StartupLog:
    return read(io.BytesIO(text.encode()))


def gib(value: float) -> int:
    return round(value * GIB)


def mib(value: float) -> int:
    return round(value * MIB)


def test_sglang() -> None:
    # 367,404 tokens in 8.23 + 8.23 GB: vllm-project/vllm#21348 (Qwen3-235B-A22B FP8, 4 × H100).
    log = of(
        "[2025-07-18 19:50:58] server_args=ServerArgs(model_path='Qwen/Qwen3-235B-A22B-FP8', "
        "context_length=40960, kv_cache_dtype='auto', mem_fraction_static=0.93, tp_size=4, dp_size=1, "
        "ep_size=1, page_size=1, cuda_graph_bs=None, lora_paths=None, device='cuda')\n"
        "[2025-07-18 19:51:00 TP0] Load weight begin. avail mem=78.45 GB\n"
        "[2025-07-18 19:51:58 TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, "
        "avail mem=22.00 GB, mem usage=56.45 GB.\n"
        "[2025-07-18 19:51:58 TP1] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
        "[2025-07-18 19:51:58 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
        "[2025-07-18 19:51:59 TP0] Memory pool end. avail mem=5.23 GB\n"
        "[2025-07-18 19:52:09 TP0] Capture cuda graph end. Time elapsed: 9.20 s. mem usage=1.10 GB. avail mem=4.13 GB.\n"
        "[2025-07-18 19:52:10 TP0] max_total_num_tokens=367404, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=2048, context_len=40960, available_gpu_mem=4.13 GB\n"
    )
    p, q = log.printed, log.question
    assert log.engine == "sglang"
    assert p["kv_tokens"] == 367_404
    assert p["kv_available_bytes"] == 2 * gib(8.23)  # once, though two ranks print it
    assert p["weights_bytes"] == gib(56.45)
    assert p["free_before_load_bytes"] == gib(78.45)
    assert p["cuda_graph_bytes"] == gib(1.1)
    assert p["max_running_requests"] == 2048
    assert (q["model"], q["tp"], q["context_tokens"]) == ("Qwen/Qwen3-235B-A22B-FP8", 4, 40960)
    assert q["engine_args"]["mem_fraction_static"] == 0.93
    assert "lora_paths" not in q["engine_args"]


def test_sglang_pools() -> None:
    # sgl-gptoss-a100x4: full and window pools; a recurrent model's slots from Qwen3.8-27B on an H100.
    log = of(
        "Use Sliding window memory pool. full_layer_tokens=63987, swa_layer_tokens=51189\n"
        "Mamba Cache is allocated. max_mamba_cache_size: 124, conv_state size: 0.34GB, ssm_state size: 17.58GB\n"
        "KV Cache is allocated. #tokens: 330323, K size: 10.08 GB, V size: 10.08 GB\n"
    )
    p = log.printed
    assert (p["kv_tokens"], p["window_tokens"]) == (63_987, 51_189)
    assert p["state_slots"] == 124
    assert p["state_bytes"] == gib(0.34) + gib(17.58)


def test_sglang_refusal() -> None:
    log = of("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n")
    assert log.engine == "sglang"
    assert log.refusals


def test_tensorrt_llm() -> None:
    # trt-l31-8b-5090: 17.83 GiB free, 16.05 of it cache, 263,008 tokens in blocks of 32.
    log = of(
        "[11/04/2025-03:36:05] [TRT-LLM] [I] TensorRT LLM version: 1.0.0\n"
        "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per "
        "block=32, primary blocks=116, secondary blocks=0\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.23 GiB for max tokens in paged KV cache (3712).\n"
        "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: "
        "31.84 GiB, available: 17.83 GiB\n"
        "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).\n"
    )
    p = log.printed
    assert log.engine == "tensorrt-llm"
    assert log.version == "1.0.0"
    assert p["kv_available_bytes"] == gib(16.05)  # the second cache, not the estimation run's
    assert p["kv_tokens"] == 263_008
    assert p["num_blocks"] == 8219
    assert p["block_size"] == 32
    assert p["total_gpu_bytes"] == gib(31.84)
    assert p["free_after_load_bytes"] == gib(17.83)


def test_tensorrt_llm_of_old() -> None:
    # NVIDIA/TensorRT-LLM#1400.
    log = of(
        "[TensorRT-LLM][INFO] Loaded engine size: 6688 MiB\n"
        "[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache. \n"
        "[TensorRT-LLM][INFO] Using 132608 tokens in paged KV cache.\n"
    )
    assert log.printed == {
        "weights_bytes": 6688 * MIB,
        "kv_available_bytes": 69_524_783_104,
        "kv_tokens": 132_608,
    }


LLAMA_CPP = """\
\x1b[34m0.00.612.795\x1b[0m \x1b[32mI \x1b[0mbuild: 6123 (79c1160b) with cc for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23306 MiB free
llama_model_loader: loaded meta data with 32 key-value pairs and 339 tensors from /models/small-q8.gguf (version GGUF V3)
print_info: general.name     = Small 7B
load_tensors:        CUDA0 model buffer size = 12698.93 MiB
load_tensors:   CPU_Mapped model buffer size =   292.36 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 4096
llama_context: n_ctx_per_seq = 4096
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_kv_cache:      CUDA0 KV buffer size =   448.00 MiB
llama_kv_cache: size =  448.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (f16):  224.00 MiB, V (f16):  224.00 MiB
llama_context:      CUDA0 compute buffer size =   304.00 MiB
llama_context:  CUDA_Host compute buffer size =    16.01 MiB
"""


def test_llama_cpp() -> None:
    log = of(LLAMA_CPP)
    p, q = log.printed, log.question
    assert log.engine == "llama.cpp"
    assert p["weights_bytes"] == mib(12698.93)
    assert p["weights_host_bytes"] == mib(292.36)
    assert p["kv_bytes"] == 448 * MIB
    assert p["kv_tokens"] == 4096
    assert p["activation_peak_bytes"] == 304 * MIB
    assert q["model"] == "/models/small-q8.gguf"
    assert q["gpu"] == "NVIDIA GeForce RTX 3090"
    assert q["engine_version"] == "6123"
    assert q["engine_args"]["ctx_size"] == 4096


def test_llama_cpp_windows_and_state() -> None:
    # Gemma-4-12B: 68 + 765 MiB in 4096 and 4608 cells; Qwen3.5-9B's 50.25 MiB of state.
    log = of(
        "llama_kv_cache_unified_iswa: creating SWA KV cache, size = 4608 cells\n"
        "llama_kv_cache:      CUDA0 KV buffer size =   833.00 MiB\n"
        "llama_kv_cache: size = 68.00 MiB ( 4096 cells, 8 layers, 4/1 seqs), K (f16): 34.00 MiB, V (f16): 34.00 MiB\n"
        "llama_kv_cache: size = 765.00 MiB ( 4608 cells, 40 layers, 4/1 seqs), K (f16): 382.50 MiB, V (f16): 382.50 MiB\n"
        "llama_memory_recurrent:      CUDA0 RS buffer size =    50.25 MiB\n"
    )
    assert log.printed["kv_bytes"] == 833 * MIB + mib(50.25)  # state is cache too
    assert log.printed["state_bytes"] == mib(50.25)


def test_ik_llama_cpp() -> None:
    log = of(
        "llm_load_tensors:      CUDA0 buffer size =  8000.00 MiB\n"
        "llama_kv_cache_init:      CUDA0 KV buffer size =  2713.51 MiB\n"
        "llama_new_context_with_model: KV self size  = 2713,50 MiB, c^KV (q8_KV):  985,50 MiB, kv^T (f16): 1728,00 MiB\n"
    )
    assert log.printed["kv_bytes"] == mib(2713.51)
    assert log.printed["weights_bytes"] == 8000 * MIB


def test_ollama() -> None:
    # ollama-qwen3-30b-32k: 18.5 + 11.7 GiB of weights, 1.9 + 1.1 GiB of cache.
    log = of(
        'time=2025-10-01 level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="18.5 GiB"\n'
        'time=2025-10-01 level=INFO source=device.go:245 msg="model weights" device=CPU size="11.7 GiB"\n'
        'time=2025-10-01 level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="1.9 GiB"\n'
        'time=2025-10-01 level=INFO source=device.go:256 msg="kv cache" device=CPU size="1.1 GiB"\n'
        'time=2025-10-01 level=INFO source=device.go:272 msg="total memory" size="33.5 GiB"\n'
    )
    assert log.printed["kv_bytes"] == gib(1.9)
    assert log.printed["kv_host_bytes"] == gib(1.1)
    assert log.printed["weights_bytes"] == gib(18.5)
    assert log.printed["weights_host_bytes"] == gib(11.7)


def test_a_mixed_file_names_the_rest() -> None:
    log = of(
        LLAMA_CPP + "INFO [gpu_worker.py:1] Available KV cache memory: 2.30 GiB\n"
        "INFO [kv_cache_utils.py:1] GPU KV cache size: 75,840 tokens\n"
    )
    assert log.engine == "llama.cpp"
    assert "vllm" in log.notes[-1]


LLAMA_SERVER = """\
ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
  Device 1: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
build: 6700 (79c1160b) with cc for x86_64-linux-gnu
llama_model_loader: loaded meta data with 32 key-value pairs and 399 tensors from /models/Qwen3-8B-Q4_K_M.gguf (version GGUF V3)
print_info: file type   = Q4_K - Medium
load_tensors: offloaded 37/37 layers to GPU
load_tensors:        CUDA0 model buffer size =  2218.00 MiB
load_tensors:        CUDA1 model buffer size =  2240.00 MiB
load_tensors:   CPU_Mapped model buffer size =   333.84 MiB
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 32768
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = 1
llama_context: kv_unified    = false
llama_kv_cache:      CUDA0 KV buffer size =  2432.00 MiB
llama_kv_cache:      CUDA1 KV buffer size =  2176.00 MiB
llama_kv_cache: size = 4608.00 MiB (  8192 cells,  36 layers,  4/4 seqs), K (f16): 2304.00 MiB, V (f16): 2304.00 MiB
llama_context:      CUDA0 compute buffer size =   200.00 MiB
llama_context:      CUDA1 compute buffer size =   310.00 MiB
"""


def test_llama_server_with_streams_on_two_cards() -> None:
    log = of(LLAMA_SERVER)
    p, q = log.printed, log.question
    assert p["kv_tokens"] == 32_768  # cells of four streams
    assert p["kv_bytes"] == 2432 * MIB  # of the fuller card, as every account is
    assert p["weights_bytes"] == 2218 * MIB
    assert q["pp"] == 2
    assert q["engine_args"]["flash_attn"] is True
    assert log.quantisation == "q4_k_m"
    told = reconcile(log, {})
    assert told.missing == ()
    assert told.scenario is not None
    assert told.scenario["weight_dtype"] == "q4_k_m"
    assert told.scenario["model"] == "/models/Qwen3-8B-Q4_K_M.gguf"
    assert any("read as qwen3-8b, Q4_K_M" in note for note in told.notes)
    assert told.predicted["kv_tokens"] == 32_768
    accounts = {a.name: a for a in told.accounts}
    assert accounts["kv"].difference_bytes == 0  # of the same card
    assert accounts["activations"].printed_bytes == 310 * MIB


def test_the_weights_width_by_the_files_name() -> None:
    assert (
        of(LLAMA_CPP.replace("small-q8", "Small-7B-IQ4_XS-00001-of-00002")).quantisation == "iq4_xs"
    )
    assert of(LLAMA_CPP.replace("small-q8", "small")).quantisation is None
    told = of(LLAMA_CPP + "print_info: file type   = Q8_0\n")
    assert told.quantisation == "q8_0"


OLLAMA = """\
time=2025-10-01T10:00:00Z level=INFO source=routes.go:1475 msg="server config" env="map[CUDA_VISIBLE_DEVICES: OLLAMA_CONTEXT_LENGTH:4096 OLLAMA_DEBUG:INFO OLLAMA_FLASH_ATTENTION:true OLLAMA_GPU_OVERHEAD:0 OLLAMA_HOST:http://0.0.0.0:11434 OLLAMA_KV_CACHE_TYPE:q8_0 OLLAMA_NUM_PARALLEL:2 OLLAMA_SCHED_SPREAD:false http_proxy: no_proxy:]"
time=2025-10-01T10:00:00Z level=INFO source=routes.go:1528 msg="Listening on [::]:11434 (version 0.12.3)"
time=2025-10-01T10:00:01Z level=INFO source=types.go:131 msg="inference compute" id=GPU-1f library=cuda variant=v12 compute=8.6 driver=12.4 name="NVIDIA GeForce RTX 3090" total="23.6 GiB" available="23.3 GiB"
"""
OLLAMA_LOAD = """\
time=2025-10-01T10:00:05Z level=INFO source=server.go:400 msg="starting runner" cmd="/usr/bin/ollama runner --ollama-engine --model /root/.ollama/models/blobs/sha256-a3de86cd --port 40001"
print_info: general.name     = Qwen3 8B
print_info: file type   = Q4_K - Medium
llama_context: n_ctx         = 8192
llama_kv_cache:      CUDA0 KV buffer size =   612.00 MiB
llama_kv_cache: size =  612.00 MiB (  4096 cells,  36 layers,  2/2 seqs), K (q8_0):  306.00 MiB, V (q8_0):  306.00 MiB
"""


def test_ollamas_server_says_its_settings_for_every_model() -> None:
    log = of(OLLAMA + OLLAMA_LOAD + OLLAMA_LOAD)
    assert log.engine == log.question["engine"] == "ollama"
    assert log.version == "0.12.3"
    assert log.question["gpu"] == "NVIDIA GeForce RTX 3090"
    assert log.question["kv_dtype"] == "q8_0"
    assert log.question["engine_args"] == {
        "num_parallel": 2,
        "flash_attention": True,
        "num_ctx": 4096,
    }
    assert log.printed["total_gpu_bytes"] == gib(23.6)
    told = reconcile(log, {})
    assert told.missing == ()
    assert told.predicted["kv_bytes"] == told.printed["kv_bytes"] == 612 * MIB
    assert "OLLAMA_NUM_PARALLEL" in next(a.flag for a in told.accounts if a.name == "kv")
    assert told.scenario is not None
    assert told.scenario["weight_dtype"] == "q4_k_m"


def test_newer_ollama_describes_its_cards() -> None:
    card = (
        'msg="inference compute" id=GPU-{} filter_id="" library=CUDA compute=8.9 name=CUDA{} '
        'description="NVIDIA GeForce RTX 4090" driver=13.0 type=discrete total="24.0 GiB" available="22.8 GiB"\n'
    )
    log = of(card.format("a", 0) + card.format("b", 1) + OLLAMA_LOAD)
    assert log.question["gpu"] == "NVIDIA GeForce RTX 4090"
    assert log.question["pp"] == 2


SGLANG_HYBRID = """\
[2026-08-18 19:50:58] server_args=ServerArgs(model_path='qwen3.5-27b', context_length=40960, kv_cache_dtype='auto', mem_fraction_static=0.85, max_running_requests=32, tp_size=1, dp_size=1, quantization='fp8', device='cuda')
[2026-08-18 19:51:00] Load weight begin. avail mem=78.48 GB
[2026-08-18 19:51:58] Load weight end. type=Qwen3_5, dtype=torch.bfloat16, avail mem=50.01 GB, mem usage=28.47 GB.
[2026-08-18 19:51:59] Mamba Cache is allocated. max_mamba_cache_size: 124, conv_state size: 0.34GB, ssm_state size: 17.58GB
[2026-08-18 19:51:59] KV Cache is allocated. #tokens: 330323, K size: 10.08 GB, V size: 10.08 GB
[2026-08-18 19:52:10] max_total_num_tokens=330323, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=32, context_len=40960, available_gpu_mem=11.0 GB
"""


def test_state_is_cache_in_a_hybrids_log_too() -> None:
    # qwen38-27b-fp8-h100-sglang: 124 slots beside 330,323 tokens.
    told = reconcile(of(SGLANG_HYBRID), {"gpu": "H100-SXM"})
    kv = next(a for a in told.accounts if a.name == "kv")
    assert kv.printed_bytes == gib(0.34) + gib(17.58) + 2 * gib(10.08)
    assert kv.predicted_bytes is not None
    assert abs(kv.predicted_bytes / kv.printed_bytes - 1) < 0.1
    assert abs(told.given_bytes["kv_tokens"] / 330_323 - 1) < 0.005


def test_a_card_by_value_where_no_file_is_opened() -> None:
    card = {"name": "mine", "memory_bytes": "80GB", "memory_bytes_per_s": 3.35e12}
    told = reconcile(of(SGLANG_HYBRID), {"gpu": card}, paths=False)
    assert told.missing == ()
