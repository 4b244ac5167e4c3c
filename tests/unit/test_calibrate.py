"""Benchmarks' outputs, and calibration files from several files of evidence."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.observe.benchmarks.reader import read_file, runs_of_values
from kvroom.observe.calibrate import recorded_run
from kvroom.observe.logs import serving as served_log
from kvroom.observe.prometheus import read
from kvroom.observe.recording import Recorder
from kvroom.observe.watch import Watcher
from kvroom.ui.cli.main import main
from metrics_server import buckets, vllm

LOG = Path(__file__).parents[2] / "docs" / "examples" / "vllm.log"

# A run of 32 requests on Gaudi 2, printed in yiliu30/vllm-fork, scripts/pp_local_test_res.sh.
BENCH_SERVE = {
    "backend": "vllm", "model_id": "some/model", "max_concurrency": 32, "duration": 150.87,
    "completed": 32, "total_input_tokens": 65_536, "total_output_tokens": 65_536,
    "request_throughput": 32 / 150.87, "mean_ttft_ms": 7279.56, "mean_tpot_ms": 70.14,
    "mean_itl_ms": 70.14,
}  # fmt: skip
GUIDELLM = {
    "benchmarks": [{"metrics": {
        name: {"successful": {"mean": value, "count": 40}} for name, value in {
            "requests_per_second": 2.0, "request_concurrency": 4.1, "request_latency": 2.0,
            "prompt_token_count": 256.0, "output_token_count": 101.0,
            "time_to_first_token_ms": 100.0, "inter_token_latency_ms": 19.0,
        }.items()
    }}] * 2,
}  # fmt: skip
AIPERF = {
    "request_count": {"unit": "requests", "avg": 64.0},
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "time_to_first_token": {"unit": "ms", "avg": 100.0, "p99": 180.0},
    "inter_token_latency": {"unit": "ms", "avg": 19.0},
    "input_sequence_length": {"unit": "tokens", "avg": 256.0},
    "output_sequence_length": {"unit": "tokens", "avg": 101.0},
    "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 4}},
}


def written(tmp_path, value, lines=False):
    path = tmp_path / "out.json"
    path.write_text("\n".join(map(json.dumps, value)) if lines else json.dumps(value))
    return str(path)


def test_bench_serve(tmp_path):
    (run,) = read_file(written(tmp_path, BENCH_SERVE))
    assert (run.tool, run.model, run.requests) == ("bench serve", "some/model", 32)
    assert (run.input_tokens, run.output_tokens) == (2048, 2048)
    assert run.ttft_s == pytest.approx(7.27956)
    assert run.tpot_s == pytest.approx(0.07014)
    assert run.concurrency == pytest.approx(32, rel=1e-3)


def test_a_run_a_line(tmp_path):
    assert len(read_file(written(tmp_path, [BENCH_SERVE] * 3, lines=True))) == 3


def test_guidellm(tmp_path):
    runs = read_file(written(tmp_path, GUIDELLM))
    assert len(runs) == 2
    assert (runs[0].requests, runs[0].input_tokens, runs[0].output_tokens) == (40, 256, 101)
    assert runs[0].concurrency == pytest.approx(4.0)


def test_guidellm_as_yaml(tmp_path):
    path = tmp_path / "benchmarks.yaml"
    path.write_text(yaml.safe_dump({"args": {"model": "some/model"}, **GUIDELLM}))
    runs = read_file(str(path))
    assert [run.model for run in runs] == ["some/model"] * 2
    assert (runs[0].requests, runs[0].ttft_s) == (40, 0.1)
    path.write_text("benchmarks:\n- [unclosed\n")
    assert read_file(str(path)) is None


@pytest.mark.parametrize(
    "value", [AIPERF, {"records": AIPERF, "input_config": AIPERF["input_config"]}]
)
def test_aiperf(tmp_path, value):
    (run,) = read_file(written(tmp_path, value))
    assert (run.tool, run.model, run.requests) == ("AIPerf", "m", 64)
    assert (run.ttft_s, run.tpot_s) == (0.1, 0.019)
    assert run.concurrency == pytest.approx(4.0)


@pytest.mark.parametrize("content", ["", "{}", "[]", "[1, null]", "{", "INFO nothing"])
def test_other_files_are_none(tmp_path, content):
    path = tmp_path / "file"
    path.write_text(content)
    assert read_file(str(path)) is None


def test_a_benchmark_without_lengths_holds_no_run(tmp_path):
    assert read_file(written(tmp_path, {"mean_ttft_ms": 1})) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)


@pytest.mark.slow
@given(st.sampled_from([BENCH_SERVE, GUIDELLM, AIPERF]), st.data())
def test_any_value_in_any_place_is_read_or_left_out(sample, data):
    value = dict(sample)
    value[data.draw(st.sampled_from(sorted(value)))] = data.draw(json_values)
    for run in runs_of_values(iter([value])) or ():
        assert run.requests >= 0
        assert run.ttft_s is not None or run.tpot_s is not None


def test_a_recording_is_a_run(tmp_path):
    def at(done, running):
        text = vllm(request_success_total=done, num_requests_running=running)
        for name, mean in (
            ("request_prompt_tokens", 300.0), ("request_generation_tokens", 50.0),
            ("time_to_first_token_seconds", 0.2), ("inter_token_latency_seconds", 0.01),
        ):  # fmt: skip
            text += buckets(name, {"1000": done, "+Inf": done}, done * mean)
        return read(text)

    path = tmp_path / "run.jsonl"
    steps = [at(5, 0), at(5, 4), at(7, 4), at(9, 0), at(9, 0)]
    watcher = Watcher()
    with Recorder(str(path)) as recorder:
        recorder.header("http://127.0.0.1/metrics", steps[0], None)
        for t, step in enumerate(steps):
            recorder.sample(watcher.take(float(t), step), step)
    found = recorded_run(str(path))
    assert (found.requests, found.input_tokens, found.output_tokens) == (4, 300, 50)
    assert (found.ttft_s, found.tpot_s) == (pytest.approx(0.2), pytest.approx(0.01))
    assert found.concurrency == pytest.approx(8 / 3)
    assert recorded_run(str(LOG)) is None


def run(*args, status=0):
    done = CliRunner().invoke(main, ["calibrate", *map(str, args)])
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def start(tmp_path, name, more_gib):
    """The documentation's start with ``more_gib`` more of activations, and what follows for the cache."""
    cache = 58.11 - more_gib
    text = LOG.read_text().replace("1.89 GiB for peak", f"{1.89 + more_gib:.2f} GiB for peak")
    text = text.replace("58.11", f"{cache:.2f}")
    path = tmp_path / name
    path.write_text(text.replace("476,032", f"{int(cache * 512) * 16:,}"))
    return path


