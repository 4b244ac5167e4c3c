"""HTTP for the routes: bodies read with limits, questions in short queues, answers whole or line by line.

A job runs in a thread of its queue. It is given a Listener, through which it sends lines and learns whether
anybody still reads; what its reader no longer waits for is dropped (queued) or told to stop (running).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from kvroom.errors import KvroomError
from kvroom.ui.web import desk
from kvroom.ui.web.desk import Answer, Speaker
from kvroom.ui.web.questions import Gone, PageQuestion
from kvroom.ui.web.routes import BodyLimit, Route

LOG = logging.getLogger(__name__)
NDJSON = "application/x-ndjson"
UNREAD_LINES = 64
"""So many lines may wait for a slow reader; then the job waits too."""
PATIENCE_S = 0.2
"""How long a job that waits for its reader sleeps between two looks at whether he is there."""


class Refused(HTTPException):
    """A request that is not answered, and why."""

    def __init__(self, status: int, error: KvroomError) -> None:
        super().__init__(status)
        self.error = error


def failure(error: KvroomError, status: int = 422) -> JSONResponse:
    """An error as JSON answers hold it."""
    return JSONResponse({"error": error.as_dict()}, status_code=status)


async def question(request: Request, route: Route) -> PageQuestion:
    """What a client asks of ``route``; Refused says what is wrong with it."""
    body = b"" if route.body == "none" else await read_body(request, route.limit)
    try:
        value = desk.read(route, body)
    except KvroomError as error:
        raise Refused(400 if route.body == "json" else 422, error) from None
    return PageQuestion(body=value, query=dict(request.query_params))


async def read_body(request: Request, limit: BodyLimit) -> bytes:
    """The body, unless it is of another kind, longer than allowed or too slow in coming."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != limit.media_type:
        error = KvroomError("content-type", kind, f"is no {limit.what}", limit.send)
        raise Refused(415, error)
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit.bytes:
        raise Refused(413, limit.refuse(int(length)))
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limit.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit.bytes:
                    raise Refused(413, limit.refuse(size))
                parts.append(part)
    except TimeoutError:
        slow = KvroomError(limit.field, None, "did not come in time", "Send it at once.")
        raise Refused(408, slow) from None
    return b"".join(parts)


async def left(request: Request) -> None:
    """Returns once the reader has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class LineListener(Speaker):
    """What a job speaks through; without ``loop`` its lines go nowhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.room = threading.Semaphore(UNREAD_LINES)
        self._loop = loop

    def gone(self) -> bool:
        """Whether nobody reads any more."""
        return self.stop.is_set()

    def wait(self) -> None:
        """Until a slow reader has room for a line; Gone where nobody reads."""
        while self._loop is not None and not self.room.acquire(timeout=PATIENCE_S):
            if self.gone():
                break
        if self.gone():
            raise Gone

    def end(self) -> None:
        """Nothing more comes."""
        self._put(None)

    def hand_over(self, line: str) -> None:
        """Send ``line`` as it is."""
        self._put(f"{line}\n")

    def _put(self, line: str | None) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self.lines.put_nowait, line)
        except RuntimeError:
            self.stop.set()  # the server has ended


Job = Callable[[LineListener], Any]


class JobQueue:
    """A few threads, and a short queue before them."""

    def __init__(self, threads: int, most_waiting: int, what: str = "questions wait") -> None:
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="answer")
        self.most = threads + most_waiting
        self.what = what
        self.under_way = 0
        self.ended = 0
        self.left = 0
        """Jobs that did not come to their end: their readers left, or they failed."""

    def counts(self) -> dict[str, int]:
        """How many jobs there are and were."""
        return {"under_way": self.under_way, "ended": self.ended, "left": self.left}

    def _submit(self, job: Job, listener: LineListener) -> Future[Answer]:
        if self.under_way >= self.most:
            message = f"is busy: {self.under_way} {self.what} already"
            raise Refused(429, KvroomError("server", None, message, "Ask again in a second."))
        self.under_way += 1
        loop = asyncio.get_running_loop()

        def run() -> Answer:
            try:
                return desk.answered(lambda: job(listener))
            except Gone:
                raise
            except Exception:
                LOG.exception("an answer failed")
                raise
            finally:
                listener.end()

        def count(work: Future[Answer]) -> None:
            self.under_way -= 1
            if work.cancelled() or work.exception() is not None:
                self.left += 1
            else:
                self.ended += 1

        def over(work: Future[Answer]) -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(count, work)

        work = self.pool.submit(run)
        work.add_done_callback(over)
        return work

    async def value(self, request: Request, job: Job) -> Answer:
        """What the job comes to; ClientDisconnect where its reader leaves before."""
        listener = LineListener()
        work = asyncio.wrap_future(self._submit(job, listener))
        leaving = asyncio.ensure_future(left(request))
        try:
            either: set[asyncio.Future[Any]] = {work, leaving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            return work.result()
        finally:
            listener.stop.set()
            work.cancel()
            leaving.cancel()

    async def lines(
        self, request: Request, job: Job, on_answer: Callable[[Answer], None] = lambda _: None
    ) -> Response:
        """The lines of ``job`` as they come, its value (if any) the last of them; an error before the first
        line as an answer of its own."""
        listener = LineListener(asyncio.get_running_loop())
        last: list[Answer] = []

        def spoken(said: LineListener) -> str:
            last.append(desk.spoken(lambda: job(said), said))
            return last[0][1]

        work = self._submit(spoken, listener)
        leaving = asyncio.ensure_future(left(request))

        def over() -> None:
            listener.stop.set()
            leaving.cancel()
            work.cancel()

        try:
            first = await _next(listener, leaving)
        except asyncio.CancelledError:
            over()
            raise
        if first is None:
            over()
            if last:
                return Response(last[0][1], last[0][0], media_type="application/json")
            return Response(status_code=499 if leaving.done() else 500)

        async def sent() -> AsyncGenerator[str]:
            line: str | None = first
            try:
                while line is not None:
                    yield line
                    listener.room.release()
                    line = await _next(listener, leaving)
                if last:
                    on_answer(last[0])
            finally:
                over()

        return stream(request, sent())


async def _next(listener: LineListener, leaving: asyncio.Future[None]) -> str | None:
    """The next line; None at the end, or when the reader has left."""
    coming = asyncio.ensure_future(listener.lines.get())
    either: set[asyncio.Future[Any]] = {coming, leaving}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    return None


def stream(request: Request, lines: AsyncGenerator[str]) -> Response:
    """Lines as they come, packed line by line where the reader takes that: as answers are packed elsewhere
    they would be held back."""
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "content-encoding": "gzip" if packed else "identity",
        "cache-control": "no-store",
        "vary": "accept-encoding",
    }
    content = _packed(lines) if packed else lines
    return StreamingResponse(content, media_type=NDJSON, headers=headers)


async def _packed(lines: AsyncGenerator[str]) -> AsyncIterator[bytes]:
    pack = zlib.compressobj(6, wbits=zlib.MAX_WBITS | 16)
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield pack.compress(line.encode()) + pack.flush(zlib.Z_SYNC_FLUSH)
    yield pack.flush()
