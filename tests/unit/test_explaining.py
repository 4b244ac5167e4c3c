"""Every explanation's numbers come to the figure that it explains, for every model and many layouts."""

import math

import pytest

from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.planner.explain import explain
from support import asked, evaluated

QUESTIONS = [
    {"tp": 2, "kv_dtype": "fp8", "context_tokens": 100_003},
    {"tp": 4, "pp": 2, "dcp": 2, "dp": 2, "kv_dtype": "q4_0", "weight_dtype": "q4_k_m"},
    {"engine": "vllm", "context_tokens": 1, "weight_dtype": "nvfp4"},
    {"engine": "vllm", "pp": 4, "context_tokens": 8192},
]


def figure(plan, dotted):
    value = plan.to_dict()
    for key in dotted.split("."):
        value = value[key]
    return value


SOME = ("llama-3-70b", "qwen3-next-80b-a3b", "deepseek-v3", "gemma-3-27b", "gpt-oss-120b")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SOME else [pytest.mark.slow]) for n in catalogue.names()],
)
def test_numbers_come_to_the_value_and_the_value_is_the_plans(name):
    answered = 0
    for question in QUESTIONS:
        try:
            w = asked(name, "B200-SXM", **question)
        except KvroomError as e:
            assert e.field in ("tp", "dcp")  # heads that this layout cannot cut
            continue
        answered += 1
        found = explain(w)
        assert len({e.figure for e in found}) == len(found)
        for e in found:
            assert e.value == figure(w.plan, e.figure)
            exact = evaluated(e.numbers)
            if isinstance(e.value, float):
                assert math.isclose(exact, e.value, rel_tol=1e-12), e
            elif e.figure == "kv.bytes_per_token":
                assert math.ceil(exact) == e.value, e
            else:
                assert exact == e.value, e
            assert e.label
            assert e.formula
            assert e.source
    assert answered


def test_what_is_explained():
    w = asked("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K")
    assert [e.figure for e in explain(w)] == [
        "scenario.context_tokens",
        "weights.params",
        "weights.bytes",
        "kv.bytes_per_token",
        "kv.bytes_per_request",
        "kv.bytes_per_token_per_gpu",
        "kv.bytes_per_request_per_gpu",
        "memory.gpu_bytes",
        "memory.kv_bytes",
        "capacity.ceiling.exact",
        "capacity.ceiling.requests",
        "capacity.engine.kv_tokens",
        "capacity.engine.max_concurrency",
        "step.batch",
        "step.request_tokens",
        "step.bytes.weights",
        "step.bytes.kv",
        "step.flops",
        "step.crossover_batch",
    ]
    numbers = {e.figure: e.numbers for e in explain(w)}
    assert numbers["kv.bytes_per_token"] == "80 × 8 × 2 × 128 × 2"
    assert numbers["kv.bytes_per_request"] == "80 × 32,768 × 8 × 2 × 128 × 2"
