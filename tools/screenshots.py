"""Every section of the page as a picture: light, dark and narrow.

Run: python tools/screenshots.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from browser import NoBrowser, chromium, serving

SECTIONS = ("fill", "price", "moves", "replay", "take")
KINDS = (("light", 1080, "light"), ("dark", 1080, "dark"), ("narrow", 360, "light"))


BARE = """() => {
  for (const e of document.querySelectorAll('.bar, .verdict')) e.style.position = 'static';
  for (const e of document.querySelectorAll('main > section')) {
    e.style.padding = '24px';
    e.style.margin = '24px -24px';
  }
}"""
"""Sections as pictures: nothing floats over them, and each has its margin."""


TWO_RUNS = "() => document.querySelectorAll('kv-replay .results thead th').length === 3"


def compared(browser: Any, address: str, folder: Path) -> None:
    """Write ``beside-light.png``: two questions side by side."""
    page = browser.new_page(viewport={"width": 1500, "height": 1180}, reduced_motion="reduce")
    page.goto(address)
    page.click("#skip-guess")
    page.click("#compare-with")
    page.select_option("#kv", "fp8")
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
                page.goto(address)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"guess-{kind}.png")
                page.click("#reveal")
                page.click("#add")
                page.wait_for_selector("kv-memory .waiting")
                page.wait_for_load_state("networkidle")
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=folder / f"top-{kind}.png")
                page.locator("#replay").scroll_into_view_if_needed()
                page.wait_for_selector("kv-reuse figure")
                page.select_option("#beside", "seed")
                page.wait_for_function(TWO_RUNS)
                page.evaluate(BARE)
                for section in SECTIONS:
                    page.locator(f"#{section}").screenshot(path=folder / f"{section}-{kind}.png")
                context.close()
            compared(browser, address, folder)
    except NoBrowser as e:
        print(f"skipped: {e}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots"))
