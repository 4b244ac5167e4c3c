"""Outputs of benchmarks in the shapes that the tools write them, and what of each is taken."""

import csv
import io
import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvroom.observe.benchmarks.llama_bench import width_of
from kvroom.observe.benchmarks.reader import read_file
from kvroom.observe.benchmarks.tables import runs_of_text
from kvroom.observe.calibrate import calibrate
from kvroom.ui.cli.main import main


@pytest.fixture
def runs(tmp_path):
    def read(content):
        path = tmp_path / "out"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_file(str(path))

    return read


# Printed by vllm bench serve in yiliu30/vllm-fork, scripts/pp_local_test_res.sh (Gaudi 2), in part.
SERVED = """\
Traffic request rate: inf
Maximum request concurrency: 32
============ Serving Benchmark Result ============
Successful requests:                     32
Benchmark duration (s):                  150.87
Total input tokens:                      65536
Total generated tokens:                  65536
Request throughput (req/s):              0.21
---------------Time to First Token----------------
Mean TTFT (ms):                          7279.56
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          70.14
==================================================
"""


def test_the_table_that_bench_serve_prints(runs):
    once, twice = runs(SERVED + "INFO other lines\n" + SERVED)
    assert once == twice
    assert (once.tool, once.requests, once.input_tokens) == ("bench serve", 32, 2048)
    assert (once.ttft_s, once.tpot_s) == pytest.approx((7.27956, 0.07014))
    assert once.concurrency == pytest.approx(32, rel=0.01)


def test_sglang_says_its_engine_and_its_own_concurrency(runs):
    table = SERVED.replace("Traffic", "Backend: sglang\nTraffic")
    assert [run.engine for run in runs(table)] == ["sglang"]
    line = {"backend": "sglang-oai", "completed": 4, "total_input_tokens": 400, "concurrency": 1.5}
    line |= {"total_output_tokens": 40, "mean_ttft_ms": 50.0}
    (run,) = runs("\n".join([json.dumps(line)] * 1))
    assert (run.engine, run.concurrency, run.tpot_s) == ("sglang", 1.5, None)


def test_bench_serve_of_percentiles_has_its_requests(runs):
    detailed = {
        "completed": 2, "duration": 2.0, "input_lens": [100, 300], "output_lens": [11, 21],
        "ttfts": [0.1, 0.3], "request_throughput": 1.0, "p99_ttft_ms": 300.0,
    }  # fmt: skip
    (run,) = runs(detailed)
    assert (run.input_tokens, run.output_tokens, run.ttft_s) == (200, 16, pytest.approx(0.2))


LLAMA = [
    {"model_filename": "/m/Qwen3-8B-Q4_K_M.gguf", "n_prompt": 512, "n_gen": 0, "avg_ts": 2048.0},
    {"model_filename": "/m/Qwen3-8B-Q4_K_M.gguf", "n_prompt": 0, "n_gen": 128, "avg_ts": 80.0},
    {"model_filename": "C:\\\\m\\\\Qwen3-8B-Q4_K_M.gguf", "n_prompt": 0, "n_gen": 64, "n_depth": 4096,
     "avg_ts": 50.0},
    {"model_filename": "m.gguf", "n_prompt": 512, "n_gen": 128, "avg_ts": 300.0},
    {"model_filename": "m.gguf", "n_prompt": 512, "n_gen": 0, "n_depth": 4096, "avg_ts": 900.0},
]  # fmt: skip


def as_csv(rows):
    out = io.StringIO()
    names = ["build_commit", "model_filename", "n_prompt", "n_gen", "n_depth", "avg_ts"]
    writer = csv.DictWriter(out, names, quoting=csv.QUOTE_ALL, restval="0")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


MARKDOWN = """\
ggml_cuda_init: found 1 CUDA devices:
| model                |     size | params | backend | ngl |            test |              t/s |
| -------------------- | -------: | -----: | ------- | --: | --------------: | ---------------: |
| qwen3 8B Q4_K Medium | 4.68 GiB | 8.19 B | CUDA    |  99 |           pp512 | 2048.00 ± 20.55 |
| qwen3 8B Q4_K Medium | 4.68 GiB | 8.19 B | CUDA    |  99 |           tg128 |    80.00 ± 0.10 |
| qwen3 8B Q4_K Medium | 4.68 GiB | 8.19 B | CUDA    |  99 |    tg64 @ d4096 |    50.00 ± 0.10 |
| qwen3 8B Q4_K Medium | 4.68 GiB | 8.19 B | CUDA    |  99 |     pp512+tg128 |   300.00 ± 0.10 |

build: 1234
"""


