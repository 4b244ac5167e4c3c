"""The page and its JSON over HTTP, for this machine's own browser.

Answers only hosts it knows (a name that a stranger's page has pointed here is refused), opens no path
that a client names (all files are read once, into a fixed table), takes models and GPUs by name or by
value only, limits bodies, plans in one worker thread behind a short queue, and drops what nobody waits
for any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvroom import __version__
from kvroom.errors import KvroomError
from kvroom.ui import codec
from kvroom.ui.web import page, simulations
from kvroom.ui.web.answers import Answers, Asked, parts_of
from kvroom.ui.web.streaming import Talk, Workers
from kvroom.ui.web.watched import Board

PORT = 8642
MAX_BODY_BYTES = 2**20
MAX_TRACE_BODY_BYTES = 12 * 2**20
"""With a trace in it, in base64."""
MAX_QUEUED = 32
BODY_TIMEOUT_S = 10
WEB = Path(__file__).with_name("static")
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)


class Refused(HTTPException):
    """A request that is not answered, and why."""

    def __init__(self, status: int, error: KvroomError) -> None:
        super().__init__(status)
        self.error = error


def failure(error: KvroomError, status: int = 422) -> JSONResponse:
    """An error as JSON answers hold it."""
    return JSONResponse({"error": error.as_dict()}, status_code=status)


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
    found: dict[str, Static] = {}
    for path in sorted(WEB.rglob("*")):
        media_type = TYPES.get(path.suffix)
        if path.is_file() and media_type:
            raw = path.read_bytes()
            found[f"/{path.relative_to(WEB).as_posix()}"] = Static(
                raw=raw,
                packed=gzip.compress(raw, 9, mtime=0),
                media_type=media_type,
                etag=f'"{hashlib.sha256(raw).hexdigest()[:20]}"',
            )
    return found


class Planner:
    """One worker thread and a short queue before it."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self.waiting = 0

    async def run(self, request: Request, job: Callable[[threading.Event], Any]) -> Any:
        """``job``'s result; it is dropped (queued) or told to stop (running) if the reader leaves."""
        if self.waiting >= MAX_QUEUED:
            message = f"is busy: {self.waiting} questions wait already"
            raise Refused(429, KvroomError("server", None, message, "Ask again in a second."))
        stop = threading.Event()
        self.waiting += 1
        work = asyncio.get_running_loop().run_in_executor(self.pool, job, stop)
        work.add_done_callback(self._done)
        leaving = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            return work.result()
        finally:
            stop.set()
            work.cancel()
            leaving.cancel()

    def _done(self, work: asyncio.Future[Any]) -> None:
        self.waiting -= 1
        if not work.cancelled():
            work.exception()  # looked at here, so that one nobody waits for is not reported


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_long(size: int, most: int) -> Refused:
    message = f"is longer than {most:,} bytes"
    fix = "Ask with fewer or smaller questions."
    return Refused(413, KvroomError("body", size, message, fix))


async def _body(request: Request, most: int) -> bytes:
    """The body, unless it is longer than allowed or too slow in coming."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_long(size, most)
                parts.append(part)
    except TimeoutError:
        raise Refused(
            408, KvroomError("body", None, "did not come in time", "Send it at once.")
        ) from None
    return b"".join(parts)


async def _asked(request: Request, most: int = MAX_BODY_BYTES) -> Any:
    """The JSON that a client sent; Refused says what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        fix = "Send a Scenario as application/json."
        raise Refused(415, KvroomError("content-type", kind, "is not JSON", fix))
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise _too_long(int(length), most)
    body = await _body(request, most)
    try:
        return codec.decode(body, "body")
    except KvroomError as e:
        raise Refused(400, e) from None


class Routes:
    """What each path answers."""

    def __init__(self, board: Board | None = None) -> None:
        self.board = board
        self.planner = Planner()
        self.long = Planner()
        self.workers = Workers()
        self.answers = Answers()
        self.files = files()

    async def index(self, request: Request) -> Response:
        """The page, its first figure drawn for the address's question."""
        query = request.url.query
        status, text = await self.planner.run(request, lambda stop: page.render(query))
        if self.board is not None:
            text = self.board.put_into(text)
        return Response(text, status_code=status, media_type="text/html")

    async def plan(self, request: Request) -> Response:
        """A Scenario, or a list of them, answered."""
        given = await _asked(request)
        try:
            parts = parts_of(request.query_params.get("parts", ""))
        except KvroomError as e:
            raise Refused(422, e) from None
        asked = Asked(given, request.query_params.get("explain") == "1", parts)
        status, body = 200, self.answers.ready(asked)
        if body is None:
            status, body = await self.planner.run(request, partial(self.answers.work, asked))
        return Response(body, status_code=status, media_type="application/json")

    async def simulate(self, request: Request) -> Response:
        """A simulation, line by line."""
        return await self._long(request, simulations.simulate)

    async def reuse(self, request: Request) -> Response:
        """How much of a trace's prefixes could be used again."""
        return await self._long(request, simulations.reuse)

    async def _long(self, request: Request, answer: Callable[[Any, Talk], None]) -> Response:
        given = await _asked(request, MAX_TRACE_BODY_BYTES)
        return await self.workers.answer(request, partial(answer, given))

    async def schema(self, request: Request) -> Response:
        """The JSON schema of Scenario and Plan."""
        return JSONResponse(codec.schema())

    async def models(self, request: Request) -> Response:
        """Names of the known models."""
        return JSONResponse(page.models())

    async def gpus(self, request: Request) -> Response:
        """Names of the known GPUs."""
        return JSONResponse(page.gpus())

    async def health(self, request: Request) -> Response:
        """Alive, and how much is under way."""
        told = {"status": "ok", "version": __version__, "long_answers": self.workers.counts()}
        return JSONResponse(told)

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

    def table(self) -> list[Route]:
        """All routes; there is no other path."""
        from kvroom.ui.web.sections.routes import Sections

        return [
            Route("/", self.index),
            Route("/api/plan", self.plan, methods=["POST"]),
            Route("/api/simulate", self.simulate, methods=["POST"]),
            Route("/api/reuse", self.reuse, methods=["POST"]),
            Route("/api/schema", self.schema),
            Route("/api/models", self.models),
            Route("/api/gpus", self.gpus),
            Route("/health", self.health),
            *Sections(_asked, self.planner, self.long).table(),
            *(self.board.routes() if self.board else ()),
            *(Route(path, self.static) for path in self.files),
        ]


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
    told = KvroomError("path", request.url.path, what.get(status, "cannot be answered"), fix)
    return failure(told, status)


def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


def known_hosts(host: str, port: int) -> frozenset[str]:
    """What a Host header may say: this machine's own names, and the address that was asked for."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    names -= {"0.0.0.0", "[::]"}
    return frozenset(f"{n}:{port}" for n in names) | (
        frozenset(names) if port == 80 else frozenset()
    )


def app(port: int = PORT, host: str = "127.0.0.1", board: Board | None = None) -> Starlette:
    """The application, for ``uvicorn`` or a test client; with ``board`` it shows an engine too."""
    routes = Routes(board)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        routes.planner.pool.shutdown(wait=False, cancel_futures=True)
        routes.long.pool.shutdown(wait=False, cancel_futures=True)
        routes.workers.pool.shutdown(wait=False, cancel_futures=True)

    return Starlette(
        routes=routes.table(),
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
    except OSError as e:
        fix = "Give another with --port, or end what listens there."
        why = f"cannot be listened on: {(e.strerror or str(e)).partition(' (')[0].lower()}"
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
