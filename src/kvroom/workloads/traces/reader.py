"""Trace files as streams of requests: plain or gzipped, their format told by what they hold.

What a wrong line means is the same for every format. A line that is no row of the format, a negative
or missing figure, a prompt without a token, more than 10^9 tokens, an arrival beyond 10^10 s: refused,
the line and the reason named, or passed over and counted where asked. An answer of no tokens is taken.
Arrivals out of order are taken in file order and counted (``requests.in_order`` sorts them). A request
too long for a model is no fault of the trace: it is for the simulation to drop.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from kvroom.errors import KvroomError, shortened
from kvroom.units import ceil_div
from kvroom.workloads.requests import HashIds, Request, TokenIds, TokenRuns, placed
from kvroom.workloads.traces.formats import FORMATS, PS_PER_MS, PS_PER_NS, Format

MAX_LINE_BYTES = 100_000_000
"""A million-token prompt as token ids takes less than a tenth of it."""
PEEK_LINES = 1_000
"""How far a trace is read ahead to tell its format and the tokens of a hash id."""
_SKIP = "Mend the line, or pass over such lines with --skip-bad-lines."
_KNOWN = "Known are Mooncake, Qwen-Bailian and token-id JSONL, Azure and BurstGPT CSV."


@dataclass(slots=True)
class Counts:
    """What one reading of a trace met."""

    requests: int = 0
    skipped_lines: int = 0
    unordered: int = 0
    """Requests that came before the latest arrival so far."""
    reasons: list[str] = field(default_factory=list)
    """Why lines were skipped, the first few."""

    def skipped(self) -> Iterator[str]:
        """A note on the lines that were skipped, where any were."""
        n = self.skipped_lines
        if n:
            yield f"{n:,} bad line{'s' if n != 1 else ''} skipped ({'; '.join(self.reasons)})"


@dataclass(frozen=True, slots=True)
class Held:
    """A trace that lies in memory, under the ``name`` that it came with."""

    name: str
    data: bytes = field(repr=False)

    def __str__(self) -> str:
        return self.name


class Trace:
    """A trace, of a file or Held; each iteration reads it anew and yields its Requests in file order.

    ``hash_tokens`` is how many tokens one hash id stands for; where it is not given it is told from
    the lengths of the first rows. ``counts`` is what the latest iteration met. Arrivals count from the
    first request. KvroomError where the file cannot be read or is of no known format, and, unless
    ``skip_bad_lines``, at the first wrong line.
    """

    def __init__(
        self,
        path: str | Path | Held,
        *,
        hash_tokens: int | None = None,
        skip_bad_lines: bool = False,
    ) -> None:
        self.path = path if isinstance(path, Held) else Path(path)
        self.skip_bad_lines = skip_bad_lines
        self.counts = Counts()
        self.format, self._header, self._columns = self._recognised()
        self.hash_tokens = hash_tokens or self._told_hash_tokens()

    def __iter__(self) -> Iterator[Request]:
        counts = self.counts = Counts()
        row = self.format.reader(self.hash_tokens or 1)
        origin: int | None = None
        latest = 0
        plain = self.format.plain or _never
        for number, line in self._rows():
            try:
                request = plain(line) or row(self._parse(line))
            except KvroomError as error:
                self._bad(number, error, counts)
                continue
            if origin is None:
                origin = latest = request.arrival_ps
            if request.arrival_ps < latest:
                counts.unordered += 1
            else:
                latest = request.arrival_ps
            counts.requests += 1
            yield placed(request, request.arrival_ps - origin) if origin else request
        if not counts.requests:
            why = f"holds no request ({counts.skipped_lines} bad lines)"
            raise KvroomError("trace", str(self.path), why, _KNOWN)

    def _bad(self, number: int, error: KvroomError, counts: Counts) -> None:
        told = KvroomError(
            f"trace line {number:,}, {error.field}",
            error.value,
            error.message,
            f"{error.fix} {_SKIP}",
        )
        if not self.skip_bad_lines:
            raise told from None
        counts.skipped_lines += 1
        if len(counts.reasons) < 5:
            counts.reasons.append(
                f"line {number:,}: {error.field} {shortened(error.value)} {error.message}"
            )

    def _rows(self) -> Iterator[tuple[int, bytes]]:
        return (
            (number, line) for number, line in numbered_lines(self.path) if number > self._header
        )

    def _parse(self, line: bytes) -> Mapping[str, Any]:
        return csv_row(line, self._columns) if self._columns else json_row(line)

    def _recognised(self) -> tuple[Format, int, list[str]]:
        """The format, the number of the header's line (0: none), and the header's columns."""
        first: KvroomError | None = None
        for number, line in numbered_lines(self.path):
            try:
                kind, columns = format_of(line)
            except KvroomError as error:
                first = first or KvroomError(
                    f"trace line {number:,}", error.value, error.message, error.fix
                )
                if not self.skip_bad_lines or number > PEEK_LINES:
                    break
                continue
            return kind, number if columns else 0, columns
        raise first or KvroomError("trace", str(self.path), "is empty", _KNOWN)

    def _told_hash_tokens(self) -> int | None:
        """By which lengths and counts of ids agree: the format's own if they do, else a power of two."""
        usual = self.format.hash_tokens
        if usual is None:
            return None
        low, high = 1, 2**40
        fits: list[int] = []
        for number, line in self._rows():
            if number > PEEK_LINES:
                break
            if b"hash_ids" not in line:
                continue
            with suppress(KvroomError):
                row = self._parse(line)
                tokens, ids = row.get("input_length"), row.get("hash_ids")
                if type(tokens) is int and tokens > 0 and isinstance(ids, list) and ids:
                    low = max(low, ceil_div(tokens, len(ids)))
                    if len(ids) > 1:
                        high = min(high, ceil_div(tokens, len(ids) - 1) - 1)
            fits = [1 << n for n in range(41) if low <= 1 << n <= high]
            if (len(fits) == 1 and high - low < low // 8) or low == high:
                return fits[0] if fits else low
        if low <= usual <= high or low > high:
            return usual
        return fits[-1] if fits else low


def _never(_: bytes) -> None:
    return None


def format_of(line: bytes) -> tuple[Format, list[str]]:
    """The format that a trace's first line speaks of, and its columns if it is a CSV header."""
    if line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{"):
        keys: Any = json_row(line)
        columns: list[str] = []
    else:
        columns = [c.strip().lower() for c in _cells(_text(line).removeprefix("\ufeff"))]
        keys = columns
    for kind in FORMATS:
        if kind.csv == bool(columns) and kind.fits(keys):
            return kind, columns
    same = [kind for kind in FORMATS if kind.csv == bool(columns)]
    near = max(same, key=lambda kind: sum(n in keys for n in kind.needs) / len(kind.needs))
    lacking = [n for n in near.needs if n not in keys]
    if len(lacking) < len(near.needs):
        why = f"looks like {near.name} but lacks {', '.join(lacking)}"
        raise KvroomError("row", _shown(line), why, f"Give that too. {_KNOWN}")
    raise KvroomError("row", _shown(line), "is of no known trace format", _KNOWN)


def _shown(line: bytes) -> str:
    return line[:60].decode("utf-8", "replace").strip()


def _text(line: bytes) -> str:
    if len(line) >= MAX_LINE_BYTES:
        why = f"is longer than {MAX_LINE_BYTES:,} bytes"
        raise KvroomError("row", _shown(line), why, "Write one request a line.")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise KvroomError("row", _shown(line), "is not UTF-8 text", _KNOWN) from None


def _finite_only(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    parse_float=Decimal, parse_constant=_finite_only
).scan_once  # type: ignore[attr-defined]


def json_row(line: bytes) -> Mapping[str, Any]:
    """The object of one line; floats as exact decimals."""
    text = _text(line).removeprefix("\ufeff").strip()
    try:
        row, end = _SCAN(text, 0)
        if end != len(text):
            raise ValueError("more than one value")
    except (ValueError, RecursionError, ArithmeticError, StopIteration):
        raise KvroomError("row", text[:60], "is not JSON", "Write one object a line.") from None
    if not isinstance(row, dict):
        raise KvroomError("row", text[:60], "is not an object", "Write one object a line.")
    return row


def csv_row(line: bytes, columns: list[str]) -> Mapping[str, str]:
    """The cells of one line by their column."""
    text = _text(line).strip()
    cells = _cells(text)
    if len(cells) != len(columns):
        why = f"has {len(cells)} cells where the header has {len(columns)}"
        raise KvroomError("row", text[:60], why, "Give every column a cell.")
    return dict(zip(columns, cells, strict=True))


def _cells(text: str) -> list[str]:
    if '"' not in text:
        return text.rstrip("\r\n").split(",")
    try:
        return next(csv.reader([text]))
    except csv.Error as e:
        raise KvroomError("row", text[:60], f"is not CSV ({e})", "Mend its quotes.") from None


def numbered_lines(path: Path | Held) -> Iterator[tuple[int, bytes]]:
    """The lines of a trace, gunzipped if need be, with their numbers from 1; blank ones left out.

    Of a line longer than MAX_LINE_BYTES only so much is given, which no parser takes.
    """
    number = 0
    try:
        with _opened(path) as stream:
            while line := stream.readline(MAX_LINE_BYTES):
                number += 1
                rest = line
                while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE_BYTES)
                if not line.isspace():
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        why = f"breaks off or is garbled after line {number:,} ({e})"
        raise KvroomError("trace", str(path), why, "Fetch the file again.") from None
    except (OSError, ValueError) as e:
        if isinstance(e, KvroomError):
            raise
        fix = "Give the path of a trace file."
        raise KvroomError("trace", str(path), "cannot be read", fix) from None


@contextmanager
def _opened(path: Path | Held) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if isinstance(path, Held):
        yield io.BytesIO(path.data)
        return
    if not path.is_file():
        raise KvroomError("trace", str(path), "is not a file", "Give the path of a trace file.")
    with path.open("rb") as raw:
        zipped = raw.peek(2)[:2] == b"\x1f\x8b"
        if not zipped:
            yield raw
            return
        with gzip.open(raw) as stream:
            yield io.BufferedReader(stream)  # its lines cost half of a GzipFile's


def write(path: str | Path, requests: Iterable[Request]) -> int:
    """Write ``requests`` as a trace that reads back as the same; gzipped if the name ends in .gz.

    Requests with token ids (runs are written out) make token-id JSONL, all others Mooncake JSONL; one
    file holds one kind. The file appears only once it is whole. Returns how many were written.
    """
    target = Path(path)
    part = target.with_name(target.name + ".part")
    count = 0
    by_token: bool | None = None
    try:
        with part.open("wb") as raw, _zipped(raw, target.suffix == ".gz") as stream:
            for count, request in enumerate(requests, 1):  # noqa: B007
                tokens = isinstance(request.prefix, TokenIds | TokenRuns)
                if by_token not in (None, tokens):
                    why = "mixes token ids with other requests"
                    raise KvroomError("trace", str(target), why, "Write each kind to its own file.")
                by_token = tokens
                stream.write(_line(request).encode())
        part.replace(target)
    except OSError as e:
        fix = "Give a path that can be written."
        raise KvroomError("trace", str(target), f"cannot be written ({e.strerror})", fix) from None
    finally:
        with suppress(OSError):
            os.unlink(part)  # noqa: PTH108
    return count


@contextmanager
def _zipped(raw: IO[bytes], zipped: bool) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if not zipped:
        yield raw
        return
    # No name and no time in the header: the same requests give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
        yield stream


def _line(request: Request) -> str:
    prefix = request.prefix
    row: dict[str, Any] = {}
    if isinstance(prefix, TokenIds | TokenRuns):
        time = f'"arrival_time_ns": {_units(request.arrival_ps, PS_PER_NS)}'
        row["input_tok_ids"] = _ids(prefix, "prompt")
        answer = _ids(prefix, "answer")
        row |= {"output_tok_ids": answer} if answer else {"output_toks": request.output_tokens}
    else:
        time = f'"timestamp": {_units(request.arrival_ps, PS_PER_MS)}'
        row |= {"input_length": request.input_tokens, "output_length": request.output_tokens}
        if isinstance(prefix, HashIds):
            row["hash_ids"] = list(prefix.ids)
    if request.session is not None:
        row["session"] = request.session
    if request.priority:
        row["priority"] = request.priority
    return f"{{{time}, {json.dumps(row)[1:]}\n"


def _ids(prefix: TokenIds | TokenRuns, part: str) -> list[int]:
    known = getattr(prefix, part)
    if isinstance(prefix, TokenIds):
        return list(known or ())
    return [token for first, count in known for token in range(first, first + count)]


def _units(ps: int, unit_ps: int) -> str:
    whole, rest = divmod(ps, unit_ps)
    digits = len(str(unit_ps)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)
