"""The page's lower sections in a browser: tiers, levers, the staircase, and files dropped in."""

from __future__ import annotations

import json
import xml.dom.minidom
from typing import Any

import pytest
from click.testing import CliRunner
from test_sections import H100, LOG

from kvroom.optimize.levers.rank import levers as find_levers
from kvroom.planner.plan import work
from kvroom.planner.tiers import plan_json
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.cli.main import main
from kvroom.ui.web.presets import PRESETS, REFERENCE
from kvroom.ui.web.sections import levers, reality
from kvroom.units import decimal_memory

FIGURES = ("tiers-figure", "levers-figure", "reality-figure")
ONE_NODE = PRESETS[1].scenario


SHOW = """id => {
    const modes = document.getElementById(id).closest('[data-modes]').dataset.modes.split(' ');
    const { view } = document.documentElement.dataset;
    if (!modes.includes(view)) document.querySelector(`.modes [data-view=${modes[0]}]`).click();
}"""
"""The view in which an element is seen."""


def come_near(v: Any, *ids: str) -> None:
    for name in ids or FIGURES:
        v.page.evaluate(SHOW, name)
        v.page.locator(f"#{name}").scroll_into_view_if_needed()
        v.page.wait_for_selector(f"#{name}.filled svg")
    v.settle()


def held(v: Any, name: str) -> Any:
    return v.page.evaluate("id => document.getElementById(id).answer", name)


def link(asked: dict[str, Any]) -> str:
    return Scenario.from_dict(asked).link("")


def labels(v: Any) -> list[str]:
    rows = v.page.locator("kv-levers .ladder g > text:first-of-type").all_text_contents()
    return [text.strip() for text in rows]


def drop(v: Any, name: str, data: bytes) -> None:
    v.page.set_input_files(
        "#file-input", [{"name": name, "mimeType": "text/plain", "buffer": data}]
    )
    v.page.wait_for_selector("kv-reality .file, kv-reality .fault")
    v.settle()


# ---- loading ----


def test_sections_load_when_they_come_near(visit: Any) -> None:
    asked: list[str] = []
    v = visit("#view=read")
    v.page.on("request", lambda r: asked.append(r.url.split("/", 3)[3].partition("?")[0]))
    assert v.page.locator(".filled").count() == 0
    assert "from host memory" in v.text("#tiers-figure")  # the server's sentence
    assert "ceiling 16.7" in v.text("#reality-figure")
    assert "kvroom levers llama-3-70b" in v.text("#levers-figure")
    come_near(v, "reality-figure")
    assert "api/reality" in asked and "stairs.js" in asked
    come_near(v)
    for path in ("api/tiers", "api/levers", "tier-pyramid.js", "lever-waterfall.js"):
        assert asked.count(path) == 1, asked


def test_without_scripts_each_section_says_its_figure(visit: Any) -> None:
    v = visit(java_script_enabled=False)
    assert "computing it anew takes" in v.text("#tiers-figure")
    assert "shared" in v.text("#reality-figure") and not v.page.locator("#file-drop").is_visible()


def test_each_figure_is_the_command_lines(visit: Any) -> None:
    v = visit()
    come_near(v)
    for preset in PRESETS:
        v.page.evaluate(SHOW, "plan")
        v.page.select_option("#preset", preset.id)
        v.settle()
        come_near(v)
        scenario = Scenario.from_dict(preset.scenario)
        shown = levers.levers_command(scenario).split()[1:]
        with decimal_memory():
            want = json.loads(CliRunner().invoke(main, [*shown, "--json"]).stdout)
        for name in ("levers-figure", "tiers-figure", "reality-figure"):
            come_near(v, name)  # one that has passed by is not asked anew
            v.page.wait_for_function(
                "([id, of]) => document.getElementById(id).answer.scenario.model === of",
                arg=[name, want["scenario"]["model"]],
            )
        got = held(v, "levers-figure")
        assert {k: got[k] for k in want} == want
        for name in ("tiers-figure", "reality-figure"):
            got = held(v, name)
            asked = Scenario.from_dict(got["scenario"])
            with decimal_memory():
                plan = json.loads(codec.encode(plan_json(work(asked, paths=False))))
            assert {k: got[k] for k in plan} == plan
            assert got["scenario"]["model"] == preset.scenario["model"]


