# ruff: noqa: E501 - lines as engines print them and people paste them
"""vLLM's start-up lines, V0 to today, in the wrappings that people's logs have."""

import gzip
import io
import json
import random

import pytest

from kvroom.observe.logs.startup import read
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.units import GIB

V0 = """\
INFO 06-26 09:00:01 [api_server.py:1043] vLLM API server version 0.8.5
INFO 06-26 09:00:02 [llm_engine.py:240] Initializing a V0 LLM engine (v0.8.5) with config: \
model='acme/small', tokenizer='acme/small', max_seq_len=32768, tensor_parallel_size=1, \
pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto,
INFO 06-26 09:00:09 [model_runner.py:1140] Model loading took 0.7000 GiB and 2.1 seconds
INFO 06-26 09:00:12 [worker.py:287] Memory profiling takes 1.02 seconds
INFO 06-26 09:00:12 [worker.py:287] the current vLLM instance can use total_gpu_memory (23.65GiB) \
x gpu_memory_utilization (0.40) = 9.46GiB
INFO 06-26 09:00:12 [worker.py:287] model weights take 0.70GiB; non_torch_memory takes 0.08GiB; \
PyTorch activation peak memory takes 1.12GiB; the rest of the memory reserved for KV Cache is 7.57GiB.
INFO 06-26 09:00:12 [executor_base.py:112] # cuda blocks: 41345, # CPU blocks: 21845
INFO 06-26 09:00:12 [executor_base.py:117] Maximum concurrency for 32768 tokens per request: 20.19x
"""
V1 = """\
(APIServer pid=1) INFO 08-13 11:00:00 [utils.py:253] non-default args: {'model': 'acme/big', \
'max_model_len': 10240, 'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.92, \
'kv_cache_dtype': 'fp8', 'compilation_config': {'mode': <Mode.NONE: 0>, 'sizes': [1, 2]}, \
'max_num_seqs': 128}
(EngineCore_DP0 pid=2) INFO 08-13 11:00:01 [core.py:133] Initializing a V1 LLM engine (v0.26.1) \
with config: model='acme/big', dtype=torch.bfloat16, max_seq_len=10240, tensor_parallel_size=2, \
pipeline_parallel_size=1, data_parallel_size=1, quantization=fp8, enforce_eager=False, \
kv_cache_dtype=fp8, enable_prefix_caching=True, enable_chunked_prefill=True, pooler_config=None
(Worker_TP1 pid=4) INFO 08-13 11:10:00 [gpu_model_runner.py:5405] Model loading took 12.66 GiB memory and 31.657031 seconds
(Worker_TP0 pid=3) INFO 08-13 11:10:00 [gpu_model_runner.py:5405] Model loading took 12.58 GiB memory and 31.657031 seconds
(Worker_TP0 pid=3) INFO 08-13 11:11:00 [gpu_model_runner.py:6806] Estimated CUDA graph memory: 0.58 GiB total
(Worker_TP0 pid=3) INFO 08-13 11:11:00 [gpu_worker.py:563] Available KV cache memory: 46.50 GiB
(Worker_TP1 pid=4) INFO 08-13 11:11:00 [gpu_worker.py:563] Available KV cache memory: 46.10 GiB
(EngineCore_DP0 pid=2) WARNING 08-13 11:11:01 [kv_cache_utils.py:1157] Add 3 padding layers, may waste at most 6.25% KV cache memory
(EngineCore_DP0 pid=2) INFO 08-13 11:11:01 [kv_cache_utils.py:2235] GPU KV cache size: 394,633 tokens
(EngineCore_DP0 pid=2) INFO 08-13 11:11:01 [kv_cache_utils.py:2236] Maximum concurrency for 10,240 tokens per request: 38.54x
(Worker_TP0 pid=3) INFO 08-13 11:12:00 [gpu_worker.py:727] CUDA graph pool memory: 0.24 GiB (actual), 0.58 GiB (estimated), difference: 0.34 GiB (142.2%).
(Worker_TP0 pid=3) INFO 08-13 11:12:01 [gpu_worker.py:790] Free memory on device (78.20/79.19 GiB) on startup. \
Desired GPU memory utilization is (0.92, 72.85 GiB). Actual usage is 13.26 GiB for consumed memory \
(weights + non-torch), 2.08 GiB for peak activation, and 0.24 GiB for CUDAGraph memory. Replace \
gpu_memory_utilization config with `--kv-cache-memory=40574291354` (37.79 GiB) to fit into requested memory. \
Current kv cache memory in use is 46.5 GiB.
"""


