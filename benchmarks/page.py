"""The page as a reader meets it: bytes, first paint, Python's start, answers, sliders, tab stops, axe.

Run: python benchmarks/page.py. Measures the page of files (``make site``'s, written anew into a temporary
folder) where Pyodide is installed, and the served one. What is wanted stands beside each figure.
"""

from __future__ import annotations

import gzip
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from browser import NoBrowser, chromium, serving
from static_host import PYODIDE, READY, hosted

from kvroom.ui.web import site

DRAG = """async ([id, moves, pause]) => {
  const slider = document.getElementById(id);
  const figure = document.getElementById('memory');
  const times = [];
  for (const to of moves) {
    const before = figure.answer;
    let drawn;
    const moved = new Promise((done) => (drawn = done));
    const seen = new MutationObserver(() => figure.answer !== before && drawn());
    seen.observe(figure, { subtree: true, childList: true, attributes: true, characterData: true });
    const late = setTimeout(() => drawn('late'), 5000);
    const start = performance.now();
    slider.value = to;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    const how = await moved;
    clearTimeout(late);
    seen.disconnect();
    await figure.updateComplete;
    await new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));
    times.push(how === 'late' ? 5000 : performance.now() - start);
    await new Promise((done) => setTimeout(done, pause));
  }
  return times;
}"""
"""Moves a slider; milliseconds from each move until the figure is painted."""
OWN = """async (n) => {
  const { ask } = await import(new URL('ask.js', document.baseURI));
  const asked = { model: 'qwen3-32b', gpu: 'H100-SXM', gpu_count: 2, engine: 'vllm' };
  const times = [];
  for (let i = 0; i < n; i++) {
    const start = performance.now();
    await ask('api/plan?explain=1', { ...asked, context_tokens: 20000 + 37 * i });
    times.push(performance.now() - start);
  }
  return times;
}"""
"""Milliseconds of questions that nobody has asked before."""
STOPS = """() => {
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && e.tabIndex >= 0;
  const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')];
  const groups = new Set();
  return all.filter((e) => {
    if (!shown(e)) return false;
    if (e.type !== 'radio' || !e.name) return true;
    const first = !groups.has(e.name);
    groups.add(e.name);
    return first;
  }).length;
}"""
"""Places where the Tab key stops, a group of radio buttons being one."""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
MOVES = list(range(2, 23, 2)) + list(range(21, 0, -2))
PHONE = {"width": 360, "height": 800}
MB = 1e6


def main() -> None:
    print(f"load of the machine          {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        with chromium() as browser:
            if PYODIDE.is_dir():
                with tempfile.TemporaryDirectory() as room:
                    folder = Path(room) / "site"
                    site.write(folder, PYODIDE)
                    with hosted(folder) as host:
                        print("\nThe page of files")
                        measure(browser, host, folder)
            else:
                print("skipped: the page of files (make site installs Pyodide)")
            with serving() as host:
                print("\nThe served page")
                measure(browser, host, None)
    except NoBrowser as why:
        print(f"skipped: {why}")


def said(name: str, text: str, wanted: str = "") -> None:
    print(f"{name:28} {text}{f'   wanted {wanted}' if wanted else ''}")


def spread(times: list[float]) -> str:
    p90 = statistics.quantiles(times, n=10)[-1]
    return f"p90 {p90:.1f} ms, median {statistics.median(times):.1f} ms"


def measure(browser: Any, host: str, folder: Path | None) -> None:
    """All figures of the page at ``host``; ``folder`` holds its files where nobody else answers."""
    paints = sorted(first_paint(browser, host) for _ in range(5))
    said("first contentful paint", f"{paints[2]:.0f} ms (median of 5)", "under 500 ms")
    context = browser.new_context()
    context.add_init_script("sessionStorage.setItem('kvroom-guessed', '1')")
    tab = context.new_page()
    came: set[str] = set()
    context.on("request", lambda r: came.add(r.url))
    before = renderers(browser)
    tab.goto(host)
    tab.wait_for_selector("html.ready")
    if folder:
        tab.wait_for_function(READY)
        spent = renderers(browser) - before
        said("Python ready", f"{spent:.2f} s of CPU, with the page's own", "under 2.5 s")
        tab.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
        sizes(folder, host, came)
    tab.wait_for_load_state("networkidle")
    said("own answer", spread(tab.evaluate(OWN, 60)), "under 50 ms")
    watch = context.new_cdp_session(tab)
    for times, name, wanted in (
        (1, "slider to painted figure", 50),
        (4, "at four-fold throttle", 120),
    ):
        watch.send("Emulation.setCPUThrottlingRate", {"rate": times})
        tab.locator("#context-range").scroll_into_view_if_needed()
        tab.locator("#context-range").dispatch_event("pointerenter")
        tab.wait_for_timeout(500)
        said(
            name, spread(tab.evaluate(DRAG, ["context-range", MOVES, 60])), f"p90 under {wanted} ms"
        )
    context.close()
    looked_at(browser, host)


def first_paint(browser: Any, host: str) -> float:
    page = browser.new_page()
    page.goto(host)
    page.wait_for_selector("html.ready")
    found = float(page.evaluate(PAINT))
    page.close()
    return found


def renderers(browser: Any) -> float:
    """Seconds of CPU that all pages' processes have taken."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return float(sum(one["cpuTime"] for one in found if one["type"] == "renderer"))


def sizes(folder: Path, host: str, came: set[str]) -> None:
    """Bytes of all that was fetched, and of all there is, as a host that packs texts sends them."""

    def packed(path: Path) -> int:
        data = path.read_bytes()
        return len(data) if path.suffix == ".pack" else len(gzip.compress(data, 9))

    names = {url.removeprefix(host).partition("?")[0].partition("#")[0] for url in came}
    first = sum(
        packed(folder / (name or "index.html")) for name in names if url_is_file(folder, name)
    )
    whole = sum(packed(path) for path in folder.rglob("*") if path.is_file())
    said("fetched at first", f"{first / MB:.2f} MB packed", "at most 8 MB, once")
    said("with all that is kept", f"{whole / MB:.2f} MB packed", "at most 8 MB, once")


def url_is_file(folder: Path, name: str) -> bool:
    return (folder / (name or "index.html")).is_file()


def looked_at(browser: Any, host: str) -> None:
    """Tab stops, and what axe finds, in both themes and on a phone."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        print("skipped: axe is not installed")
        return
    for view in ("read", "plan"):
        for name, options in (
            ("light", {"color_scheme": "light"}),
            ("dark", {"color_scheme": "dark"}),
            ("phone", {"viewport": PHONE}),
        ):
            context = browser.new_context(**options, reduced_motion="reduce")
            context.add_init_script("sessionStorage.setItem('kvroom-guessed', '1')")
            tab = context.new_page()
            tab.goto(f"{host}#view={view}")
            tab.wait_for_selector("html.ready")
            tab.wait_for_load_state("networkidle")
            found = Axe().run(tab).response["violations"]
            what = ", ".join(f"{one['id']} ({len(one['nodes'])})" for one in found)
            said(f"axe, {view}, {name}", f"{len(found)} violations {what}".strip(), "0")
            if name == "light":
                said(f"tab stops, {view}", str(tab.evaluate(STOPS)), "at most some 60")
            context.close()


if __name__ == "__main__":
    main()