def test_the_server_gone_is_no_end(visit: Any) -> None:
    v = visit()
    v.page.route("**/api/tiers*", lambda route: route.abort())
    v.page.evaluate(SHOW, "tiers-figure")
    v.page.locator("#tiers-figure").scroll_into_view_if_needed()
    v.page.wait_for_timeout(300)
    v.page.unroute("**/api/tiers*")
    v.page.evaluate("scrollTo(0, 0)")
    v.page.wait_for_timeout(200)
    come_near(v, "tiers-figure")
    v.complaints.clear()


def test_requests_are_written_as_the_sentences_write_them(visit: Any) -> None:
    values = [0, 1, 12, 0.01, 0.04, 0.094, 0.25, 0.35, 12.25, 12.126, 99.94, 99.95, 100.5, 1234.5]
    v = visit()
    got = v.page.evaluate(
        """async (values) => {
            const { formats } = await import('/text.js');
            return values.map((n) => [formats.requests(n), formats.change(n), formats.change(-n)]);
        }""",
        values,
    )
    for value, (plain, more, less) in zip(values, got, strict=True):
        assert plain == reality.requests(value), value
        assert more == f"+{plain}" and less == (f"−{plain}" if value else "+0")


# ---- tiers ----


def test_the_tokens_and_the_tier_move_the_figure(visit: Any) -> None:
    v = visit(link(ONE_NODE))
    come_near(v, "tiers-figure")
    big = v.page.locator("kv-tiers .big")
    answer = held(v, "tiers-figure")
    assert "32,768 tokens" in big.inner_text() and "back from host memory" in big.inner_text()
    v.page.locator("#tokens-back").focus()
    v.page.keyboard.press("End")
    v.settle()
    assert "1,048,576 tokens" in big.inner_text()
    v.page.keyboard.press("Home")
    v.page.locator("kv-tiers .seg label", has_text="NVMe").click()
    v.settle()
    assert "512 tokens" in big.inner_text() and "back from NVMe" in big.inner_text()
    number = v.page.locator("kv-tiers .big kv-n").first
    number.click()
    first = answer["figures"]["tiers"]["curve"][0]
    assert str(first["fetch_s"]["nvme"])[:8] in v.page.inner_text("#explain")
    assert "slowest part" in v.page.inner_text("#explain")
    assert v.page.locator("kv-tiers .chosen title").text_content().startswith("NVMe")


def test_further_right_is_larger_in_the_hierarchy(visit: Any) -> None:
    v = visit(link(ONE_NODE))
    come_near(v, "tiers-figure")
    dots = v.page.locator("kv-tiers .pyramid circle[data-tier]")
    places = [float(dots.nth(i).get_attribute("cx")) for i in range(dots.count())]
    assert len(places) == 6 and places[:5] == sorted(places[:5])
    assert v.page.locator("kv-tiers .pyramid").inner_html().count("log scale") == 2


def test_the_machine_is_the_figures_own(visit: Any) -> None:
    v = visit("#view=read")
    come_near(v, "tiers-figure")
    assert "A100-SXM-40 stands in" in v.text("kv-tiers figcaption")
    told = v.text("kv-tiers .pyramid")
    for words in ("1,997 × smaller than HBM", "12.5 × faster than HBM", "L2 cache"):
        assert words in told
    asked = "document.getElementById('tiers-figure').answer.scenario.gpu"
    v.page.select_option("kv-tiers select", "H200-SXM")
    v.page.wait_for_function(f"() => {asked} === 'H200-SXM'")
    v.settle()
    assert v.page.input_value("#gpu") == "80GB"  # the question stays
    assert "machine=H200-SXM" in v.page.evaluate("location.hash")
    v.page.click("#lives kv-set >> text=B200")
    v.page.wait_for_function(f"() => {asked} === 'B200-SXM'")
    v.page.go_back()
    v.page.wait_for_function(f"() => {asked} === 'H200-SXM'")


# ---- levers ----


