"""The lower sections over HTTP: tiers, levers, reality, and files to be reconciled.

Levers and files take longer than a Plan and have a worker thread of their own, so that no slider waits
for them. All of them stop when the reader leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web import server
from kvroom.ui.web.answers import Recent
from kvroom.ui.web.sections import dropped, levers, reality, tiers
from kvroom.units import check_float

MAX_UPLOAD_BYTES = 2**25
"""Longest file taken; of a GGUF or safetensors file its first bytes hold the header."""
UPLOAD_TIMEOUT_S = 60
MAX_TOGETHER = 16
MOST_SAID = 10**9
MAX_KEPT_CHARS = 2**23
EVERY = 8
"""Plans between two lines of progress."""
NDJSON = "application/x-ndjson"

Job = Callable[[threading.Event], tuple[int, str]]


def _text(make: Callable[[], dict[str, Any]]) -> tuple[int, str]:
    """Status and body: an answer, or why there is none."""
    try:
        return 200, codec.encode(make())
    except KvroomError as e:
        return 422, codec.encode({"error": e.as_dict()})
    except RecursionError:
        deep = KvroomError("body", None, "is nested too deeply", "Send a plain one.")
        return 400, codec.encode({"error": deep.as_dict()})


class Sections:
    """The sections' answers; ``read`` gives a request's JSON, ``quick`` plans, ``long`` does what takes
    longer."""

    def __init__(
        self,
        read: Callable[[Request], Awaitable[Any]],
        quick: server.Planner,
        long: server.Planner,
    ) -> None:
        self.read = read
        self.quick = quick
        self.long = long
        self.kept = Recent(MAX_KEPT_CHARS)

    async def _figure(self, name: str, of: Callable[[Scenario], Any], request: Request) -> Response:
        given = await self.read(request)
        key = json.dumps([name, given], sort_keys=True)

        def job(stop: threading.Event) -> tuple[int, str]:
            return _text(lambda: of(Scenario.from_dict(given)))

        status, text = await self._kept(key, self.quick, request, job)
        return Response(text, status_code=status, media_type="application/json")

    async def _kept(
        self, key: str, planner: server.Planner, request: Request, job: Job
    ) -> tuple[int, str]:
        text = self.kept.get(key)
        if text is not None:
            return 200, text
        status, made = await planner.run(request, job)
        if status == 200:
            self.kept.put(key, made)
        return status, made

    async def tiers(self, request: Request) -> Response:
        """A Scenario's Plan with ``figures.tiers``."""
        return await self._figure("tiers", tiers.answer, request)

    async def reality(self, request: Request) -> Response:
        """A Scenario's Plan with ``figures.reality``; ``says`` is what the reader's engine says."""
        text = request.query_params.get("says")
        said = None if text is None else _said(text)
        return await self._figure(f"reality {said}", partial(reality.answer, said=said), request)

    async def levers(self, request: Request) -> Response:
        """What ``kvroom levers --json`` prints (with ``simulate=1`` what it prints with ``--simulate``), as
        JSON or, where NDJSON is accepted, with progress."""
        given = await self.read(request)
        named = request.query_params.get("together")
        ids = None if named is None else [x for x in named.split(";") if x]
        if ids is not None and len(ids) > MAX_TOGETHER:
            fix = f"Name at most {MAX_TOGETHER}."
            error = KvroomError("together", len(ids), "is too many levers", fix)
            raise server.Refused(422, error)
        explain = request.query_params.get("explain") == "1"
        simulate = request.query_params.get("simulate") == "1"
        key = json.dumps(["levers", given, ids, explain, simulate], sort_keys=True)
        made = partial(levers.answer, given, together=ids, explain=explain)
        if simulate:
            made = partial(levers.served, given)
        if NDJSON not in request.headers.get("accept", ""):

            def job(stop: threading.Event) -> tuple[int, str]:
                return _text(lambda: made(stop=stop))

            status, text = await self._kept(key, self.long, request, job)
            return Response(text, status_code=status, media_type="application/json")
        lines, headers = self._lines(key, request, made), {"cache-control": "no-store"}
        packs = "gzip" in request.headers.get("accept-encoding", "")
        headers["content-encoding"] = "gzip" if packs else "identity"
        return StreamingResponse(
            _packed(lines) if packs else lines, media_type=NDJSON, headers=headers
        )

    async def _lines(
        self, key: str, request: Request, made: Callable[..., dict[str, Any]]
    ) -> AsyncGenerator[str, None]:
        """``{"planned": n}`` now and then; the answer, or its error, last."""
        loop = asyncio.get_running_loop()
        counts: asyncio.Queue[int | None] = asyncio.Queue()

        def planned(n: int) -> None:
            if n % EVERY == 0:
                loop.call_soon_threadsafe(counts.put_nowait, n)

        def job(stop: threading.Event) -> tuple[int, str]:
            return _text(lambda: made(stop=stop, planned=planned))

        work = asyncio.ensure_future(self._kept(key, self.long, request, job))
        work.add_done_callback(lambda _: counts.put_nowait(None))
        try:
            while (n := await counts.get()) is not None:
                yield f'{{"planned":{n}}}\n'
            yield f"{_outcome(work)}\n"
        finally:
            work.cancel()

    async def reconcile(self, request: Request) -> Response:
        """A file beside the question in ``?s=``; what it tells. Nothing of it is kept."""
        link = f"#s={request.query_params.get('s', '')}"
        data = await _upload(request)

        def job(stop: threading.Event) -> tuple[int, str]:
            return _text(lambda: dropped.answer(data, Scenario.from_link(link).differences()))

        status, text = await self.long.run(request, job)
        return Response(text, status_code=status, media_type="application/json")

    def table(self) -> list[Route]:
        """The sections' routes."""
        return [
            Route("/api/tiers", self.tiers, methods=["POST"]),
            Route("/api/levers", self.levers, methods=["POST"]),
            Route("/api/reality", self.reality, methods=["POST"]),
            Route("/api/reconcile", self.reconcile, methods=["POST"]),
        ]


