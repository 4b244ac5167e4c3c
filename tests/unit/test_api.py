"""What a Python program sees."""

import ast
import doctest
from dataclasses import fields
from pathlib import Path

import pytest

import kvroom
from kvroom import api


@pytest.mark.parametrize("module", [kvroom, api], ids=lambda m: m.__name__)
def test_examples(module):
    tried = doctest.testmod(module)
    assert tried.attempted
    assert not tried.failed


def test_names():
    assert set(kvroom.__all__) <= set(dir(kvroom))
    assert isinstance(kvroom.plan("llama-3-8b", "H100"), kvroom.Plan)
    assert isinstance(kvroom.plan("llama-3-8b", "H100").scenario, kvroom.Scenario)
    with pytest.raises(AttributeError, match="nothing"):
        kvroom.nothing  # noqa: B018


def test_a_bad_key_is_told():
    with pytest.raises(kvroom.KvroomError, match="Did you mean kv_dtype"):
        kvroom.plan("llama-3-8b", "H100", kv_dtyp="fp8")


def test_paths_are_taken(tmp_path):
    import json

    from kvroom.models import catalogue

    config = tmp_path / "config.json"
    config.write_text(json.dumps(dict(catalogue.config_of("llama-3-8b"))))
    card = tmp_path / "card.json"
    card.write_text('{"name": "x", "memory_bytes": 80000000000, "memory_bytes_per_s": 1e12}')
    assert isinstance(config, Path)
    assert kvroom.plan(config, card).weights.params == 8_030_261_248
    assert kvroom.plan(tmp_path, card).weights.params == 8_030_261_248


def test_what_a_call_cannot_mean_is_a_sentence():
    made = {"arrivals": "poisson:2/s", "input": 100, "output": 10, "requests": 5}
    lengths = {"input_tokens": 100, "output_tokens": 10}
    calls = [
        (lambda: kvroom.simulate("llama-3-8b", "L4", workload=made, seeds=0), "seeds"),
        (lambda: kvroom.simulate("llama-3-8b", "L4", workload=made, slo="ttft_p95=0s"), "slo ttft"),
        (lambda: kvroom.simulate("llama-3-8b", "L4", trace=3), "trace"),
        (lambda: kvroom.simulate("llama-3-8b", "L4", trace="x", hash_tokens=0), "hash_tokens"),
        (lambda: kvroom.search("llama-3-8b", workload="input=1"), "workload"),
        (lambda: kvroom.search("llama-3-8b", workload=lengths, jobs="2"), "jobs"),
        (lambda: kvroom.search("llama-3-8b", workload=lengths, simulate=-1), "simulate"),
        (lambda: kvroom.compare(1, 2), "compare"),
        (lambda: kvroom.reuse(4), "trace"),
    ]
    for call, field in calls:
        with pytest.raises(kvroom.KvroomError) as told:
            call()
        assert told.value.field.startswith(field)


def test_one_name_is_a_list_of_one():
    found = kvroom.levers("llama-3-8b", "L4", context_tokens="8K", together="kv_dtype=fp8")
    assert [t.ids for t in found.together] == [("kv_dtype=fp8",)]


RUNS = {"work", "plan", "serve", "simulate", "levers", "search", "reconcile", "calibrate", "launch"}
RUNS |= {"cliff", "splits", "sweep", "curve", "reuse", "prove", "probe", "load", "resolve"}


def test_what_people_see_runs_nothing_but_the_api():
    source = Path(kvroom.__file__).parent
    deeper = []
    for path in (source / "ui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvroom."):
                names = {a.name for a in node.names} & RUNS
                if names and not node.module.startswith("kvroom.ui"):
                    deeper.append((path.name, node.module, names))
    assert not deeper


def test_every_key_of_a_scenario_is_a_typed_keyword():
    keys = {f.name for f in fields(kvroom.Scenario)} - {"model", "gpu"}
    assert set(api.ScenarioKeys.__annotations__) == keys