def test_levers_hold_their_order_when_toggled(visit: Any) -> None:
    v = visit()
    come_near(v, "levers-figure")
    before = labels(v)
    assert before[0] == "As it is" and before[-1] == "Together" and len(before) == 5
    assert "16 → 111" in v.page.inner_text("kv-levers .big")
    v.page.locator("kv-levers .chips input").nth(1).uncheck()
    v.page.wait_for_selector("kv-levers .ladder text:has-text('not pulled')")
    v.settle()
    assert labels(v) == before
    answer = held(v, "levers-figure")
    asked = Scenario.from_dict(REFERENCE.scenario)
    ids = ["gpu_count=8,tp=8", "weight_dtype=int4"]
    assert [s["id"] for s in answer["figures"]["levers"]["steps"]] == ids
    want = find_levers(asked, together=ids).to_dict()
    assert answer["waterfall"] == want["waterfall"] and answer["together"] == want["together"]
    assert answer["figures"]["levers"]["reached"] == 55
    v.page.locator("kv-levers .chips input").nth(1).check()
    v.page.wait_for_function(
        "() => document.getElementById('levers-figure').answer.figures.levers.steps.length === 3"
    )
    assert labels(v) == before
    assert "16 → 111" in v.page.inner_text("kv-levers .big")


def test_a_lever_of_a_kind_lets_the_other_go(visit: Any) -> None:
    v = visit()
    come_near(v, "levers-figure")
    v.page.get_by_role("checkbox", name="cache in int4").check()
    v.page.wait_for_selector("kv-levers .chips label:has-text('cache in int4')")
    v.settle()
    assert not v.page.locator("kv-levers .chips label:has-text('cache in fp8') input").is_checked()
    assert labels(v)[-2] == "cache in int4"
    steps = held(v, "levers-figure")["figures"]["levers"]["steps"]
    assert [s["id"] for s in steps][-1] == "kv_dtype=int4"


def test_none_pulled_is_as_it_is(visit: Any) -> None:
    v = visit()
    come_near(v, "levers-figure")
    for i in range(3):
        v.page.locator("kv-levers .chips input").nth(i).uncheck()
    v.page.wait_for_function(
        "() => document.getElementById('levers-figure').answer.figures.levers.steps.length === 0"
    )
    assert "16 → 16" in v.page.inner_text("kv-levers .big")


def test_three_rankings(visit: Any) -> None:
    v = visit(link(ONE_NODE))
    come_near(v, "levers-figure")
    rankings = held(v, "levers-figure")["figures"]["levers"]["rankings"]
    found = {}
    for by, name in (("requests", "requests"), ("step", "time a token"), ("cost", "dollars")):
        v.page.locator("kv-levers .ranking .seg label", has_text=name).click()
        found[by] = v.page.locator("kv-levers .ranking tbody tr th").all_inner_texts()[1:]
        assert len(found[by]) == min(8, len(rankings[by]))
    assert len({tuple(x) for x in found.values()}) == 3
    v.page.locator("kv-levers .ranking .seg label", has_text="time a token").click()
    cells = v.page.locator("kv-levers .ranking tbody td[data-name='time a token'] kv-n")
    after = {p["id"]: p["after"]["token_s"] for p in held(v, "levers-figure")["levers"]}
    times = [after[name] for name in rankings["step"]]
    assert times == sorted(times) and cells.count() == 1 + min(8, len(times))
    row = v.page.locator("kv-levers .ranking tbody tr", has_text="weights in fp8").first
    assert "MMLU" in row.inner_text() and "TensorRT-LLM blog" in row.inner_text()
    v = visit()
    come_near(v, "levers-figure")
    assert v.page.locator("kv-levers .ranking .seg input:disabled").count() == 2


def test_a_new_question_pulls_its_own_levers(visit: Any) -> None:
    v = visit()
    come_near(v, "levers-figure")
    v.page.locator("kv-levers .chips input").nth(0).uncheck()
    v.settle()
    v.page.locator("#context").fill("8192")
    v.page.keyboard.press("Tab")
    v.page.locator("#levers-figure").scroll_into_view_if_needed()
    v.page.wait_for_function(
        "() => document.getElementById('levers-figure').answer.scenario.context_tokens === 8192"
    )
    assert v.page.locator("kv-levers .chips input:not(:checked)").count() == 0


