"""The page as files: written once for all tests, and a server that knows nothing but files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYODIDE = ROOT / "build/pyodide/node_modules/pyodide"
"""Where ``make site`` installs it."""
READY = "() => ['ready', 'failed'].includes(document.documentElement.dataset.python)"
ASK = """async ([path, body]) => {
    const { ask } = await import(new URL('ask.js', document.baseURI));
    return ask(path, body);
}"""
"""One question as the page asks it, whoever answers."""
LINES = """async ([path, body]) => {
    const { lines } = await import(new URL('ask.js', document.baseURI));
    const told = [];
    for await (const line of lines(path, body, new AbortController().signal)) told.push(line);
    return told;
}"""
FILE = """async ([path, text]) => {
    const { ask } = await import(new URL('ask.js', document.baseURI));
    return ask(path, new Blob([text]), { type: 'application/octet-stream' });
}"""


class Files(SimpleHTTPRequestHandler):
    """Files below a folder; a path that is not there is 404, whatever is asked."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """The address of ``folder`` while the block runs."""
    host = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    thread = threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{host.server_port}/"
    finally:
        host.shutdown()
        host.server_close()
        thread.join()