def test_each_log_is_predicted_by_the_others(tmp_path):
    starts = [start(tmp_path, f"{more}.log", more) for more in (0.9, 1.2)]
    out = tmp_path / "calibration.json"
    found = json.loads(run(*starts, "--gpu", "H100-SXM", "--out", out, "--json").stdout)
    assert [m["alone"] for m in found["memory"]] == [False, False]
    for m in found["memory"]:
        assert abs(m["after"] / m["printed"] - 1) < 0.007
        assert abs(m["before"] / m["printed"] - 1) > 0.008
    written = json.loads(out.read_text())
    assert len(written["memory"]["entries"]) == 2
    plan = [
        "plan",
        "llama-3-8b",
        "--gpu",
        "H100-SXM",
        "--context",
        "8K",
        "--calibration",
        str(out),
        "--json",
    ]
    warnings = json.loads(CliRunner().invoke(main, plan).stdout)["warnings"]
    assert any("corrected by 2" in w for w in warnings)


def test_one_log_says_that_it_is_its_own_judge():
    assert "by itself" in run(LOG, "--gpu", "H100-SXM").stdout


def test_a_benchmark_beside_the_plan(tmp_path):
    path = written(tmp_path, BENCH_SERVE)
    shown = run(path, "--model", "llama-3-8b", "--gpu", "H100-SXM").stdout
    assert "7.3 s" in shown
    assert "70.1 ms" in shown
    assert "alone" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_runs_of_one_deployment_are_predicted_by_each_other(tmp_path):
    asked, loads = (
        ("--model", "llama-3-8b", "--gpu", "H100-SXM"),
        ((8, 1024), (16, 1024), (32, 2048)),
    )
    plan = ["plan", *asked[1:], "--output-tokens", "2048", "--json"]

    def serving(users, tokens, *more):
        flags = ["--users", str(users), "--input-tokens", str(tokens), *more]
        return json.loads(CliRunner().invoke(main, [*plan, *flags]).stdout)["serving"]

    said = [serving(*load) for load in loads]
    runs = [
        BENCH_SERVE | {
            "max_concurrency": users, "request_throughput": None,
            "total_input_tokens": 32 * tokens,
            "mean_tpot_ms": 1.5e3 * s["tpot_s"], "mean_ttft_ms": 2e3 * s["ttft_s"],
        } for (users, tokens), s in zip(loads, said, strict=True)
    ]  # fmt: skip
    path, out = written(tmp_path, runs, lines=True), tmp_path / "c.json"
    found = json.loads(run(path, *asked, "--out", out, "--json").stdout)["times"]
    assert [(t["concurrency"], t["metric"]) for t in found] == [
        (users, m) for users, _ in loads for m in ("tpot_s", "ttft_s")
    ]
    for t in found:
        assert not t["alone"]
        off = [abs(t[k] / t["measured_s"] - 1) for k in ("before_s", "after_s")]
        assert off[0] > 0.3
        assert off[1] < off[0] / 1.8
    after = serving(16, 1024, "--calibration", str(out))
    assert after["tpot_s"] == pytest.approx(1.5 * said[1]["tpot_s"], rel=0.05)


