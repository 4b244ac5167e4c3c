"""The wheel: what lies in it, and that it answers from an empty environment."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALONE = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

pytestmark = pytest.mark.slow


def run(*command):
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, env=ALONE
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build", reason="the build tool is not installed")
    out = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("kvroom-*.whl")
    return made


def test_what_lies_in_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "py.typed",
        "answer/figures.toml",
        "models/catalogue.json",
        "models/hf/classes.json",
        "hardware/catalogue.json",
        "engines/registry.json",
        "engines/vllm/flags.ini",
        "ui/cli/main.py",
    ):
        assert f"kvroom/{needed}" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kvroom"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    # The source is nearly all of it: the bar is there for data that slips in.
    assert wheel.stat().st_size < 2_000_000


def test_it_answers_from_an_empty_environment(wheel, tmp_path):
    home = tmp_path / "venv"
    assert run(sys.executable, "-m", "venv", home).returncode == 0
    python = home / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    done = run(*pip, "install", wheel)
    if done.returncode and run(*pip, "download", "--no-deps", "-d", tmp_path, "click").returncode:
        pytest.skip("offline: no package index can be reached")
    assert done.returncode == 0, done.stderr
    kvroom = home / "bin" / "kvroom"
    question = ("llama-3-70b", "--gpu", "80GB:4", "--context", "32K", "--engine", "arithmetic")
    plan = json.loads(run(kvroom, "plan", *question, "--json").stdout)
    assert plan["capacity"]["ceiling"]["requests"] == 16
    assert "Room for 16 requests" in run(kvroom, "plan", *question).stdout
    for command in (["models"], ["gpus"], ["schema"], ["--version"]):
        assert run(kvroom, *command).returncode == 0
    where = run(python, "-c", "import kvroom; print(kvroom.__file__)").stdout
    assert where.startswith(str(home))
