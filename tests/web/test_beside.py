"""Two questions side by side over the whole page: both in the address, differences marked."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from click.testing import CliRunner

from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.main import main
from kvroom.ui.web.presets import REFERENCE
from kvroom.units import decimal_memory

FP8 = {**REFERENCE.scenario, "kv_dtype": "fp8"}


def both(a: dict[str, Any], b: dict[str, Any]) -> str:
    one, two = (Scenario.from_dict(s).link("") for s in (a, b))
    return f"{one}&b={two.removeprefix('#s=')}"


ROOMS = "[...document.querySelectorAll('kv-card')].map((f) => f.answer?.figures.memory.room)"


def shown(v: Any) -> list[int]:
    """Rooms that the answer cards show, in their order on the page."""
    return list(v.page.evaluate(ROOMS))


def until(v: Any, rooms: list[int]) -> None:
    """Wait until the answer cards show ``rooms``."""
    v.page.wait_for_function(
        f"rooms => JSON.stringify(rooms) === JSON.stringify({ROOMS})", arg=rooms
    )
    v.settle()


def test_begin_change_turn_end(visit: Any) -> None:
    v = visit()
    assert not v.page.locator("#versus").is_visible()
    v.page.click("#compare-with")
    until(v, [16, 16])
    assert v.page.locator("#question .differs").count() == 0
    v.choose("#kv", "fp8")
    until(v, [16, 33])
    assert "Room for 33" in v.text("#verdict") and "A: Room for 16" in v.text("#versus-said")
    assert v.page.locator("#question .differs input").get_attribute("id") == "kv"
    assert v.page.locator("#question .differs").get_attribute("title") == "A: auto"
    marked = v.page.locator("kv-versus .differs th").all_inner_texts()
    assert any("Requests with room" in m for m in marked) and not any(
        "Weights" in m for m in marked
    )
    other = v.page.locator('#fill p kv-n[figure="figures.memory.request_bytes"]').first
    assert other.get_attribute("data-other") == "A: 10.74 GB"
    v.page.check("#side-a", force=True)
    until(v, [16, 33])
    assert v.page.input_value("#kv") == "auto" and "Room for 16" in v.text("#verdict .sentence")
    assert v.page.locator("kv-accounts").count() == 2
    v.page.click("#compare-end")
    until(v, [16])
    assert "&b=" not in v.page.evaluate("location.hash")
    assert v.page.locator("[data-other], .differs, [data-side]").count() == 0


def test_the_address_carries_both(visit: Any) -> None:
    v = visit(both(REFERENCE.scenario, FP8))
    until(v, [16, 33])
    assert v.page.locator("#side-a").is_checked()
    v.page.check("#side-b", force=True)
    link_before = v.page.evaluate("location.hash")
    v.choose("#model", "qwen3-32b")
    v.page.wait_for_function("before => location.hash !== before", arg=link_before)
    until(v, [16, 59])
    rooms = shown(v)
    link = v.page.evaluate("location.hash")
    again = visit(link)
    assert shown(again) == rooms and rooms[0] == 16 and rooms[1] > 33
    assert Scenario.from_link(link).model == "llama-3-70b"  # the command line takes the first
    v.page.go_back()
    until(v, [16, 33])


def test_a_bad_second_question_is_told(visit: Any) -> None:
    bad = {**REFERENCE.scenario, "model": "no-such-model"}
    v = visit(both(REFERENCE.scenario, bad))
    assert "no-such-model" in v.text("#verdict")
    v.complaints.clear()


def test_figures_are_those_of_the_command(visit: Any) -> None:
    v = visit(both(REFERENCE.scenario, FP8))
    v.page.locator("kv-versus summary").click()
    command = v.text("kv-versus details code")
    with decimal_memory():
        found = CliRunner().invoke(main, [*shlex.split(command)[1:], "--json"])
    plans = json.loads(found.stdout)["plans"]
    assert [p["capacity"]["ceiling"]["requests"] for p in plans] == shown(v)
    drawn = v.page.evaluate("document.getElementById('versus-figure').answers")
    for got, want in zip(drawn, plans, strict=True):
        for key, value in want.items():
            assert got[key] == value, key


def test_the_lower_figures_have_their_twins(visit: Any) -> None:
    v = visit(both(REFERENCE.scenario, FP8))
    for name in ("levers", "reality"):
        v.page.locator(f"kv-{name}").first.scroll_into_view_if_needed()
        v.page.wait_for_function(
            "n => [...document.querySelectorAll(n)].filter((f) => f.answer).length === 2",
            arg=f"kv-{name}",
        )
    asked = v.page.evaluate(
        """[...document.querySelectorAll('kv-levers, kv-reality')]
        .flatMap((f) => f.answer?.scenario.kv_dtype ?? [])"""
    )
    assert asked == ["auto", "fp8"] * 2


def test_the_replay_takes_the_other_question(visit: Any) -> None:
    v = visit(both(REFERENCE.scenario, {**REFERENCE.scenario, "model": "llama-3-8b"}))
    v.page.locator("#replay").scroll_into_view_if_needed()
    v.page.wait_for_selector("kv-reuse figure")
    v.page.evaluate("document.getElementById('replay-more').open = true")
    v.page.select_option("#beside", "other")
    figure = "document.getElementById('replay-figure')"
    v.page.wait_for_function(
        f"() => {figure}.runs.length === 2 && {figure}.runs.every((r) => r.answer)"
    )
    commands = v.page.evaluate(f"{figure}.runs.map((r) => r.head.command)")
    assert "llama-3-70b" in commands[0] and "llama-3-8b" in commands[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1500])
def test_axe_and_width(visit: Any, scheme: str, width: int) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    link = both(REFERENCE.scenario, {**FP8, "model": "gemma-3-27b", "context_tokens": 8192})
    v = visit(link, color_scheme=scheme, reduced_motion="reduce",
              viewport={"width": width, "height": 900})  # fmt: skip
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(v.page)
    assert found.violations_count == 0, found.generate_report()


def test_a_twins_controls_turn_the_other_question(visit: Any) -> None:
    v = visit()
    v.page.click("#compare-with")
    v.choose("#kv", "fp8")
    v.settle()
    v.page.locator("#reality-figure").scroll_into_view_if_needed()
    v.page.wait_for_selector("#reality-figure.filled svg")
    v.page.wait_for_selector("kv-reality.filled:not([id]) svg")
    assert v.page.is_checked("#side-b")
    v.page.locator("kv-reality:not([id]) .seg label", has_text="Documents").click()
    v.settle()
    assert v.page.is_checked("#side-a")
    found = "document.getElementById('reality-figure').answer.scenario"
    v.page.wait_for_function(f"() => {found}.workload.input?.startsWith('lognormal')")
    assert v.page.evaluate(f"{found}.kv_dtype") == "auto"
