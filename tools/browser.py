"""A server of the page on a free port, and the system's chromium, for tests, measurements, pictures."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from kvroom.ui.web import server
from kvroom.ui.web.watched import Board

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class NoBrowser(RuntimeError):
    """Said in plain words, so that whoever asked can skip."""


@contextmanager
def serving(board: Board | None = None) -> Iterator[str]:
    """The page's address while the block runs; with ``board`` it shows an engine."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    running = uvicorn.Server(
        uvicorn.Config(
            server.app(port, board=board),
            host="127.0.0.1",
            port=port,
            log_level="error",
            timeout_graceful_shutdown=2,
        )
    )
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while thread.is_alive() and not running.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.should_exit = True
        thread.join(10)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; NoBrowser where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowser("playwright is not installed") from None
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise NoBrowser("no chromium on this machine")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
