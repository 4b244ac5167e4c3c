# ruff: noqa: E501 - lines as engines print them
"""Whatever a file holds, reading it ends in an answer: figures, or what is missing, never a traceback."""

import gzip
import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.engines.log_reprs import read_dict, read_keywords
from kvroom.engines.log_shapes import number, size, whole
from kvroom.engines.registry import log_readers
from kvroom.observe.logs.lines import Log, clean
from kvroom.observe.logs.startup import read
from kvroom.observe.reconcile import reconcile

LINES = (
    "INFO [core.py:1] Initializing a V1 LLM engine (v0.26.1) with config: model='llama-3-8b', max_seq_len=8192, tensor_parallel_size=1, kv_cache_dtype=auto,",
    "INFO [utils.py:1] non-default args: {'model': 'llama-3-8b', 'max_model_len': 8192, 'gpu_memory_utilization': 0.9}",
    "(Worker_TP0 pid=1) INFO [gpu_worker.py:1] Available KV cache memory: 46.50 GiB",
    "(EngineCore pid=1) INFO [kv_cache_utils.py:1] GPU KV cache size: 380,928 tokens",
    "INFO [kv_cache_utils.py:1] Maximum concurrency for 8,192 tokens per request: 46.50x",
    "INFO [x.py:1] Free memory on device (78.20/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.96 GiB for weight, 2.08 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.24 GiB for CUDAGraph memory.",
    "server_args=ServerArgs(model_path='llama-3-8b', tp_size=1, mem_fraction_static=0.8, kv_cache_dtype='auto')",
    "[TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB",
    "max_total_num_tokens=367404, chunked_prefill_size=8192, max_running_requests=2048, context_len=40960, available_gpu_mem=4.13 GB",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).",
    "llama_kv_cache: size =  448.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (f16):  224.00 MiB, V (f16):  224.00 MiB",
    "load_tensors:        CUDA0 model buffer size = 12698.93 MiB",
    "lmdeploy - INFO - async_engine.py:304 - input backend=pytorch, backend_config=PytorchEngineConfig(dtype='auto', tp=1, session_len=8192, max_batch_size=128, cache_max_entry_count=0.8, block_size=64, quant_policy=0)",
    "CacheConfig(max_batches=128, block_size=64, num_cpu_blocks=0, num_gpu_blocks=5816, cache_max_entry_count=0.8, quant_policy=0).",
    "[TM][INFO] [BlockManager] max_block_count = 5816",
    "[TM][INFO] [BlockManager] block_size = 8.000 MB",
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="23808"} 1.0',
    "Kernel config E=8,N=1792,device_name=NVIDIA_H100_80GB_HBM3.json",
)  # fmt: skip


def answered(data: bytes) -> None:
    log = read(io.BytesIO(data))
    for value in log.printed.values():
        assert isinstance(value, int | float)
    for keys in ({}, {"model": "llama-3-8b", "gpu": "H100-SXM"}):
        answer = reconcile(log, keys)
        if log.engine is None:
            assert "engine" in answer.missing
        if answer.predicted:
            assert answer.scenario is not None
        else:
            assert answer.missing
        json.dumps(answer.to_dict())


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes(data: bytes) -> None:
    answered(data)
    answered(b"\x1f\x8b" + data)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers(0, 2000), st.booleans())
def test_spliced_and_cut(lines: list[str], cut: int, packed: bool) -> None:
    data = "\n".join(lines).encode()
    if packed:
        data = gzip.compress(data)
    answered(data[: len(data) - min(cut, len(data))])


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_mutated(data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(LINES))
    at = data.draw(st.integers(0, len(line)))
    more = data.draw(st.text(max_size=10) | st.sampled_from(["9" * 30, "-1", "nan", "{", "'", "0"]))
    answered((line[:at] + more + line[at + data.draw(st.integers(0, 5)) :]).encode())


def test_every_engine_has_lines_here() -> None:
    assert {read(io.BytesIO(x.encode())).engine for x in LINES} >= {r.engine for r in log_readers()}


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_readers_of_values(text: str) -> None:
    read_dict(text)
    read_keywords(text)
    read_dict("{" + text)
    number(text)
    size(text)
    whole(text)
    clean(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**9))
def test_separators(value: int) -> None:
    assert whole(f"{value:,}") == value
    assert number(f"{value:,}.50") == value + 0.5
    assert number(f"{value},50") == value + 0.5
    assert number(f"{value:,}".replace(",", ".") + ",50") == value + 0.5


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["a", "needle", "x" * 300]), max_size=50), st.integers(1, 64))
def test_blocks_never_lose_a_line(words: list[str], width: int) -> None:
    """However the file is cut into reads, each line with the needle comes out once, in order."""
    lines = [f"{i} {w}" for i, w in enumerate(words)]

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(width, size) if size and size > 0 else width)

    found = [line for line, _ in Log(Slow("\n".join(lines).encode()), ["needle"])]
    assert found == [x for x in lines if "needle" in x]
