"""Every command and every flag, in this process."""

import json
import re
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from kvroom.answer.plan import Plan
from kvroom.hardware import catalogue as cards
from kvroom.models import catalogue
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.ui import codec
from kvroom.ui.cli.main import COMMANDS, main
from kvroom.ui.cli.options import FLAGS

PLAN = ["plan", "llama-3-70b", "--gpu", "80GB:4", "--context", "32K", "--engine", "arithmetic"]
SCHEMA = codec.schema()


def run(*args, status=0, given=None):
    done = CliRunner().invoke(main, [str(a) for a in args], input=given)
    assert done.exit_code == status, done.output
    if done.exception is not None:
        assert isinstance(done.exception, SystemExit)
    return done


def answer(*args, **more):
    return json.loads(run(*args, "--json", **more).stdout)


HOLDS = {
    name: jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"})
    for name in ("Scenario", "Plan")
}


def hold(value, name):
    HOLDS[name].validate(value)


# One value for every flag that --help names; (value, Scenario key, what it becomes there).
VALUES = {
    "--model": ("llama-3-8b", "model", "llama-3-8b"),
    "--gpu": ("H100-SXM:2", "gpu", "H100-SXM"),
    "--gpu-count": ("8", "gpu_count", 8),
    "--tp": ("2", "tp", 2),
    "--pp": ("2", "pp", 2),
    "--dp": ("2", "dp", 2),
    "--ep": ("1", "ep", 1),
    "--dcp": ("1", "dcp", 1),
    "--weight-dtype": ("fp8", "weight_dtype", "fp8"),
    "--kv-dtype": ("fp8", "kv_dtype", "fp8"),
    "--context": ("8K", "context_tokens", 8192),
    "--encoder-tokens": ("1K", "encoder_tokens", 1024),
    "--concurrency": ("3", "concurrency", 3),
    "--engine": ("arithmetic", "engine", "arithmetic"),
    "--engine-version": ("0.33.0", "engine_version", "0.33.0"),
    "--replicas": ("2", "replicas", 2),
    "--routing": ("round-robin", "routing", "round-robin"),
    "--fleet": ('{"start": {"seconds": 20}}', "fleet", {"start": {"seconds": 20}}),
    "--recipe": ("tuned", "recipe", "tuned"),
    "--price": ("H100-SXM=2.5", "prices", {"H100-SXM": 2.5}),
    "--calibration": ("mine.json", "calibration", "mine.json"),
    "--tiers": ('[{"kind": "host"}]', "tiers", [{"kind": "host"}]),
    "--tier": ("host:1GiB", "tiers", [{"kind": "host", "bytes": 2**30}]),
    "--disaggregation": (
        "{}",
        "disaggregation",
        {"prefill": {"count": 1}, "decode": {"count": 1}},
    ),
    "--speculation": ('{"method": "ngram"}', "speculation", {"method": "ngram"}),
    "--input-tokens": ("1K", "workload.input_tokens", 1024),
    "--output-tokens": ("256", "workload.output_tokens", 256),
    "--shared-prefix-tokens": ("0", "workload.shared_prefix_tokens", 0),
    "--start": ("spread", "workload.start", "spread"),
    "--rate": ("2.5", "workload.requests_per_s", 2.5),
    "--lengths": ('{"input": 9}', "workload.lengths", {"input": 9}),
    "--users": ("7", "workload.concurrency", 7),
    "--static": (None, "workload.static", True),
    "--workload": (
        "arrivals=poisson:2/s,input=fixed:100,output=fixed:20",
        "workload.arrivals",
        "poisson:2/s",
    ),
    "--engine-arg": ("gpu_memory_utilization=0.8", "engine_args", {"gpu_memory_utilization": 0.8}),
    "--host-memory": ("64GB", "host_memory_bytes", 64 * 10**9),
    "--known-bytes": ("weights=10GiB", "known_bytes", {"weights": 10 * 2**30}),
    "--allow-overcommit": (None, "allow_overcommit", True),
}
ELSEWHERE = {
    "--scenario", "--jsonl", "--explain", "--link", "--strict", "--json", "--help", "--from-command",
    "--sweep", "--csv", "--set", "--all", "--html", "--svg", "--engine-python",
}  # fmt: skip


