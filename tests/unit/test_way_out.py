# ruff: noqa: E501 - lines as engines print them
"""Engines that ran out of memory: at which stage, how much was short, and what would do."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom import api
from kvroom.engines.shortage import INNER, inner
from kvroom.errors import KvroomError
from kvroom.observe.logs.startup import read
from kvroom.observe.reconcile import Reconciliation, reconcile
from kvroom.units import GIB, MIB

VLLM = (
    "INFO Initializing a V1 LLM engine (v{release}) with config: model='{model}', tensor_parallel_size=1, max_seq_len=16384\n"
    "INFO non-default args: {{'model': '{model}', 'max_model_len': 16384{more}}}\n"
)
FRAME = 'ERROR   File "/usr/lib/python3/dist-packages/{path}", line 300, in {name}\n'
# c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.1 and later, and before
TORCH = (
    "ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of {total} "
    "of which {free} is free. {others}Including non-PyTorch memory, this process has {held} memory in use. Of the "
    "allocated memory 23.11 GiB is allocated by PyTorch, and 11.45 MiB is reserved by PyTorch but unallocated.\n"
)
OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; "
    "22.10 GiB already allocated; 17.56 MiB free; 22.50 GiB reserved in total by PyTorch)\n"
)


def full(tried: str = "500.00 MiB", total: str = "23.52 GiB", free: str = "12.00 MiB") -> str:
    return TORCH.format(tried=tried, total=total, free=free, held=total, others="")


def of(text: str, **keys: Any) -> Reconciliation:
    return reconcile(read(io.BytesIO(text.encode())), keys)


def start(model: str = "Qwen/Qwen3-8B", release: str = "0.17.0", more: str = "") -> str:
    return VLLM.format(model=model, release=release, more=more)


def test_pytorchs_message_says_what_was_asked_of_what() -> None:
    told = of(start() + full(), gpu="RTX-4090").shortage
    assert told is not None
    assert (told.tried_bytes, told.free_bytes) == (500 * MIB, 12 * MIB)
    assert told.short_bytes == 488 * MIB
    assert told.total_bytes == round(23.52 * GIB)
    assert told.others_bytes == 0


def test_the_older_message_too() -> None:
    told = of(start() + OLD, gpu="RTX-4090").shortage
    assert told is not None
    assert told.total_bytes == round(23.69 * GIB)
    assert told.short_bytes == pytest.approx(2.44 * MIB, rel=1e-3)


LOADED = "INFO Model loading took 15.27 GiB memory and 3.1 seconds\n"
CACHED = "INFO Available KV cache memory: 4.60 GiB\nINFO GPU KV cache size: 33,488 tokens\n"
CAPTURED = "INFO Graph capturing finished in 20 secs, took 0.50 GiB\n"


@pytest.mark.parametrize(
    ("before", "frames", "stage"),
    [
        ("", ["gpu_worker.py load_model"], "load"),
        ("", ["gpu_worker.py load_model", "marlin.py process_weights_after_loading"], "load"),
        (LOADED, ["gpu_worker.py determine_available_memory", "gpu_model_runner.py profile_run"], "profile"),
        (LOADED, ["gpu_model_runner.py profile_run", "gpu_model_runner.py _dummy_sampler_run"], "sampler"),
        # the estimate of graphs makes a small cache of its own within the profiling run (0.17 on)
        (LOADED, ["gpu_worker.py determine_available_memory", "gpu_model_runner.py initialize_kv_cache"], "profile"),
        (LOADED + CACHED, ["gpu_model_runner.py initialize_kv_cache"], "cache"),
        (LOADED + CACHED, ["gpu_worker.py compile_or_warm_up_model", "gpu_model_runner.py capture_model"], "graphs"),
        (LOADED + CACHED + CAPTURED, ["gpu_worker.py execute_model"], "serve"),
        # without a traceback: by what was printed before
        ("", [], "load"),
        (LOADED, [], "profile"),
        (LOADED + CACHED, [], "graphs"),
        (LOADED + CACHED + CAPTURED, [], "serve"),
    ],
)  # fmt: skip
def test_the_stage_is_that_of_the_traceback_else_of_what_was_printed(
    before: str, frames: list[str], stage: str
) -> None:
    paths = (frame.split() for frame in frames)
    lines = "".join(FRAME.format(path=f"vllm/v1/worker/{file}", name=name) for file, name in paths)
    told = of(start() + before + lines + full(), gpu="RTX-4090")
    assert told.shortage is not None
    assert told.shortage.stage == stage
    assert told.sentence.startswith("It ran out of memory ")


def test_weights_that_are_too_large_ask_for_more_ranks() -> None:
    told = of(start("Qwen/Qwen3-32B", "0.11.0") + full(total="47.40 GiB"), gpu="L40S")
    (cure,) = told.remedies
    assert re.search(
        r"weights come to 61\.\d+ GiB on one GPU of 44\.\d+ GiB, 16\.\d+ GiB too much", cure.text
    )
    assert "tp 2 (2 cards) or fp8 weights" in cure.text
    assert cure.keys == {"tp": 2, "gpu_count": 2}
    assert "--tensor-parallel-size 2" in told.command


def test_graphs_ask_for_a_smaller_share() -> None:
    more = ", 'gpu_memory_utilization': 0.98"
    frame = FRAME.format(path="vllm/v1/worker/gpu_model_runner.py", name="capture_model")
    text = start("meta-llama/Llama-3.1-8B", "0.17.0", more) + LOADED + CACHED + frame
    told = of(text + full("54.00 MiB", free="21.31 MiB"), gpu="RTX-4090")
    share = told.remedies[0].args["gpu_memory_utilization"]
    assert 0.9 < share < 0.97
    assert f"--gpu-memory-utilization {share}" in told.command
    assert "--enforce-eager" in told.remedies[0].text


def test_the_sampler_asks_for_fewer_sequences() -> None:
    text = start("meta-llama/Llama-3.1-8B", "0.16.0", ", 'max_num_seqs': 1024") + LOADED
    text += FRAME.format(path="vllm/v1/worker/gpu_model_runner.py", name="_dummy_sampler_run")
    text += full() + (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n"
    )
    told = of(text, gpu="RTX-4090")
    assert told.remedies[0].args == {"max_num_seqs": 512}
    assert "--max-num-seqs 512" in told.command


def test_what_others_hold_is_to_be_ended() -> None:
    text = start("Qwen/Qwen3-8B", "0.11.0") + TORCH.format(
        tried="96.00 MiB", total="23.52 GiB", free="12.00 MiB", held="8.80 GiB",
        others="Process 3433 has 14.62 GiB memory in use. ",
    )  # fmt: skip
    told = of(text, gpu="RTX-4090")
    assert told.remedies[0].text.startswith("end what else holds 14.71 GiB of the card")
    assert told.command == ""


def test_a_container_that_does_not_see_its_own_process() -> None:
    text = start() + TORCH.format(
        tried="96.00 MiB", total="23.52 GiB", free="12.00 MiB", held="17179869184.00 GiB", others=""
    )
    shortage = of(text, gpu="RTX-4090").shortage
    assert shortage is not None
    assert shortage.others_bytes == 0


def test_no_memory_for_blocks_says_how_much_is_short() -> None:
    text = start("Qwen/Qwen3-8B", "0.17.0", ", 'gpu_memory_utilization': 0.8") + LOADED
    text += "INFO Available KV cache memory: -0.64 GiB\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
    told = of(text, gpu="RTX-4090")
    assert "takes 2.25 GiB, 2.89 GiB short on one GPU" in told.remedies[0].text
    assert told.remedies[0].args == {"gpu_memory_utilization": 0.93}
    assert "--gpu-memory-utilization 0.93" in told.command


SGLANG = (
    "server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1, mem_fraction_static=0.95, context_length=32768)\n"
    "Load weight begin. avail mem=23.10 GB\n"
    "Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=7.50 GB, mem usage=15.60 GB.\n"
    "KV Cache is allocated. #tokens: 45000, K size: 3.10 GB, V size: 3.10 GB\n"
    "Memory pool end. avail mem=0.90 GB\n"
)


def test_sglangs_capture_asks_for_a_smaller_static_share() -> None:
    text = SGLANG + full("300.00 MiB", free="120.00 MiB")
    text += "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which 120.00 MiB is free. \n"
    told = of(text, gpu="RTX-4090")
    assert told.engine == "sglang"
    assert told.shortage is not None
    assert told.shortage.stage == "graphs"
    assert told.remedies[0].args == {"mem_fraction_static": 0.93}
    assert "--mem-fraction-static 0.93" in told.command


def test_sglangs_pool_is_its_cache() -> None:
    frame = FRAME.format(path="sglang/srt/model_executor/model_runner.py", name="init_memory_pool")
    shortage = of(SGLANG.partition("KV Cache")[0] + frame + full(), gpu="RTX-4090").shortage
    assert shortage is not None
    assert shortage.stage == "cache"


LLAMA = (
    "build: 6200 (abcdef) with cc for x86_64-linux-gnu\n"
    "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes\n"
    "llama_model_loader: loaded meta data with 33 key-value pairs and 291 tensors from /models/Meta-Llama-3.1-8B-Instruct-Q8_0.gguf (version GGUF V3 (latest))\n"
    "print_info: file type   = Q8_0\n"
)
LLAMA_LOADED = (
    "load_tensors: offloaded 33/33 layers to GPU\n"
    "load_tensors:        CUDA0 model buffer size =  7605.33 MiB\n"
    "llama_context: n_seq_max     = 1\nllama_context: n_ctx         = 131072\nllama_context: n_ubatch      = 512\n"
)
MALLOC = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib} MiB on device 0: cudaMalloc failed: out of memory\n"


@pytest.mark.parametrize(
    ("text", "stage", "mib"),
    [
        (LLAMA + MALLOC.format(mib="14600.00") + "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n", "load", 14600),
        (LLAMA + LLAMA_LOADED + MALLOC.format(mib="16384.00") + "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n", "cache", 16384),
        (LLAMA + LLAMA_LOADED + MALLOC.format(mib="560.00") + "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 587202560\nllama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n", "buffers", 560),
    ],
)  # fmt: skip
def test_llama_cpps_line_behind_says_what_the_buffer_was_for(
    text: str, stage: str, mib: int
) -> None:
    told = of(text).shortage
    assert told is not None
    assert (told.stage, told.tried_bytes) == (stage, mib * MIB)


def test_a_cache_that_llama_cpp_has_no_room_for_asks_for_a_shorter_context() -> None:
    text = LLAMA + LLAMA_LOADED + MALLOC.format(mib="16384.00")
    told = of(text + "llama_init_from_model: failed to allocate buffer for kv cache\n")
    assert told.remedies[0].keys == {"context_tokens": 65536}
    assert "--ctx-size 65536" in told.command


@pytest.mark.parametrize(
    ("line", "short"),
    [
        (
            "Error: model requires more system memory (32.9 GiB) than is available (15.1 GiB)\n",
            17.8 * GIB,
        ),
        ("Error: llama runner process has terminated: cudaMalloc failed: out of memory\n", 0),
    ],
)
def test_ollamas_own_words(line: str, short: float) -> None:
    told = of(line)
    assert told.engine == "ollama"
    assert told.shortage is not None
    assert told.shortage.short_bytes == pytest.approx(short, abs=2)
    assert told.remedies[0].text


def test_a_line_alone_is_answered_and_says_whose_it_is_taken_for() -> None:
    told = of(full(), model="qwen3-14b", gpu="RTX-4090")
    assert told.remedies[0].keys == {"tp": 2, "gpu_count": 2}
    assert any("no line says whose log it is" in note for note in told.notes)


def test_cuda_without_a_figure() -> None:
    told = of(
        start() + LOADED + CACHED + CAPTURED + "RuntimeError: CUDA error: out of memory\n",
        gpu="H100",
    )
    assert told.sentence == "It ran out of memory while it served."


@pytest.mark.parametrize(
    "line",
    [
        "torch.AcceleratorError: CUDA error: out of memory\n",
        "RuntimeError: HIP error: out of memory\n",
        "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'\n",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n",
    ],
)
def test_words_of_the_libraries_below(line: str) -> None:
    told = of(start() + LOADED + line, gpu="RTX-4090")
    assert told.shortage is not None
    assert (told.shortage.stage, told.shortage.short_bytes) == ("profile", 0)


@pytest.mark.parametrize(
    "line",
    [
        "ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 587202560\n",
        "ggml_vulkan: Device memory allocation of size 587202560 failed.\n",
    ],
)
def test_a_buffer_in_bytes(line: str) -> None:
    told = of(LLAMA + LLAMA_LOADED + line).shortage
    assert told is not None
    assert (told.stage, told.tried_bytes) == ("buffers", 560 * MIB)


def test_sglangs_pool_without_room_says_how_much() -> None:
    text = SGLANG.replace("0.95", "0.7").partition("KV Cache")[0]
    text += "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.7\n"
    told = of(text, gpu="RTX-4090")
    assert "short on one GPU" in told.remedies[0].text
    assert told.remedies[0].keys or told.remedies[0].args
    assert told.command


def test_trt_llm_names_the_component() -> None:
    text = (
        "[TensorRT-LLM] TensorRT LLM version: 1.2.0\n"
        "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\n"
        "The following component could not be created: KV cache\n"
    )
    told = of(text, gpu="RTX-4090", model="qwen3-8b")
    assert told.engine == "tensorrt-llm"
    assert told.shortage is not None
    assert told.shortage.stage == "cache"


@given(st.lists(st.sampled_from(INNER), min_size=1, max_size=8))
def test_of_nested_stages_one_is_meant_whatever_order(stages: list[str]) -> None:
    found = ""
    for stage in stages:
        found = inner(found, stage)
    assert found == max(stages, key=INNER.index)


@given(
    st.text("0123456789., GMKTiBbytes", max_size=12),
    st.text(max_size=40),
    st.sampled_from(["", LOADED]),
)
def test_any_figures_are_read_or_left(size: str, rest: str, before: str) -> None:
    message = f"CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of {size} {rest}\n"
    told = of(start() + before + message)
    assert told.engine == "vllm"


def test_tracebacks_by_the_thousand_are_no_restarts() -> None:
    frame = FRAME.format(path="vllm/v1/engine/output_processor.py", name="process_outputs")
    text = start() + LOADED + CACHED + frame * 60_000 + CAPTURED
    told = of(text, gpu="RTX-4090")
    assert told.printed["cuda_graph_bytes"] == GIB // 2
    assert not any("starts over" in note for note in told.notes)


def test_a_traceback_of_no_engine_is_of_none() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 3, in main\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total "
        "capacity of 23.64 GiB of which 153.69 MiB is free. Including non-PyTorch memory, this process "
        "has 23.47 GiB memory in use.\n"
    )
    log = read(io.BytesIO(text.encode()))
    assert log.engine is None
    with pytest.raises(
        KvroomError, match=r"ran out of memory as it started: 224 MiB asked.*no line"
    ):
        api.reconcile(log, model="llama-3-8b", gpu="RTX-4090")
