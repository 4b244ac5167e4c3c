"""A reader who is quicker than the server, and than the timer that writes the address."""

from __future__ import annotations

import time
from typing import Any

from test_beside import shown

from kvroom.scenario.scenario import Scenario

SLOW_S = 0.6
CHOOSE = """(id, value) => {
    const field = document.getElementById(id);
    field.value = value;
    field.dispatchEvent(new Event('change', { bubbles: true }));
}"""
CHANGE_AND_SET_ASIDE = f"""() => {{
    ({CHOOSE})('kv', 'fp8');
    document.getElementById('compare-with').click();
}}"""
CHANGE_AND_TURN = f"""() => {{
    ({CHOOSE})('kv', 'fp8');
    document.getElementById('side-a').click();
}}"""
CHANGE_AS_IT_IS_ANSWERED = f"""() => new Promise((done) => {{
    new MutationObserver((_, seen) => {{
        seen.disconnect();
        ({CHOOSE})('users', 40);
        done();
    }}).observe(document.querySelector('#verdict .sentence'), {{ childList: true }});
    ({CHOOSE})('kv', 'fp8');
}})"""
CHANGE_AS_A_LINK_OPENS = f"""(hash) => new Promise((done) => {{
    addEventListener('popstate', () => setTimeout(() => {{
        ({CHOOSE})('kv', 'fp8');
        done();
    }}, 20), {{ once: true }});
    location.hash = hash;
}})"""


def slowed(v: Any) -> Any:
    """The same visit with a server that takes its time."""

    def late(route: Any) -> None:
        time.sleep(SLOW_S)
        route.continue_()

    v.page.route("**/api/plan*", late)
    return v


def rooms(v: Any) -> list[int]:
    v.settle()
    return shown(v)


def test_a_question_that_is_set_aside_has_its_own_answer(visit: Any) -> None:
    v = slowed(visit())
    v.page.evaluate(CHANGE_AND_SET_ASIDE)
    assert rooms(v) == [33, 33]
    assert Scenario.from_link(v.page.evaluate("location.hash")).kv_dtype == "fp8"


def test_turning_away_from_a_question_leaves_it_its_own_answer(visit: Any) -> None:
    v = visit()
    v.page.click("#compare-with")
    v.settle()
    slowed(v)
    v.page.evaluate(CHANGE_AND_TURN)
    assert rooms(v) == [16, 33]
    assert v.page.is_checked("#side-a") and v.page.input_value("#kv") == "auto"
    v.page.check("#side-b", force=True)
    assert rooms(v) == [16, 33]
    assert v.page.input_value("#kv") == "fp8"
    first, second = v.page.evaluate("location.hash").split("&b=")
    assert Scenario.from_link(first).kv_dtype == "auto"
    assert Scenario.from_link("#s=" + second).kv_dtype == "fp8"


def test_an_answer_in_the_unit_that_was_left_is_not_kept(visit: Any) -> None:
    v = slowed(visit("#view=plan"))
    v.page.evaluate(
        f"""() => {{
            ({CHOOSE})('kv', 'fp8');
            document.querySelector('input[name="units"][value="gib"]').click();
        }}"""
    )
    v.settle()
    for _ in range(2):
        assert "GiB" in v.text("#verdict .sentence") and " GB" not in v.text("#verdict .sentence")
        v.page.evaluate(f"() => ({CHOOSE})('kv', 'auto')")
        v.settle()


def test_back_leads_to_a_question_whose_address_was_not_yet_written(visit: Any) -> None:
    v = visit()
    v.page.evaluate(CHANGE_AS_IT_IS_ANSWERED)
    v.settle()
    asked = Scenario.from_link(v.page.evaluate("location.hash"))
    assert (asked.kv_dtype, asked.concurrency) == ("fp8", 40)
    v.page.go_back()
    v.settle()
    assert (v.page.input_value("#kv"), v.page.input_value("#users")) == ("fp8", "")
    assert rooms(v) == [33]


def test_an_address_is_written_though_the_change_came_while_a_link_was_opened(visit: Any) -> None:
    v = slowed(visit())
    link = Scenario.from_dict({"model": "llama-3-8b", "gpu": "80GB"}).link("")
    v.page.evaluate(CHANGE_AS_A_LINK_OPENS, link.removeprefix("#"))
    v.settle()
    asked = Scenario.from_link(v.page.evaluate("location.hash"))
    assert (asked.model, asked.kv_dtype) == ("llama-3-8b", "fp8")