@pytest.mark.parametrize(
    "content",
    [json.dumps(LLAMA, indent=2), "\n".join(map(json.dumps, LLAMA)), as_csv(LLAMA), MARKDOWN],
    ids=["json", "jsonl", "csv", "markdown"],
)
def test_llama_bench(runs, content):
    prompt, answer, deep = runs(content)
    assert {run.engine for run in (prompt, answer, deep)} == {"llama.cpp"}
    assert (prompt.input_tokens, prompt.ttft_s, prompt.tpot_s) == (512, 0.25, None)
    assert (answer.output_tokens, answer.tpot_s, answer.ttft_s) == (128, 1 / 80, None)
    assert (deep.input_tokens, deep.output_tokens, deep.tpot_s) == (4096, 64, 1 / 50)
    assert {run.model for run in (prompt, answer, deep)} <= {None, "Qwen3-8B-Q4_K_M"}


def test_llama_bench_says_how_the_file_stores_its_weights(runs):
    """Columns of its Markdown: model (with the file's type), type_k and type_v where they are not F16."""
    assert {run.weight_dtype for run in runs(MARKDOWN)} == {"q4_k_m"}
    rows = [
        {**row, "model_type": "qwen3 8B Q8_0", "type_k": "q8_0", "type_v": "q8_0"} for row in LLAMA
    ]
    assert {(r.weight_dtype, r.kv_dtype) for r in runs(rows)} == {("q8_0", "q8_0")}
    table = """\
| model         |     size | params | backend | ngl | type_k | type_v | test  |             t/s |
| ------------- | -------: | -----: | ------- | --: | -----: | -----: | ----: | --------------: |
| llama 7B Q4_0 | 3.56 GiB | 6.74 B | CUDA    |  99 |   q8_0 |   q4_0 | pp512 | 2048.00 ± 20.55 |
"""
    (run,) = runs(table)
    assert (run.weight_dtype, run.kv_dtype) == ("q4_0", "q8_0/q4_0")


@pytest.mark.parametrize(
    ("model", "width"),
    [
        ("llama 8B F16", "fp16"),
        ("llama 8B BF16", "bf16"),
        ("gpt-oss 20B MXFP4 MoE", "mxfp4"),
        ("qwen3moe 30B.A3B Q8_0", "q8_0"),
        ("llama 8B IQ4_NL - 4.5 bpw", "iq4_nl"),
        ("qwen3 4B Q5_K - Small", "q5_k_s"),
        ("llama 8B", None),
        ("llama 8B IQ2_XXS - 2.0625 bpw", "iq2_xxs"),
    ],
)
def test_the_file_type_in_llama_cpps_words(model, width):
    assert width_of(model) == width


def test_a_calibration_takes_the_width_of_the_table(tmp_path):
    """7.2 ms a token of Q4_0 on an RTX 4090: of BF16 it would be some 15."""
    path = tmp_path / "bench.md"
    path.write_text(MARKDOWN)
    told = calibrate([str(path)], {"model": "qwen3-8b", "gpu": "RTX-4090"})
    tokens = [time for time in told.times if time.metric == "tpot_s"]
    assert all(time.before_s is not None and time.before_s < 0.016 for time in tokens)
    wide = calibrate([str(path)], {"model": "qwen3-8b", "gpu": "RTX-4090", "weight_dtype": "bf16"})
    assert wide.times[0].before_s is not None
    assert {t.question["weight_dtype"] for t in wide.timed} == {"bf16"}


def test_a_width_without_bytes_is_left_out_with_its_name(tmp_path):
    path = tmp_path / "bench.md"
    path.write_text(MARKDOWN + MARKDOWN.replace("Q4_K Medium", "IQ2_XXS"))
    told = calibrate([str(path)], {"model": "qwen3-8b", "gpu": "RTX-4090"})
    assert any("weight_dtype" in why for why in told.left_out)


STAGE = {
    "load_summary": {"count": 10},
    "successes": {
        "count": 10,
        "latency": {
            "request_latency": {"mean": 2.0},
            "time_to_first_token": {"mean": 0.5},
            "time_per_output_token": {"mean": 0.015},
        },
        "throughput": {
            "requests_per_sec": 2.0, "input_tokens_per_sec": 2048.0, "output_tokens_per_sec": 202.0,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"prompt_len": {"mean": 1024.0}, "output_len": {"mean": 101.0}},
        {"prompt_tokens": {"total": 10240.0}, "output_tokens": {"total": 1010.0}},
    ],
)
def test_inference_perf(runs, more):
    (run,) = runs(STAGE | {"successes": STAGE["successes"] | more})
    assert (run.tool, run.input_tokens, run.output_tokens) == ("inference-perf", 1024, 101)
    assert (run.ttft_s, run.tpot_s, run.concurrency) == (0.5, 0.015, pytest.approx(4.0))


