"""What scripts rely on: the keys of every command's ``--json``, old links, exit statuses."""

import json
from functools import cache
from typing import Any

import answers
import jsonschema
import pytest
from click.testing import CliRunner
from questions import questions

from kvroom.__main__ import main

WHOLE, REAL, WORDS, YES = 0, 0.0, "", True
"""Of a shape: a whole number, any number, a string, a truth value; each may be null."""
ANY = None
TIMES = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"), REAL)
FIGURES = {"requests": REAL, "step_s": REAL, "ttft_s": REAL, "usd_per_million_output_tokens": REAL}
PLAN = {
    "scenario": {"model": ANY, "gpu": ANY, "engine_args": {}, "context_tokens": WHOLE},
    "weights": {"params": WHOLE, "active_params": WHOLE, "mtp_params": WHOLE, "bytes": WHOLE},
    "kv": {
        "bytes_per_token": REAL,
        "bytes_per_request": WHOLE,
        "state_bytes_per_request": WHOLE,
        "bytes_per_token_per_gpu": REAL,
        "layers": [{"kind": WORDS, "count": WHOLE, "bytes_per_token": REAL}],
    },
    "memory": {
        "gpu_bytes": WHOLE,
        "accounts": [
            {
                "name": WORDS,
                "bytes": WHOLE,
                "low_bytes": WHOLE,
                "high_bytes": WHOLE,
                "source": WORDS,
            }
        ],
        "kv_bytes": WHOLE,
    },
    "capacity": {
        "ceiling": {"requests": WHOLE, "exact": REAL},
        "engine": {
            "num_blocks": WHOLE,
            "block_tokens": WHOLE,
            "kv_tokens": WHOLE,
            "max_concurrency": REAL,
            "max_context_tokens": WHOLE,
            "low": REAL,
            "high": REAL,
            "window_tokens": WHOLE,
            "state_slots": WHOLE,
            "max_running_requests": WHOLE,
        },
        "expected": {"requests": REAL},
        "shared": {"requests": REAL},
    },
    "step": {
        "batch": WHOLE,
        "bytes": dict.fromkeys(("weights", "kv", "state", "activations", "links"), WHOLE),
        "flops": WHOLE,
        "seconds": REAL,
        "seconds_low": REAL,
        "seconds_high": REAL,
        "bound": WORDS,
        "crossover_batch": WHOLE,
        "tokens_per_s": REAL,
    },
    "serving": {
        "tpot_s": REAL,
        "tpot_low_s": REAL,
        "tpot_high_s": REAL,
        "ttft_s": REAL,
        "ttft_low_s": REAL,
        "ttft_high_s": REAL,
        "output_tokens_per_s": REAL,
    },
    "cost": {"usd_per_hour": REAL, "usd_per_million_output_tokens": REAL},
    "verdict": {
        "status": WORDS,
        "fits": YES,
        "binding": WORDS,
        "sentence": WORDS,
        "reasons": [{"rule": WORDS, "message": WORDS, "fix": WORDS, "source": WORDS}],
    },
    "warnings": [WORDS],
}
TIERS = {"tiers": {"tiers": [{"name": WORDS, "bytes": WHOLE, "bytes_per_s": REAL}]}}
SIMULATED = {
    "requests": dict.fromkeys(("arrived", "completed", "running", "waiting", "dropped"), WHOLE),
    **dict.fromkeys(("ttft_s", "tpot_s", "itl_s", "e2e_s"), TIMES),
    "output_tokens_per_s": REAL,
    "goodput_requests_per_s": REAL,
    "prefix_hit_ratio": REAL,
    "preemptions": WHOLE,
    "kv_blocks": {"total": WHOLE, "peak": WHOLE},
    "duration_s": REAL,
}
PLAYED = {
    "total_steps": WHOLE,
    "totals": dict.fromkeys(
        (
            "scheduled_tokens",
            "preemptions",
            "cached_tokens_first",
            "cached_tokens_all",
            "peak_blocks_in_use",
            "peak_running",
            "peak_waiting",
        ),
        WHOLE,
    ),
    "requests": [
        dict.fromkeys(
            (
                "first_scheduled_step",
                "first_token_step",
                "finish_step",
                "cached_tokens_first",
                "cached_tokens_all",
                "preemptions",
            ),
            WHOLE,
        )
    ],
}
SHAPES: dict[str, Any] = {
    "plan": PLAN,
    "compare": {"plans": [PLAN]},
    "levers": {
        "before": FIGURES,
        "levers": [
            {
                "id": WORDS,
                "label": WORDS,
                "changes": {},
                "after": FIGURES,
                "needs": [WORDS],
                "quality": ANY,
                "moves_binding": YES,
            }
        ],
        "together": [{"ids": [WORDS], "after": FIGURES}],
        "waterfall": [{"id": WORDS, "requests": REAL}],
    },
    "search": {
        "objective": {},
        "searched": {},
        "answers": [
            {"rank": WHOLE, "scenario": {}, "figures": FIGURES, "margin": {}, "simulated": YES}
        ],
        "pareto": [WHOLE],
        "nearest": [{}],
        "journal": WORDS,
    },
    "simulate": SIMULATED,
    "reuse": {
        "references": WHOLE,
        "unique_blocks": WHOLE,
        "hit_blocks": WHOLE,
        "token_hit_ratio": REAL,
        "hit_ratio": {},
        "fragmentation": dict.fromkeys(("16", "32", "64", "128", "256", "512"), REAL),
    },
    "reconcile": {
        "engine": WORDS,
        "engine_version": WORDS,
        "scenario": ANY,
        "printed": {},
        "predicted": {},
        "accounts": [
            {
                "name": WORDS,
                "predicted_bytes": WHOLE,
                "printed_bytes": WHOLE,
                "difference_bytes": WHOLE,
                "reason": WORDS,
                "flag": WORDS,
            }
        ],
        "missing": [WORDS],
    },
    "watch": {
        "t_s": REAL,
        "kv_usage": REAL,
        "running": REAL,
        "waiting": REAL,
        "preemptions": REAL,
        "hit_ratio": REAL,
        "ttft_s": ANY,
        "itl_s": ANY,
    },
    "launch": {"command": WORDS, "argv": [WORDS], "engine": WORDS},
    "calibrate": {"calibration": {"kvroom_calibration": WHOLE}},
    "schema": {"$schema": WORDS, "$defs": {"Scenario": {}, "Plan": {}}},
}
ERROR = {"error": {"field": WORDS, "value": ANY, "message": WORDS, "fix": WORDS}}
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema(shape: Any) -> dict[str, Any]:
    """The JSON schema of a shape: its keys must be there, others may."""
    if isinstance(shape, dict):
        keys = {name: schema(value) for name, value in shape.items()}
        return {"type": ["object", "null"], "required": list(keys), "properties": keys}
    if isinstance(shape, list):
        return {"type": ["array", "null"], "items": schema(shape[0])}
    return {} if shape is ANY else {"type": [TYPES[type(shape)], "null"]}


