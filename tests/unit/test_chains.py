"""Every figure of the page follows from others, down to the model's config, the card and the question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvroom.answer.figures import Explanation, chained, registry
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web import page
from kvroom.ui.web.presets import PRESETS
from kvroom.ui.web.sections import reality, tiers

NOWHERE = ("", "the figures that it follows from", "config", "the Plan", "TPOT", "arithmetic")
WITH_ENGINE = {"engine": "vllm", "gpu": "H100-SXM", "context_tokens": 8192}
LENGTHS = {"input_tokens": 1000, "output_tokens": 300}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.id)
@pytest.mark.parametrize(
    "asked", [{}, {"concurrency": 3}, {**WITH_ENGINE, "workload": LENGTHS}], ids=str
)
@pytest.mark.parametrize(
    "of", [page.answer, tiers.answer, reality.answer], ids=lambda f: f.__module__
)
def test_chains_end_where_something_is_stated(
    preset: Any, asked: dict[str, Any], of: Callable[[Scenario], dict[str, Any]]
) -> None:
    answer = of(Scenario.from_dict({**preset.scenario, **asked}))
    told = {e["figure"]: e for e in answer["explanations"]}

    def ends(key: str, seen: tuple[str, ...] = ()) -> list[str]:
        assert key not in seen, (*seen, key)
        of = told[key]["of"]
        return [end for other in of for end in ends(other, (*seen, key))] if of else [key]

    for key in told:
        for end in ends(key):
            assert told[end]["source"] not in NOWHERE, (key, end)
    if of is page.answer:
        short = set(ends("kv.bytes_per_request"))
        assert "scenario.context_tokens" in short
        assert any(end.startswith("figures.price.kinds.0.factors") for end in short)


def test_times_and_rows_of_the_card_follow_from_the_config_and_the_cards_rates() -> None:
    asked = {"model": "qwen3-32b", "gpu_count": 2, **WITH_ENGINE, "workload": LENGTHS}
    answer = page.answer(Scenario.from_dict(asked))
    told = {e["figure"]: e for e in answer["explanations"]}

    def below(key: str) -> set[str]:
        return {key}.union(*(below(other) for other in told[key]["of"]))

    for index, row in enumerate(answer["figures"]["card"]["rows"]):
        if row["value"] is None:
            continue
        ends = below(row["figure"] or f"figures.card.rows.{index}.value")
        assert ends & {"weights.params", "kv.bytes_per_token"}, row["label"]
        rates = {end for end in ends if end.startswith("figures.card.facts.gpu.")}
        assert rates or (row["form"] == "requests" and "tokens/s" not in row["unit"]), row["label"]


def test_what_a_figure_follows_from_is_a_figure() -> None:
    known = registry()
    for entry in known.values():
        for key in entry.of:
            assert key in known, (entry.key, key)


def test_places_of_a_pattern() -> None:
    def one(figure: str, *of: str) -> Explanation:
        words = dict.fromkeys(("label", "unit", "formula", "numbers", "source"), "")
        return Explanation(figure=figure, value=1, of=of, **words)

    told = [one("a.0.all", "b.*.x"), one("b.0.x"), one("b.1.x"), one("all", "b.*.x", "gone", "all")]
    assert [e.of for e in chained(told)] == [("b.0.x",), (), (), ("b.0.x", "b.1.x")]