def test_what_would_make_it_thirty(visit: Any) -> None:
    v = visit()
    come_near(v, "levers-figure")
    box = v.page.get_by_label("What would make it")
    assert box.input_value() == "32"
    told = v.page.locator("kv-levers .ask [role=status]")
    for goal, words in (
        ("30", "Any one of these: cache in fp8 (33)"),
        ("110", "no lever alone; the levers below together hold 111"),
        ("5000", "none of these levers, nor those below together"),
        ("3", "There is room for so many already"),
    ):
        box.fill(goal)
        box.press("Enter")
        v.page.wait_for_function(
            "w => document.querySelector('kv-levers .ask').innerText.includes(w)", arg=words
        )
    assert told.count() == 1


def test_levers_that_only_serving_shows(visit: Any) -> None:
    few = {"arrivals": "poisson:4/s", "input": 400, "output": 40, "requests": 20}
    v = visit(link({**H100, "workload": few}))
    come_near(v, "levers-figure")
    v.page.get_by_role("button", name="Serve requests with each").click()
    v.page.wait_for_selector("kv-levers .served", timeout=60_000)
    want = find_levers(Scenario.from_dict({**H100, "workload": few}), simulate=True).to_dict()
    served = v.page.evaluate("document.getElementById('levers-figure').served.served")
    assert served == json.loads(json.dumps(want["served"]))
    rows = v.page.locator("kv-levers .served tbody th").all_inner_texts()
    assert rows == ["as it is", *(x["label"] for x in want["served"]["levers"])]
    v.page.locator("#context").fill("2048")
    v.page.keyboard.press("Tab")
    v.page.wait_for_selector("kv-levers .served", state="detached")


# ---- reality ----


def test_why_an_engine_says_thirteen(visit: Any) -> None:
    v = visit()
    come_near(v, "reality-figure")
    assert "Of vLLM 12.9 (12.6 to 13.0)" in v.page.inner_text("kv-reality .ask")
    v.page.get_by_label("My engine says it has room for").fill("12.9")
    v.page.keyboard.press("Enter")
    v.page.wait_for_function(
        "() => document.querySelector('kv-reality .ask').innerText.includes('12.9 is what is to be expected')"
    )
    assert v.page.locator("kv-reality .ladder text", has_text="Your engine").count() == 1


def test_a_dropped_log_shows_the_measured_bar_and_names_the_difference(visit: Any) -> None:
    v = visit(link(H100))
    come_near(v, "reality-figure")
    assert v.page.locator("kv-reality .measured").count() == 0
    drop(v, "vllm.log", LOG.encode())
    assert v.page.locator("kv-reality .ladder .measured").count() == 1
    told = v.page.inner_text("kv-reality .off")
    answer = held(v, "reality-figure")
    predicted = answer["reconciliation"]["predicted"]["max_concurrency"]
    assert f"The engine printed 55.2 where {reality.requests(predicted)} was predicted:" in told
    assert answer["file"]["difference"]["reason"] in told and "--gpu-memory-utilization" in told
    box = {
        kind: v.page.locator(f"kv-reality .ladder .{kind}").first.bounding_box()["width"]
        for kind in ("measured", "cache")
    }
    ratio = box["measured"] / box["cache"]
    assert ratio == pytest.approx(55.23 / predicted, rel=0.02)
    number = v.page.locator("kv-reality .key kv-n", has_text="55.2")
    number.click()
    assert "measured: the file dropped in" in v.page.inner_text("#explain")
    v.page.keyboard.press("Escape")
    v.page.get_by_role("button", name="Take the file away").click()
    v.page.wait_for_selector("kv-reality .measured", state="detached")


def test_a_drop_by_hand_and_the_whole_page_about_it(visit: Any) -> None:
    v = visit()
    come_near(v, "reality-figure")
    data = v.page.evaluate_handle(
        """text => {
            const data = new DataTransfer();
            data.items.add(new File([text], 'vllm.log'));
            return data;
        }""",
        LOG.replace("INFO [gpu_worker", "gpu_name=H100\nINFO [gpu_worker"),
    )
    v.page.dispatch_event("#reality", "dragover", {"dataTransfer": data})
    assert "over" in v.page.get_attribute("#file-drop", "class")
    v.page.dispatch_event("#reality", "drop", {"dataTransfer": data})
    v.page.wait_for_selector("kv-reality .file")
    v.page.get_by_role("button", name="Ask the whole page about it").click()
    v.page.wait_for_function("() => document.getElementById('context').value === '4096'")
    v.settle()
    assert v.page.input_value("#engine") == "vllm"
    assert v.page.locator("kv-reality .file").count() == 0


