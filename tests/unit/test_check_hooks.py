"""The pre-commit hook and the GitHub Action, each on a small repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
REPOSITORY = {
    "deploy/serve.sh": "#!/bin/sh\nvllm serve openai/gpt-oss-120b --max-model-len 8192\n",
    "deploy/values.yaml": "replicas: 2\nname: web\n",
    "docker/Dockerfile": "FROM python:3.12\nRUN true\n",
    "README.md": "vllm serve openai/gpt-oss-120b\n",
    "src/server.py": "print('vllm serve openai/gpt-oss-120b')\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in REPOSITORY.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    programs = tmp_path / ".bin"
    programs.mkdir()
    program = programs / "kvroom"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kvroom "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(repository: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{repository / '.bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=repository, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def hook(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What pre-commit does with the hook: its entry, the arguments, the files that its pattern takes."""
    (entry,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    files = [n for n in REPOSITORY if re.search(entry["files"], n)]
    assert files == ["deploy/serve.sh", "deploy/values.yaml", "docker/Dockerfile"]
    return run(repository, shlex.join([*shlex.split(entry["entry"]), *arguments, *files]))


def test_the_hook_lets_what_fits_pass_and_stops_what_does_not(repository: Path) -> None:
    done = hook(repository, "--gpu", "H100-SXM")
    assert done.returncode == 0, done.stdout + done.stderr
    script = repository / "deploy/serve.sh"
    script.write_text(script.read_text().replace(" --max-model-len 8192", ""))
    done = hook(repository, "--gpu", "H100-SXM")
    assert done.returncode == 1
    assert "deploy/serve.sh:2  would not start" in done.stdout


def test_the_action_annotates_what_does_not_fit(repository: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = [s for s in action["runs"]["steps"] if s.get("id") == "check"]
    named = {re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", v)[1] for v in step["env"].values()}  # type: ignore[index]
    assert named == set(action["inputs"])
    given = {"KVROOM_GPU": "H100-SXM", "KVROOM_EXPECT": "", "KVROOM_ARGS": ""}
    done = run(repository, step["run"], KVROOM_FILES="deploy/*.sh deploy/*.yaml", **given)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    given["KVROOM_EXPECT"] = "concurrency=100000"
    done = run(repository, step["run"], KVROOM_FILES="deploy/*.sh", **given)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "::error file=deploy/serve.sh,line=2,title=kvroom::concurrency is "
    )