def flags_of(command):
    return set(re.findall(r"(--[a-z][a-z-]*)", run(command, "--help").stdout.partition("\n\n")[2]))


def test_help_names_every_flag_and_every_key_has_one():
    named = flags_of("plan")
    assert named == set(VALUES) | ELSEWHERE
    keys = {key for _, key, _ in VALUES.values()}
    assert set(Scenario.PARSERS) - {"workload"} <= keys
    spoken = set(Workload.SPEC_KEYS)  # --workload holds them all
    assert {f"workload.{k}" for k in Workload.PARSERS if k not in spoken} <= keys
    assert {flag for flag, *_ in FLAGS} <= named


@pytest.mark.parametrize("flag", sorted(set(VALUES) - {"--calibration"}))  # a file is read
def test_every_flag_sets_its_key(flag):
    value, key, becomes = VALUES[flag]
    base = [] if flag == "--model" else ["llama-3-8b"]
    base += [] if flag == "--gpu" else ["--gpu", "H100-SXM"]
    link = run("plan", *base, flag, *([] if value is None else [value]), "--link").stdout.strip()
    found = Scenario.from_link(link).to_dict()
    for part in key.split("."):
        found = found[part]
    assert found == becomes


@pytest.mark.parametrize("flag", sorted(set(VALUES) - {"--calibration", "--routing"}))
def test_every_flag_is_answered(flag):
    value, _, _ = VALUES[flag]
    base = [] if flag == "--model" else ["llama-3-8b"]
    base += [] if flag == "--gpu" else ["--gpu", "H100-SXM"]
    engine = [] if flag == "--engine" else ["--engine", "vllm"]
    plan = answer("plan", *base, *engine, flag, *([] if value is None else [value]))
    hold(plan, "Plan")


def test_users_sets_both_concurrencies():
    scenario = answer(*PLAN, "--users", "5")["scenario"]
    assert scenario["concurrency"] == scenario["workload"]["concurrency"] == 5


@pytest.mark.parametrize("name", catalogue.names()[::4])
@pytest.mark.parametrize("engine", ["arithmetic", "vllm"])
def test_json_holds_to_the_schema(name, engine):
    plan = answer("plan", name, "--gpu", "B200-SXM:4", "--pp", "4", "--engine", engine)
    hold(plan, "Plan")
    hold(plan["scenario"], "Scenario")
    assert set(plan) == {*Plan.__dataclass_fields__, "tiers"}


def test_schema():
    said = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(said)
    assert {"Scenario", "Plan", "Workload"} <= set(said["$defs"])
    with pytest.raises(jsonschema.ValidationError):
        hold({"model": 3}, "Scenario")


def test_the_reference_case():
    plan = answer(*PLAN)
    assert plan["capacity"]["ceiling"]["requests"] == 16
    assert plan["kv"]["bytes_per_token"] == 327_680
    said = run(*PLAN).stdout
    assert "Room for 16 requests of 32K tokens on 4 × 80GB" in said
    assert "The 17th would wait" in re.sub(r"\s+", " ", said)


def test_explain():
    said = run(*PLAN, "--explain").stdout
    assert "80 × 8 × 2 × 128 × 2" in said
    plan = answer(*PLAN, "--explain")
    told = plan.pop("explanations")
    assert [e["figure"] for e in told[:2]] == ["scenario.context_tokens", "weights.params"]
    hold(plan, "Plan")


def test_a_link_asks_the_same_question():
    link = run(*PLAN, "--users", "3", "--link").stdout.strip()
    assert link.startswith("http://127.0.0.1:8642/#s=1.")
    assert answer("plan", link) == answer(*PLAN, "--users", "3")
    assert run("plan", link, "--link").stdout.strip() == link
    assert answer("plan", link, "--kv-dtype", "fp8")["capacity"]["ceiling"]["requests"] == 33


