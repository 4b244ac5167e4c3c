"""The one address that ``watch`` asks: its parts, its answer, and how it is shown.

Nothing else is contacted: no redirect is followed and no proxy is used. What a URL holds of
credentials or query goes to the server and is never shown.
"""

from __future__ import annotations

import base64
import http.client
import os
import socket
import ssl
import time
from contextlib import closing, suppress
from dataclasses import field
from threading import Timer
from urllib.parse import unquote, urlsplit

from kvroom.errors import KvroomError
from kvroom.records import dataclass

MOST_BYTES = 16 * 2**20
TOKEN = "KVROOM_TOKEN"
"""The environment's variable whose value is sent as a bearer token."""
_FIX = "Give the server's address, such as http://127.0.0.1:8000."


class NoAnswerError(Exception):
    """The server gave no usable answer; the text says why, in words that may be printed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's metrics: where they are asked for. ``shown`` is safe to print."""

    secure: bool
    host: str
    port: int
    path: str
    headers: dict[str, str] = field(repr=False)
    query: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """From ``host:port`` or a URL, ``/metrics`` where it has no path; KvroomError otherwise."""
        text = url.strip()
        if "://" not in text:
            if text.endswith((".jsonl", ".json")):
                fix = "Give a recording that is there, or a server's address."
                raise KvroomError(
                    "URL", text, "is neither an address nor a file that is there", fix
                )
            text = f"http://{text}"
        try:
            parts = urlsplit(text)
            port = parts.port
            host = parts.hostname
        except ValueError:
            raise KvroomError("URL", None, "is not an address", _FIX) from None
        if parts.scheme not in ("http", "https"):
            raise KvroomError("URL", f"{parts.scheme[:20]}:…", "is neither http nor https", _FIX)
        bad = any(c.isspace() or not c.isprintable() for c in text)
        if not host or bad:
            raise KvroomError("URL", None, "names no host", _FIX)
        secure = parts.scheme == "https"
        headers = {"Accept": "text/plain;version=0.0.4", "User-Agent": "kvroom"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        path = parts.path if parts.path not in ("", "/") else "/metrics"
        return cls(secure, host, port or (443 if secure else 80), path, headers, parts.query)

    @property
    def shown(self) -> str:
        """The address without credentials and query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}"

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that is still to be made, silent for ``timeout_s`` at most."""
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)

    def fetch(self, timeout_s: float = 5.0) -> str:
        """The answer's text, within ``timeout_s`` in all; NoAnswerError where there is none."""
        connection = self.connection(timeout_s)
        begun = time.monotonic()
        late: Timer | None = None
        try:
            connection.connect()
            late = Timer(timeout_s, _shut, (connection.sock,))
            late.daemon = True
            late.start()
            text = self._ask(connection)
        except (http.client.HTTPException, OSError, ValueError) as error:
            if time.monotonic() - begun >= timeout_s:
                raise NoAnswerError(f"no whole answer within {timeout_s:g} s") from None
            raise NoAnswerError(_why(error)) from None
        finally:
            if late is not None:
                late.cancel()
            connection.close()
        if time.monotonic() - begun >= timeout_s:  # cut off, which reads like an end
            raise NoAnswerError(f"no whole answer within {timeout_s:g} s")
        return text

    def _ask(self, connection: http.client.HTTPConnection) -> str:
        target = f"{self.path}?{self.query}" if self.query else self.path
        connection.request("GET", target, headers=self.headers)
        with closing(connection.getresponse()) as answer:
            if answer.status != http.client.OK:
                raise NoAnswerError(_status(answer.status))
            chunks: list[bytes] = []
            size = 0
            while chunk := answer.read1(65_536):
                chunks.append(chunk)
                size += len(chunk)
                if size > MOST_BYTES:
                    raise NoAnswerError(f"its answer is longer than {MOST_BYTES:,} bytes")
            if answer.length:  # what was promised and did not come
                raise http.client.IncompleteRead(b"".join(chunks), answer.length)
        return b"".join(chunks).decode("utf-8", "replace")


def _shut(sock: socket.socket) -> None:
    """End a connection that takes too long, whichever call waits for it."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _status(status: int) -> str:
    """What a status other than 200 means here."""
    if 300 <= status < 400:
        return (
            f"it sends elsewhere (status {status}), which is not followed: give the final address"
        )
    if status in (401, 403):
        return f"it wants credentials (status {status}): user:password@ in the URL, or {TOKEN}"
    if status in (404, 501):
        return (
            f"it serves no metrics there (status {status}): start SGLang with --enable-metrics, "
            "llama.cpp's server with --metrics"
        )
    return f"it answers with status {status}"


def _why(error: BaseException) -> str:
    """The error in words that hold nothing of the URL."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, TimeoutError):
        return "it is too slow"
    if isinstance(error, ssl.SSLError):
        return "it speaks no TLS that can be trusted"
    if isinstance(error, http.client.HTTPException):
        return "its answer is no HTTP, or is cut short"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "it cannot be asked"
