"""The page and its JSON over HTTP, for this machine's own browser.

Answers only hosts it knows (a name that a stranger's page has pointed here is refused), opens no path
that a client names (all files are read once, into a fixed table), takes models and GPUs by name or by
value only, limits bodies, plans in one worker thread behind a short queue, and drops what nobody waits
for any more.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import socket
import threading
import webbrowser
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvroom import __version__
from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.ui.web import page, routes
from kvroom.ui.web.desk import Answer, Desk, lines_of
from kvroom.ui.web.routes import Route
from kvroom.ui.web.transport import (
    NDJSON,
    JobQueue,
    LineListener,
    Refused,
    failure,
    question,
    stream,
)
from kvroom.ui.web.watched import Board

PORT = 8642
MAX_QUEUED = 32
WEB = Path(__file__).with_name("static")
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        b"font-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)


class Guard:
    """Refuses hosts and origins that are not this server's own; puts the safety headers on."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request: checked, then passed on with a ``send`` that adds the headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        error = self._refusal(scope["headers"])
        if error is not None:
            await failure(error, 421)(scope, receive, sending)
        else:
            await self.app(scope, receive, sending)

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> KvroomError | None:
        def said(name: bytes) -> list[str]:
            return [v.decode("latin-1").lower() for k, v in headers if k == name]

        hosts = said(b"host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            shown = ", ".join(hosts) or None
            fix = f"Open http://{min(self.hosts)}/."
            return KvroomError("host", shown, "is not a name of this server", fix)
        for origin in said(b"origin"):
            if origin.removeprefix("http://") not in self.hosts:
                fix = "Ask from the page itself."
                return KvroomError("origin", origin, "is another site", fix)
        return None


@dataclass(frozen=True, slots=True)
class Static:
    """One file of the page, held ready."""

    raw: bytes
    packed: bytes
    media_type: str
    etag: str


def files() -> dict[str, Static]:
    """Every file of the page by its URL path."""
    by_path: dict[str, Static] = {}
    for path in sorted(WEB.rglob("*")):
        media_type = TYPES.get(path.suffix)
        if path.is_file() and media_type:
            raw = path.read_bytes()
            by_path[f"/{path.relative_to(WEB).as_posix()}"] = Static(
                raw=raw,
                packed=gzip.compress(raw, 9, mtime=0),
                media_type=media_type,
                etag=f'"{hashlib.sha256(raw).hexdigest()[:20]}"',
            )
    return by_path


class HttpShell:
    """The routes' table over HTTP, with the page itself and its files."""

    def __init__(self, board: Board | None = None) -> None:
        self.board = board
        self.queues = {
            "quick": JobQueue(1, MAX_QUEUED),
            "long": JobQueue(1, MAX_QUEUED),
            "stream": JobQueue(2, 8, "long answers are under way"),
        }
        self.desk = Desk()
        self.files = files()

    def close(self) -> None:
        """No more answers."""
        for queue in self.queues.values():
            queue.pool.shutdown(wait=False, cancel_futures=True)

    async def index(self, request: Request) -> Response:
        """The page, its first figure drawn for the address's question."""
        query = request.url.query
        rendered: list[tuple[int, str]] = []

        def render(_: LineListener) -> None:
            rendered.append(page.render(query))

        await self.queues["quick"].value(request, render)
        status, text = rendered[0]
        if self.board is not None:
            text = self.board.put_into(text)
        return Response(text, status_code=status, media_type="text/html")

    async def health(self, request: Request) -> Response:
        """Alive, and how much is under way."""
        counts = self.queues["stream"].counts()
        return JSONResponse({"status": "ok", "version": __version__, "long_answers": counts})

    async def static(self, request: Request) -> Response:
        """A file of the table."""
        found = self.files[request.url.path]
        headers = {"etag": found.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        body = found.raw
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, headers = found.packed, {**headers, "content-encoding": "gzip"}
        return Response(body, headers=headers, media_type=found.media_type)

    async def answer(self, route: Route, request: Request) -> Response:
        """One question of the table answered."""
        asked = await question(request, route)
        lines = lines_of(route, NDJSON in request.headers.get("accept", ""))
        text = self.desk.ready(route, asked)
        if text is not None:
            return _whole(request, text, lines=lines)

        def keep(answer: Answer) -> None:
            self.desk.keep(route, asked, answer)

        def job(listener: LineListener) -> Any:
            return route.answer(asked, listener)

        if route.queue == "none":
            return JSONResponse(job(LineListener()))
        queue = self.queues[route.queue]
        if lines:
            return await queue.lines(request, job, keep)
        status, text = await queue.value(request, job)
        keep((status, text))
        return Response(text, status_code=status, media_type="application/json")

    def table(self) -> list[HttpRoute]:
        """All routes; there is no other path."""
        return [
            HttpRoute("/", self.index),
            HttpRoute("/health", self.health),
            *(
                HttpRoute(
                    r.path, partial(self.answer, r), methods=["GET" if r.body == "none" else "POST"]
                )
                for r in routes.table()
            ),
            *(self.board.routes() if self.board else ()),
            *(HttpRoute(path, self.static) for path in self.files),
        ]


def _whole(request: Request, text: str, *, lines: bool) -> Response:
    """An answer that needs no work."""
    if not lines:
        return Response(text, media_type="application/json")

    async def one() -> AsyncGenerator[str]:
        yield text + "\n"

    return stream(request, one())


def _plain(request: Request, error: Exception) -> Response:
    """Every refusal as a sentence."""
    if isinstance(error, Refused):
        reply = failure(error.error, error.status_code)
        if error.status_code in (408, 413):
            reply.headers["connection"] = "close"  # what is still to come is not read
        return reply
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = {404: "is not here", 405: f"does not take {request.method}"}
    fix = "See / for the page and /api/schema for the questions."
    error_shown = KvroomError("path", request.url.path, what.get(status, "cannot be answered"), fix)
    return failure(error_shown, status)


def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


def known_hosts(host: str, port: int) -> frozenset[str]:
    """What a Host header may say: this machine's own names, and the address that was asked for."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    names -= {"0.0.0.0", "[::]"}
    return frozenset(f"{name}:{port}" for name in names) | (
        frozenset(names) if port == 80 else frozenset()
    )


def app(port: int = PORT, host: str = "127.0.0.1", board: Board | None = None) -> Starlette:
    """The application, for ``uvicorn`` or a test client; with ``board`` it shows an engine too."""
    shell = HttpShell(board)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        shell.close()

    return Starlette(
        routes=shell.table(),
        middleware=[
            Middleware(Guard, hosts=known_hosts(host, port)),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4),
        ],
        exception_handlers={HTTPException: _plain, ClientDisconnect: _gone, Exception: _plain},
        lifespan=lifespan,
    )


def serve(
    port: int = PORT,
    host: str = "127.0.0.1",
    open_browser: bool = False,
    watch: str | None = None,
) -> None:
    """Serve the page until interrupted, beside the engine at ``watch``; KvroomError where the port
    cannot be had, or that is no address."""
    board = None if watch is None else Board.of(watch)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        fix = "Give another with --port, or end what listens there."
        why = f"cannot be listened on: {(error.strerror or str(error)).partition(' (')[0].lower()}"
        raise KvroomError("port", f"{host}:{port}", why, fix) from None
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    print(f"kvroom is at {address} (Ctrl-C ends it)", flush=True)
    if open_browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    config = uvicorn.Config(
        app(port, host, board),
        log_level="warning",
        access_log=False,
        limit_concurrency=200,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    serve()