def test_a_scenario_file(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(answer(*PLAN)["scenario"]))
    assert answer("plan", "--scenario", path) == answer(*PLAN)
    assert answer("plan", "--scenario", "-", given=path.read_text()) == answer(*PLAN)
    wider = answer("plan", "--scenario", path, "--gpu", "80GB:8", "--context", "8K")
    assert (wider["scenario"]["tp"], wider["scenario"]["context_tokens"]) == (8, 8192)
    linked = run("plan", "--scenario", path, "--link").stdout
    assert answer("plan", linked.strip()) == answer(*PLAN)


def test_json_lines_keep_their_order_and_go_on_after_an_error(tmp_path):
    asked = [
        {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 1024},
        {"model": "no-such-model", "gpu": "H100-SXM"},
        {"model": "falcon-7b", "gpu": "H100-SXM"},
    ]
    lines = [json.dumps(a) for a in asked]
    lines[2:2] = ["", "not json", "[1]", '{"a":' * 100_000]
    path = tmp_path / "asked.jsonl"
    path.write_text("\n".join(lines))
    done = run("plan", "--jsonl", path, status=1)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [s.get("error", {}).get("field") for s in said] == (
        [None, "model", "scenario", "scenario", "scenario", None]
    )
    assert said[0]["scenario"]["context_tokens"] == 1024
    assert said[-1]["scenario"]["model"] == "falcon-7b"
    for plan in (said[0], said[-1]):
        hold(plan, "Plan")
    again = run("plan", "--jsonl", "-", given=path.read_text(), status=1)
    assert again.stdout == done.stdout


