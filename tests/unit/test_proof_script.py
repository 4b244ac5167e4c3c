"""``benchmarks/proof.py``: its exit status says what came out, and what it began ends with it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "golden" / "proof_vllm_0.32.0.json.gz"
SCRIPT = ROOT / "benchmarks" / "proof.py"


def judged(folder, *args):
    command = [sys.executable, str(SCRIPT), str(folder), "--judge", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def spoiled(change):
    record = json.loads(gzip.decompress(RECORD.read_bytes()))
    change(record)
    return json.dumps(record)


def nothing(record):
    """The real record."""


def a_hit_more(record):
    record["runs"][1]["measured"]["workloads"][0]["counters"]["hits"] += 1


def a_block_less(record):
    record["runs"][0]["printed"]["num_blocks"] -= 1


def no_blocks(record):
    record["runs"][0]["printed"] = {}


def one_engine(record):
    del record["runs"][1]


def no_conversation(record):
    del record["runs"][1]["measured"]["workloads"][0]


def twice_as_slow(record):
    for step in record["runs"][0]["measured"]["steps"]:
        step["step_s"] *= 2


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (nothing, 0),
        (twice_as_slow, 0),  # times do not gate
        (a_hit_more, 1),
        (a_block_less, 1),
        (no_blocks, 1),
        (one_engine, 1),
        (no_conversation, 1),
    ],
)
def test_the_status_says_whether_what_must_be_exact_is(tmp_path, change, status):
    (tmp_path / "record.json").write_text(spoiled(change))
    done = judged(tmp_path)
    assert done.returncode == status
    assert "Cache blocks exact" in done.stdout or status == 1
    assert (tmp_path / "proof.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "proof.txt").read_text().strip() in done.stdout


@pytest.mark.parametrize("content", [None, "", "{}", "\x00"])
def test_no_record_no_proof(tmp_path, content):
    if content is not None:
        (tmp_path / "record.json").write_text(content)
    done = judged(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("No proof: ")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are told of in /proc")
def test_a_time_limit_ends_the_engine_too(tmp_path):
    engine = tmp_path / "engine"
    engine.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 300\n")
    engine.chmod(0o755)
    machine = {
        "name": "a CPU", "vendor": "cpu", "memory_bytes": 2**34, "memory_bytes_per_s": 1e10,
        "flops_per_s": {"bf16": 1e11},
    }  # fmt: skip
    start = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import proof; "
        f"proof.probe = lambda room, on: {machine!r}; "
        f"sys.argv[1:] = [{str(tmp_path / 'out')!r}]; sys.exit(proof.main())"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", start], env={**os.environ, "KVROOM_ENGINE": str(engine)}
    )
    try:
        until = time.monotonic() + 60
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()):
            assert time.monotonic() < until
            assert run.poll() is None
            time.sleep(0.05)
        pid = int((tmp_path / "pid").read_text())
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    finally:
        run.kill()
