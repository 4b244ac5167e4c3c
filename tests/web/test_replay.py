"""Section 7 in a browser: played, paused, stepped, scrubbed, compared, followed, left."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_simulations import TRACE, settled

from kvroom.ui.cli.main import main

FIGURE = "document.getElementById('replay-figure')"


def said(command: str) -> Any:
    found = CliRunner().invoke(main, shlex.split(command)[1:])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def at(v: Any, what: str) -> Any:
    return v.page.evaluate(f"{FIGURE}.{what}")


def ready(v: Any, runs: int = 1) -> None:
    """Until all runs are there, the cliff and the curve below too."""
    v.page.locator("#replay").scroll_into_view_if_needed()
    v.page.wait_for_function(
        f"""n => {FIGURE}?.runs?.length === n && {FIGURE}.runs.every((r) => r.answer)
            && !document.getElementById('replay').hasAttribute('aria-busy')""",
        arg=runs,
    )
    v.settle()


@pytest.fixture
def open_replay(visit: Any) -> Any:
    def go(**options: Any) -> Any:
        v = visit(**{"reduced_motion": "reduce", **options})
        ready(v)
        v.page.evaluate("document.getElementById('replay-more').open = true")
        return v

    return go


def test_it_loads_only_when_it_comes_near(visit: Any) -> None:
    v = visit()
    loaded = "performance.getEntriesByType('resource').some((r) => r.name.includes('replay'))"
    assert not v.page.evaluate(loaded)
    ready(v)
    assert v.page.evaluate(loaded)


def test_figures_are_the_command_lines(open_replay: Any) -> None:
    v = open_replay()
    want = said(at(v, "runs[0].head.command"))
    got = at(v, "runs[0].answer")
    for key, value in want.items():
        assert got[key] == value, key
    assert f"{want['preemptions']:,}" in v.text("kv-replay .results")
    v.page.locator('kv-n[figure="ttft_s.p99"]').click()
    told = v.page.inner_text("#explain")
    assert "nearest rank" in told and "vLLM's scheduling rules" in told
    v.page.keyboard.press("Escape")
    cliff = v.page.evaluate("document.getElementById('cliff').answer")
    assert cliff == said(
        at(v, "runs[0].head.command").replace(" --json", " --cliff kv_blocks=136..1088 --json")
    )
    here = next(p for p in cliff["points"] if p["value"] == at(v, "runs[0].head.blocks"))
    assert here["ttft_p99_s"] == want["ttft_s"]["p99"]
    assert "you are here" in v.text("kv-cliff svg")


def drawn(v: Any) -> dict[str, int]:
    """Blocks by how they are drawn."""
    return dict(
        v.page.evaluate(
            """() => {
                const count = (s) => document.querySelectorAll(`.grid-of-blocks ${s}`).length;
                const shared = count('.shared-block');
                return { held: count('.held') + shared, shared,
                    kept: count('.left'), free: count('.free') };
            }"""
        )
    )


def test_every_picture_is_the_servers(open_replay: Any) -> None:
    v = open_replay()
    last = at(v, "runs[0].frames.length") - 1
    for index in (0, last // 3, last // 2, last - 40, last // 4, last):
        v.page.evaluate(f"i => {{ {FIGURE}.time = {FIGURE}.runs[0].frames[i].start_s; }}", index)
        v.page.evaluate(f"{FIGURE}.updateComplete")
        frame = at(v, f"frame({FIGURE}.runs[0])")
        assert drawn(v) == {key: frame[key] for key in ("held", "shared", "kept", "free")}
        lanes = v.page.evaluate(
            f"['running', 'waiting', 'preempted'].map((l) => {FIGURE}.runs[0][l].size)"
        )
        again = frame["preempted_waiting"]
        assert lanes == [frame["running"], frame["waiting"] - again, again]


def test_play_pause_step_scrub(open_replay: Any) -> None:
    v = open_replay(reduced_motion="no-preference")
    assert at(v, "time") == pytest.approx(at(v, "runs[0].worst_s"))
    assert at(v, "frame(" + FIGURE + ".runs[0]).waiting") > 0
    v.page.select_option("#speed", "8")
    v.page.click("#play")
    v.page.wait_for_function(f"() => {FIGURE}.time > 0.5")
    assert v.text("#play") == "Pause"
    v.page.click("#play")
    v.page.wait_for_function("() => document.getElementById('play').textContent === 'Play'")
    paused = at(v, "time")
    v.page.wait_for_timeout(150)
    assert at(v, "time") == paused
    assert v.text("#play") == "Play"
    frames = at(v, "runs[0].frames.map((f) => f.start_s)")
    v.page.click("#forward")
    assert at(v, "time") == min(t for t in frames if t > paused)
    v.page.click("#back")
    v.page.click("#back")
    assert at(v, "time") < paused
    v.page.locator("#scrub").evaluate(
        "e => { e.value = 3000; e.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    assert at(v, "time") == 3
    v.page.wait_for_function(
        "() => /^At [23]\\.\\d\\d s:/.test(document.getElementById('live').textContent)"
    )
    v.page.click("#play")
    v.page.wait_for_function(f"() => {FIGURE}.time >= {FIGURE}.end_s", timeout=30_000)
    assert v.text("#play") == "Play"
    assert drawn(v)["held"] == 0


def test_reduced_motion_plays_as_stills(open_replay: Any) -> None:
    v = open_replay()
    v.page.click("#play")
    v.page.wait_for_function(f"() => {FIGURE}.time > 0")
    assert v.page.evaluate("document.getAnimations().length") == 0
    v.page.click("#play")


def test_two_seeds_in_lock_step(open_replay: Any) -> None:
    v = open_replay()
    v.page.select_option("#beside", "seed")
    ready(v, runs=2)
    one, two = at(v, "runs.map((r) => r.answer)")
    assert one != two
    assert "seed=1" in at(v, "runs[1].head.command") and "seed=0" in at(v, "runs[0].head.command")
    assert two["ttft_s"] == said(at(v, "runs[1].head.command"))["ttft_s"]
    for _ in range(3):
        v.page.click("#forward")
        now = at(v, "time")
        starts = at(v, f"runs.map((r) => {FIGURE}.frame(r).start_s)")
        nexts = at(v, f"runs.map((r) => r.frames[r.index({now}) + 1].start_s)")
        assert now in starts and all(s <= now for s in starts) and all(n > now for n in nexts)
    assert v.page.locator(".panel .grid-of-blocks").count() == 2
    marked = v.page.locator(".results .differs th").all_inner_texts()
    assert any("TTFT, p99" in m for m in marked)
    assert not any("Requests answered" in m for m in marked)
    v.page.select_option("#beside", "more")
    ready(v, runs=2)
    blocks = at(v, "runs.map((r) => r.head.blocks)")
    assert blocks[1] > blocks[0]
    assert v.page.locator("kv-cliff .here").count() == 2


def test_smaller_pool_by_the_slider_and_by_the_cliff(open_replay: Any) -> None:
    v = open_replay()
    before = at(v, "runs[0].answer.ttft_s.p99")
    v.page.locator("#blocks-range").focus()
    v.page.keyboard.press("Home")
    v.page.wait_for_function(f"() => {FIGURE}.runs[0].head.blocks === 136")
    ready(v)
    assert at(v, "runs[0].answer.ttft_s.p99") > 2 * before
    v.page.locator("kv-cliff .target").first.click()
    v.page.wait_for_function(f"() => {FIGURE}.runs[0].head.blocks === 1088")
    ready(v)
    assert at(v, "runs[0].answer.preemptions") == 0


def test_a_request_can_be_followed(open_replay: Any) -> None:
    v = open_replay()
    number = at(v, "runs[0].running.values().next().value")
    v.page.fill("#follow", str(number))
    v.page.evaluate(f"{FIGURE}.updateComplete")
    mine = at(v, f"runs[0].owners.filter((o) => o === {number}).length")
    assert v.page.locator(".grid-of-blocks .mine").count() == mine > 0
    v.page.locator(".lanes rect.mine").click()
    assert v.page.input_value("#follow") == ""


def test_a_trace_of_ones_own(open_replay: Any, tmp_path: Path) -> None:
    v = open_replay()
    path = tmp_path / "mine.jsonl"
    path.write_text(TRACE)
    v.page.set_input_files("#trace", str(path))
    v.page.wait_for_function(f"() => {FIGURE}.runs[0].answer?.requests.completed === 40")
    ready(v)
    command = at(v, "runs[0].head.command") + f" --trace {path}"
    assert at(v, "runs[0].answer.ttft_s") == said(command)["ttft_s"]
    curve = v.page.evaluate("document.getElementById('reuse').answer")
    assert curve["hit_blocks"] == said(f"kvroom reuse {path} --json")["hit_blocks"]
    path.write_text("no trace at all\n")
    v.page.set_input_files("#trace", str(path))
    v.page.wait_for_selector("#replay-told:not([hidden])")
    assert "no known trace format" in v.text("#replay-told")
    v.complaints.clear()


def test_another_model_is_replayed_anew(open_replay: Any) -> None:
    v = open_replay()
    v.choose("#model", "llama-3-8b")
    v.page.locator("#replay").scroll_into_view_if_needed()
    v.page.wait_for_function(f"() => {FIGURE}.runs[0].head.command.includes('llama-3-8b')")
    ready(v)
    v.choose("#model", "bert-base")
    v.page.locator("#replay").scroll_into_view_if_needed()
    v.page.wait_for_selector("#replay-told:not([hidden])")
    assert v.text("#replay-told")
    v.complaints.clear()


def test_closing_the_tab_ends_the_simulation(visit: Any, address: str) -> None:
    host = address.split("/")[2]
    before = settled(host)
    v = visit()
    with v.page.context.expect_page() as opened:
        v.page.evaluate("path => { window.open(path); }", address + "health")
    tab = opened.value
    body = {
        "scenario": {
            "model": "llama-3-8b",
            "gpu": "H100-SXM",
            "workload": {
                "arrivals": "poisson:20/s",
                "input": 200,
                "output": 60,
                "requests": 50_000,
            },
        }
    }
    tab.evaluate(
        """async (body) => {
            const reply = await fetch('/api/simulate', { method: 'POST', body: JSON.stringify(body),
                headers: { 'content-type': 'application/json' } });
            await reply.body.getReader().read();
        }""",
        body,
    )
    tab.close()
    after = settled(host)
    assert after["left"] == before["left"] + 1
    assert after["ended"] == before["ended"]


def test_by_keyboard_alone(open_replay: Any) -> None:
    v = open_replay()
    keys = v.page.keyboard
    v.page.locator("#story").focus()

    def to(selector: str) -> None:
        for _ in range(40):
            if v.page.evaluate("s => document.activeElement.matches(s)", selector):
                return
            keys.press("Tab")
        raise AssertionError(f"{selector} is not reached by Tab")

    to("#play")
    keys.press("Enter")
    assert v.text("#play") == "Pause"
    keys.press("Enter")
    assert v.text("#play") == "Play"
    keys.press("ArrowRight")  # the buttons are one stop
    keys.press("ArrowRight")
    assert v.page.evaluate("document.activeElement.id") == "forward"
    before = at(v, "time")
    keys.press("Enter")
    assert at(v, "time") > before
    to("#scrub")
    keys.press("End")
    assert at(v, "time") == pytest.approx(at(v, "end_s"), abs=0.002)
    for key in ("PageDown", "ArrowLeft", "ArrowRight", "PageUp", "Home"):
        keys.press(key)
    assert at(v, "time") == 0
    assert (
        "0 s of" in (v.page.get_attribute("#scrub", "aria-valuetext") or "") or at(v, "time") == 0
    )
    to("#beside")
    keys.press("ArrowDown")
    ready(v, runs=2)
    to("#follow")
    keys.type("1")
    assert at(v, "followed") == 1
    v.page.locator("#replay a.term").first.focus()  # words and numbers of the section are one stop
    while not v.page.evaluate("document.activeElement.matches('kv-replay kv-n')"):
        before = v.page.evaluate_handle("document.activeElement")
        keys.press("ArrowRight")
        assert not before.evaluate("(e) => e === document.activeElement")
    keys.press("Enter")
    assert v.page.locator("#explain").is_visible()
    keys.press("Escape")


def test_tables_and_exports(open_replay: Any) -> None:
    v = open_replay(accept_downloads=True)
    for name, word in (
        ("kv-replay", b"preempted"),
        ("kv-cliff", b"blocks in the pool"),
        ("kv-reuse", b"this pool"),
    ):
        figure = v.page.locator(name)
        v.take(figure, "Show as a table")
        assert figure.locator("table").count() >= 1
        for kind in ("SVG", "CSV"):
            with v.page.expect_download() as download:
                v.take(figure, f"Save as {kind}")
            raw = download.value.path().read_bytes()
            assert len(raw) > 100
            if kind == "SVG":
                assert word in raw and b"var(" not in raw


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe(open_replay: Any, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    v = open_replay(color_scheme=scheme)
    v.page.select_option("#beside", "seed")
    ready(v, runs=2)
    found = axe.Axe().run(v.page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [320, 900, 1600])
def test_nothing_scrolls_sideways(open_replay: Any, width: int) -> None:
    v = open_replay(viewport={"width": width, "height": 800})
    v.page.select_option("#beside", "seed")
    ready(v, runs=2)
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width
    outside = v.page.evaluate(
        """() => [...document.querySelectorAll('kv-replay text, kv-cliff text, kv-reuse text')]
            .map((t) => [t.getBoundingClientRect(), t.textContent])
            .filter(([b]) => b.width && (b.right > innerWidth + 1 || b.left < -1))"""
    )
    assert outside == []
