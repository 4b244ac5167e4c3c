"""The page in a browser: each thing that a reader can do with it."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from kvroom.models.catalogue import config_of
from kvroom.planner.plan import plan, work
from kvroom.planner.tiers import plan_json
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.presets import PRESETS, REFERENCE
from kvroom.units import (
    decimal_memory,
    show_count,
    show_gb,
    show_gib,
    show_seconds,
    show_tokens,
    show_usd,
)


def blocks(v: Any) -> int:
    return int(v.page.locator("kv-memory .marks .cache").count())


def shown(v: Any, figure: str, of: str = "") -> str:
    which = f'[of="{of}"]' if of else ":not([of])"
    return v.text(f'section kv-n[figure="{figure}"]{which}')


CONTEXT_STEPS = {8192: 6, 32768: 10, 131072: 14}


def test_the_first_figure_is_there_before_any_script(visit: Any) -> None:
    v = visit(java_script_enabled=False)
    assert v.page.locator("#memory svg .cache").count() == 16
    assert "weights 141.1 GB" in v.text("#memory svg")
    assert "Room for 16 requests" in v.page.locator("#verdict").inner_text()


def test_without_scripts_the_form_asks(visit: Any) -> None:
    v = visit("?model=llama-3-70b&gpu=80GB&gpus=4&kv=fp8&context=32768&engine=arithmetic",
              java_script_enabled=False)  # fmt: skip
    assert v.page.locator("#memory svg .cache").count() == 33


def test_a_link_opens_the_same_state(visit: Any) -> None:
    asked = Scenario.from_dict({**REFERENCE.scenario, "kv_dtype": "fp8", "concurrency": 40})
    link = asked.link("")
    v = visit(link)
    assert v.running() == 33
    assert "Room for 33 of 40 requests" in v.text("#verdict")
    assert v.page.input_value("#users") == "40"
    assert v.page.input_value("#kv") == "fp8"
    again = visit(link)
    assert again.text("#verdict") == v.text("#verdict")
    address = v.page.evaluate("document.getElementById('takeaway').answer.take_away.link")
    assert Scenario.from_link(address) == asked


def test_a_link_within_the_page_keeps_the_question(visit: Any) -> None:
    v = visit()
    v.choose("#kv", "fp8")
    v.settle()
    asked = v.page.evaluate("location.hash")
    for to in ("#file-drop", "#main"):
        v.page.locator(f'a[href="{to}"]:not(.contents a)').focus()
        v.page.keyboard.press("Enter")
        v.settle()
        assert v.page.evaluate("document.activeElement.id") == to[1:]
        assert v.page.evaluate("location.hash") == asked
        assert v.page.input_value("#kv") == "fp8"


def test_a_link_of_a_newer_version_says_so(visit: Any) -> None:
    v = visit("#s=9.e30")
    assert "version 9" in v.text("#verdict")
    v = visit("#s=1.e3")
    assert "cut off or garbled" in v.text("#verdict")


def test_back_undoes(visit: Any) -> None:
    v = visit()
    v.choose("#kv", "fp8")
    v.settle()
    v.page.locator("#users").fill("17")
    v.page.keyboard.press("Tab")
    v.settle()
    assert v.running() == 17
    v.page.go_back()
    v.settle()
    assert v.page.input_value("#users") == ""
    v.page.go_back()
    v.settle()
    assert v.running() == 16
    assert v.page.input_value("#kv") == "auto"


def test_presets(visit: Any) -> None:
    v = visit()
    for preset in PRESETS:
        v.page.select_option("#preset", preset.id)
        v.settle()
        with decimal_memory():
            want = plan(Scenario.from_dict(preset.scenario), paths=False)
        assert v.text("#verdict .sentence") == want.verdict.sentence
        assert v.page.input_value("#preset") == preset.id


def test_every_number_opens_its_formula(visit: Any) -> None:
    v = visit("#view=read")
    numbers = v.page.locator("main kv-n:visible")
    assert numbers.count() > 30
    bare = v.page.evaluate(
        """() => [...document.querySelectorAll('main kv-n')].filter((n) => {
            const figure = n.getAttribute('figure');
            const none = n.textContent === 'none'; // and so nothing to explain
            return !none && !n.source.explanations.some((e) => e.figure === figure);
        }).map((n) => n.getAttribute('figure'))"""
    )
    assert bare == []
    v.page.locator('#fill p kv-n[figure="figures.memory.total_bytes"]').first.click()
    said = v.page.inner_text("#explain")
    for word in ("exactly", "formula", "source", "320,000,000,000 bytes", "320 GB = 298 GiB"):
        assert word in said


def test_table_and_exports(visit: Any) -> None:
    v = visit("#view=read", accept_downloads=True)
    figure = v.page.locator("#memory")
    v.take(figure, "Show as a table")
    assert "10,737,418,240" in figure.locator("table").inner_text()
    files = {}
    for kind in ("SVG", "PNG", "CSV"):
        with v.page.expect_download() as download:
            v.take(figure, f"Save as {kind}")
        files[kind] = download.value.path().read_bytes()
    assert files["PNG"].startswith(b"\x89PNG") and len(files["PNG"]) > 5000
    assert b"<title>" in files["SVG"] and b"var(" not in files["SVG"]
    assert b"Requests running,1,10737418240,10737418240" in files["CSV"]
    v.page.click(".modes [data-view=plan]")
    with v.page.expect_download() as download:
        v.page.get_by_role("button", name="Save the file").click()
    saved = json.loads(download.value.path().read_text())
    with decimal_memory():
        want = plan_json(work(Scenario.from_dict(REFERENCE.scenario)))
    assert saved == json.loads(json.dumps(want))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["read", "plan", "present"])
@pytest.mark.parametrize("guessed", [True, False])
def test_axe(visit: Any, scheme: str, view: str, guessed: bool) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    v = visit(f"#view={view}", guessed=guessed, color_scheme=scheme, reduced_motion="reduce")
    if guessed and view == "read":
        v.page.click("#add")
        v.settle()
    found = axe.Axe().run(v.page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [320, 640, 1600])
def test_nothing_scrolls_sideways(visit: Any, width: int) -> None:
    v = visit(viewport={"width": width, "height": 800})
    for preset in ("reference", "hybrid"):
        v.page.select_option("#preset", preset)
        v.settle()
        assert v.page.evaluate("document.documentElement.scrollWidth") <= width
        outside = v.page.evaluate(
            """() => [...document.querySelectorAll('kv-memory text, kv-step text, kv-compare text')]
                .filter((t) => t.getBoundingClientRect().right > innerWidth)
                .map((t) => t.textContent)"""
        )
        assert outside == []


def test_reduced_motion(visit: Any) -> None:
    moving = "document.getAnimations().length"
    v = visit("#view=read", reduced_motion="reduce")
    v.page.click("#add")
    v.page.wait_for_selector("#memory .marks .waiting")
    assert v.page.evaluate(moving) == 0
    v = visit("#view=read", reduced_motion="no-preference")
    v.page.click("#add")
    v.page.wait_for_selector("#memory .marks .stuck")
    longest = v.page.evaluate(
        "Math.max(0, ...document.getAnimations().map((a) => a.effect.getComputedTiming().endTime))"
    )
    assert longest <= 400


def test_printed_it_shows_the_answer(visit: Any) -> None:
    v = visit("#view=read", guessed=False)
    v.page.emulate_media(media="print")
    assert v.page.locator("#talk .why").first.is_visible()
    assert v.page.locator("#memory .marks .cache:visible").count() >= 1
    assert not v.page.locator("#guess").is_visible()


def test_forced_colours(visit: Any) -> None:
    v = visit("#view=read", forced_colors="active")
    fills = v.page.evaluate(
        """() => ['weights', 'cache'].map((c) =>
            getComputedStyle(document.querySelector(`kv-memory .marks .${c}`)).fill)"""
    )
    assert fills[0] != fills[1]


def random_scenarios(n: int) -> list[dict[str, Any]]:
    pick = random.Random(7)
    models = ("llama-3-70b", "llama-3-8b", "qwen3-32b", "gemma-3-27b", "deepseek-v3",
              "gpt-oss-120b", "qwen3-next-80b-a3b", "mixtral-8x7b", "bert-base")  # fmt: skip
    found = []
    for _ in range(n):
        model: Any = pick.choice(models)
        if pick.random() < 0.2:
            model = {"config": dict(config_of("llama-3-8b"))}
        asked = {
            "model": model,
            "gpu": pick.choice(("80GB", "H100-SXM", "H200-SXM", "RTX-4090", "MI300X")),
            "gpu_count": pick.choice((1, 2, 4, 8)),
            "context_tokens": pick.randrange(1, 200_000),
            "kv_dtype": pick.choice(("auto", "bf16", "fp8", "q4_0")),
            "engine": pick.choice(("arithmetic", "vllm")),
        }
        if pick.random() < 0.5:
            asked["concurrency"] = pick.randrange(1, 300)
        if model in ("bert-base", "qwen3-next-80b-a3b"):
            asked["gpu_count"] = 2
        found.append(asked)
    return found


def test_each_figure_is_the_plan_of_its_link(visit: Any) -> None:
    """What the elements hold and what the text says, against the planner, over 50 questions."""
    v = visit()
    for asked in random_scenarios(50):
        scenario = Scenario.from_dict(asked)
        with decimal_memory():
            want = json.loads(json.dumps(plan_json(work(scenario, paths=False))))
        v.page.evaluate("hash => { location.hash = hash; }", scenario.link("").removeprefix("#"))
        v.page.wait_for_function(
            "s => document.querySelector('#verdict .sentence').textContent === s",
            arg=want["verdict"]["sentence"],
        )
        v.page.wait_for_function(
            "c => document.getElementById('takeaway').answer.scenario.context_tokens === c",
            arg=want["scenario"]["context_tokens"],
        )
        for element in ("memory", "price-figure", "step", "takeaway"):
            got = v.page.evaluate("id => document.getElementById(id).answer", element)
            for key, value in want.items():
                assert got[key] == value, (asked, element, key)
        m = got["figures"]["memory"]
        gpus = want["scenario"]["gpu_count"]
        assert m["total_bytes"] == want["memory"]["gpu_bytes"] * gpus
        assert m["kv_bytes"] == want["memory"]["kv_bytes"] * gpus
        drawn = v.page.locator("#step .key").text_content()
        assert str(want["step"]["batch"]) in re.sub(",", "", drawn)


def test_any_number_of_the_product_can_be_dragged(visit: Any) -> None:
    v = visit("#view=read")
    v.page.locator("kv-drag").nth(1).scroll_into_view_if_needed()
    box = v.page.locator("kv-drag").nth(1).bounding_box()
    v.page.mouse.move(box["x"] + 5, box["y"] + 5)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + 5 + 3 * 26, box["y"] + 5, steps=4)
    v.page.mouse.up()
    v.settle()
    answer = v.page.evaluate("document.getElementById('price-figure').answer")
    assert answer["kv"]["layers"] == [{"kind": "full", "count": 80, "bytes_per_token": 32768}]
    assert answer["scenario"]["model"]["config"]["num_key_value_heads"] == 64
    assert "2.62 MB" in v.text("kv-price .product")
    v.page.locator("kv-drag").nth(0).focus()
    v.page.keyboard.press("ArrowLeft")
    v.settle()
    assert v.page.evaluate("document.activeElement.localName") == "kv-drag"
    assert v.text("kv-drag") == "79"
    v.page.go_back()
    v.page.go_back()
    v.settle()
    assert v.page.input_value("#model") == "llama-3-70b"


def test_numbers_are_written_as_the_command_line_writes_them(visit: Any) -> None:
    pick = random.Random(11)
    values = [
        0,
        1,
        999,
        1000,
        1023,
        1024,
        1536,
        10**9,
        10_240_000,
        2**40,
        2**50 + 1,
        999.95,
        1023.6,
        68.625 * 1024,
        20480 * 2**10,
        2**40 + 2**20,
        996.6e6,
    ]
    values += [pick.randrange(10 ** pick.randrange(1, 16)) for _ in range(300)]
    v = visit()
    got = v.page.evaluate(
        """async (values) => {
            const { gib, gb, short, tokens, formats } = await import('/text.js');
            return values.map((n) => [gib(n), gb(n), short(n), tokens(Math.floor(n)),
                                      formats.seconds(n / 997e6), formats.usd(n / 9973)]);
        }""",
        values,
    )
    for value, texts in zip(values, got, strict=True):
        want = [show_gib(value), show_gb(value), show_count(value), show_tokens(int(value))]
        want += [show_seconds(value / 997e6), show_usd(value / 9973)]
        assert texts == want, value


def test_the_paper_can_be_chosen(visit: Any) -> None:
    v = visit(color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = v.page.evaluate(paper)
    v.page.select_option("#theme", "dark")
    assert v.page.evaluate(paper) != before
    v.page.reload()
    v.settle()
    assert v.page.evaluate(paper) != before
    assert v.page.input_value("#theme") == "dark"


def test_a_figure_stands_alone(visit: Any) -> None:
    """As in a notebook: a page of its own, the element, its module and an answer."""
    v = visit()
    drawn = v.page.evaluate(
        """async () => {
            const { answer } = document.getElementById('step');
            document.body.replaceChildren();
            const made = ['kv-memory', 'kv-price', 'kv-step'].map((n) => document.createElement(n));
            for (const one of made) { one.answer = answer; document.body.append(one); }
            await Promise.all(made.map((one) => one.updateComplete));
            return made.map((one) => one.querySelectorAll('svg rect').length)
                .concat(document.querySelectorAll('#patterns').length);
        }"""
    )
    assert drawn[0] > 16 and drawn[1] >= 80 and drawn[2] >= 2 and drawn[3] == 1
