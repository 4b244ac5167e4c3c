"""``kvroom reuse`` as it is typed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvroom.ui.cli.main import main

CHAT = [
    {"timestamp": 0, "input_length": 40, "output_length": 8, "hash_ids": [1, 2, 3]},
    {"timestamp": 1500, "input_length": 64, "output_length": 9, "hash_ids": [1, 2, 4, 5]},
    {"timestamp": 1600, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]},
]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in CHAT))
    return str(path)


def typed(*args):
    return CliRunner().invoke(main, ["reuse", *args])


def answer(*args):
    done = typed(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_the_keys_that_scripts_rely_on(trace):
    asked = ["--block-tokens", "16", "--policy", "lru", "--policy", "belady", "--capacity", "2,100"]
    told = answer(trace, *asked)
    assert (told["references"], told["unique_blocks"], told["hit_blocks"]) == (10, 5, 5)
    assert told["token_hit_ratio"] == (32 + 40) / 144
    assert told["hit_ratio"]["belady"]["100"] == 0.5
    assert set(told["hit_ratio"]) == {"lru", "belady"}
    assert list(told["fragmentation"]) == ["16", "32", "64", "128", "256", "512"]
    assert (told["skipped_lines"], told["unordered"], told["warnings"]) == (0, 0, [])


def test_what_is_left_out_is_told_from_the_trace(trace):
    told = answer(trace)
    assert told["block_tokens"] == 16
    assert set(told["hit_ratio"]["lru"]) == {"1", "2", "3", "5"}
    assert told["needs"][-1]["hit_ratio"] == 0.5


def test_sizes_in_bytes_and_where_they_lie(trace):
    told = answer(
        trace, "--model", "llama-3-70b", "--kv-dtype", "fp8", "--hbm", "1MiB", "--nvme", "1TB"
    )
    assert told["model"]["bytes_per_token"] == 163_840
    need = told["needs"][-1]
    assert need["bytes"] == need["tokens"] * 163_840
    assert need["tiers"] == {"hbm": 2**20, "nvme": need["bytes"] - 2**20}
    hbm, nvme = told["tiers"]
    assert (hbm["tier"], hbm["blocks"], nvme["gib"]) == ("hbm", 0, 10**12 / 2**30)
    assert nvme["total_ratio"] == told["needs"][-1]["hit_ratio"]


def test_tiers_are_asked_for_as_in_simulate(trace):
    model = (trace, "--model", "llama-3-70b")
    told = answer(*model, "--hbm", "1MiB", "--tier", "nvme:1TB", "--tier", "host:20MiB")
    assert [t["tier"] for t in told["tiers"]] == ["hbm", "host", "nvme"]
    plain = answer(*model, "--hbm", "1MiB", "--host", "20MiB", "--nvme", "1TB")
    assert told["tiers"] == plain["tiers"]
    (far,) = answer(*model, "--tier", "network:1TB")["tiers"]
    assert far["total_ratio"] == told["needs"][-1]["hit_ratio"]


def test_text_fits_a_terminal(trace):
    done = typed(trace, "--model", "gemma-3-27b", "--hbm", "80GB", "--host", "1TB", "--nvme", "4TB")
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    for part in (
        "█",
        "LRU: hit ratio by cache size",
        "of best",
        "missing",
        "windows and state",
        "Hits of each tier",
    ):
        assert part in done.output


def test_text_tells_the_hits_of_each_tier(trace):
    done = typed(trace, "--model", "llama-3-8b", "--hbm", "2MiB", "--host", "1GB")
    assert "Hits of each tier" in done.output
    assert [line.split()[0] for line in done.output.splitlines() if "MiB" in line][-2:] == [
        "hbm",
        "host",
    ]


def test_text_in_plain_ascii(trace):
    done = CliRunner(charset="ascii").invoke(main, ["reuse", trace])
    assert done.exit_code == 0
    assert done.output.isascii()
    assert "#" in done.output


def test_a_made_up_workload():
    told = answer("--workload", "arrivals=poisson:2/s,input=64,output=8,turns=4,requests=40")
    assert told["block_tokens"] == 16
    assert 0.5 < told["token_hit_ratio"] < 0.8


def test_wrong_lines_are_named_or_counted(trace):
    with Path(trace).open("a") as file:
        file.write('{"timestamp": -1, "input_length": 5, "output_length": 5}\n')
    done = typed(trace)
    assert done.exit_code == 2
    assert "trace line 4, timestamp: -1 is negative." in done.stderr
    told = answer(trace, "--skip-bad-lines")
    assert told["skipped_lines"] == 1
    assert told["warnings"] == ["1 bad line skipped (line 4: timestamp -1 is negative)"]


def test_a_trace_that_says_nothing_of_its_prompts(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,3,4\n")
    done = typed(str(path), "--policy", "lfu")
    assert done.exit_code == 0
    assert "1 of 1 requests say nothing of what they hold" in done.output
    assert answer(str(path))["hit_ratio"] == {"lru": {}}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--policy", "lrru"], "Did you mean lru"),
        (["--capacity", "10,x"], "--capacity: 'x' is no whole number"),
        (["--capacity", "0"], "--capacity: 0 is below 1"),
        (["--hbm", "80GB"], "Give --model."),
        (["--tier", "host:80GB"], "Give --model."),
        (["--tier", "host"], "Write host:512GiB."),
        (["--host", "1GB", "--tier", "host:80GB"], "Leave --host out."),
        (["--tier", "hots:80GB"], "Did you mean host"),
        (["--model", "llama-3-70b", "--hbm", "80G"], "ambiguous"),
        (["--model", "llama-3-70b", "--kv-dtype", "fp9"], "--kv-dtype"),
        (["--block-tokens", "-1"], "--block-tokens"),
        (["--workload", "arrivals=once,input=1,output=1"], "TRACE"),
    ],
)
def test_bad_questions_end_with_2(trace, options, told):
    done = typed(trace, *options)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_neither_trace_nor_workload():
    assert "TRACE: is missing" in typed().stderr


def test_columns_of_any_table_can_be_named(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("t,p,g\n0.0,100,20\n1.5,120,30\n")
    named = answer(str(path), "--columns", "arrival=t,input=p,output=g")
    assert (named["requests"], named["unknown_requests"]) == (2, 2)
    assert typed(str(path), "--columns", "arrival=x,input=p,output=g").exit_code == 2