def _said(text: str) -> float:
    try:
        return check_float("says", float(text), low=0, high=MOST_SAID)
    except ValueError:
        fix = "Write the requests that your engine says it has room for, as 13 or 11.9."
        raise server.Refused(422, KvroomError("says", text, "is no number", fix)) from None
    except KvroomError as e:
        raise server.Refused(422, e) from None


async def _packed(lines: AsyncGenerator[str, None]) -> AsyncIterator[bytes]:
    """Lines packed one by one, so that each arrives as it comes and is not gathered up."""
    packer = zlib.compressobj(wbits=31)
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield packer.compress(line.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


def _outcome(work: asyncio.Future[tuple[int, str]]) -> str:
    """The last line: what the work came to."""
    try:
        return work.result()[1]
    except server.Refused as e:
        return codec.encode({"error": e.error.as_dict()})


def _too_large(size: int) -> server.Refused:
    message = f"is longer than {MAX_UPLOAD_BYTES:,} bytes"
    fix = "Drop the start of the log, or only the first bytes of a model's file."
    return server.Refused(413, KvroomError("file", size, message, fix))


async def _upload(request: Request) -> bytes:
    """The file; Refused, with the rest of it left unread, where it is too long, slow or no file."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/octet-stream":
        fix = "Send the file's bytes as application/octet-stream."
        raise server.Refused(415, KvroomError("content-type", kind, "is no file", fix))
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_UPLOAD_BYTES:
        raise _too_large(int(length))
    parts, size = [], 0
    try:
        async with asyncio.timeout(UPLOAD_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_UPLOAD_BYTES:
                    raise _too_large(size)
                parts.append(part)
    except TimeoutError:
        error = KvroomError("file", None, "did not come in time", "Send it at once.")
        raise server.Refused(408, error) from None
    if not size:
        raise server.Refused(422, KvroomError("file", 0, "is empty", "Drop a file."))
    return b"".join(parts)
