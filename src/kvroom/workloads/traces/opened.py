"""Trace files as they lie: plain or packed (gzip, xz, zstd, told by content), by line or by item."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

from kvroom.errors import KvroomError
from kvroom.records import dataclass

MAX_LINE_BYTES = 100_000_000
"""A million-token prompt as token ids takes less than a tenth of it."""
CHUNK_BYTES = 1 << 16
MAX_ITEM_SIGNS = 16_000_000
"""Of a list's item: what breaks off in it is read so far before it is refused."""
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
PARQUET = b"PAR1"

Unpack = Callable[[IO[bytes]], IO[bytes]]
"""A packed stream → what is in it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A trace that lies in memory, under the ``name`` that it came with."""

    name: str
    data: bytes = field(repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A trace in object storage at the address ``name``, or a folder of such (``parts``)."""

    name: str
    stream: Callable[[], IO[bytes]] = field(repr=False)
    parts: tuple[RemoteFile, ...] = ()

    def __str__(self) -> str:
        return self.name


TraceFile = Path | Held | RemoteFile
ParquetRows = Callable[[TraceFile], Iterator[Mapping[str, Any]]]
"""The rows of a Parquet file, read batch by batch."""


def is_parquet(path: TraceFile) -> bool:
    """Whether the file begins as Parquet does."""
    with opened(path, None, lambda: "its beginning", whole=False) as stream:
        return stream.read(len(PARQUET)) == PARQUET


def numbered_lines(
    path: TraceFile, unpack_zstd: Unpack | None = None
) -> Iterator[tuple[int, bytes]]:
    """The lines of a trace, unpacked if need be, with their numbers from 1; blank ones left out.

    Of a line longer than MAX_LINE_BYTES only so much is given, which no parser takes.
    """
    number = 0
    with opened(path, unpack_zstd, lambda: f"line {number:,}") as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            rest = line
            while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES)
            if not line.isspace():
                yield number, line


@contextmanager
def opened(
    path: TraceFile, unpack_zstd: Unpack | None, where: Callable[[], str], *, whole: bool = True
) -> Iterator[IO[bytes]]:
    """The unpacked bytes of a trace (not ``whole``: as they lie); KvroomError where it cannot be read or
    breaks off after ``where``."""
    try:
        if isinstance(path, Held):
            yield io.BytesIO(path.data)
            return
        if isinstance(path, RemoteFile):
            with path.stream() as far:
                buffered: Any = io.BufferedReader(cast("io.RawIOBase", far))
                if not whole:
                    yield buffered
                    return
                with _unpacked(buffered, path, unpack_zstd) as stream:
                    yield stream
            return
        if not path.is_file():
            fix = "Give the path of a trace file."
            raise KvroomError("trace", str(path), "is not a file", fix)
        with path.open("rb") as raw:
            if not whole:
                yield raw
                return
            with _unpacked(raw, path, unpack_zstd) as stream:
                yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        why = f"breaks off or is garbled after {where()} ({error})"
        raise KvroomError("trace", str(path), why, "Fetch the file again.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, KvroomError):
            raise
        fix = "Give the path of a trace file."
        raise KvroomError("trace", str(path), "cannot be read", fix) from None


@contextmanager
def _unpacked(
    raw: io.BufferedReader, path: Path | RemoteFile, unpack_zstd: Unpack | None
) -> Iterator[IO[bytes]]:
    head = raw.peek(8)[:8]
    if head.startswith(GZIP):
        with gzip.open(raw) as stream:
            # Its lines cost half of a GzipFile's.
            yield cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", stream)))
    elif head.startswith(XZ):
        with lzma.open(raw) as stream:
            yield cast("IO[bytes]", stream)
    elif head.startswith(ZSTD):
        if unpack_zstd is None:
            fix = "Install kvroom[traces], or unpack it: zstd -d FILE."
            raise KvroomError("trace", str(path), "is packed with zstd", fix)
        with unpack_zstd(raw) as stream:
            yield stream
    else:
        yield raw


def _finite_only(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    parse_float=Decimal, parse_constant=_finite_only
).scan_once  # type: ignore[attr-defined]
_BAD = (ValueError, RecursionError, ArithmeticError, StopIteration)


def text_of(line: bytes) -> str:
    """A line as text; KvroomError where it is too long or not UTF-8."""
    if len(line) >= MAX_LINE_BYTES:
        why = f"is longer than {MAX_LINE_BYTES:,} bytes"
        raise KvroomError("row", shown(line), why, "Write one request a line.")
    try:
        return line.decode()
    except UnicodeDecodeError:
        fix = "Give a trace as text: JSONL, JSON or CSV."
        raise KvroomError("row", shown(line), "is not UTF-8 text", fix) from None


def shown(line: bytes) -> str:
    """The beginning of a line, for messages."""
    return line[:60].decode("utf-8", "replace").strip()


def json_row(line: bytes) -> Mapping[str, Any]:
    """The object of one line; floats as exact decimals."""
    text = text_of(line).removeprefix("\ufeff").strip()
    try:
        row, end = _SCAN(text, 0)
        if end != len(text):
            raise ValueError("more than one value")
    except _BAD:
        raise KvroomError("row", text[:60], "is not JSON", "Write one object a line.") from None
    return _object(row, text)


def _object(row: Any, text: str) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise KvroomError("row", text[:60], "is not an object", "Write one object a line.")
    return row


def json_items(
    path: TraceFile, unpack_zstd: Unpack | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a JSON file that is one value: of a list its items, else the value itself, with their
    numbers from 1. Only one item, or twice its bytes, is held at a time.

    KvroomError where it is no JSON; after that nothing of the file can be told apart.
    """
    number = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path, unpack_zstd, lambda: f"item {number:,}") as stream:
        text, place, ended = "", 0, False

        def more() -> None:
            nonlocal text, place, ended
            data = stream.read(max(CHUNK_BYTES, len(text) - place))
            ended = not data
            try:
                text = text[place:] + decoder.decode(data, ended)
            except UnicodeDecodeError:
                fix = "Give a trace as text: JSONL, JSON or CSV."
                raise KvroomError("trace", str(path), "is not UTF-8 text", fix) from None
            place = 0

        def past(signs: str) -> str:
            """The next sign that is none of ``signs`` (empty at the end)."""
            nonlocal place
            while True:
                while place < len(text) and text[place] in signs:
                    place += 1
                if place < len(text) or ended:
                    return text[place : place + 1]
                more()

        listed = past(" \t\r\n\ufeff") == "["
        place += listed
        while sign := past(" \t\r\n,"):
            if listed and sign == "]":
                return
            while True:
                try:
                    row, end = _SCAN(text, place)
                    break
                except _BAD as error:
                    most = MAX_ITEM_SIGNS if listed else MAX_LINE_BYTES
                    long = len(text) - place > most
                    if ended or long or isinstance(error, RecursionError):
                        why = f"is no JSON in item {number + 1:,}"
                        fix = f"Mend it; an item has up to {most:,} signs."
                        raise KvroomError("trace", str(path), why, fix) from None
                    more()
            number += 1
            yield number, _object(row, text[place : place + 60])
            place = end
        if listed:
            raise KvroomError("trace", str(path), "breaks off in its list", "Fetch it again.")