def of(text: str | bytes) -> StartupLog:
    return read(io.BytesIO(text.encode() if isinstance(text, str) else text))


def test_a_start_over_and_over_is_read_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvroom.observe.logs.lines.MOST_HITS", 100)
    monkeypatch.setattr("kvroom.observe.logs.lines.TAIL_BYTES", 20_000)
    last = V1.replace("394,633", "111,111")
    text = V1 * 1000 + last + "x" * 500
    log = of(text)
    assert log.printed["kv_tokens"] == 111_111
    assert log.question["engine_args"]["max_num_seqs"] == 128
    assert any("passed over" in n for n in log.notes)
    whole = of(gzip.compress(text.encode()))  # an archive is read through
    assert whole.printed == log.printed
    assert not any("passed over" in n for n in whole.notes)


def test_drafting_and_adapters_are_read() -> None:
    flags = "'max_num_seqs': 128"
    lora = of(
        V1.replace(flags, f"{flags}, 'enable_lora': True, 'max_loras': 4, 'max_lora_rank': 64")
    )
    args = lora.question["engine_args"]
    assert (args["enable_lora"], args["max_loras"], args["max_lora_rank"]) == (True, 4, 64)
    config = {"method": "mtp", "num_speculative_tokens": 2}
    by_flag = of(V1.replace(flags, f"{flags}, 'speculative_config': {config}"))
    assert by_flag.question["engine_args"]["speculative_config"] == config
    said = "SpeculativeConfig(method='mtp', model='acme/big', num_spec_tokens=2)"
    by_setting = of(V1.replace("pooler_config", f"speculative_config={said}, pooler_config"))
    assert by_setting.question["engine_args"]["speculative_config"] == config
    off = of(V1.replace("pooler_config", "speculative_config=None, pooler_config"))
    assert "speculative_config" not in off.question["engine_args"]


def gib(value: float) -> int:
    return round(value * GIB)


def test_v0() -> None:
    # Printed figures: a V0 log of a 24 GB card (23.65 GiB), Qwen2.5-0.5B's geometry.
    log = of(V0)
    assert log.engine == "vllm"
    assert log.version == "0.8.5"
    assert log.printed == {
        "weights_bytes": gib(0.7),
        "total_gpu_bytes": gib(23.65),
        "gpu_memory_utilization": 0.4,
        "non_torch_bytes": gib(0.08),
        "activation_peak_bytes": gib(1.12),
        "kv_available_bytes": gib(7.57),
        "num_blocks": 41345,
        "max_model_len": 32768,
        "max_concurrency": 20.19,
    }
    assert log.question["model"] == "acme/small"
    assert log.question["context_tokens"] == 32768
    assert log.question["engine_args"]["gpu_memory_utilization"] == 0.4


def test_oldest_wordings() -> None:
    # vLLM 0.6.6 on MI300X and 0.6.4 on an A6000, as printed in public notes.
    log = of(
        "INFO 12-25 14:00:09 model_runner.py:1094] Loading model weights took 67.6979 GB\n"
        "INFO 12-25 14:00:28 worker.py:265] Memory profiling results: duration=18.41 seconds, "
        "total_gpu_memory=191.98GiB, initial_memory_usage=71.40GiB, peak_torch_memory=86.79GiB, "
        "memory_usage_post_profile=73.77GiB, non_torch_memory=6.07GiB, kv_cache_size=95.28GiB, "
        "gpu_memory_utilization=0.98.\n"
        "INFO 12-25 14:00:28 gpu_executor.py:76] # GPU blocks: 19513, # CPU blocks: 819\n"
        "INFO 12-25 14:00:28 gpu_executor.py:80] Maximum concurrency for 32768 tokens per request: 9.53x\n"
    )
    assert log.printed["weights_bytes"] == gib(67.6979)  # its GB is GiB
    assert log.printed["kv_available_bytes"] == gib(95.28)
    assert log.printed["gpu_memory_utilization"] == 0.98
    assert log.printed["activation_peak_bytes"] == gib(86.79) - gib(67.6979)
    assert log.printed["num_blocks"] == 19513