def hold(value: Any, shape: Any) -> None:
    assert value is not None
    jsonschema.Draft202012Validator(schema(shape)).validate(value)


@cache
def answered() -> dict[str, dict[str, Any]]:
    return answers.ask()


NAMES = sorted({q.name.partition("/")[0] for q in questions()})


def of(command: str) -> dict[str, dict[str, Any]]:
    return {k: a for k, a in answered().items() if k.startswith(f"{command}/")}


@pytest.mark.slow
def test_three_hundred_questions_over_every_command() -> None:
    asked = {a["asked"][0] for a in answered().values()}
    assert len(answered()) >= 300
    assert set(main.commands) - asked == set()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("command", NAMES)
def test_every_end_is_a_status(command: str) -> None:
    """0 an answer, 1 a line that failed, 2 a bad question, 3 an engine that would not start."""
    for name, told in of(command).items():
        assert "raised" not in told, name
        assert told["status"] in (0, 1, 2, 3), name
        if command != "check":  # for which 1 is a finding
            assert (told["status"] == 1) is (name == "plan/jsonl/bad"), name
        refuses = "--strict" in told["asked"] or told["asked"][0] == "launch"
        assert told["status"] != 3 or refuses, name


@pytest.mark.parametrize("command", NAMES)
def test_an_error_names_field_value_why_and_fix(command: str) -> None:
    for told in of(command).values():
        asks = told["asked"][-1] == "--json" and command != "check"  # which says it file by file
        if told["status"] == 2 and asks and not usage(told):
            hold(told["stdout"], ERROR)


def usage(told: dict[str, Any]) -> bool:
    """Whether click itself refused the words of the command line."""
    return any(line.startswith("Usage:") for line in told["stderr"])


OTHERWISE = {"--sweep", "--describe", "--cliff", "--seeds"}
"""Options that ask for another answer: a curve, what requests are like, bands over seeds."""


@pytest.mark.parametrize("command", sorted(SHAPES))
def test_json_has_the_keys_that_scripts_rely_on(command: str) -> None:
    seen = 0
    for name, told in of(command).items():
        args, printed = told["asked"], told["stdout"]
        if told["status"] not in (0, 3) or args[-1] != "--json" or OTHERWISE & set(args):
            continue
        if told["status"] == 3 and command == "launch":
            hold(printed, ERROR)
            continue
        shape = PLAYED if "--script" in args else SHAPES[command]
        for each in printed if isinstance(printed, list) else [printed]:
            hold(each, shape)
        if command == "plan":
            hold(printed, TIERS)
        assert printed, name
        seen += 1
    assert seen


def test_a_plan_holds_to_the_schema_that_is_printed() -> None:
    (printed,) = (a["stdout"] for a in of("schema").values())
    for name in ("Plan", "Scenario"):
        validator = jsonschema.Draft202012Validator({**printed, "$ref": f"#/$defs/{name}"})
        for told in of("plan").values():
            if isinstance(told["stdout"], dict) and "verdict" in told["stdout"]:
                plan = told["stdout"]
                validator.validate(plan if name == "Plan" else plan["scenario"])


