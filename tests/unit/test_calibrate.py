"""Benchmarks' outputs, and calibration files from several files of evidence."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.evidence.benchmark_output import _runs, read_file
from kvroom.evidence.calibrate import recorded_run
from kvroom.evidence.prometheus import read
from kvroom.evidence.recording import Recorder
from kvroom.evidence.watch import Watcher
from kvroom.faces.cli import main
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


@pytest.mark.parametrize(
    "value", [AIPERF, {"records": AIPERF, "input_config": AIPERF["input_config"]}]
)
def test_aiperf(tmp_path, value):
    (run,) = read_file(written(tmp_path, value))
    assert (run.tool, run.model, run.requests) == ("AIPerf", "m", 64)
    assert (run.ttft_s, run.tpot_s) == (0.1, 0.019)
    assert run.concurrency == pytest.approx(4.0)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "[1, null]", "{", "INFO nothing", '{"mean_ttft_ms": 1}']
)
def test_other_files_are_none(tmp_path, content):
    path = tmp_path / "file"
    path.write_text(content)
    assert read_file(str(path)) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.sampled_from([BENCH_SERVE, GUIDELLM, AIPERF]), st.data())
def test_any_value_in_any_place_is_read_or_left_out(sample, data):
    value = dict(sample)
    value[data.draw(st.sampled_from(sorted(value)))] = data.draw(json_values)
    for run in _runs(value):
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


def another_start(tmp_path):
    """The same card with 0.3 GiB more of activations, and what follows for the cache."""
    text = (
        LOG.read_text().replace("1.97 GiB for peak", "2.27 GiB for peak").replace("54.17", "53.87")
    )
    path = tmp_path / "other.log"
    path.write_text(text.replace("443,760", "441,296"))
    return path


def test_each_log_is_predicted_by_the_others(tmp_path):
    other, out = another_start(tmp_path), tmp_path / "calibration.json"
    found = json.loads(run(LOG, other, "--gpu", "H100-SXM", "--out", out, "--json").stdout)
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
    assert "32.0" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_what_teaches_nothing_is_named(tmp_path):
    path = tmp_path / "empty.log"
    path.write_text("nothing\n")
    assert "left out: empty.log" in run(path).stdout
    out = tmp_path / "c.json"
    assert "empty.log" in run(path, "--out", out, status=2).stderr
    assert not out.exists()


def test_a_file_that_is_not_there():
    with pytest.raises(KvroomError):
        read_file("/no/such/file")
    run("/no/such/file", status=2)
