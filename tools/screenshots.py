"""Every section of the page and every view as a picture: light, dark, on a phone, wide.

Run: python tools/screenshots.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from browser import NoBrowser, chromium, serving

from kvroom.scenario.scenario import Scenario

STORY = ("price", "lives", "moves", "reality", "replay", "units", "words")
INSTRUMENT = ("plan", "levers", "take")
BEATS = ("growth", "full", "128k", "fp8")
KINDS = (
    ("light", 1280, 800, "light"),
    ("dark", 1280, 800, "dark"),
    ("narrow", 360, 800, "light"),
    ("wide", 1600, 900, "light"),
)
FIGURES = ("tiers-figure", "reality-figure")
"""Figures of the story that load when they come near."""
LOGGED = {"model": "qwen2.5-14b", "gpu": "H100-SXM", "context_tokens": 4096}
ONE_NODE = {"model": "qwen3-32b", "gpu": "H100-SXM", "gpu_count": 2, "context_tokens": 32768}
LOG = """\
INFO [utils.py:1] non-default args: {'model': 'Qwen/Qwen2.5-14B-Instruct', 'gpu_memory_utilization': 0.92, 'max_model_len': 4096}
INFO [core.py:1] Initializing a V1 LLM engine (v0.21.0) with config: model='Qwen/Qwen2.5-14B-Instruct', max_seq_len=4096, tensor_parallel_size=1, enforce_eager=False, kv_cache_dtype=auto
INFO [gpu_worker.py:1] Available KV cache memory: 41.43 GiB
INFO [kv_cache_utils.py:1] GPU KV cache size: 226,240 tokens
INFO [kv_cache_utils.py:2] Maximum concurrency for 4,096 tokens per request: 55.23x
"""  # noqa: E501
"""A start-up as it was published, dropped into the last picture."""

BARE = """() => {
  for (const e of document.querySelectorAll('.top, .stage, .verdict, .right')) e.style.position = 'static';
  for (const e of document.querySelectorAll('.beat')) e.style.minHeight = '0';
}"""
"""Nothing floats over a section."""
BOX = """id => {
  const { y, height } = document.getElementById(id).getBoundingClientRect();
  return { x: 0, y: Math.max(0, y + scrollY), width: innerWidth, height: height + 32 };
}"""
"""A section on the whole page, as wide as the page."""
COME = """scene => {
  const { top } = document.querySelector(`#talk .beat[data-scene="${scene}"]:last-of-type,
    #talk .beat[data-scene="${scene}"]`).getBoundingClientRect();
  scrollBy(0, top - innerHeight * 0.4);
}"""
TWO_RUNS = "() => document.querySelectorAll('kv-replay .results thead th').length === 3"


def shoot(page: Any, section: str, path: Path) -> None:
    """Write a section as a picture."""
    page.evaluate("() => document.activeElement.blur()")
    page.screenshot(path=path, full_page=True, clip=page.evaluate(BOX, section))


def near(page: Any, *figures: str) -> None:
    """Bring figures near, and wait for them."""
    for figure in figures:
        page.locator(f"#{figure}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{figure}.filled svg")
    page.wait_for_load_state("networkidle")


def story(page: Any, folder: Path, kind: str) -> None:
    """Read: its first screen, each paragraph beside the bar, each section."""
    page.screenshot(path=folder / f"first-{kind}.png")
    for scene in BEATS:
        page.evaluate(COME, scene)
        page.wait_for_timeout(400)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=folder / f"{scene}-{kind}.png")
    page.locator("#add").scroll_into_view_if_needed()
    page.click("#add")
    page.wait_for_selector("#memory .waiting")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=folder / f"top-{kind}.png")
    near(page, *FIGURES)
    page.locator("#replay").scroll_into_view_if_needed()
    page.wait_for_selector("kv-reuse figure")
    page.evaluate("document.getElementById('replay-more').open = true")
    page.select_option("#beside", "seed")
    page.wait_for_function(TWO_RUNS)
    page.evaluate(BARE)
    for section in STORY:
        shoot(page, section, folder / f"{section}-{kind}.png")


def instrument(page: Any, address: str, folder: Path, kind: str) -> None:
    """Plan, with an engine's own log."""
    page.goto("about:blank")
    page.goto(address + Scenario.from_dict(ONE_NODE).link(""))
    page.wait_for_load_state("networkidle")
    near(page, "levers-figure")
    page.evaluate(BARE)
    for section in INSTRUMENT:
        shoot(page, section, folder / f"{section}-{kind}.png")
    page.goto("about:blank")
    page.goto(address + Scenario.from_dict(LOGGED).link(""))
    near(page, "reality-figure")
    file = {"name": "vllm.log", "mimeType": "text/plain", "buffer": LOG.encode()}
    page.set_input_files("#file-input", [file])
    page.wait_for_selector("kv-reality .file")
    page.evaluate(BARE)
    shoot(page, "reality", folder / f"measured-{kind}.png")


def compared(browser: Any, address: str, folder: Path) -> None:
    """Write ``beside-light.png``: two questions side by side."""
    page = browser.new_page(viewport={"width": 1500, "height": 1180}, reduced_motion="reduce")
    other = Scenario.from_dict({**ONE_NODE, "kv_dtype": "fp8"}).link("").removeprefix("#s=")
    page.goto(f"{address}{Scenario.from_dict(ONE_NODE).link('')}&b={other}")
    page.wait_for_selector("#versus-figure table")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=folder / "beside-light.png")
    page.close()


def presented(browser: Any, address: str, folder: Path) -> None:
    """Every slide on a projector of 1280 by 720 and one of 1920 by 1080."""
    for name, width, height in (("projector", 1280, 720), ("present", 1920, 1080)):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(f"{address}#view=present")
        page.wait_for_load_state("networkidle")
        for number in range(1, page.locator(".slide").count() + 1):
            page.wait_for_selector(".slide:not([hidden]) .fig svg")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / f"{name}-{number:02}.png")
            page.keyboard.press("ArrowRight")
        page.close()


def main(folder: Path) -> None:
    """Write ``SECTION-KIND.png``, the slides and ``beside-light.png`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with serving() as address, chromium() as browser:
            for kind, width, height, scheme in KINDS:
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    reduced_motion="reduce",
                )
                page = context.new_page()
                page.goto(address)
                page.wait_for_load_state("networkidle")
                story(page, folder, kind)
                instrument(page, address, folder, kind)
                context.close()
            compared(browser, address, folder)
            presented(browser, address, folder)
    except NoBrowser as e:
        print(f"skipped: {e}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots"))