def test_v1_ranks() -> None:
    log = of(V1)
    p = log.printed
    assert log.version == "0.26.1"
    assert p["weights_bytes"] == gib(12.66)  # the rank with most
    assert p["kv_available_bytes"] == gib(46.1)  # the rank with least binds
    assert log.spread["kv_available_bytes"] == (gib(46.1), gib(46.5))
    assert p["kv_tokens"] == 394_633
    assert p["max_concurrency"] == 38.54
    assert p["total_gpu_bytes"] == gib(79.19)
    assert p["free_before_load_bytes"] == gib(78.2)
    assert p["cuda_graph_bytes"] == gib(0.24)
    assert p["cuda_graph_estimate_bytes"] == gib(0.58)
    assert p["activation_peak_bytes"] == gib(2.08) - gib(0.58)  # the estimate was counted in
    assert p["non_torch_bytes"] == gib(13.26) - gib(12.66)
    q = log.question
    assert (q["tp"], q["context_tokens"], q["kv_dtype"]) == (2, 10240, "fp8")
    assert q["engine_args"]["max_num_seqs"] == 128
    assert "compilation_config" not in q["engine_args"]
    assert log.quantisation == "fp8"
    assert log.padding == ("3 6.25",)


def test_separate_weights_wording() -> None:
    # vLLM 0.11 on an H100, as printed: 14.08 + 1.97 + 0.07 of 71.27 GiB.
    log = of(
        "INFO [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on startup. Desired GPU "
        "memory utilization is (0.9, 71.27 GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for "
        "peak activation, 0.07 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory. "
        "Current kv cache memory in use is 59212694937 bytes.\n"
    )
    p = log.printed
    assert p["weights_bytes"] == gib(14.08)
    assert p["activation_peak_bytes"] == gib(1.97)
    assert p["non_torch_bytes"] == gib(0.07)
    assert p["kv_available_bytes"] == 59_212_694_937
    assert p["requested_bytes"] == gib(71.27)


def test_refusal() -> None:
    # The figures of vllm-project/vllm#16118's kind of message.
    log = of(
        "ValueError: To serve at least one request with the models's max seq len (131072), (24.0 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (10.91 GiB). Based on "
        "the available memory, the estimated maximum model length is 59584. Try increasing it.\n"
    )
    p = log.printed
    assert p["needed_bytes"] == gib(24)
    assert p["kv_available_bytes"] == gib(10.91)
    assert p["estimated_max_len"] == 59_584
    assert p["max_model_len"] == 131_072
    assert log.refusals
    assert log.refusals[0].startswith("To serve at least one request")


def test_metrics() -> None:
    log = of(
        'vllm:cache_config_info{block_size="128",cache_dtype="auto",gpu_memory_utilization="0.9",'
        'num_gpu_blocks="8192",sliding_window="None"} 1.0\n'
    )
    assert (log.engine, log.printed["num_blocks"], log.printed["block_size"]) == ("vllm", 8192, 128)