def test_json_lines_without_an_error(tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text('{"model": "llama-3-8b", "gpu": "H100-SXM"}\n\n' * 3)
    assert len(run("plan", "--jsonl", path).stdout.splitlines()) == 3
    path.write_text("")
    assert run("plan", "--jsonl", path).stdout == ""


def test_a_line_too_long_is_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr(codec, "MAX_SCENARIO_BYTES", 100)
    path = tmp_path / "asked.jsonl"
    good = '{"model": "llama-3-8b", "gpu": "H100-SXM"}'
    path.write_text(f'{good}\n{{"model": "{"x" * 1000}"}}\n{good}\n{"y" * 101}\n{good}')
    said = [json.loads(x) for x in run("plan", "--jsonl", path, status=1).stdout.splitlines()]
    assert ["error" in s for s in said] == [False, True, False, True, False]


def test_compare(tmp_path):
    link = run(*PLAN, "--link").stdout.strip()
    path = tmp_path / "fp8.json"
    path.write_text(json.dumps({**answer(*PLAN)["scenario"], "kv_dtype": "fp8"}))
    said = run("compare", link, path).stdout
    assert re.search(r"kv_dtype\s+auto\s+fp8", said)
    assert re.search(r"ceiling\s+16\s+33", said)
    assert "context_tokens" not in said  # asked alike
    plans = answer("compare", link, path, link)["plans"]
    assert [p["capacity"]["ceiling"]["requests"] for p in plans] == [16, 33, 16]
    for plan in plans:
        hold(plan, "Plan")


def test_compare_reads_toml(tmp_path):
    for name, dtype in (("a", "auto"), ("b", "fp8")):
        text = f'model = "llama-3-70b"\ngpu = "80GB"\ngpu_count = 4\nkv_dtype = "{dtype}"\n'
        (tmp_path / f"{name}.toml").write_text(
            text + 'engine = "arithmetic"\ncontext_tokens = 32768\n'
        )
    said = run("compare", str(tmp_path / "a.toml"), str(tmp_path / "b.toml")).stdout
    assert said.startswith("A: Room for 16 requests of 32K tokens")
    assert max(map(len, said.splitlines())) <= 80
    (tmp_path / "b.toml").write_text("no toml")
    torn = run("compare", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"), status=2)
    assert "is not TOML" in torn.output


def test_a_file_that_is_no_json_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good.json").write_text(json.dumps(answer(*PLAN)["scenario"]))
    Path("torn.json").write_text(Path("good.json").read_text()[:40])
    for command in (["compare", "good.json", "torn.json"], ["plan", "--scenario", "torn.json"]):
        assert ": 'torn.json' is not JSON" in run(*command, status=2).stderr


def test_models():
    said = run("models").stdout
    assert all(name in said for name in catalogue.names())
    rows = answer("models")["models"]
    assert [r["name"] for r in rows] == catalogue.names()
    assert len(rows) >= 60


@pytest.mark.parametrize("name", catalogue.names())
def test_each_model(name):
    card = answer("models", name)
    assert sum(card["parts"].values()) == card["params"]
    said = run("models", name).stdout
    assert f"{card['params']:,}" in said
    assert any(w in said for w in ("published config of", "public start-up logs", "class default"))


def test_gpus():
    said = run("gpus").stdout
    assert all(name in said for name in cards.names())
    assert len(answer("gpus")["gpus"]) == len(cards.names()) >= 86


@pytest.mark.parametrize("name", ["80GB", "h100", "rtx 4090", "MI300X", "TPU-v5e", "Apple-M3-Max"])
def test_each_card(name):
    card = answer("gpus", name)
    assert card["memory_bytes_per_s"] > 0
    said = run("gpus", name).stdout
    assert card["name"] in said
    assert f"{card['sold_bytes']:,}" in said


BAD = [
    (["plan"], "model", "Say which model"),
    (["plan", "llama-3-8b"], "gpu", "Say which gpu"),
    (["plan", "llama-3-80b", "--gpu", "h100"], "model", "llama-3-8b"),
    (["plan", "llama-3-8b", "--gpu", "h1000"], "gpu", "H100"),
    (["plan", "llama-3-8b", "--gpu", "h100:0"], "gpu_count", "from 1"),
    (["plan", "llama-3-8b", "--gpu", "h100:" + "9" * 5000], "gpu_count", "from 1"),
    (["plan", "llama-3-8b", "--gpu", "h100:4", "--gpu-count", "8"], "gpu", "once"),
    (["plan", "llama-3-8b", "--gpu", "h100:4", "--tp", "3"], "gpu_count", "Set gpu_count to 3"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--tp", "3"], "tp", "1, 2, 4"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--tp", "two"], "tp", "whole number"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--tp", "1e400"], "tp", "whole number"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--context", "-5"], "context_tokens", "32K"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--context", "8G"], "context_tokens", "32K"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--kv-dtype", "fp9"], "kv_dtype", "fp8"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--weight-dtype", "q4"], "weight_dtype", "q4_0"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--engine", "vlm"], "engine", "vllm"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--tiers", "{"], "tiers", "JSON"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--tiers", "[" * 99_999], "tiers", "JSON"),
    (["plan", "llama-3-8b", "--gpu", '{"name": "x"}'], "gpu.memory_bytes", "memory_bytes"),
    (["plan", "llama-3-8b", "--gpu", "x.toml"], "gpu", "machine file"),
    (["plan", "llama-3-8b", "--gpu", "h100", "--engine-arg", "x"], "--engine-arg", "name=value"),
    (
        ["plan", "llama-3-8b", "--gpu", "h100", "--known-bytes", "weights=80G"],
        "known_bytes.weights",
        "80GB",
    ),
    (["plan", "llama-3-8b", "--model", "falcon-7b", "--gpu", "h100"], "model", "one of them"),
    (["plan", "./config.json", "--gpu", "h100"], "model", "config.json"),
    (["plan", "http://127.0.0.1:8642/#s=1.abc"], "link", "whole address"),
    (["plan", "--scenario", "nowhere.json"], "--scenario", "JSON file"),
    (["plan", "--jsonl", "nowhere.jsonl"], "--jsonl", "one Scenario a line"),
    (["plan", "\udcff", "--gpu", "h100"], "model", "UTF-8"),
    (["compare", "a.json"], "compare", "two or more"),
    (["compare", "a.json", "b.json"], "compare", "JSON file"),
    (["models", "llama-3-80b"], "model", "llama-3-8b"),
    (["gpus", "h1000"], "gpu", "H100"),
]


