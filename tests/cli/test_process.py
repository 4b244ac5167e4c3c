"""The command as a process of its own: streams, terminals, exit statuses, what is imported."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

KVROOM = [sys.executable, "-m", "kvroom"]
PLAN = ["plan", "llama-3-70b", "--gpu", "80GB:4", "--context", "32K", "--engine", "arithmetic"]
QUIET = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PYTHONIOENCODING", "COLUMNS")


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if k not in QUIET}
    return {**kept, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8", **more}


def run(*args, given=None, **env):
    return subprocess.run(
        [*KVROOM, *args],
        input=given,
        capture_output=True,
        env=environment(**env),
        timeout=60,
        check=False,
    )


def imported(statement):
    """Modules that ``statement`` loads in a fresh interpreter, but kvroom's and the standard ones."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment(PYTHONPATH=str(Path(__import__("kvroom").__file__).parents[1])),
    )
    names = {name.partition(".")[0] for name in done.stdout.split()}
    return names - set(sys.stdlib_module_names) - {"kvroom", "__main__"}


@pytest.mark.parametrize(
    "statement",
    [
        "import kvroom",
        "import kvroom.planner.plan",
        "import kvroom.planner.explain",
        "import kvroom; kvroom.plan('llama-3-70b', '80GB', gpu_count=4)",
        "import kvroom; kvroom.plan('deepseek-v4-flash', 'H200', tp=8, engine='sglang')",
    ],
)
def test_the_core_needs_the_standard_library_only(statement):
    assert imported(statement) == set()


def test_a_plan_in_text_or_json_does_not_load_rich():
    for more in ("[]", "['--json']", "['--explain']"):
        code = (
            f"from kvroom.ui.cli.main import main; main({PLAN!r} + {more}, standalone_mode=False);"
            "import sys; print('rich' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "False"


def test_exit_statuses():
    assert run(*PLAN).returncode == 0
    assert run("plan", "llama-3-80b", "--gpu", "80GB").returncode == 2
    assert run("plan", "llama-3-70b", "--gpu", "80GB").returncode == 0  # a refusal is an answer
    assert run("plan", "llama-3-70b", "--gpu", "80GB", "--strict").returncode == 3
    assert run("plan", "--jsonl", "-", given=b"{}\n").returncode == 1
    assert run("plan", "--jsonl", "-", given=b"").returncode == 0


def test_errors_go_to_stderr_and_json_ones_to_stdout():
    told = run("plan", "llama-3-80b", "--gpu", "80GB")
    assert told.stdout == b""
    assert told.stderr.startswith(b"kvroom: model: 'llama-3-80b' ")
    told = run("plan", "llama-3-80b", "--gpu", "80GB", "--json")
    assert json.loads(told.stdout)["error"]["field"] == "model"
    assert told.stderr == b""


def test_bytes_that_are_no_text():
    told = run("plan", b"\xff\xfe", "--gpu", "80GB", "--json")
    assert told.returncode == 2
    assert json.loads(told.stdout)["error"]["field"] == "model"
    assert run("plan", "llama-3-70b", "--gpu", b"\xff").returncode == 2
    told = run("plan", "--jsonl", "-", given=b'\xff\n{"model": "\\ud800", "gpu": "80GB"}\n')
    assert [list(json.loads(line)) for line in told.stdout.splitlines()] == [["error"]] * 2


COMMANDS = [
    PLAN,
    [*PLAN, "--explain"],
    ["plan", "llama-3-70b", "--gpu", "80GB"],
    ["models"],
    ["models", "gemma-3-27b"],
    ["models", "deepseek-v4-flash"],
    ["gpus"],
    ["gpus", "H100-SXM"],
    ["plan", "--help"],
    ["compare", "--help"],
    ["--help"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_terminal_that_shows_ascii_only(command):
    done = run(*command, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    whole = run(*command, PYTHONIOENCODING="utf-8").stdout
    assert done.stdout.count(b"?") == whole.count(b"?")
    assert done.stderr == b""


def test_ascii_errors_and_json():
    told = run("plan", "llama–3", "--gpu", "80GB", PYTHONIOENCODING="ascii")
    assert told.returncode == 2
    assert told.stderr.isascii()
    card = {"name": "Überkarte", "memory_bytes": 80 * 10**9, "memory_bytes_per_s": 1e12}
    question = ["plan", "llama-3-8b", "--gpu", json.dumps(card), "--json"]
    plain, full = (run(*question, PYTHONIOENCODING=e).stdout for e in ("ascii", "utf-8"))
    assert plain.isascii()
    assert not full.isascii()
    assert json.loads(plain) == json.loads(full)


def test_no_colour_in_a_pipe():
    for command in (PLAN, ["models"], ["gpus", "H100-SXM"]):
        assert b"\x1b" not in run(*command).stdout


def on_a_terminal(*args, **env):
    """What ``args`` print on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    env = environment(**{"TERM": "xterm-256color", "COLUMNS": "80", **env})
    process = subprocess.Popen(
        [*KVROOM, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait(60) == 0
    return said.decode()


def test_colour_on_a_terminal_and_none_where_it_is_not_wanted():
    assert "\x1b[" in on_a_terminal(*PLAN)
    assert "\x1b[" not in on_a_terminal(*PLAN, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(*PLAN, TERM="dumb")
    assert "\x1b[3" not in on_a_terminal("gpus", "H100-SXM", NO_COLOR="1")


@pytest.mark.parametrize("command", [PLAN, ["models"], ["gpus"]], ids=" ".join)
def test_80_columns(command):
    said = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(*command))
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80


@pytest.mark.parametrize(
    "command", [["models"], ["schema"], [*PLAN, "--explain"], ["gpus", "--json"]], ids=" ".join
)
def test_a_reader_that_leaves_early(command):
    process = subprocess.Popen(
        [*KVROOM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
@pytest.mark.parametrize("command", [PLAN, [*PLAN, "--json"], ["plan", "--help"], ["models"]])
def test_a_full_disk_is_told(command):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*KVROOM, *command], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"kvroom: output: cannot be written (no space left on device).")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", ["plan --scenario -", "plan --from-command -", "reconcile -"])
def test_a_closed_standard_input_is_an_empty_one(command):
    shell = f"{' '.join(KVROOM)} {command} <&-"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=environment(), check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"kvroom: ")
    assert done.stderr.count(b"\n") == 1


def test_json_lines_to_a_reader_that_leaves_early():
    lines = b'{"model": "llama-3-8b", "gpu": "H100-SXM"}\n' * 2000
    shell = f"{' '.join(KVROOM)} plan --jsonl - | head -1"
    done = subprocess.run(
        ["sh", "-c", shell], input=lines, capture_output=True, env=environment(), check=False
    )
    assert json.loads(done.stdout)["capacity"]
    assert done.stderr == b""