def test_a_file_that_is_nothing_says_so(visit: Any) -> None:
    v = visit()
    come_near(v, "reality-figure")
    drop(v, "holiday.txt", b"nothing of the kind\n")
    assert "holds no line of an engine's start-up" in v.text("kv-reality .fault")
    assert v.page.locator("kv-reality .ladder .cache").count() > 0
    v.complaints.clear()


def test_a_file_that_no_server_takes_says_so(visit: Any) -> None:
    v = visit()
    v.page.route("**/api/reconcile*", lambda route: route.abort())
    drop(v, "vllm.log", LOG.encode())
    assert "server: does not answer" in v.text("kv-reality .fault")
    assert "busy" not in v.page.get_attribute("#file-drop", "class")
    v.complaints.clear()


def test_a_config_is_asked_about(visit: Any) -> None:
    from kvroom.models.catalogue import config_of

    v = visit(link(H100))
    come_near(v, "reality-figure")
    drop(v, "config.json", json.dumps(dict(config_of("llama-3-8b"))).encode())
    v.page.get_by_role("button", name="Ask the whole page about it").click()
    v.page.wait_for_function(
        "() => document.getElementById('memory').answer.kv.bytes_per_token === 131072"
    )
    v.settle()


def test_the_lengths_move_the_lower_bars(visit: Any) -> None:
    v = visit(link({**H100, "context_tokens": 32768}))
    come_near(v, "reality-figure")
    found = {}
    for x in reality.LENGTHS:
        v.page.locator("kv-reality .seg label", has_text=x["label"]).click()
        v.page.wait_for_function(
            "id => document.getElementById('reality-figure').answer.figures.reality.length === id",
            arg=x["id"],
        )
        v.settle()
        assert x["says"] in v.page.inner_text("kv-reality")
        stairs = held(v, "reality-figure")["figures"]["reality"]["stairs"]
        found[x["id"]] = {s["key"]: s["to"] for s in stairs if s["level"]}
        asked = Scenario.from_dict({**H100, "context_tokens": 32768, "workload": x["workload"]})
        assert found[x["id"]]["expected"] == work(asked).plan.capacity.expected.requests
    assert len({x["expected"] for x in found.values()}) == 3
    assert len({x["engine"] for x in found.values()}) == 1
    kept = Scenario.from_link(v.page.evaluate("location.href"))
    assert kept.workload is not None and kept.workload.input == "lognormal:mean=8000:sigma=0.6"


def test_the_step_says_its_load(visit: Any) -> None:
    v = visit(link({**ONE_NODE, "workload": reality.LENGTHS[0]["workload"]}))
    told = v.text("#step .sum")
    answer = held(v, "step")
    assert "a first token comes after" in told and "likely" in told
    assert answer["serving"]["ttft_low_s"] < answer["serving"]["ttft_s"]
    assert "its place costs" in v.text("kv-price .sum")


# ---- all three ----


@pytest.mark.parametrize("asked", [REFERENCE.scenario, ONE_NODE])
def test_every_number_opens_its_formula(visit: Any, asked: dict[str, Any]) -> None:
    v = visit(link(asked))
    come_near(v)
    bare = v.page.evaluate(
        """() => [...document.querySelectorAll('main kv-n')].filter((n) =>
            n.textContent !== 'none'
            && !n.source.explanations.some((e) => e.figure === n.getAttribute('figure'))
        ).map((n) => n.getAttribute('figure'))"""
    )
    assert bare == []
    assert v.page.locator("kv-levers kv-n, kv-tiers kv-n, kv-reality kv-n").count() > 20


