"""An engine is its folder and one line of the registry: a toy one plans, serves, starts, reconciles."""

import ast
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvroom
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.observe.logs.startup import read
from kvroom.observe.reconcile import reconcile
from kvroom.scenario.engine_names import (
    CEILING_ENGINE,
    add_engine,
    engine_aliases,
    engine_name,
    engine_names,
    remove_engine,
)
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

QUESTION = {"context_tokens": 8192, "engine": "toy"}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    add_engine("toy", "toy_engine.toy:TOY", aliases=["toyllm"])
    yield
    remove_engine("toy")


def test_it_is_known_by_its_names_and_gone_again() -> None:
    assert "toy" in engine_names()
    assert engine_name("engine", " ToyLLM ") == "toy"
    assert engine_of("toyllm").label == "Toy"
    remove_engine("toy")
    with pytest.raises(KvroomError, match="no engine"):
        Scenario.from_dict({"model": "llama-3-8b", "gpu": "L40S", "engine": "toyllm"})
    add_engine("toy", "toy_engine.toy:TOY", aliases=["toyllm"])


def test_it_plans_by_its_own_rules() -> None:
    plan = kvroom.plan("llama-3-8b", "H100-SXM", **QUESTION)
    accounts = {a.name: a.bytes for a in plan.memory.accounts}
    assert accounts["weights"] + accounts["kv"] == plan.memory.gpu_bytes // 2
    assert plan.capacity.engine is not None
    assert plan.capacity.engine.block_tokens == 32
    assert plan.verdict.fits
    wider = kvroom.plan("llama-3-8b", "H100-SXM", **QUESTION, engine_args={"share": 0.8})
    assert wider.memory.kv_bytes > plan.memory.kv_bytes


def test_its_flags_and_start_rules_are_checked() -> None:
    with pytest.raises(KvroomError, match="no flag of Toy"):
        kvroom.plan("llama-3-8b", "H100-SXM", **QUESTION, engine_args={"shares": 0.8})
    with pytest.raises(KvroomError, match="leaves no memory"):
        kvroom.plan("llama-3-8b", "H100-SXM", **QUESTION, engine_args={"share": 0})
    verdict = kvroom.plan("llama-3-8b", "H100-SXM", **QUESTION, pp=2).verdict
    assert not verdict.fits
    assert "no pipeline stages" in verdict.sentence


def test_its_levers_are_its_own_flags() -> None:
    found = {
        pulled.lever.id for pulled in kvroom.levers("llama-3-8b", "H100-SXM", **QUESTION).levers
    }
    assert {"share=0.8", "requests=200"} <= found


def test_it_serves_requests() -> None:
    workload = {"arrivals": "poisson:4/s", "input": 1000, "output": 100, "requests": 20}
    served = kvroom.simulate("llama-3-8b", "H100-SXM", **QUESTION, workload=workload, seed=1)
    assert served.figures["requests"]["completed"] == 20
    assert any("requests of toy are scheduled by" in w for w in served.figures["warnings"])


def test_it_is_started_and_its_command_read_back() -> None:
    made = kvroom.launch("llama-3-8b", "H100-SXM", **QUESTION, tp=2, gpu_count=2)
    assert made.argv[:2] == ["toy-serve", "--model"]
    assert "--ranks 2" in made.text()
    assert "--share 0.5" in made.text()
    again = Scenario.from_dict(read_command(made.text()).keys)
    assert (again.engine, again.tp, again.context_tokens) == ("toy", 2, 8192)
    assert again.engine_args == {"share": 0.5}
    by_image = read_command(
        "docker run example/toy:v1.2.3 --model llama-3-8b --share 0.7 --verbose"
    )
    assert by_image.keys["engine_version"] == "1.2.3"
    assert by_image.keys["engine_args"] == {"share": 0.7}


def test_no_engine_is_named_outside_the_engines() -> None:
    """What kvroom does for one engine stands in that engine's folder."""
    package = Path(kvroom.__file__).parent
    names = {*engine_names(), *engine_aliases()} - {CEILING_ENGINE, "none"}
    for path in package.rglob("*.py"):
        where = path.relative_to(package).as_posix()
        # A checkpoint's format may be called as the engine that it was made for.
        if where.startswith(("engines/", "models/quantization/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names:
                raise AssertionError(f"{where}:{node.lineno}")


def test_its_log_is_held_against_the_plan() -> None:
    text = (
        "toy: loads llama-3-8b on NVIDIA H100 80GB HBM3\n"
        "toy: weights 15.0 GiB\n"
        "toy: cache 20.5 GiB, 167,936 tokens\n"
    )
    log = read(io.BytesIO(text.encode()))
    assert log.engine == "toy"
    found = reconcile(log, {"context_tokens": 8192})
    assert found.printed["kv_available_bytes"] == round(20.5 * GIB)
    lines = {line.name: line for line in found.accounts}
    assert lines["weights"].printed_bytes == 15 * GIB
    assert lines["weights"].flag == "--ranks"
    assert lines["kv"].predicted_bytes == found.predicted["kv_available_bytes"]