SERVED = """(EngineCore pid=1) INFO 11-29 20:00:00 [x.py:1] GPU KV cache size: 443,760 tokens
""" + "".join(
    f"INFO 11-29 20:00:{i}0 [loggers.py:123] Engine 000: Avg prompt throughput: {prompt} tokens/s, "
    f"Avg generation throughput: {rate} tokens/s, Running: {running} reqs, Waiting: 0 reqs, "
    f"GPU KV cache usage: {usage}%, Prefix cache hit rate: 0.0%\n"
    for i, (prompt, rate, running, usage) in enumerate(
        [
            (900.0, 100.0, 8, 2.0),  # prompts were read in
            (0.0, 500.0, 8, 2.0),
            (0.0, 400.0, 8, 2.2),
            (0.0, 600.0, 8, 2.1),
            (0.0, 500.0, 6, 1.9),  # two ended in between
            (0.0, 0.0, 0, 0.0),
        ]
    )
)
SGLANG = (
    "[2025-09-11 05:22:21] Decode batch. #running-req: 4, #token: 8200, token usage: 0.00, "
    "cuda graph: True, gen throughput (token/s): 200.00, #queue-req: 0\n"
)


def test_a_log_tells_steps_where_nothing_but_decoding_went_on(tmp_path):
    path = tmp_path / "served.log"
    path.write_text(SERVED)
    (step,) = served_log.read_file(str(path))
    assert (step.concurrency, step.lines) == (8, 3)
    assert step.step_s == pytest.approx(8 / 500)
    assert step.context_tokens == pytest.approx(0.021 * 443_760 / 8, abs=1)
    path.write_text(SGLANG)
    (step,) = served_log.read_file(str(path))
    assert (step.concurrency, step.context_tokens, step.step_s) == (4, 2050, 0.02)


def test_a_start_up_log_that_goes_on_serving_gives_times_too(tmp_path):
    path = tmp_path / "all.log"
    path.write_text(LOG.read_text() + SERVED)
    found = json.loads(run(path, "--gpu", "H100-SXM", "--json").stdout)
    (step,) = found["times"]
    assert (step["metric"], step["concurrency"], step["measured_s"]) == ("step_s", 8, 0.016)
    assert step["alone"]
    assert found["calibration"]["times"]["points"][0]["gpu"] == "H100-SXM"
    assert len(found["memory"]) == 1


def test_a_record_of_experiments_gives_steps(tmp_path):
    gpu = {"name": "a CPU", "vendor": "cpu", "memory_bytes": 2**34, "memory_bytes_per_s": 1e10,
           "flops_per_s": {"bf16": 1e11}}  # fmt: skip
    steps = [
        {"concurrency": b, "context_tokens": c, "step_s": 0.1 * b, "wall_s": 1.0}
        for b in (1, 2, 4, 8, 16) for c in (128, 1024)
    ]  # fmt: skip
    record = {"kvroom_proof": 1, "about": {}, "runs": [{
        "scenario": {"model": "qwen3-0.6b", "gpu": gpu, "engine": "vllm"},
        "measured": {"steps": steps, "firsts": [], "workloads": []},
    }]}  # fmt: skip
    found = json.loads(run(written(tmp_path, record), "--json").stdout)
    assert [t["measured_s"] for t in found["times"]] == [s["step_s"] for s in steps]
    assert found["calibration"]["times"]["points"][0]["gpu"] == "a CPU"


def test_what_teaches_nothing_is_named(tmp_path):
    path = tmp_path / "empty.log"
    path.write_text("nothing\n")
    assert "empty.log" in run(path, status=2).stderr
    out = tmp_path / "c.json"
    assert "empty.log" in run(path, "--out", out, status=2).stderr
    assert not out.exists()


def test_a_record_of_no_steps_teaches_nothing(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"kvroom_proof": 1, "about": {}, "runs": []}')
    told = run(path, status=2).stderr
    assert "nothing to calibrate by: no time in them" in told


def test_a_file_that_is_not_there():
    with pytest.raises(KvroomError):
        read_file("/no/such/file")
    run("/no/such/file", status=2)
