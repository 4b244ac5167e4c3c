"""``kvroom probe`` as a command: quick, complete without GPUs, and nothing written that is not whole."""

import json

import pytest
from click.testing import CliRunner

from kvroom.observe.probe import bandwidth
from kvroom.observe.probe import machine as probe
from kvroom.ui.cli.main import main

pytestmark = pytest.mark.slow


def run(*args, status=0):
    done = CliRunner().invoke(main, ["probe", *map(str, args)])
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(bandwidth, "SECONDS", 0.001)
    monkeypatch.setattr(bandwidth, "ROUNDS", 1)
    monkeypatch.setattr(probe, "_CACHE_S", 0.001)


def test_text_and_file(tmp_path):
    path = tmp_path / "machine.json"
    shown = run("--no-disk", "--out", path).stdout
    assert "memory, reading" in shown
    assert "not measured: GPU" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if str(path) not in line)
    plan = CliRunner().invoke(
        main, ["plan", "llama-3-8b", "--gpu", str(path), "--context", "4K", "--json"]
    )
    device_bytes = json.loads(path.read_text())["memory_bytes"]
    assert json.loads(plan.stdout)["memory"]["gpu_bytes"] == device_bytes


def test_json_is_the_machine_file():
    machine = json.loads(run("--no-disk", "--json").stdout)
    assert {"name", "memory_bytes", "memory_bytes_per_s", "tiers"} <= set(machine)
    for tier in machine["tiers"]:
        assert set(tier) <= {"name", "bytes", "bytes_per_s", "latency_s", "source"}
    assert "not measured" in machine["notes"]


def test_a_python_that_is_none_is_told():
    assert "does not run the GPU script" in run(
        "--no-disk", "--gpu-python", "/no/python"
    ).stdout.replace("\n? ", " ")


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (["--out", "machine.yaml"], "--out"),
        (["--out", "/no/such/folder/machine.json"], "--out"),
        (["--disk", "/no/such/folder"], "--disk"),
    ],
)
def test_a_bad_question_is_told_before_anything_is_measured(args, field, monkeypatch):
    monkeypatch.setattr(probe, "probe", lambda *_: pytest.fail("measured"))
    done = run(*args, status=2)
    assert done.stderr.startswith(f"kvroom: {field}: ")
    assert json.loads(run(*args, "--json", status=2).stdout)["error"]["field"] == field


def test_too_little_memory_writes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    monkeypatch.setattr(bandwidth, "dram_buffer_bytes", lambda *_: None)
    done = run("--no-disk", "--out", path, status=2)
    assert "memory_bytes_per_s" in done.stderr
    assert not path.exists()
