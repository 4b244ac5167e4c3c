"""The page's view of a running engine: the same samples as ``kvroom watch``, streamed as events.

The engine's address is given on the command line and nowhere else: no request can name one. The engine
is asked only while some page listens, once an interval for all of them. Everything that a page shows is
made here: texts, and marks whose places are in percent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kvroom.errors import KvroomError
from kvroom.observe.endpoint import Endpoint
from kvroom.observe.prometheus import Reading
from kvroom.observe.recording import cache_of, concurrency_of
from kvroom.observe.watch import Sample, Watcher, look
from kvroom.records import dataclass
from kvroom.ui.web.page import MARKER
from kvroom.ui.web.transport import Refused
from kvroom.ui.words import spread

INTERVAL_S, TIMEOUT_S = 1.0, 5.0
HISTORY = 120
MOST_LISTENERS = 32
SECTION = Path(__file__).with_name("static") / "watch.html"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass
class Board:
    """One engine, watched for all who listen."""

    endpoint: Endpoint
    interval_s: float = INTERVAL_S
    watcher: Watcher = field(default_factory=Watcher)
    reading: Reading | None = None
    fills: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))
    state: str = ""
    listeners: int = 0
    _number: int = 0
    _new: asyncio.Condition = field(default_factory=asyncio.Condition)
    _asking: asyncio.Task[None] | None = None
    _begun: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, url: str) -> Board:
        """A board of the engine at ``url``; KvroomError where that is no address, or where the parser
        of metrics is not installed."""
        from kvroom.observe import prometheus

        prometheus.read("")
        return cls(Endpoint.of(url))

    def routes(self) -> list[Route]:
        """The one path of the board."""
        return [Route("/api/watch", self.answer)]

    def put_into(self, html: str) -> str:
        """The page with the section of this board in it."""
        return html.replace(MARKER, SECTION.read_text(encoding="utf-8"), 1)

    async def answer(self, request: Request) -> Response:
        """The stream of states, an event each, until the page leaves."""
        if self.listeners >= MOST_LISTENERS:
            fix = "Close some of the pages that watch."
            error = KvroomError("server", self.listeners, "pages watch already", fix)
            raise Refused(429, error)
        return StreamingResponse(
            self._events(request), media_type="text/event-stream", headers=HEADERS
        )

    async def _events(self, request: Request) -> AsyncIterator[str]:
        self.listeners += 1
        try:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
            seen = 0
            while not await request.is_disconnected():
                async with self._new:
                    if self._number == seen:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(self._new.wait(), TIMEOUT_S)
                    text, fresh, seen = self.state, self._number != seen, self._number
                yield f"data: {text}\n\n" if fresh else ": nothing new\n\n"
        finally:
            self.listeners -= 1

    async def _ask(self) -> None:
        """Look at the engine once an interval while anybody listens."""
        while self.listeners:
            due = time.monotonic() + self.interval_s
            at = round(time.monotonic() - self._begun, 3)
            sample, reading = await asyncio.to_thread(
                look, self.endpoint, self.watcher, TIMEOUT_S, at
            )
            self.reading = reading or self.reading
            self.fills.append(sample.kv_usage)
            async with self._new:
                self.state = json.dumps(self.told(sample))
                self._number += 1
                self._new.notify_all()
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def told(self, sample: Sample) -> dict[str, Any]:
        """A sample as a page shows it: texts by name, marks in percent."""
        reading = self.reading
        size = cache_of(reading) if reading else {}
        room = concurrency_of(reading) if reading else None
        name = f"{reading.engine} {reading.model or ''}".strip() if reading else "an engine"
        return {
            "name": f"{name} at {self.endpoint.shown}",
            "sentence": sample.sentence,
            "warnings": list(sample.warnings[1:]),
            "state": "lost"
            if sample.error is not None
            else "warned"
            if sample.warnings
            else "well",
            "cells": {
                "fill": "-" if sample.kv_usage is None else f"{sample.kv_usage:.0%}",
                "running": _count(sample.running),
                "waiting": _count(sample.waiting),
                "preempted": _count(sample.preemptions),
                "hits": "-" if sample.hit_ratio is None else f"{sample.hit_ratio:.0%}",
                "ttft": spread(sample.ttft_s),
                "itl": spread(sample.itl_s),
                "kv_tokens": _count(size.get("kv_tokens")),
                "num_blocks": _count(size.get("num_blocks")),
                "block_size": _count(size.get("block_size")),
                "at_once": "-" if room is None else f"{room:,.2f}",
            },
            "fill": None if sample.kv_usage is None else f"{min(1.0, sample.kv_usage):.2%}",
            "history": [
                {
                    "x": f"{index / HISTORY:.3%}",
                    "width": f"{0.8 / HISTORY:.3%}",
                    "y": f"{1 - min(1.0, fill):.2%}",
                    "height": f"{min(1.0, fill):.2%}",
                }
                for index, fill in enumerate(self.fills, HISTORY - len(self.fills))
                if fill is not None
            ],
        }


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
