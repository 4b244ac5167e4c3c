"""The answer card of the page's instrument: its rows are the Plan's own figures, its bands hold them."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom import api
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.sections.card import card, explanations

CLOSED = {"input_tokens": 2000, "output_tokens": 300, "concurrency": 32}
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"model": "qwen3-235b-a22b", "gpu": "H200-SXM", "gpu_count": 8, "weight_dtype": "fp8",
     "workload": CLOSED},
    {"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 4, "engine": "arithmetic"},
    {"model": "qwen3-8b", "gpu": "H100-SXM", "replicas": 2},
    {"model": "qwen3-8b", "gpu": "H100-SXM", "workload": {**CLOSED, "static": True}},
    {"model": "qwen3-8b", "gpu": "H100-SXM",
     "workload": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2.0}},
    {"model": "llama-3-70b", "gpu": "L4"},
    {"model": "bge-m3", "gpu": "L4"},
    {"model": "qwen3-8b", "gpu": "H100-SXM", "engine": "llama.cpp", "gpu_count": 2},
)  # fmt: skip


def made(question: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, dict[str, Any]]]:
    workings = api.workings(**question, hub=False)
    found = card(workings, Scenario.from_dict(question))
    return workings, found, {row["key"]: row for row in found["rows"]}


@pytest.mark.parametrize("question", QUESTIONS)
def test_bands_hold_their_figure_and_a_missing_one_says_what_it_needs(
    question: dict[str, Any],
) -> None:
    workings, found, rows = made(question)
    for row in rows.values():
        if row["value"] is None:
            assert row["needs"] and row["low"] is None
        elif row["low"] is not None:
            assert row["low"] <= row["value"] <= row["high"]
    for told in explanations(workings, found):
        assert told.value is not None and told.label


@pytest.mark.parametrize("question", QUESTIONS)
def test_rows_are_the_plans_own_figures(question: dict[str, Any]) -> None:
    workings, found, rows = made(question)
    plan = workings.plan
    assert found["sentence"] == plan.verdict.sentence
    if plan.serving.ttft_s is not None:
        assert rows["ttft"]["value"] == plan.serving.ttft_s
        assert rows["tpot"]["value"] == plan.serving.tpot_s
        assert rows["total"]["value"] == plan.serving.output_tokens_per_s
    if plan.capacity.ceiling is not None and rows["ceiling"]["value"] is not None:
        assert rows["ceiling"]["value"] == pytest.approx(plan.capacity.ceiling.exact)
    assert rows["usd"]["value"] == plan.cost.usd_per_million_output_tokens
    if rows["user"]["value"] is not None:
        assert rows["user"]["value"] * rows["tpot"]["value"] == pytest.approx(1.0)


def test_a_closed_loops_rate_is_banded_and_an_open_ones_is_not() -> None:
    closed, opened = made(QUESTIONS[0])[2], made(QUESTIONS[4])[2]
    assert closed["total"]["low"] is not None and closed["usd"]["low"] is not None
    assert opened["total"]["low"] is None and "arrive" in opened["total"]["says"]


def test_what_does_not_start_has_no_times_and_its_own_colour() -> None:
    _, found, rows = made(QUESTIONS[5])
    assert found["colour"] == "stopped"
    assert rows["tpot"]["needs"] == "it does not start"
    assert found["reasons"][0]["fix"]


def test_a_refused_width_names_its_field() -> None:
    _, found, _ = made({"model": "qwen3-8b", "gpu": "H100-SXM", "weight_dtype": "exl2_4.0"})
    assert found["reasons"][0]["key"] == "weight_dtype"


def test_warnings_come_with_the_key_that_mends_them() -> None:
    _, found, _ = made(QUESTIONS[0])
    keys = {row["key"]: row for row in found["warnings"]}
    assert keys["engine_version"]["fix"] == "--engine-version"
    assert keys["kv_dtype"]["fix"] == "--kv-dtype bf16"


def test_a_chosen_layout_says_why() -> None:
    question = {"model": "deepseek-v3", "gpu": "H200-SXM", "gpu_count": 16}
    _, found, _ = made(question)
    assert found["layout"]["chosen"] and found["layout"]["why"].startswith(found["layout"]["says"])
    _, told, _ = made({**question, "tp": 8, "pp": 2})
    assert not told["layout"]["chosen"] and told["layout"]["says"] == "tp 8 pp 2"
