"""What a person at a terminal meets: the jobs, help in sections, one screen, completion, numbers."""

import json
import os
import shlex
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from kvroom.scenario.command_line import command
from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.main import COMMANDS, main
from kvroom.ui.cli.sections import MANY, SECTIONS, Sectioned

PLAN = ["plan", "llama-3.3-70b", "--gpu", "4xH100", "--users", "32", "--input-tokens", "1e3"]
PLAN += ["--output-tokens", "300", "--engine-version", "0.33.0"]
COMMAND = [sys.executable, "-m", "kvroom"]


def run(*args, **env):
    return CliRunner(env=env).invoke(main, list(args))


def printed(*args, columns=80):
    done = run(*args, COLUMNS=str(columns), NO_COLOR="1")
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_alone_it_shows_the_jobs_and_every_command_once():
    shown = run().output
    for name in COMMANDS:
        assert shown.count(f"\n  {name} ") == 1


@pytest.mark.parametrize(
    ("typed", "meant"), [("plam", "plan"), ("serach", "search"), ("reconsile", "reconcile")]
)
def test_a_misspelt_command_is_told_the_one_meant(typed, meant):
    done = run(typed)
    assert done.exit_code == 2
    assert f"kvroom {meant}" in done.output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_lists_every_option_once(name):
    command = main.get_command(click.Context(main), name)
    text = run(name, "--help").output.partition("\n  Example")[0]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    for option in options:
        rows = [
            line for line in text.splitlines() if line.strip().startswith(f"{option.opts[-1]} ")
        ]
        assert len(rows) == 1, (option.opts, rows)
    if isinstance(command, Sectioned) and len(options) > MANY:
        assert "Options:" not in text
        assert "Output:" in text


def test_no_flag_is_in_two_sections():
    flags = [flag for named in SECTIONS.values() for flag in named]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("columns", [80, 120, 140])
def test_a_plan_fits_a_screen_of_any_width(columns):
    lines = printed(*PLAN, columns=columns)
    assert len(lines) <= 30
    assert max(map(len, lines)) <= min(columns, 120)
    assert lines[0].startswith("40")  # the verdict comes first
    assert any(line.startswith("  TTFT") and "80 % interval" in line for line in lines)


@pytest.mark.parametrize("columns", [80, 120])
def test_all_of_it_keeps_to_the_width(columns):
    lines = printed(*PLAN, "--all", columns=columns)
    assert len(lines) > 40
    assert max(map(len, lines)) <= columns


def test_no_colour_where_none_is_wanted():
    coloured = run(*PLAN, NO_COLOR="", TERM="xterm").output
    assert "\x1b" not in run(*PLAN, NO_COLOR="1").output
    assert coloured


def test_a_price_that_nobody_knows_is_said():
    lines = printed("plan", "llama-3-8b", "--gpu", "MI300X", "--context", "8K")
    assert any("no price of MI300X is known" in line for line in lines)


@pytest.mark.parametrize("cards", ["H100:4", "4xH100", "H100x4", "4 x H100", "H100 × 4", "4*H100"])
def test_cards_are_counted_as_people_write_them(cards):
    line = [*PLAN[:3], cards, *PLAN[4:], "--link"]
    assert printed(*line) == printed(*PLAN, "--link")


def test_two_counts_are_asked_back():
    done = run("plan", "llama-3-8b", "--gpu", "4xH100", "--gpu-count", "8")
    assert done.exit_code == 2
    assert "once" in done.output


def completed(*words):
    found = ShellComplete(main, {}, "kvroom", "_KVROOM_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("words", "has"),
    [
        (("re",), "reconcile"),
        (("plan", "qwen3-3"), "qwen3-32b"),
        (("plan", "x", "--gpu", "h1"), "H100-SXM"),
        (("plan", "x", "--engine", "s"), "sglang"),
        (("plan", "x", "--weight-dtype", "fp"), "fp8_block"),
        (("plan", "x", "--kv-dtype", "f"), "fp8"),
        (("plan", "x", "--sweep", "we"), "weight_dtype="),
        (("plan", "x", "--price", "r"), "reserved"),
        (("search", "x", "--gpus", "L4,h2"), "L4,H200-SXM"),
        (("gpus", "mi3"), "MI300X"),
        (("models", "glm"), "glm-4.5"),
        (("plan", "--jso"), "--json"),
    ],
)
def test_a_shell_completes(words, has):
    assert has in completed(*words)


def test_watching_a_dead_port_ends_when_nobody_looks():
    done = subprocess.run(
        [*COMMAND, "watch", "http://127.0.0.1:1", "--interval", "0.05"],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 2
    assert "gave no figures" in done.stderr


@pytest.mark.parametrize(
    "keys",
    [
        {
            "workload": {
                "arrivals": "poisson:2/s",
                "input": "lognormal:mean=900:sigma=0.8",
                "output": "100",
            }
        },
        {
            "workload": {
                "input_tokens": 1000,
                "output_tokens": 100,
                "static": True,
                "concurrency": 4,
            }
        },
        {"prices": {"*": "reserved", "H100-SXM": 2.5}},
        {"known_bytes": {"weights": 20_000_000_000}, "allow_overcommit": True},
        {"gpu_count": 4, "kv_dtype": "fp8", "engine_args": {"max_num_seqs": 64}},
    ],
    ids=str,
)
def test_a_report_names_a_question_that_reads_back(keys):
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100-SXM", **keys})
    words = shlex.split(command(asked))
    assert "#s=" not in " ".join(words)
    link = run(*words[1:], "--link").output.strip()
    assert Scenario.from_link(link).to_dict() == asked.to_dict()


def test_files_of_an_answer(tmp_path):
    page, drawn = tmp_path / "a.html", tmp_path / "a.svg"
    for words in (
        PLAN,
        [*PLAN[:4], "--sweep", "context=8K..32K"],
        [
            "simulate",
            "llama-3-8b",
            "--gpu",
            "H100",
            "--workload",
            "arrivals=poisson:2/s,input=9,output=9,requests=60",
        ],
    ):
        done = run(*words, "--html", str(page), "--svg", str(drawn))
        assert done.exit_code == 0, done.output
        assert "About this report" in page.read_text("utf-8")
        assert drawn.read_text("utf-8").startswith("<svg xmlns")
    done = run(*PLAN, "--html", str(tmp_path / "nowhere" / "a.html"))
    assert done.exit_code == 2


def test_plans_side_by_side_tell_times_and_money(tmp_path):
    base = {
        "model": "llama-3-8b",
        "workload": {"input_tokens": 1000, "output_tokens": 100, "concurrency": 8},
    }
    for card in ("H100-SXM", "L40S"):
        (tmp_path / f"{card}.json").write_text(json.dumps(base | {"gpu": card}))
    files = [str(tmp_path / f"{card}.json") for card in ("H100-SXM", "L40S")]
    rows = tmp_path / "rows.csv"
    done = run(
        "compare", *files, "--csv", str(rows), "--html", str(tmp_path / "a.html"), NO_COLOR="1"
    )
    for name in (
        "TTFT",
        "TPOT",
        "tokens a second",
        "an hour",
        "1M tokens out",
        "energy",
        "Price: L40S at",
    ):
        assert name in done.output
    head, *lines = rows.read_text().splitlines()
    assert {"gpu", "ttft_s", "tpot_s", "usd_per_hour", "price_source"} <= set(head.split(","))
    assert len(lines) == 2