@pytest.mark.parametrize("name", FIGURES)
def test_tables_and_exports(visit: Any, name: str) -> None:
    v = visit(link(ONE_NODE), accept_downloads=True)
    come_near(v, name)
    figure = v.page.locator(f"#{name}")
    v.take(figure, "Show as a table")
    rows = v.page.evaluate("id => document.getElementById(id).table().rows.length", name)
    shown = figure.get_by_role("region", name="The figure as a table").locator("tbody tr")
    assert shown.count() == rows > 5
    files = {}
    for kind in ("SVG", "PNG", "CSV"):
        with v.page.expect_download() as download:
            v.take(figure, f"Save as {kind}")
        files[kind] = download.value.path().read_bytes()
    assert files["PNG"].startswith(b"\x89PNG") and len(files["PNG"]) > 5000
    root = xml.dom.minidom.parseString(files["SVG"]).documentElement
    assert root.getElementsByTagName("title")[0].firstChild.data in held_sentence(v, name)
    assert b"var(" not in files["SVG"] and b"class=" not in files["SVG"]
    assert files["CSV"].count(b"\r\n") == rows + 1


def held_sentence(v: Any, name: str) -> str:
    return str(v.page.evaluate("id => document.getElementById(id).sentence()", name))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe(visit: Any, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    v = visit(link(H100), color_scheme=scheme, reduced_motion="reduce")
    come_near(v)
    drop(v, "vllm.log", LOG.encode())
    for name in FIGURES:
        v.page.evaluate(SHOW, name)
        v.take(v.page.locator(f"#{name}"), "Show as a table")
    v.page.locator("kv-levers .chips input").nth(0).uncheck()
    v.settle()
    for view in ("plan", "read"):
        v.page.click(f".modes [data-view={view}]")
        v.settle()
        found = axe.Axe().run(v.page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [320, 640, 1600])
def test_nothing_scrolls_sideways(visit: Any, width: int) -> None:
    v = visit(link(ONE_NODE), viewport={"width": width, "height": 800})
    come_near(v)
    drop(v, "vllm.log", LOG.encode())
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width
    outside = v.page.evaluate(
        """() => [...document.querySelectorAll('kv-tiers text, kv-levers text, kv-reality text')]
            .filter((t) => t.getBoundingClientRect().right > innerWidth || t.getBoundingClientRect().left < 0)
            .map((t) => t.textContent)"""
    )
    assert outside == []
    crossing = v.page.evaluate(
        """() => [...document.querySelectorAll('.ladder, .pyramid')].flatMap((svg) => {
            const boxes = [...svg.querySelectorAll('text')]
                .map((t) => [t.textContent, t.getBoundingClientRect()]).filter(([, b]) => b.width);
            const meet = (x, y) => x.left < y.right - 1 && y.left < x.right - 1
                && x.top < y.bottom - 3 && y.top < x.bottom - 3;
            return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([, y]) => meet(x, y))
                .map(([b]) => `${a} | ${b}`));
        })"""
    )
    assert crossing == []


def test_keyboard_alone(visit: Any) -> None:
    v = visit()
    come_near(v)
    keys = v.page.keyboard
    for selector, press in (
        ("#tokens-back", "PageUp"),
        ("kv-levers .chips input", "Space"),
        ("#file-input", ""),
        ('kv-reality input[name="lengths"]', "ArrowRight"),
    ):
        v.page.evaluate(SHOW, FIGURES[0] if selector == "#tokens-back" else FIGURES[1])
        for _ in range(150):
            if v.page.evaluate("s => document.activeElement.matches(s)", selector):
                break
            keys.press("Tab")
        else:
            raise AssertionError(f"{selector} is not reached by Tab")
        if press:
            keys.press(press)
        v.settle()
        if press == "Space":
            assert held(v, "levers-figure")["figures"]["levers"]["reached"] < 111
    assert held(v, "reality-figure")["figures"]["reality"]["length"] == "chat"


def test_nothing_moves(visit: Any) -> None:
    v = visit(reduced_motion="reduce")
    come_near(v)
    v.page.locator("kv-levers .chips input").nth(0).uncheck()
    v.page.wait_for_selector("kv-levers .ladder text:has-text('not pulled')")
    assert v.page.evaluate("document.getAnimations().length") == 0


def test_printed_the_file_box_is_gone(visit: Any) -> None:
    v = visit()
    v.page.emulate_media(media="print")
    assert not v.page.locator("#file-drop").is_visible()
