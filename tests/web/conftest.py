"""A server on a free port of this machine, and Debian's chromium, where there is one."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn

from kvroom.faces import server

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    port = free_port()
    running = uvicorn.Server(
        uvicorn.Config(server.app(port), host="127.0.0.1", port=port, log_level="error")
    )
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    for _ in range(200):
        if running.started:
            break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/"
    running.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


@dataclass
class Visit:
    """One tab, with all that it complained of and asked for."""

    page: Any
    address: str
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def settle(self) -> None:
        """Wait until the page has its answer and its neighbours."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(250)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content())


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Open the page with given context options; no complaint and no foreign host is let pass."""
    opened: list[tuple[Any, Visit]] = []

    def go(path: str = "", *, guessed: bool = True, **options: Any) -> Visit:
        context = browser.new_context(**options)
        if guessed and options.get("java_script_enabled", True):
            context.add_init_script("sessionStorage.setItem('kvroom-guessed', '1')")
        page = context.new_page()
        v = Visit(page, address)
        opened.append((context, v))
        page.on("console", lambda m: v.complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: v.complaints.append(str(e)))
        page.on("request", lambda r: v.hosts.add(r.url.split("/")[2]) if "//" in r.url else None)
        page.goto(address + path)
        v.settle()
        return v

    yield go
    for context, v in opened:
        context.close()
        assert v.complaints == []
        assert v.hosts <= {address.split("/")[2]}
