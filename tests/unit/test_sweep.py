"""Curves: values, the crossover between them, and what a value that cannot be answered says."""

import pytest

from kvroom.errors import KvroomError
from kvroom.optimize.sweep import Curve, parse, sweep
from kvroom.scenario.scenario import Scenario
from kvroom.ui.terminal import curve
from support import check_told


def scenario(**keys):
    return Scenario.from_dict(
        {"model": "llama-3-70b", "gpu": "H100-SXM", "gpu_count": 4, "context_tokens": 32768, **keys}
    )


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("batch=1..256", "batch", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("batch=3..20", "batch", [3, 6, 12, 20]),
        ("batch=5..5", "batch", [5]),
        ("context=1K..8K", "context", [1024, 2048, 4096, 8192]),
        ("tp=1,2,8", "tp", [1, 2, 8]),
        ("kv_dtype=bf16,fp8", "kv_dtype", ["bf16", "fp8"]),
        ("gpu=H100-SXM, B200-SXM", "gpu", ["H100-SXM", "B200-SXM"]),
    ],
)
def test_values(text, key, values):
    assert parse(text) == (key, values)


@pytest.mark.parametrize(
    "text", ["batch", "batch=", "batch=9..2", "batch=0..4", "batch=a..b", "gpu=a..b", "size=1..2"]
)
def test_what_is_no_sweep_is_told(text):
    with pytest.raises(KvroomError) as e:
        parse(text)
    assert e.value.field == "sweep"
    check_told(e.value)


def test_batches_mark_the_crossover():
    points = sweep(scenario(), *parse("batch=1..64"))
    marked = [p for p in points if p.crossover]
    assert [p.value for p in marked] == [marked[0].plan.step.crossover_batch]
    before = points[points.index(marked[0]) - 1].row()
    after = marked[0].row()
    assert before["cache_bytes"] < before["weight_bytes"]
    assert after["cache_bytes"] >= after["weight_bytes"]
    steps = [p.row()["step_s"] for p in points]
    assert steps == sorted(steps)


def test_lengths_mark_the_crossover():
    points = sweep(scenario(concurrency=8), *parse("context=1K..128K"))
    marked = [p.row() for p in points if p.crossover]
    assert len(marked) == 1
    assert marked[0]["cache_bytes"] >= marked[0]["weight_bytes"]


def test_a_value_without_an_answer_says_why():
    points = sweep(scenario(), *parse("tp=2,3,4"))
    assert [p.error is None for p in points] == [True, False, True]
    assert "attention heads" in curve.show(Curve(key="tp", points=points))
    rows = curve.as_json(Curve(key="tp", points=points))["points"]
    assert rows[1]["error"]["field"] == "tp"


def test_cards_side_by_side_as_csv():
    points = sweep(scenario(concurrency=8), *parse("gpu=H100-SXM,B200-SXM"))
    lines = curve.as_csv(Curve(key="gpu", points=points)).splitlines()
    assert lines[0].startswith("gpu,requests,weight_bytes")
    assert [line.split(",")[0] for line in lines[1:]] == ["H100-SXM", "B200-SXM"]
    old, new = (p.plan.step.seconds for p in points)
    assert new < old
