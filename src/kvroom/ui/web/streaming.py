"""Long answers over HTTP, line by line: a few workers, a short queue, an end when the reader leaves.

A job is given ``say``, which sends one JSON line, and ``gone``, which tells whether anybody still reads.
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

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from kvroom.errors import KvroomError
from kvroom.ui import codec

LOG = logging.getLogger(__name__)
AT_ONCE = 2
"""Jobs that run side by side."""
MOST_WAITING = 8
UNREAD_LINES = 64
"""So many lines may wait for a slow reader; then the job waits too."""
PATIENCE_S = 0.2
"""How long a job that waits for its reader sleeps between two looks at whether he is there."""


class Gone(Exception):
    """Raised inside a job whose reader has left."""


class Talk:
    """What a job speaks through."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left = threading.Event()
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.room = threading.Semaphore(UNREAD_LINES)
        self.begun = False
        self.heading: dict[str, Any] | None = None
        """Sent before the first line: until then the job may still be refused."""
        self._loop = loop

    def gone(self) -> bool:
        """Whether nobody reads any more."""
        return self.left.is_set()

    def say(self, value: dict[str, Any]) -> None:
        """Send one line; Gone where nobody reads."""
        while not self.room.acquire(timeout=PATIENCE_S):
            if self.gone():
                break
        if self.gone():
            raise Gone
        self.begun = True
        if self.heading is not None:
            self._hand_over(codec.encode(self.heading) + "\n")
            self.heading = None
            self.room.acquire()
        self._hand_over(codec.encode(value) + "\n")

    def end(self) -> None:
        """Nothing more comes."""
        self._hand_over(None)

    def _hand_over(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self.lines.put_nowait, line)
        except RuntimeError:
            self.left.set()  # the server has ended


Job = Callable[[Talk], None]


class Workers:
    """Runs jobs and sends what they say."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="long")
        self.under_way = 0
        self.ended = 0
        self.left = 0
        """Jobs that did not come to their end: their readers left, or they failed."""

    def counts(self) -> dict[str, int]:
        """How many jobs there are and were."""
        return {"under_way": self.under_way, "ended": self.ended, "left": self.left}

    async def answer(self, request: Request, job: Job) -> Response:
        """The lines of ``job`` as they come; a KvroomError before the first of them as its own answer."""
        if self.under_way >= AT_ONCE + MOST_WAITING:
            message = f"is busy: {self.under_way} long answers are under way"
            busy = KvroomError("server", None, message, "Ask again in a few seconds.")
            return JSONResponse({"error": busy.as_dict()}, 429)
        talk = Talk(asyncio.get_running_loop())
        refused: list[KvroomError] = []
        self.under_way += 1
        work = self.pool.submit(_run, job, talk, refused)
        leaving = asyncio.ensure_future(_left(request))
        try:
            first = await _next(talk, leaving)
        except asyncio.CancelledError:
            self._over(talk, work, leaving)
            raise
        if first is None:
            self._over(talk, work, leaving)
            if refused:
                return JSONResponse({"error": refused[0].as_dict()}, 422)
            return Response(status_code=499 if leaving.done() else 500)
        packed = "gzip" in request.headers.get("accept-encoding", "")
        lines = self._lines(talk, work, leaving, first)
        return StreamingResponse(
            _packed(lines) if packed else lines,
            media_type="application/x-ndjson",
            # Packed here, line by line: as answers are packed elsewhere lines would be held back.
            headers={
                "content-encoding": "gzip" if packed else "identity",
                "cache-control": "no-store",
                "vary": "accept-encoding",
            },
        )

    async def _lines(
        self, talk: Talk, work: Future[None], leaving: asyncio.Future[None], line: str | None
    ) -> AsyncGenerator[str]:
        try:
            while line is not None:
                yield line
                talk.room.release()
                line = await _next(talk, leaving)
        finally:
            self._over(talk, work, leaving)

    def _over(self, talk: Talk, work: Future[None], leaving: asyncio.Future[None]) -> None:
        talk.left.set()
        leaving.cancel()
        loop = asyncio.get_running_loop()

        def count(done: Future[None]) -> None:
            self.under_way -= 1
            if done.cancelled() or done.exception() is not None:
                self.left += 1
            else:
                self.ended += 1

        work.cancel()
        work.add_done_callback(lambda done: loop.call_soon_threadsafe(count, done))


def _run(job: Job, talk: Talk, refused: list[KvroomError]) -> None:
    try:
        job(talk)
    except KvroomError as e:
        if talk.begun:
            talk.say({"kind": "error", "error": e.as_dict()})
        else:
            refused.append(e)
    except Gone:
        raise
    except Exception:
        LOG.exception("a long answer failed")
        raise
    finally:
        talk.end()


async def _packed(lines: AsyncGenerator[str]) -> AsyncIterator[bytes]:
    """The lines gzipped, each whole as it is sent."""
    pack = zlib.compressobj(6, wbits=zlib.MAX_WBITS | 16)
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield pack.compress(line.encode()) + pack.flush(zlib.Z_SYNC_FLUSH)
    yield pack.flush()


async def _next(talk: Talk, leaving: asyncio.Future[None]) -> str | None:
    """The next line; None at the end, or when the reader has left."""
    coming = asyncio.ensure_future(talk.lines.get())
    either: set[asyncio.Future[Any]] = {coming, leaving}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    return None


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
