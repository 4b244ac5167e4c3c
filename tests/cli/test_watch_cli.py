"""``kvroom watch`` as a command, against a server on the loopback that does all that servers do."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvroom.ui.cli.main import main
from kvroom.workloads.traces.reader import Trace
from metrics_server import buckets, raw, serving, text, vllm

pytestmark = pytest.mark.slow

KEYS = {"t_s", "kv_usage", "running", "waiting", "preemptions", "hit_ratio", "ttft_s", "itl_s"}
KVROOM = [sys.executable, "-m", "kvroom.ui.cli.main", "watch"]
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}  # fmt: skip
CPU = {"name": "CPU", "memory_bytes": 24 * 2**30, "memory_bytes_per_s": 2e10}
RECORDED = Path(__file__).parents[1] / "golden" / "vllm_0.32.0_metrics.txt.gz"


def run(*args, status=0):
    done = CliRunner().invoke(main, ["watch", *map(str, args)])
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def samples(*args):
    return [
        json.loads(line) for line in run(*args, "--json", "--interval", "0.05").stdout.splitlines()
    ]


def recorded():
    """What a vLLM 0.32.0 on a CPU answered: 20 blocks, 22 requests, 12 of them since it started."""
    return gzip.decompress(RECORDED.read_bytes()).decode()


def test_json_lines():
    with serving(text(vllm()), text(vllm(generation_tokens_total=5))) as server:
        lines = samples(server.address, "--count", 3)
    assert [line["window_s"] is None for line in lines] == [True, False, False]
    assert all(set(line) >= KEYS for line in lines)
    assert len(server.asked) == 3
    assert {path for path, _ in server.asked} == {"/metrics"}


def test_a_real_engines_answer_beside_its_plan(tmp_path):
    scenario = {
        "model": {"config": MODEL}, "gpu": CPU, "engine": "vllm", "engine_version": "0.32.0",
        "context_tokens": 1024, "engine_args": {"num_gpu_blocks_override": 20},
    }  # fmt: skip
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario))
    with serving(text(recorded())) as server:
        shown = run(server.address, "--scenario", path, "--count", 1).stdout
        (line,) = samples(server.address, "--count", 1)
    rows = {tuple(row.split()) for row in shown.splitlines()}
    assert ("blocks", "20", "20") in rows
    assert ("cache", "tokens", "2,560", "2,560") in rows
    assert ("requests", "at", "once", "2.50", "2.50") in rows
    assert line["preemptions"] == 15
    assert line["hit_ratio"] == 2816 / 4520
    assert line["ttft_s"]["count"] == 12
    assert all(len(row) <= 80 for row in shown.splitlines())


def test_the_server_goes_and_comes_back():
    answers = (
        text(vllm(generation_tokens_total=100)), raw(b""), text("", 503), text("<html>"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nvllm:"), text(vllm(generation_tokens_total=1)),
    )  # fmt: skip
    with serving(*answers) as server:
        lines = samples(server.address, "--count", 7)
    assert [line["error"] is None for line in lines] == [
        True,
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    assert [line["restarted"] for line in lines] == [False] * 5 + [True, False]


def test_a_server_that_never_answers_is_an_error_without_its_secrets():
    with serving(text("", 404)) as server:
        pass
    url = server.address.replace("//", "//me:secret@") + "/metrics?key=secret"
    done = run(url, "--count", 2, "--interval", "0.05", status=2)
    assert "nothing listens there" in done.stderr
    assert "secret" not in done.output
    told = run(url, "--count", 1, "--json", status=2).stdout.splitlines()
    assert json.loads(told[-1])["error"]["field"] == "URL"
    assert "secret" not in "".join(told)


def test_no_recording_of_nothing(tmp_path):
    path = tmp_path / "run.jsonl"
    with serving(text("", 503)) as server:
        run(server.address, "--count", 2, "--interval", "0.05", "--record", path, status=2)
    assert not path.exists()
    assert "neither an address nor a file" in run(path.name, status=2).stderr


def test_metrics_that_are_off():
    with serving(text("", 404)) as server:
        assert "--enable-metrics" in run(server.address, "--count", 1, status=2).stderr.replace(
            "\n", " "
        )


def test_record_tell_again_and_make_a_trace(tmp_path):
    def at(done, running):
        lengths = buckets("request_prompt_tokens", {"200": done, "+Inf": done}, done * 150)
        return text(vllm(request_success_total=done, num_requests_running=running) + lengths)

    path, trace = tmp_path / "run.jsonl", tmp_path / "trace.jsonl"
    with serving(at(3, 0), at(3, 4), at(9, 1), at(10, 0)) as server:
        lines = samples(server.address, "--count", 5, "--record", path)
    again = [json.loads(line) for line in run(path, "--json").stdout.splitlines()]
    assert again == lines
    assert run(path).stdout.count("\n") >= 6
    assert "7 requests" in run(path, "--trace", trace).stdout
    requests = list(Trace(trace))
    assert len(requests) == 7
    assert all(1 <= q.input_tokens <= 300 for q in requests)


def test_a_trace_is_made_of_a_recording_only(tmp_path):
    out = tmp_path / "t.jsonl"
    assert "made of a recording" in run("127.0.0.1:1", "--trace", out, status=2).stderr
    with serving(text(vllm())) as server:
        samples(server.address, "--count", 2, "--record", tmp_path / "run.jsonl")
    assert "no arrival" in run(tmp_path / "run.jsonl", "--trace", out, status=2).stderr
    assert not out.exists()


def test_a_recording_is_not_written_over(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("mine")
    assert "is there already" in run("127.0.0.1:1", "--record", path, "--count", 1, status=2).stderr
    assert path.read_text() == "mine"


def test_a_closed_pipe():
    with serving(text(vllm())) as server:
        process = subprocess.Popen(
            [*KVROOM, server.address, "--interval", "0.05", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        process.stderr.close()
        assert process.wait(20) in (0, 1)


@pytest.fixture
def heeding():
    """What is started heeds Ctrl-C even where these tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding")
def test_control_c_ends_it_whole(tmp_path):
    path = tmp_path / "run.jsonl"
    with serving(text(vllm())) as server:
        process = subprocess.Popen(
            [*KVROOM, server.address, "--interval", "0.05", "--record", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        for _ in range(6):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0
    assert err == b""
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_the_live_view():
    with serving(text(vllm(num_requests_waiting=3, kv_cache_usage_perc=0.96))) as server:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*KVROOM, server.address, "--interval", "0.1", "--count", "3"],
            stdout=theirs, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        last = time.monotonic() + 30
        while time.monotonic() < last:
            try:
                chunk = os.read(ours, 65_536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
        os.close(ours)
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
        process.stderr.close()
    seen = shown.decode()
    assert "vllm m at http://127.0.0.1" in seen
    assert "96.0%" in seen
    assert "3 wait for others to end" in " ".join(seen.split())


def test_no_line_is_wider_than_a_terminal():
    def elsewhere(handler):
        handler.send_response(302)
        handler.end_headers()

    with serving(text(vllm()), elsewhere) as server:
        told = run(server.address, "--count", 2, "--interval", "0.05").stdout
    assert "which is not followed" in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 80
