"""Curves: values, the crossover between them, and what a value that cannot be answered says."""

import pytest

from kvroom.errors import KvroomError
from kvroom.optimize.sweep import Curve, _with, key_of, known, parse, sweep
from kvroom.scenario.scenario import Scenario
from kvroom.ui.terminal import curve
from support import check_told


def scenario(**keys):
    return Scenario.from_dict(
        {
            "model": "llama-3.1-70b",
            "gpu": "H100-SXM",
            "gpu_count": 4,
            "context_tokens": 32768,
            **keys,
        }
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
        ("weight_dtype=bf16,fp8", "weight_dtype", ["bf16", "fp8"]),
        ("rate=0.5..4", "rate", [0.5, 1, 2, 4]),
        ("users=1,32", "users", [1, 32]),
        ("workload.input_tokens=1K,2e3", "workload.input_tokens", [1024, 2000]),
        ("engine_args.max_num_seqs=16..64", "engine_args.max_num_seqs", [16, 32, 64]),
        ("engine_args.kv_cache_dtype=fp8,auto", "engine_args.kv_cache_dtype", ["fp8", "auto"]),
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


@pytest.mark.parametrize("word", [w for w in known() if w not in ("model", "seed", "requests")])
def test_every_word_reaches_its_key(word):
    """What ``known`` names is a key that a Scenario takes."""
    values = {
        "gpu": "L4", "engine": "sglang", "engine_version": "0.30.0", "weight_dtype": "fp8", "kv_dtype": "fp8",
        "recipe": "tuned", "routing": "session", "speculation": "ngram", "host_memory_bytes": "64GB",
        "arrivals": "poisson:2/s", "prefix": "shared:4x512", "think": "2s", "agent": "3", "tool": "1s",
        "result": "100", "turns": "2", "start": "spread",
    }  # fmt: skip
    whose, (value,) = parse(f"{word}={values.get(word, '2')}")
    changed = _with(scenario(), key_of(whose), value)
    assert changed != scenario()


def test_a_number_of_cards_is_laid_out_anew():
    points = sweep(scenario(), *parse("gpu_count=4,8"))
    assert [p.plan.scenario.gpu_count for p in points] == [4, 8]
    assert points[1].plan.capacity.ceiling.requests > points[0].plan.capacity.ceiling.requests


def test_users_are_both_concurrencies():
    workload = {"input_tokens": 1000, "output_tokens": 100}
    (point,) = sweep(scenario(workload=workload), *parse("users=7"))
    assert point.plan.scenario.concurrency == 7
    assert point.plan.scenario.workload.concurrency == 7
