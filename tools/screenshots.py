"""Every section of the page as a picture: light, dark and narrow.

Run: python tools/screenshots.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from browser import NoBrowser, chromium, serving

SECTIONS = ("fill", "price", "moves", "take")
KINDS = (("light", 1080, "light"), ("dark", 1080, "dark"), ("narrow", 360, "light"))


BARE = """() => {
  for (const e of document.querySelectorAll('.bar, .verdict')) e.style.position = 'static';
  for (const e of document.querySelectorAll('main > section')) {
    e.style.padding = '24px';
    e.style.margin = '24px -24px';
  }
}"""
"""Sections as pictures: nothing floats over them, and each has its margin."""


def main(folder: Path) -> None:
    """Write ``SECTION-KIND.png`` and ``top-KIND.png`` into ``folder``."""
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
                page.evaluate(BARE)
                for section in SECTIONS:
                    page.locator(f"#{section}").screenshot(path=folder / f"{section}-{kind}.png")
                context.close()
    except NoBrowser as e:
        print(f"skipped: {e}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots"))
