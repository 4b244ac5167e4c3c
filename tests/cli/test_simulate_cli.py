"""``kvroom simulate`` as it is typed: traces, workloads, bad ones, rows, cliffs, an early end."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from kvroom.ui.cli.main import main

pytestmark = pytest.mark.slow

HARDWARE = ["llama-3-8b", "--gpu", "H100-SXM", "--context", "8K", "--engine-version", "0.33.0"]
LOAD = "arrivals=poisson:5/s,input=lognormal:mean=400:sigma=0.8,output=100,requests=200"


def typed(*args):
    return CliRunner().invoke(main, ["simulate", *args])


def answer(*args):
    done = typed(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*args):
    done = typed(*args, "--json")
    assert done.exit_code == 2, done.output
    return json.loads(done.stdout)["error"]


@pytest.fixture
def trace(tmp_path):
    def written(*rows, name="trace.jsonl"):
        path = tmp_path / name
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        text = "".join(line + "\n" for line in lines)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return str(path)

    return written


def row(at, prompt, output, **more):
    return {"timestamp": at, "input_length": prompt, "output_length": output, **more}


def test_the_keys_that_scripts_rely_on():
    told = answer(*HARDWARE, "--workload", LOAD)
    assert told["requests"] == {
        "arrived": 200,
        "completed": 200,
        "running": 0,
        "waiting": 0,
        "dropped": 0,
    }
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        times = told[name]
        assert set(times) == {"mean", "p50", "p90", "p95", "p99", "max"}
        assert 0 < times["p50"] <= times["p90"] <= times["p95"] <= times["p99"] <= times["max"]
        assert times["mean"] <= times["max"]
    assert told["output_tokens_per_s"] == pytest.approx(200 * 100 / told["duration_s"])
    assert told["goodput_requests_per_s"] == pytest.approx(200 / told["duration_s"])
    assert 0 < told["kv_blocks"]["peak"] <= told["kv_blocks"]["total"]
    assert (told["prefix_hit_ratio"], told["preemptions"]) == (0.0, 0)


def test_the_same_seed_gives_the_same_bytes():
    args = [*HARDWARE, "--workload", LOAD, "--json"]
    first, again = typed(*args).stdout, typed(*args).stdout
    assert first == again
    assert typed(*args, "--seed", "7").stdout != first


def test_hash_ids_are_shared(trace):
    rows = [row(5000 * i, 1536, 10, hash_ids=[1, 2, 100 + i]) for i in range(4)]
    told = answer(*HARDWARE, "--trace", trace(*rows))
    # The first computes all; each of the others finds two ids of 512 tokens.
    assert told["prefix_hit_ratio"] == pytest.approx(3 * 1024 / (4 * 1536))
    off = answer(*HARDWARE, "--trace", trace(*rows), "--engine-arg", "enable_prefix_caching=false")
    assert off["prefix_hit_ratio"] == 0.0
    assert off["ttft_s"]["mean"] > told["ttft_s"]["mean"]


def test_answers_are_reused_by_the_next_turn():
    spec = "arrivals=uniform:1/s,input=160,output=160,turns=4,think=5s,requests=40"
    told = answer(*HARDWARE, "--workload", spec)
    # Turn n finds all whole blocks of what was said before it: 320 (n - 1) tokens, short of a block.
    found, asked = (sum(320 * n - 16 for n in (1, 2, 3)), sum(160 + 320 * n for n in range(4)))
    assert told["prefix_hit_ratio"] == pytest.approx(found / asked, rel=0.01)


def test_a_closed_loop_keeps_its_users_busy():
    load = "arrivals=closed:8,input=200,output=50,requests=80"
    told = answer(*HARDWARE, "--workload", load, "--warmup", "0")
    assert told["requests"]["completed"] == 80
    engine = told["e2e_s"]["mean"] - told["ttft_front_end_s"] - told["ttft_start_s"]
    busy = 80 * engine / told["duration_s"]
    assert busy == pytest.approx(8, rel=0.05)


def test_replicas_share_the_requests():
    one = answer(*HARDWARE, "--workload", LOAD)
    four = answer(*HARDWARE, "--workload", LOAD, "--replicas", "4")
    assert four["kv_blocks"]["total"] == 4 * one["kv_blocks"]["total"]
    assert four["requests"]["completed"] == 200
    assert four["tpot_s"]["mean"] < one["tpot_s"]["mean"]


def test_what_can_never_be_served_is_dropped_and_counted(trace):
    path = trace(row(0, 100, 10), row(1, 8192, 10), row(2, 10**9, 10), row(3, 8100, 500))
    told = answer(*HARDWARE, "--trace", path)
    assert (told["requests"]["completed"], told["requests"]["dropped"]) == (2, 2)
    assert told["output_tokens_per_s"] * told["duration_s"] == pytest.approx(10 + 92)


def test_wrong_lines_are_named_or_counted(trace):
    path = trace(row(0, 100, 10), '{"timestamp": 1, "input_length": -5, "output_length": 3}')
    wrong = refused(*HARDWARE, "--trace", path)
    assert wrong["field"] == "trace line 2, input_length"
    told = answer(*HARDWARE, "--trace", path, "--skip-bad-lines")
    assert told["requests"]["completed"] == 1
    assert any("1 bad line skipped" in each for each in told["warnings"])


def test_unordered_and_zero_length_requests_have_an_answer(trace):
    path = trace(row(900, 100, 0), row(0, 50, 1), row(100, 20, 2), name="t.jsonl.gz")
    told = answer(*HARDWARE, "--trace", path)
    assert told["requests"]["completed"] == 3
    assert told["tpot_s"]["max"] == told["itl_s"]["max"]  # one answer of two tokens
    assert any("out of order" in each for each in told["warnings"])


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ([*HARDWARE], "workload"),
        ([*HARDWARE, "--trace", "none.jsonl"], "trace"),
        ([*HARDWARE, "--workload", LOAD, "--trace", "none.jsonl"], "--trace"),
        ([*HARDWARE, "--workload", LOAD, "--slo", "ttft=2s"], "--slo"),
        ([*HARDWARE, "--workload", LOAD, "--slo", "ttft_p95=2kg"], "--slo ttft_p95"),
        ([*HARDWARE, "--workload", LOAD, "--seed", "x"], "--seed"),
        ([*HARDWARE, "--workload", LOAD, "--seeds", "0"], "--seeds"),
        ([*HARDWARE, "--workload", LOAD, "--cliff", "speed=1..2"], "--cliff"),
        ([*HARDWARE, "--workload", LOAD, "--cliff", "rate=3..2"], "--cliff"),
        ([*HARDWARE, "--workload", LOAD, "--per-request", "out.csv"], "--per-request"),
        ([*HARDWARE, "--workload", LOAD, "--routing", "magic"], "routing"),
        (["llama-3-70b", "--gpu", "H100-SXM", "--workload", LOAD], "engine"),
        (["bert-base", "--gpu", "H100-SXM", "--workload", LOAD], "model"),
    ],
)
def test_bad_questions_are_refused(args, field):
    assert refused(*args)["field"] == field


def test_one_row_a_request(tmp_path):
    path = tmp_path / "rows.jsonl"
    told = answer(*HARDWARE, "--workload", LOAD, "--per-request", str(path))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(r["request"] for r in rows) == list(range(200))
    mean = sum(r["ttft_s"] for r in rows) / 200
    assert mean == pytest.approx(told["ttft_s"]["mean"])
    assert not list(tmp_path.glob("*.part"))


def test_rows_as_parquet(tmp_path):
    path = tmp_path / "rows.parquet"
    args = [*HARDWARE, "--workload", LOAD, "--per-request", str(path)]
    try:
        parquet = pytest.importorskip("pyarrow.parquet")
    except pytest.skip.Exception:
        assert "kvroom[traces]" in refused(*args)["fix"]
        return
    answer(*args)
    assert parquet.read_table(path).num_rows == 200


def test_objectives_are_judged():
    told = answer(*HARDWARE, "--workload", LOAD, "--slo", "ttft_p95=10s,tpot_p50=1ms")
    assert told["slo"]["ttft_p95"]["met"] is True
    assert told["slo"]["tpot_p50"]["met"] is False
    assert told["goodput_requests_per_s"] == 0.0


def test_a_cliff_is_found():
    slow = ["llama-3-8b", "--gpu", "RTX-4090", "--context", "4K", "--weight-dtype", "fp8"]
    load = "arrivals=poisson:1/s,input=800,output=200,requests=150"
    told = answer(*slow, "--workload", load, "--cliff", "rate=0.5..60")
    waits = [p["ttft_p99_s"] for p in told["points"]]
    assert told["breaks_at"] in [p["value"] for p in told["points"]]
    assert waits[-1] > 5 * waits[0]
    fewer = answer(*slow, "--workload", load, "--cliff", "kv_blocks=300..3000")
    assert next(p["value"] for p in fewer["points"]) == 3000
    assert fewer["points"][-1]["preemptions"] >= fewer["points"][0]["preemptions"]


def test_bands_over_seeds():
    told = answer(*HARDWARE, "--workload", LOAD, "--seeds", "3")
    band = told["bands"]["ttft_s"]["p50"]
    assert told["bands"]["seeds"] == 3
    assert band["low"] <= told["ttft_s"]["p50"] <= band["high"]


def test_requests_at_once_have_a_band_where_they_wait():
    small = [*HARDWARE, "--engine-arg", "num_gpu_blocks_override=600"]
    load = LOAD.replace("poisson:5/s", "closed:100")
    told = answer(*small, "--workload", load, "--seeds", "5")
    band = told["bands"]["requests_at_once"]
    assert 0 < band["mean"]["low"] < band["while_waiting"]["low"]
    assert band["while_waiting"]["low"] < band["while_waiting"]["high"] < 100
    text = typed(*small, "--workload", load, "--seeds", "2").output
    assert "requests at once while others wait" in text


def test_nobody_waits_at_an_easy_load():
    told = answer(*HARDWARE, "--workload", LOAD, "--seeds", "2")
    band = told["bands"]["requests_at_once"]
    assert band["while_waiting"] is None
    # Little's law: arrivals a second times how long each stays.
    arrivals = told["requests"]["completed"] / told["duration_s"]
    assert band["mean"]["low"] == pytest.approx(arrivals * told["e2e_s"]["mean"], rel=0.3)


def test_a_plan_shows_the_band():
    hardware = ["plan", *HARDWARE, "--workload", "input=lognormal:mean=400:sigma=0.8,output=4000"]
    room = json.loads(CliRunner().invoke(main, [*hardware, "--json"]).stdout)["capacity"]
    expected = room["expected"]
    assert expected["low"] < expected["requests"] < expected["high"]
    shown = CliRunner().invoke(main, [*hardware, "--all"]).output
    assert f"({expected['low']:,.1f} to {expected['high']:,.1f})" in shown


def test_describe_needs_no_hardware(trace):
    told = answer("--trace", trace(row(0, 100, 10), row(1000, 300, 10)), "--describe")
    assert (told["requests"], told["input_tokens"]["mean"]) == (2, 200.0)
    shown = typed("--workload", LOAD, "--describe")
    assert "200 requests" in shown.output


@pytest.mark.parametrize("flags", [(), ("--seeds", "2"), ("--slo", "ttft_p95=2s")])
def test_text_fits_a_terminal(flags):
    done = typed(*HARDWARE, "--workload", LOAD, *flags)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "200 of 200 requests are answered" in done.output


@pytest.mark.skipif(not hasattr(signal, "SIGINT"), reason="needs signals")
def test_an_interrupt_gives_what_is_done():
    load = "arrivals=poisson:5/s,input=400,output=100,requests=1000000"
    code = "from kvroom.ui.cli.main import main; main()"
    args = [sys.executable, "-c", code, "simulate", *HARDWARE, "--workload", load, "--json"]
    for wait_s in (3, 10, 30):  # on a busy machine it may not have begun by then
        process = subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        time.sleep(wait_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        if out:
            break
    told = json.loads(out)
    assert process.returncode == 130
    assert told["stopped"] is True
    n = told["requests"]
    assert 0 < n["completed"] < 10**6
    assert n["arrived"] == n["completed"] + n["running"] + n["waiting"] + n["dropped"]
    assert "stopped" in err


def test_tiers_are_typed_one_by_one():
    shared = "arrivals=poisson:5/s,input=400,output=20,prefix=shared:30x2000,requests=200"
    tight = [*HARDWARE, "--workload", shared, "--engine-arg", "num_gpu_blocks_override=1000"]
    told = answer(*tight, "--tier", "host:1GB", "--tier", "nvme:4TB:write=back")
    assert [row["tier"] for row in told["tiers"]] == ["gpu", "host", "nvme"]
    assert set(told["tiers"][1]) == {
        "tier", "hit_tokens", "hit_ratio", "bytes", "room_tokens", "held_tokens", "read_bytes",
        "written_bytes", "evicted_bytes", "reads", "read_s", "busy",
    }  # fmt: skip
    same = answer(
        *tight, "--tiers", '["host:1GB", {"kind": "nvme", "bytes": "4TB", "write": "back"}]'
    )
    assert same == told
    text = typed(*tight, "--tier", "host:1GB", "--tier", "nvme:4TB:write=back").output
    assert "Where prompts are found" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_tier_of_no_bytes_leaves_the_same_bytes():
    args = [*HARDWARE, "--workload", LOAD, "--json"]
    assert typed(*args, "--tier", "host:0", "--tier", "network:0").stdout == typed(*args).stdout


def test_a_wrong_tier_is_refused():
    error = refused(*HARDWARE, "--workload", LOAD, "--tier", "host:1GB:wrte=back")
    assert (error["field"], error["value"]) == ("tiers[0]", "wrte")
    assert "write" in error["fix"]


def test_two_loads_are_one_too_many():
    load = "arrivals=poisson:2/s,input=100,output=10,requests=5"
    asked = ["simulate", "llama-3-8b", "--gpu", "L4", "--context", "8K"]
    result = CliRunner().invoke(main, [*asked, "--workload", load, "--rate", "9"])
    assert result.exit_code == 2
    assert "--rate: 9 is not the only load" in result.output.replace("9.0", "9")
    lengths = "input=100,output=10,requests=5"
    result = CliRunner().invoke(main, [*asked, "--workload", lengths, "--rate", "9", "--json"])
    assert result.exit_code == 0


def test_no_turns_are_counted_in_no_tokens():
    load = "arrivals=poisson:2/s,input=100,output=10,requests=5,turns=0"
    asked = ["simulate", "llama-3-8b", "--gpu", "L4", "--workload", load]
    result = CliRunner().invoke(main, asked)
    assert result.output.startswith("kvroom: workload.turns: 0 is below 1. Write a whole number")


@pytest.mark.parametrize("flag", ["--warmup", "--seed", "--seeds"])
def test_a_count_that_is_none_is_told_of_its_own_flag(flag):
    load = "arrivals=closed:8,input=500,output=50,requests=60"
    for wrong in ("x", "-3", "2.5"):
        told = typed("llama-3-8b", "--gpu", "H100-SXM", "--workload", load, flag, wrong)
        assert told.exit_code == 2
        assert flag in told.stderr
        assert "no seed" not in told.stderr


def test_the_line_of_first_tokens_is_what_the_table_of_times_tells():
    """Both as a client sees them: with the front end, which is most of it here."""
    alike = ["--workload", "arrivals=closed:1,input=64,output=20,requests=60"]
    times = answer(*HARDWARE, *alike)["ttft_s"]
    assert times["p50"] == pytest.approx(times["p99"], rel=0.02)
    shown = [line.split() for line in typed(*HARDWARE, *alike).output.splitlines()]
    line = next(words for words in shown if words[:2] == ["mean", "TTFT"])
    assert float(line[-2]) == pytest.approx(1000 * times["p50"], rel=0.03)