WRAPPINGS = {
    "plain": lambda t: t.encode(),
    "windows": lambda t: t.replace("\n", "\r\n").encode(),
    "carriage returns": lambda t: t.replace(
        "(Worker", "\rLoading: 10%|#  |\rLoading: 90%|## |\r(Worker"
    ).encode(),
    "colours": lambda t: t.replace("INFO", "\x1b[32mINFO\x1b[0m")
    .replace("46.10 GiB", "\x1b[1;33m46.10 GiB\x1b[0m")
    .encode(),
    "kubernetes": lambda t: "".join(
        f"pod/big-0 vllm {line}\n" for line in t.splitlines()
    ).encode(),
    "compose": lambda t: "".join(f"vllm-1  | {line}\n" for line in t.splitlines()).encode(),
    "levels in front": lambda t: "".join(
        f"{('INFO', 'WARNING')[i % 2]} | {line}\n" for i, line in enumerate(t.splitlines())
    ).encode(),
    "multiplexer": lambda t: "".join(f"│{line} │ top\n" for line in t.splitlines()).encode(),
    "json message": lambda t: "".join(
        json.dumps({"ts": 1.5, "level": "info", "message": line}) + "\n" for line in t.splitlines()
    ).encode(),
    "json msg behind a prefix": lambda t: "".join(
        "2026-01-01T00:00:00Z stdout F " + json.dumps({"msg": line}) + "\n" for line in t.splitlines()
    ).encode(),
    "docker json": lambda t: "".join(
        json.dumps({"log": line + "\n", "stream": "stderr"}) + "\n" for line in t.splitlines()
    ).encode(),
    "gzip": lambda t: gzip.compress(t.encode()),
    "utf-16": lambda t: t.encode("utf-16"),
    "utf-16 without a mark": lambda t: t.encode("utf-16-le"),
    "utf-16 the other way": lambda t: t.encode("utf-16-be"),
    "colours within phrases": lambda t: t.replace("KV cache", "KV \x1b[1mcache\x1b[0m").encode(),
    "json with an empty message": lambda t: "".join(
        json.dumps({"message": "", "log": line + "\n"}) + "\n" for line in t.splitlines()
    ).encode(),
    "an array in one line": lambda t: json.dumps([{"message": m} for m in t.splitlines()]).encode(),
    "two archives in one": lambda t: gzip.compress(t[:900].encode()) + gzip.compress(t[900:].encode()),
    "said twice": lambda t: "".join(f"{line}\n{line}\n" for line in t.splitlines()).encode(),
    "in noise": lambda t: (b"\0\xff\xfe noise \n" * 50) + t.encode() + b"GET /metrics 200\n" * 500,
    "no last newline": lambda t: t.rstrip("\n").encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPINGS)
def test_wrappings(name: str) -> None:
    plain, wrapped = of(V1), of(WRAPPINGS[name](V1))
    assert wrapped.printed == plain.printed
    assert wrapped.question == plain.question


def test_decimal_commas() -> None:
    log = of(V1.replace("46.10 GiB", "46,10 GiB").replace("38.54x", "38,54x"))
    assert log.printed["kv_available_bytes"] == gib(46.1)
    assert log.printed["max_concurrency"] == 38.54


def test_a_second_start_replaces_the_first() -> None:
    log = of(V1 + V1.replace("394,633", "200,000"))
    assert log.printed["kv_tokens"] == 200_000
    assert "2 starts" in log.notes[0]
    crashed = of(V1 + V1.splitlines(keepends=True)[0])
    assert crashed.printed["kv_tokens"] == 394_633


def test_a_cut_archive_says_so() -> None:
    whole = gzip.compress(V1.encode() * 50, compresslevel=1)
    log = of(whole[: len(whole) // 2])
    assert "cut short" in log.notes[0]


def test_what_of_a_cut_archive_unpacked_is_read() -> None:
    whole = gzip.compress(V1.encode() + random.Random(1).randbytes(100_000))
    log = of(whole[:-20_000])
    assert "cut short" in log.notes[0]
    assert log.printed == of(V1).printed


def test_two_servers_that_write_to_one_file_are_kept_apart() -> None:
    other = V1.replace("394,633", "200,000").replace("46.10 GiB", "23.00 GiB")
    lines = zip(V1.splitlines(), other.splitlines(), strict=True)
    mixed = of("".join(f"vllm-a-1  | {a}\nvllm-b-1  | {b}\n" for a, b in lines))
    assert mixed.printed == of(V1).printed
    assert any("vllm-b-1 writes to the file too: vllm-a-1 is read" in n for n in mixed.notes)


def test_an_overlong_line_is_cut() -> None:
    log = of(b"x" * 3_000_000 + b" GPU KV cache size: 5 tokens\n" + V1.encode())
    assert log.printed["kv_tokens"] == 394_633


def test_unrelated_text() -> None:
    log = of("Once upon a time the cache was full.\n")
    assert log.engine is None
    assert not log.printed
