"""The page and its server: answers kept and late, refused and lost, and the words that suit them."""

from __future__ import annotations

import json
import xml.dom.minidom
from typing import Any

import pytest

from kvroom.scenario.scenario import Scenario


def test_a_hand_that_rests_on_a_slider_needs_no_request(visit: Any) -> None:
    v = visit("#view=read")
    v.page.locator("#context-range").hover()
    v.settle()
    v.page.route("**/api/plan*", lambda route: route.abort())
    for index in (3, 20, 6):
        v.page.locator("#context-range").evaluate(
            "(e, i) => { e.value = i; e.dispatchEvent(new Event('input', {bubbles: true})); }",
            index,
        )
        tokens = v.page.evaluate("document.getElementById('memory').answer.scenario.context_tokens")
        assert v.page.input_value("#context") == str(tokens)
    assert tokens == 8192
    assert "Room for 66" in v.text("#verdict")
    v.settle()
    v.complaints.clear()


def test_a_late_answer_does_not_overwrite_a_newer_one(visit: Any) -> None:
    v = visit()
    v.choose("#kv", "fp8")
    v.settle()

    def late(route: Any) -> None:
        v.page.wait_for_timeout(400)
        route.continue_()

    v.page.route("**/api/plan*", late)
    v.page.evaluate(
        """() => {
            const field = document.getElementById('kv');
            for (const value of ['q4_0', 'auto']) {
                field.value = value;
                field.dispatchEvent(new Event('change', { bubbles: true }));
            }
        }"""
    )
    v.page.wait_for_timeout(1200)
    v.settle()
    assert v.page.input_value("#kv") == "auto"
    assert v.running() == 16


def test_a_server_that_went_away_is_told_and_the_question_kept(visit: Any) -> None:
    v = visit()
    v.page.route("**/api/plan*", lambda route: route.abort())
    v.page.locator("#context").fill("5000")
    v.page.keyboard.press("Tab")
    v.page.wait_for_selector(".fault:visible")
    assert "does not answer" in v.text("#verdict")
    assert "last question that was answered" in v.text("#verdict .sentence")
    assert v.page.input_value("#context") == "5000"
    v.page.unroute("**/api/plan*")
    v.choose("#kv", "fp8")
    v.settle()
    assert not v.page.locator(".fault").is_visible()
    answer = v.page.evaluate("document.getElementById('memory').answer.scenario")
    assert answer["context_tokens"] == 5000 and answer["kv_dtype"] == "fp8"
    v.complaints.clear()


def test_a_refused_question_stays_in_the_bar(visit: Any) -> None:
    v = visit()
    v.page.locator("#count").fill("200000")
    v.page.keyboard.press("Tab")
    v.page.wait_for_selector(".fault:visible")
    assert "above 100,000" in v.text("#verdict")
    assert v.page.input_value("#count") == "200000"
    v.page.locator("#count").fill("0")
    v.page.keyboard.press("Tab")
    v.settle()
    assert v.page.get_attribute("#count", "aria-invalid") == "true"
    assert "Write a whole number" in v.text("#count-err") and v.page.input_value("#count") == "0"
    v.page.locator("#count").fill("2")
    v.page.keyboard.press("Tab")
    v.settle()
    assert "Room for 0" in v.text("#verdict") or "Room for" in v.text("#verdict")
    assert not v.page.locator(".fault").is_visible()
    v.complaints.clear()


@pytest.mark.parametrize(
    ("asked", "says", "never"),
    [
        (
            {"model": "bert-base", "gpu": "H100-SXM"},
            "keeps nothing from token to token",
            "Length is",
        ),
        ({"model": "llama-3.1-405b", "gpu": "80GB"}, "nothing starts", "Length is"),
        (
            {"model": "mamba-codestral-7b", "gpu": "H100-SXM", "engine": "arithmetic"},
            "state is of fixed size",
            "Length is the price",
        ),
    ],
)
def test_the_text_suits_the_answer(
    visit: Any, asked: dict[str, Any], says: str, never: str
) -> None:
    v = visit(Scenario.from_dict(asked).link("") + "&view=read")
    told = v.page.locator("#fill").inner_text()
    assert says in told and never not in told
    fits = "nothing starts" not in says and "keeps nothing" not in says
    assert v.page.locator("#add").is_enabled() is fits
    html = visit("?" + "&".join(f"{k}={x}" for k, x in asked.items()), java_script_enabled=False)
    assert says in html.page.locator("#fill").inner_text()


def test_times_and_money_are_shown_where_they_are_known(visit: Any) -> None:
    v = visit("#view=read")
    assert "million tokens" not in v.text("#step .big")

    def told(route: Any) -> None:
        reply = route.fetch()
        text = reply.text()
        answer = json.loads(text)
        if isinstance(answer, dict):
            answer["step"] |= {"seconds": 0.04567, "tokens_per_s": 350.2, "bound": "memory"}
            answer["cost"] = {"usd_per_hour": 10.0, "usd_per_million_output_tokens": 7.9365}
        route.fulfill(json=answer)

    v.page.route("**/api/plan*", told)
    v.page.click("#add")
    v.settle()
    said = v.text("#step .big")
    assert "about 45.7 ms" in said and "$7.94 a million tokens" in said
    v.page.locator('kv-n[figure="step.seconds"]').click()
    assert "0.04567" in v.page.inner_text("#explain")
    v.page.unroute_all(behavior="wait")


def test_one_request_is_drawn_beside_the_batch(visit: Any) -> None:
    v = visit("#view=read")
    v.drag("#batch-range", 12)
    assert "one request alone: 149.8 GB for one token" in v.text("#step .stack")
    assert v.page.locator("#step .stack rect").count() == 7
    v.drag("#batch-range", 0)
    assert v.page.locator("#step .stack rect").count() == 2


def test_a_figure_of_two_drawings_is_saved_whole(visit: Any) -> None:
    v = visit(accept_downloads=True)
    with v.page.expect_download() as download:
        v.page.evaluate(
            """async () => {
                const figure = Object.assign(document.getElementById('step'), { shows: '' });
                await figure.updateComplete;
                await figure.save('svg');
            }"""
        )
    text = download.value.path().read_text()
    root = xml.dom.minidom.parseString(text).documentElement
    assert [n.tagName for n in root.childNodes].count("svg") == 2
    assert "requests in the batch" in text and "one request alone" in text
    assert "var(" not in text and "class=" not in text
