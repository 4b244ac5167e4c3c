"""Words explained where they stand, and what an answer rests on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web import page
from kvroom.ui.web.assumptions import assumptions
from kvroom.ui.web.presets import PRESETS


def test_every_term_is_in_the_glossary_and_every_word_is_used() -> None:
    html = page.render()[1]
    terms = re.findall(r'<a class="term" href="#([\w-]+)"', html)
    words = re.findall(r'<dt id="([\w-]+)"', html)
    assert len(terms) > 12 and set(terms) <= set(words)
    assert len(words) == len(set(words)) > 18
    for section in ("fill", "price", "lives", "moves", "levers", "reality", "replay"):
        text = html[html.index(f'<section id="{section}"') :]
        assert 'class="term"' in text[: text.index("</section>")], section


def test_ids_are_given_once() -> None:
    ids = re.findall(r' id="([^"]+)"', page.render()[1])
    assert len(ids) == len(set(ids))


def test_a_word_is_explained_where_it_stands(visit: Any) -> None:
    v = visit()
    before = v.page.evaluate("location.href")
    term = v.page.locator('a.term[href="#word-engine"]:visible').first
    term.focus()
    v.page.keyboard.press("Enter")
    assert "The program that serves" in v.page.inner_text("#explain")
    v.page.keyboard.press("Escape")
    assert not v.page.locator("#explain").is_visible()
    assert v.page.evaluate("document.activeElement.hash") == "#word-engine"
    term.click()
    v.page.get_by_role("button", name="All words").click()
    assert v.page.evaluate("document.activeElement.id") == "word-engine"
    assert v.page.evaluate("location.href") == before


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.id)
def test_what_an_answer_rests_on_has_its_sources(preset: Any) -> None:
    w = work(Scenario.from_dict(preset.scenario))
    found = {a["what"]: a for a in assumptions(w)}
    assert {"Memory of a card", "Shape of the model", "Cache stored as"} <= set(found)
    assert all(a["taken"] and a["source"] for a in found.values())
    estimated = [a for a in w.plan.memory.accounts if a.source == "assumed" and a.high_bytes]
    assert sum("estimate" in a["source"] for a in found.values()) == len(estimated)
    assert ("Time of a step" in found) is (w.plan.step.seconds is not None)
    assert ("Price of a card's hour" in found) is (w.deployment.device.usd_per_hour is not None)


def test_the_page_says_what_it_rests_on(visit: Any) -> None:
    v = visit()
    v.page.select_option("#preset", "one-node")
    v.page.wait_for_function(
        "() => document.getElementById('takeaway').answer?.scenario.model === 'qwen3-32b'"
    )
    told = v.page.inner_text("[aria-label='What this rests on']")
    assert "CUDA graphs" in told and "an estimate" in told and "datasheet" in told


def test_sections_come_in_the_order_of_the_story() -> None:
    found = re.findall(r'<section id="(\w+)"', page.render()[1])
    assert found[:7] == ["plan", "serve", "run", "fill", "price", "lives", "moves"]
    assert found[7:] == ["levers", "reality", "replay", "units", "take", "words", "present"]
