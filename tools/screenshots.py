"""Every section of the page as a picture: light, dark and narrow.

Run: python tools/screenshots.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from browser import NoBrowser, chromium, serving
from kvroom.scenario.scenario.scenario import Scenario

SECTIONS = ("fill", "price", "lives", "moves", "levers", "reality", "replay", "take")
KINDS = (("light", 1080, "light"), ("dark", 1080, "dark"), ("narrow", 320, "light"))


FIGURES = ("tiers-figure", "levers-figure", "reality-figure")
"""Figures that load when they come near."""
LOGGED = {"model": "qwen2.5-14b", "gpu": "H100-SXM", "context_tokens": 4096}
LOG = """\
INFO [utils.py:1] non-default args: {'model': 'Qwen/Qwen2.5-14B-Instruct', 'gpu_memory_utilization': 0.92, 'max_model_len': 4096}
INFO [core.py:1] Initializing a V1 LLM engine (v0.21.0) with config: model='Qwen/Qwen2.5-14B-Instruct', max_seq_len=4096, tensor_parallel_size=1, enforce_eager=False, kv_cache_dtype=auto
INFO [gpu_worker.py:1] Available KV cache memory: 41.43 GiB
INFO [kv_cache_utils.py:1] GPU KV cache size: 226,240 tokens
INFO [kv_cache_utils.py:2] Maximum concurrency for 4,096 tokens per request: 55.23x
"""  # noqa: E501
"""A start-up as it was published, dropped into the last picture."""


BARE = """() => {
  for (const e of document.querySelectorAll('.bar, .verdict')) e.style.position = 'static';
}"""
"""Nothing floats over a section."""
BOX = """id => {
  const { y, height } = document.getElementById(id).getBoundingClientRect();
  return { x: 0, y: Math.max(0, y + scrollY), width: innerWidth, height: height + 32 };
}"""
"""A section on the whole page, as wide as the page."""


def shoot(page: Any, section: str, path: Path) -> None:
    """Write a section as a picture."""
    page.evaluate("() => document.activeElement.blur()")
    page.screenshot(path=path, full_page=True, clip=page.evaluate(BOX, section))


def load(page: Any) -> None:
    """Bring every figure near, and wait for it."""
    for figure in FIGURES:
        page.locator(f"#{figure}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{figure}.filled svg")
    page.wait_for_load_state("networkidle")


SERVE = "kv-levers button:has-text('Serve requests')"
TWO_RUNS = "() => document.querySelectorAll('kv-replay .results thead th').length === 3"


def compared(browser: Any, address: str, folder: Path) -> None:
    """Write ``beside-light.png``: two questions side by side."""
    page = browser.new_page(viewport={"width": 1500, "height": 1180}, reduced_motion="reduce")
    page.goto(f"{address}#view=plan")
    page.click("#skip-guess")
    page.click("#compare-with")
    page.fill("#kv", "fp8")
    page.keyboard.press("Enter")
    page.wait_for_selector(".bar .differs")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=folder / "beside-light.png")
    page.close()


def main(folder: Path) -> None:
    """Write ``SECTION-KIND.png``, ``top-KIND.png`` and ``beside-light.png`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with serving() as address, chromium() as browser:
            for kind, width, scheme in KINDS:
                context = browser.new_context(
                    viewport={"width": width, "height": 780},
                    color_scheme=scheme,
                    reduced_motion="reduce",
                )
                page = context.new_page()
                page.goto(f"{address}#view=plan")
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"guess-{kind}.png")
                page.click("#reveal")
                page.click("#add")
                page.wait_for_selector("kv-memory .waiting")
                page.wait_for_load_state("networkidle")
                load(page)
                page.click(SERVE)
                page.wait_for_selector("kv-levers .served", timeout=120_000)
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=folder / f"top-{kind}.png")
                page.locator("#replay").scroll_into_view_if_needed()
                page.wait_for_selector("kv-reuse figure")
                page.select_option("#beside", "seed")
                page.wait_for_function(TWO_RUNS)
                page.evaluate(BARE)
                for section in SECTIONS:
                    shoot(page, section, folder / f"{section}-{kind}.png")
                page.goto("about:blank")
                page.goto(address + Scenario.from_dict(LOGGED).link(""))
                load(page)
                file = {"name": "vllm.log", "mimeType": "text/plain", "buffer": LOG.encode()}
                page.set_input_files("#file-input", [file])
                page.wait_for_selector("kv-reality .file")
                page.evaluate(BARE)
                shoot(page, "reality", folder / f"measured-{kind}.png")
                context.close()
            compared(browser, address, folder)
    except NoBrowser as e:
        print(f"skipped: {e}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots"))
