"""The story in a browser: what a reader does, and what the pinned figure answers."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.scenario.scenario import Scenario

READ = "#view=read"


def blocks(v: Any) -> int:
    return int(v.page.locator("#memory .marks .cache:visible").count())


def shown(v: Any, figure: str, of: str = "") -> str:
    which = f'[of="{of}"]' if of else ":not([of])"
    return str(v.text(f'section p kv-n[figure="{figure}"]{which}'))


def come(v: Any, scene: str, nth: int = 0) -> None:
    """Scroll until a paragraph of the scene acts; again and again, as figures on the way there are loaded."""
    acts = "([beat, nth]) => document.querySelectorAll(beat)[nth].classList.contains('acts')"
    for tried in range(8):
        if tried > 1 and v.page.evaluate(acts, [f'.beat[data-scene="{scene}"]', nth]):
            break
        v.page.evaluate(
            """([beat, nth]) => {
                const box = document.querySelectorAll(beat)[nth].getBoundingClientRect();
                scrollBy({ top: box.top - innerHeight * 0.4, behavior: 'instant' });
            }""",
            [f'.beat[data-scene="{scene}"]', nth],
        )
        v.settle()
    v.page.wait_for_function(
        acts,
        arg=[f'.beat[data-scene="{scene}"]', nth],
    )
    v.settle()


def test_a_bare_visit_reads_and_a_link_plans(visit: Any) -> None:
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "80GB"}).link("")
    for path, view in ((READ, "read"), (asked, "plan"), ("?model=llama-3-8b&gpu=80GB", "plan"),
                       ("?", "read"), (asked + "&view=read", "read")):  # fmt: skip
        v = visit(path)
        assert v.page.evaluate("document.documentElement.dataset.view") == view, path
        assert v.page.locator(".modes [aria-current]").inner_text().lower() == view
        assert v.page.locator("#fill").is_visible() is (view == "read")


def test_views_are_steps_of_back_and_keep_the_question(visit: Any) -> None:
    v = visit("?")
    v.page.click("kv-set >> text=FP8")
    v.settle()
    v.page.click(".modes [data-view=plan]")
    v.settle()
    link = v.page.evaluate("location.hash")
    assert Scenario.from_link(link).kv_dtype == "fp8" and "view" not in link
    v.page.go_back()
    v.settle()
    assert v.page.locator("#fill").is_visible()
    assert Scenario.from_link(v.page.evaluate("location.hash")).kv_dtype == "fp8"
    v.page.go_back()
    v.settle()
    assert v.page.locator("#fill").is_visible()
    assert "Room for 16" in v.text("#verdict .sentence")


def test_contents_lead_to_each_section(visit: Any) -> None:
    v = visit(READ)
    v.page.click("#contents summary")
    names = v.page.locator("#contents a").all_inner_texts()
    assert names[1:] == [
        "Zoom into one token", "Down the memory hierarchy", "One decode step",
        "What the arithmetic leaves out", "Requests come and go", "Units, said plainly", "Words",
    ] or names[0] == "Zoom into one token"  # fmt: skip
    v.page.click("#contents a >> text=Units")
    assert v.page.evaluate("document.activeElement.id") == "units"
    assert not v.page.locator("#contents a").first.is_visible()


@pytest.mark.parametrize("size", [(360, 800), (1280, 800)])
def test_the_first_screen_holds_a_living_figure_and_one_thing_to_do(
    visit: Any, size: tuple[int, int]
) -> None:
    v = visit("?", guessed=False, viewport={"width": size[0], "height": size[1]})
    for what in ("h1:visible", "#memory svg", "#grow"):
        box = v.page.locator(what).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= size[1], what
    assert blocks(v) == 1
    widths = []
    for index in (0, 1, 8, 16):
        v.drag("#grow", index)
        shown = v.page.locator("#memory .marks .cache:visible")
        widths.append(shown.bounding_box()["width"] if shown.count() else 0)
    assert widths == sorted(widths) and widths[0] == 0 and widths[3] > 8 * widths[1] > 0
    assert "131,072 tokens" in v.text("#stage-said") and "42.95 GB" in v.text("#stage-said")
    assert v.page.evaluate("location.hash") == ""  # a demonstration, no question


def test_the_bar_stays_pinned(visit: Any) -> None:
    for width, height, most in ((360, 800, 0.3), (1280, 800, 0.6)):
        v = visit(READ, viewport={"width": width, "height": height})
        for scene in ("full", "128k", "fp8"):
            come(v, scene)
            box = v.page.locator("#stage").bounding_box()
            assert 0 < box["y"] < 0.15 * height and box["height"] <= most * height, (scene, box)


def test_paragraphs_act_on_the_bar(visit: Any) -> None:
    v = visit(READ)
    found = {}
    for scene in ("full", "128k", "fp8"):
        come(v, scene)
        found[scene] = blocks(v)
    assert found == {"full": 16, "128k": 4, "fp8": 33}
    assert "room for 33" in v.text("#stage-said")
    assert v.page.evaluate("location.hash") == READ


def test_guess_first_then_fill_to_the_break(visit: Any) -> None:
    v = visit("?", guessed=False)
    come(v, "full")
    assert blocks(v) == 1 and not v.page.locator(".why").first.is_visible()
    v.page.fill("#guess-number", "20")
    v.page.click("#reveal")
    v.settle()
    assert "16 fit, and you said 20" in v.text("#told")
    told = " ".join(v.page.inner_text(".why >> nth=0").split())
    assert told.startswith("Sixteen, and the next one waits. Of 320 GB the weights take 141.1 GB")
    assert "16 requests of 10.74 GB" in told and "3.65 GB too little for one more" in told
    assert blocks(v) == 16 and v.page.evaluate("document.activeElement.id") == "add"
    v.page.keyboard.press("Enter")
    v.settle()
    assert v.text("#memory .marks .on-waiting") == "17"
    assert v.page.locator("#memory .marks .waiting").count() == 1
    v.page.click("#reset")
    v.settle()
    assert v.running() == blocks(v) == 1


def test_scrolling_by_reveals(visit: Any) -> None:
    v = visit("?", guessed=False)
    come(v, "128k")
    assert "guessing" not in v.page.evaluate("document.documentElement.className")
    assert v.page.locator(".why").first.is_visible()


def test_words_set_the_figure(visit: Any) -> None:
    v = visit(READ)
    come(v, "fp8")
    word = v.page.locator("#talk .beat:last-child kv-set >> text=BF16").first
    word.click()
    v.settle()
    assert blocks(v) == 16
    assert word.get_attribute("aria-pressed") == "true"
    v.page.locator("#talk .beat:last-child kv-set >> text=128K").last.click()
    v.settle()
    assert blocks(v) == 4
    asked = Scenario.from_link(v.page.evaluate("location.hash"))
    assert (asked.context_tokens, asked.kv_dtype) == (131072, "bf16")
    v.page.go_back()
    v.settle()
    assert Scenario.from_link(v.page.evaluate("location.hash")).context_tokens == 32768


def test_8k_to_128k_is_sixteen_fold(visit: Any) -> None:
    v = visit(READ)
    assert shown(v, "figures.price.times_8k_to_128k") == "16"
    assert shown(v, "figures.memory.request_bytes", "8k") == "2.68 GB"
    assert shown(v, "figures.memory.request_bytes", "128k") == "42.95 GB"
    assert [shown(v, "figures.memory.room", of) for of in ("8k", "32k", "128k", "bf16", "fp8")] == [
        "66", "16", "4", "16", "33",
    ]  # fmt: skip


def widths(v: Any) -> list[float]:
    box = v.page.locator("#step .stack rect:not(.ghost)")
    return [float(box.nth(i).get_attribute("width").rstrip("%")) for i in range(box.count())]


def test_a_batch_of_64_is_drawn_as_the_fifty_fold(visit: Any) -> None:
    v = visit(READ)
    come(v, "64 at 2k")
    each = widths(v)[-2:]  # of a token: weights, cache
    alone = float(v.page.locator("#step .ghost").get_attribute("width").rstrip("%"))
    assert 45 < alone / sum(each) < 55
    assert shown(v, "figures.step.times_cheaper", "64 at 2k") == "49"


def test_past_the_crossover_green_overtakes_grey(visit: Any) -> None:
    v = visit(READ)
    come(v, "")
    v.drag("#batch-range", 3)
    grey, green = widths(v)[:2]
    assert green < grey
    assert shown(v, "step.crossover_batch") == "13"
    v.drag("#batch-range", 12)
    grey, green = widths(v)[:2]
    assert green > grey
    assert "cache has overtaken" in v.text("#step .stack")


def test_who_scrolls_past_paragraphs_at_once_sees_the_figure_of_the_last(visit: Any) -> None:
    v = visit(READ)
    come(v, "64 at 2k")
    assert v.page.evaluate("document.getElementById('step').answer.step.batch") == 64
    v.page.evaluate(
        """() => {
            const box = [...document.querySelectorAll('#flow .beat')].at(-1).getBoundingClientRect();
            scrollBy({ top: box.bottom - innerHeight * 0.3, behavior: 'instant' });
        }"""
    )
    v.page.wait_for_function("() => document.getElementById('step').answer.step.batch === 16")
    assert v.page.locator("#batch-said").inner_text() == "16 requests"


def test_a_log_axis_of_memory_has_round_values_in_the_readers_unit(visit: Any) -> None:
    v = visit(READ)
    come(v, "")
    axis = v.page.locator("#step-curve svg.plot text.soft[text-anchor=end]")
    v.page.wait_for_function("() => document.querySelector('#step-curve svg.plot .grid')")
    assert {"1 GB", "10 GB", "100 GB"} <= set(axis.all_text_contents())
    v.page.check("input[name=units][value=gib]", force=True)
    v.settle()
    assert {"1 GiB", "8 GiB", "64 GiB"} <= set(axis.all_text_contents())


def test_memory_is_counted_in_the_readers_unit(visit: Any) -> None:
    v = visit(READ)
    assert shown(v, "figures.memory.weights_bytes") == "141.1 GB"
    v.page.check("input[name=units][value=gib]", force=True)
    v.settle()
    assert shown(v, "figures.memory.weights_bytes") == "131.4 GiB"
    assert "GiB" in v.text("#memory svg") and "GB" not in v.text("#memory svg")
    assert "GiB" in v.text("#verdict .sentence")
    v.page.reload()
    v.settle()
    assert shown(v, "figures.memory.weights_bytes") == "131.4 GiB"


@pytest.mark.parametrize("width", [320, 640, 1600, 2560])
def test_nothing_scrolls_sideways(visit: Any, width: int) -> None:
    v = visit(READ, viewport={"width": width, "height": 800})
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_number_opens_a_chain_down_to_config_and_card(visit: Any) -> None:
    v = visit(READ)
    v.page.locator('#talk kv-n[figure="figures.memory.short_bytes"]').first.click()
    labels = (
        "Left over when full",
        "Room for cache on all cards",
        "Left for cache",
        "Memory of one",
    )
    for words in labels:
        v.page.locator("#explain .follows", has_text=words).first.click()
    told = v.page.inner_text("#explain")
    assert "80,000,000,000 bytes" in told and "plain card" in told
    for _ in labels:
        v.page.get_by_role("button", name="← Back").click()
    v.page.locator("#explain .follows").first.click()
    v.page.locator("#explain .follows").first.click()
    v.page.locator("#explain .follows", has_text="Cache of one request").first.click()
    v.page.locator("#explain .follows", has_text="one more token").first.click()
    assert "80 × 8 × 2 × 128 × 2" in v.page.inner_text("#explain")
    assert "published config of meta-llama" in v.page.inner_text("#explain")


def test_present_shows_one_figure_at_a_time(visit: Any) -> None:
    v = visit("#view=present", viewport={"width": 1280, "height": 720})
    assert v.page.locator(".slide:visible").count() == 1
    count = v.page.locator(".slide").count()
    for number in range(1, count + 1):
        v.page.wait_for_selector(".slide:visible .fig svg")
        assert v.text("#slide-count") == f"{number} of {count}"
        sizes = v.page.evaluate(
            """() => [...document.querySelectorAll('.slide:not([hidden]) .fig svg text')]
                .filter((t) => t.checkVisibility())
                .map((t) => t.getBoundingClientRect().height)
                .filter((height) => height > 0)"""
        )
        assert sizes and min(sizes) >= 24, number
        v.page.keyboard.press("ArrowRight")
        v.settle()
    assert f"slide={count}" in v.page.evaluate("location.hash")
    v.page.keyboard.press("Home")
    assert v.text("#slide-count") == f"1 of {count}"
    v.page.keyboard.press("Escape")
    assert v.page.evaluate("document.documentElement.dataset.view") == "read"


def test_the_replay_is_a_slide_that_plays(visit: Any) -> None:
    v = visit("#view=present&slide=12", viewport={"width": 1280, "height": 720})
    v.page.wait_for_selector(".slide:visible kv-replay .pool svg")
    time = "() => document.querySelector('.slide:not([hidden]) kv-replay').time"
    v.page.wait_for_function(f"({time})() > 0")
    v.page.keyboard.press("ArrowLeft")
    v.settle()
    left = v.page.evaluate("() => document.querySelector('.slide kv-replay').time")
    v.page.wait_for_timeout(200)
    assert v.page.evaluate("() => document.querySelector('.slide kv-replay').time") == left


def test_who_wants_no_motion_sees_the_worst_moment_of_the_replay(visit: Any) -> None:
    v = visit("#view=present&slide=12", reduced_motion="reduce")
    v.page.wait_for_selector(".slide:visible kv-replay .pool svg")
    time = "() => document.querySelector('.slide:not([hidden]) kv-replay').time"
    stands = v.page.evaluate(time)
    v.page.wait_for_timeout(200)
    assert v.page.evaluate(time) == stands > 0


def test_the_word_that_is_marked_says_what_the_figure_shows(visit: Any) -> None:
    v = visit(READ)
    pressed = """() => [...document.querySelectorAll('#talk .beat[data-scene="128k"] button.set')]
        .filter((b) => b.getAttribute('aria-pressed') === 'true').map((b) => b.textContent)"""
    come(v, "full")
    assert set(v.page.evaluate(pressed)) == {"32K"}
    come(v, "128k")
    assert set(v.page.evaluate(pressed)) == {"128K"}
    widths = pressed.replace("128k", "fp8")
    assert "BF16" in v.page.evaluate(widths)
    come(v, "fp8")
    assert set(v.page.evaluate(widths)) == {"FP8", "32K"}


def test_pinned_figures_have_their_menu_on_a_phone(visit: Any) -> None:
    v = visit(READ, viewport={"width": 360, "height": 800})
    v.page.click("#stage .menu summary")
    assert v.page.locator("#stage .menu button").last.is_visible()
    v.page.click("#stage .menu >> text=Show as a table")
    assert v.page.locator("#stage .table").is_visible()
    box = v.page.locator("#stage").bounding_box()
    assert box["height"] < 0.8 * 800


STOPS = """() => {
    const radios = new Set();
    const all = 'a[href], button, input, select, summary, textarea, [tabindex]';
    return [...document.querySelectorAll(all)].filter((e) => {
        if (e.tabIndex < 0 || e.disabled || !e.checkVisibility()) return false;
        const again = e.type === 'radio' && radios.has(e.name);
        if (e.type === 'radio') radios.add(e.name);
        return !again;
    }).map((e) => `${e.closest('section')?.id} ${e.id || e.className || e.textContent.trim().slice(0, 30)}`);
}"""
"""Where the Tab key stops, a group of radio buttons being one."""


def test_few_stops_of_tab(visit: Any) -> None:
    v = visit(READ)
    for section in ("price", "lives", "moves", "reality", "replay"):
        v.page.locator(f"#{section}").scroll_into_view_if_needed()
        v.settle()
    for _ in range(25):  # stops are counted anew once the hand rests
        v.page.wait_for_timeout(200)
        stops = v.page.evaluate(STOPS)
        if len(stops) <= 60:
            break
    assert len(stops) <= 60, stops
    v.page.locator("#talk .beat kv-n:visible").first.focus()
    v.page.keyboard.press("ArrowRight")
    assert v.page.evaluate("document.activeElement.matches('kv-n, .term, .set')")