def test_inference_perf_by_request(runs):
    times = [0.5 + 0.25 * i for i in range(5)]
    info = {"input_tokens": 64, "output_tokens": 5, "output_token_times": times}
    done = {"start_time": 0.0, "end_time": 1.5, "info": info, "error": None}
    (run,) = runs([done, done, done | {"error": {"error_type": "timeout"}}])
    assert (run.requests, run.ttft_s, run.tpot_s) == (2, 0.5, 0.25)
    assert run.concurrency == pytest.approx(1.5 * 2 / 1.5)


# Printed by GenAI-Perf in a guide of the Dynamo cloud guides (avg alone is read).
GENAI_CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),"1,146.31",249.48,"3,485.23","3,457.97",1,1,1,1,1
Request Latency (ms),"6,406.20","5,371.47","9,608.72","9,436.13",1,1,1,1,1
Inter Token Latency (ms),30.35,27.59,35.60,35.23,33.88,32.53,31.05,30.13,29.04
Output Sequence Length (tokens),174.45,164.00,187.00,186.22,1,1,1,1,1
Input Sequence Length (tokens),"3,000.05","2,999.00","3,001.00",1,1,1,1,1,1

Metric,Value
Request Throughput (per sec),1.50
"""


def test_genai_perf_and_aiperf_csv(runs):
    (run,) = runs(GENAI_CSV)
    assert (run.ttft_s, run.tpot_s) == pytest.approx((1.14631, 0.03035))
    assert (run.input_tokens, run.output_tokens, run.requests_per_s) == (3000.05, 174.45, 1.5)


def test_genai_perf_json(runs):
    value = {
        "request_throughput": {"unit": "requests/sec", "avg": 2.0},
        "request_latency": {"unit": "ms", "avg": 2000.0},
        "time_to_first_token": {"unit": "ms", "avg": 100.0},
        "inter_token_latency": {"unit": "ms", "avg": 19.0},
        "output_sequence_length": {"unit": "tokens", "avg": 101.0},
        "input_sequence_length": {"unit": "tokens", "avg": 256.0},
        "input_config": {"model": ["m"], "perf_analyzer": {"stimulus": {"concurrency": 4}}},
    }
    (run,) = runs(value)
    assert (run.tool, run.model, run.ttft_s, run.tpot_s) == ("GenAI-Perf", "m", 0.1, 0.019)


def test_aiperf_by_request(runs):
    record = {
        "metadata": {"request_start_ns": 10**18, "request_end_ns": 10**18 + 3 * 10**8},
        "metrics": {
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "output_sequence_length": {"value": 9, "unit": "tokens"},
            "time_to_first_token": {"value": 255.0, "unit": "ms"},
            "inter_token_latency": {"value": 5.0, "unit": "ms"},
        },
        "error": None,
    }
    failed = record | {"metrics": {"error_isl": {"value": 1}}, "error": {"code": 499}}
    (run,) = runs("\n".join(map(json.dumps, [record, record, failed])))
    assert (run.requests, run.input_tokens, run.output_tokens) == (2, 550, 9)
    assert (run.ttft_s, run.tpot_s) == pytest.approx((0.255, 0.005))


def test_guidellm_csv(runs):
    names = {
        "Successful requests_per_second mean": 2.0, "Successful prompt_token_count mean": 256.0,
        "Successful output_token_count mean": 101.0,
        "Successful time_to_first_token_ms mean": 100.0,
        "Successful inter_token_latency_ms mean": 19.0,
    }  # fmt: skip
    rows = [list(names), list(names.values())]
    (run,) = runs("\n".join(",".join(map(str, row)) for row in rows))
    assert (run.tool, run.input_tokens, run.ttft_s, run.tpot_s) == ("GuideLLM", 256, 0.1, 0.019)


@pytest.mark.slow
@given(
    st.text(max_size=300), st.sampled_from([SERVED, MARKDOWN, as_csv(LLAMA), GENAI_CSV]), st.data()
)
def test_any_text_among_a_table_is_read_or_left_out(noise, table, data):
    place = data.draw(st.integers(0, len(table)))
    for run in (runs_of_text(table[:place] + noise + table[place:]) or ("", []))[1]:
        assert run.ttft_s is not None or run.tpot_s is not None


def test_a_calibration_that_learned_nothing_is_an_error(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text('{"mean_ttft_ms": 1}')
    done = CliRunner().invoke(main, ["calibrate", str(path), "--model", "qwen3-8b", "--json"])
    assert done.exit_code == 2
    assert "hold nothing to calibrate by" in done.output
    assert "tells no lengths" in done.output


def test_llama_bench_calibrates_a_plan(tmp_path):
    path = tmp_path / "bench.md"
    path.write_text(MARKDOWN)
    args = ["calibrate", str(path), "--model", "qwen3-8b", "--gpu", "RTX-4090", "--json"]
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    assert {p["engine"] for p in answer["calibration"]["times"]["points"]} == {"llama.cpp"}
    assert {t["metric"] for t in answer["times"]} == {"ttft_s", "tpot_s"}
