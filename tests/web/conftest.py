"""A server on a free port of this machine, and Debian's chromium, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from browser import NoBrowser, chromium, serving


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with serving() as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        with chromium() as found:
            yield found
    except NoBrowser as e:
        pytest.skip(str(e))


SETTLED = """() => !document.querySelector('script[src="page.js"]')
    || (document.documentElement.classList.contains('ready')
        && document.documentElement.dataset.pending === '0'
        && !document.documentElement.classList.contains('gliding'))"""
"""The page runs, has neither a request nor a timer under way (``pending.js``), and no block still grows."""


@dataclass
class Visit:
    """One tab, with all that it complained of and asked for."""

    page: Any
    address: str
    scripted: bool = True
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def settle(self) -> None:
        """Wait until the page has its answer, its address and its neighbours, and has drawn them."""
        self.page.wait_for_load_state("networkidle")  # of the first load; true ever after
        if self.scripted:
            self.page.wait_for_function(SETTLED)
            self.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => drawn()))")

    def running(self) -> int:
        """Requests that the memory figure shows running."""
        found = "document.getElementById('memory').answer.figures.memory.running"
        return int(self.page.evaluate(found))

    def drag(self, selector: str, index: int) -> None:
        """Put a slider at its step ``index``."""
        self.page.locator(selector).evaluate(
            "(e, i) => { e.value = i; e.dispatchEvent(new Event('input', {bubbles: true})); }",
            index,
        )
        self.settle()

    def choose(self, selector: str, text: str) -> None:
        """Type into a field with a list, and take what is typed."""
        self.page.fill(selector, text)
        self.page.keyboard.press("Enter")

    def take(self, figure: Any, name: str) -> None:
        """Choose an entry of a figure's menu."""
        figure.locator(".menu summary").first.click()
        figure.get_by_role("button", name=name).click()

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content())


def said(message: Any) -> str:
    """A message of the console, and the path that it is about."""
    return f"{message.text} {message.location.get('url', '')}".strip()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Open the page with given context options; no complaint and no foreign host is let pass."""
    opened: list[tuple[Any, Visit]] = []

    def go(path: str = "", *, guessed: bool = True, **options: Any) -> Visit:
        context = browser.new_context(**options)
        scripted = options.get("java_script_enabled", True)
        if guessed and scripted:
            context.add_init_script("sessionStorage.setItem('kvroom-guessed', '1')")
        page = context.new_page()
        v = Visit(page, address, scripted)
        opened.append((context, v))
        page.on("console", lambda m: v.complaints.append(said(m)) if m.type == "error" else None)
        page.on("pageerror", lambda e: v.complaints.append(str(e)))
        page.on("request", lambda r: v.hosts.add(r.url.split("/")[2]) if "//" in r.url else None)
        page.goto(address + (path or "#view=plan"))
        v.settle()
        return v

    yield go
    for context, v in opened:
        context.close()
        assert v.complaints == []
        assert v.hosts <= {address.split("/")[2]}