def test_what_a_check_finds_holds_to_the_schema_that_is_printed() -> None:
    (printed,) = (a["stdout"] for a in of("schema").values())
    validator = jsonschema.Draft202012Validator({**printed, "$ref": "#/$defs/Check"})
    for told in of("check").values():
        validator.validate(told["stdout"])
        assert told["stdout"]["exit_status"] == told["status"]


def test_lines_keep_their_order_and_end_with_1_where_one_failed() -> None:
    good, bad = (answered()[f"plan/jsonl/{which}"] for which in ("good", "bad"))
    for plan in good["stdout"]:
        hold(plan, PLAN)
    assert good["status"] == 0
    hold(bad["stdout"][0], PLAN)
    for line in bad["stdout"][1:]:
        hold(line, ERROR)
    assert [bool(line.get("error")) for line in bad["stdout"]] == [False, True, True]


def test_accounts_add_up_to_the_card() -> None:
    checked = 0
    for told in of("plan").values():
        plan = told["stdout"]
        if isinstance(plan, dict) and "memory" in plan and plan["verdict"]["fits"]:
            accounts = plan["memory"]["accounts"]
            assert sum(a["bytes"] for a in accounts) == plan["memory"]["gpu_bytes"], told["asked"]
            checked += 1
    assert checked > 30


LINKS = [
    # As the page and ``--link`` of 0.1.0 wrote them.
    (
        "http://127.0.0.1:8642/#s=1.eyJjb250ZXh0X3Rva2VucyI6MzI3NjgsImVuZ2luZSI6ImFyaXRobWV0aWMi"
        "LCJncHUiOiI4MEdCIiwiZ3B1X2NvdW50Ijo0LCJtb2RlbCI6ImxsYW1hLTMtNzBiIiwidHAiOjR9",
        {"model": "llama-3-70b", "tp": 4, "context_tokens": 32768},
        16,
    ),
    (
        "http://127.0.0.1:8642/#s=1.eyJjb250ZXh0X3Rva2VucyI6MzI3NjgsImNvbmN1cnJlbmN5IjoyMCwiZW5n"
        "aW5lIjoiYXJpdGhtZXRpYyIsImdwdSI6IjgwR0IiLCJncHVfY291bnQiOjQsImt2X2R0eXBlIjoiZnA4IiwibW9k"
        "ZWwiOiJsbGFtYS0zLTcwYiIsInRwIjo0LCJ3b3JrbG9hZCI6eyJjb25jdXJyZW5jeSI6MjAsImlucHV0X3Rva2Vu"
        "cyI6MTAyNCwib3V0cHV0X3Rva2VucyI6MjU2fX0",
        {"kv_dtype": "fp8", "concurrency": 20},
        33,
    ),
    (
        "https://elsewhere.example/kvroom/?model=llama-3-70b&gpu=80GB:4&context=32K&engine=arithmetic",
        {"model": "llama-3-70b", "gpu_count": 4, "context_tokens": 32768},
        16,
    ),
    (
        "http://127.0.0.1:8642/?model=llama-3-70b&gpu=80GB&gpus=4&tp=4&kv=fp8&users=20"
        "&context=32768&engine=arithmetic",
        {"kv_dtype": "fp8", "concurrency": 20},
        33,
    ),
]


@pytest.mark.parametrize(("link", "keys", "ceiling"), LINKS)
def test_old_links_open(link: str, keys: dict[str, Any], ceiling: int) -> None:
    done = CliRunner().invoke(main, ["plan", link, "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert {k: plan["scenario"][k] for k in keys} == keys
    assert plan["capacity"]["ceiling"]["requests"] == ceiling


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["plan", "llama-3-8b", "--gpu", "H100-SXM", "--strict"], 0),
        (["plan", "llama-3-70b", "--gpu", "L4"], 0),
        (["plan", "--jsonl", "-"], 1),
        (["plan", "llama-3-80b", "--gpu", "H100-SXM"], 2),
        (["plan", "--no-such-option"], 2),
        (["plan", "llama-3-70b", "--gpu", "L4", "--strict"], 3),
        (["launch", "llama-3-70b", "--gpu", "L4", "--engine", "vllm"], 3),
    ],
)
def test_exit_statuses(args: list[str], status: int) -> None:
    assert CliRunner().invoke(main, args, input="{}\n").exit_code == status


def test_a_difference_is_named_by_its_key() -> None:
    one = {"a/0": {"stdout": {"x": [1, 2.0], "said": "so many words"}, "status": 0}}
    other = {"a/0": {"stdout": {"x": [1, 2.5], "said": "other words here"}, "status": 0}, "b": {}}
    told = list(answers.differences(one, other, "", figures=False))
    assert [path for path, *_ in told] == [".a/0.stdout.x[1]", ".a/0.stdout.said", ".b"]
    assert told[0][1:] == (2.0, 2.5)
    figures = list(answers.differences(one, other, "", figures=True))
    assert [path for path, *_ in figures] == [".a/0.stdout.x[1]", ".b"]
    near = {"a/0": {"stdout": {"x": [1, 2.0 + 1e-12], "said": "so many words"}, "status": 0}}
    assert not list(answers.differences(one, near, "", figures=False))