@pytest.mark.parametrize(("args", "field", "fix"), BAD, ids=lambda v: ascii(v)[:60])
def test_a_bad_question(args, field, fix):
    done = run(*args, status=2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"kvroom: {field}: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    told = answer(*args, status=2)["error"]
    assert told["field"] == field
    assert fix in told["fix"]
    assert told["message"]


@pytest.mark.parametrize(
    "args",
    [["nothing"], ["plan", "--nothing"], ["plan", "a", "b"], ["gpus", "--json", "--tp", "1"]],
)
def test_a_bad_command_line(args):
    assert "Usage:" in run(*args, status=2).stderr


def test_strict_ends_with_3_where_the_engine_would_not_start():
    assert not answer("plan", "llama-3-70b", "--gpu", "h100", "--strict", status=3)["verdict"][
        "fits"
    ]
    run("plan", "llama-3-70b", "--gpu", "h100")
    run("plan", "llama-3-8b", "--gpu", "h100", "--strict")


@pytest.mark.parametrize("command", [[], *([c] for c in sorted(main.commands))], ids=str)
def test_help_fits_80_columns_and_gives_an_example(command):
    for flag in ("--help", "-h"):
        said = run(*command, flag).stdout
        assert max(map(len, said.splitlines())) <= 80
        assert re.search("Examples?[^:]*: kvroom ", re.sub(r"\s+", " ", said))


def test_version():
    from kvroom import __version__

    assert run("--version").stdout == f"kvroom, version {__version__} (pure Python)\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.names())
def test_every_answer_fits_80_columns(name):
    for more in (["--engine", "arithmetic"], ["--gpu", "80GB:4", "--kv-dtype", "q4_0"]):
        done = run("plan", name, "--gpu", "H200-SXM:4", "--pp", "4", "--explain", *more)
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_csv_without_a_curve_is_refused():
    done = run(*PLAN, "--csv", status=2)
    assert "--sweep" in done.output


@pytest.mark.parametrize(("one", "other"), [("input", "output"), ("output", "input")])
def test_half_a_load_says_what_it_lacks(one, other):
    plan = answer("plan", "llama-3-8b", "--gpu", "H100", f"--{one}-tokens", "100", "--users", "4")
    assert any(f"--{other}-tokens" in w for w in plan["warnings"])
    assert plan["serving"]["ttft_s"] is None


def test_the_list_of_commands_says_what_each_says_of_itself():
    for name, sentence in COMMANDS.items():
        command = main.get_command(click.Context(main), name)
        assert command.get_short_help_str(500) == click.Command(
            name, help=sentence
        ).get_short_help_str(500)


def test_a_models_page_is_its_model():
    page = "https://huggingface.co/meta-llama/Meta-Llama-3-70B"
    named = answer("plan", page, *PLAN[2:])
    assert named["weights"] == answer(*PLAN)["weights"]


def test_two_numbers_of_users_are_refused():
    done = run(*PLAN, "--users", 3, "--concurrency", 5, status=2)
    assert "concurrency: 5 is not the --users 3 given" in done.output
    run(*PLAN, "--users", 3, "--concurrency", 3)


def test_a_model_in_a_traces_place_is_told():
    done = run("agents", "llama-3-8b", "--gpu", "H100-SXM", status=2)
    assert "TRACE: 'llama-3-8b' is a model" in done.output


def test_an_encoders_tokens_of_a_model_without_one_are_told():
    warnings = answer(*PLAN, "--encoder-tokens", 500)["warnings"]
    assert any(warning.startswith("encoder_tokens is not used") for warning in warnings)
