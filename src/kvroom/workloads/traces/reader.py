"""Trace files as streams of requests: plain or packed, their format told by what they hold.

What a wrong line means is the same for every format. A line that is no row of the format, a negative
or missing figure, a prompt without a token, more than 10^9 tokens, an arrival beyond 10^10 s: refused,
the line and the reason named, or passed over and counted where asked. An answer of no tokens is taken.
Arrivals out of order are taken in file order and counted (``requests.in_order`` sorts them). A request
too long for a model is no fault of the trace: it is for the simulation to drop.

Rows are lines (JSONL, CSV), or the items of a file that is one JSON value: of a list its items, else the
value itself.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, shortened
from kvroom.records import dataclass
from kvroom.units import ceil_div
from kvroom.workloads.requests import PS_PER_S, Request, RequestGraph, placed
from kvroom.workloads.traces import columns as column_names
from kvroom.workloads.traces import formats, servegen, vllm_log
from kvroom.workloads.traces.base import Format, Item, RowOptions, Tokenizer
from kvroom.workloads.traces.opened import (
    Held,
    ParquetRows,
    RemoteFile,
    TraceFile,
    Unpack,
    is_parquet,
    json_items,
    json_row,
    numbered_lines,
    shown,
    text_of,
)

PEEK_LINES = 1_000
"""How far a trace is read ahead to tell its format and the tokens of a hash id."""
MOST_FILES = 100_000
JUMP_PS = 86_400 * PS_PER_S
_SKIP = "Mend the line, or pass over such lines with --skip-bad-lines."
UNTIMED = "the trace has no arrival times: all requests come at once"


@dataclass(slots=True)
class Counts:
    """What one reading of a trace met."""

    requests: int = 0
    skipped_lines: int = 0
    unordered: int = 0
    """Requests that came before the latest arrival so far."""
    jumps: int = 0
    """Times that nothing came for more than JUMP_PS."""
    back: int = 0
    """Those that are more than JUMP_PS older than one before them."""
    reasons: list[str] = field(default_factory=list)
    """Why lines were skipped, the first few."""
    assumed: dict[str, int] = field(default_factory=dict)
    """What was assumed where rows do not say it, and for how many."""

    def notes(self) -> Iterator[str]:
        """A note on the lines that were skipped, where any were, and one for all that was assumed."""
        skipped_lines = self.skipped_lines
        if skipped_lines:
            yield (
                f"{skipped_lines:,} bad line{'s' if skipped_lines != 1 else ''} skipped "
                f"({'; '.join(self.reasons)})"
            )
        if self.jumps:
            yield f"nothing comes for more than a day, {self.jumps:,} times: a clock may have jumped"
        if self.back:
            yield f"{self.back:,} are more than a day older than one before: a clock may have jumped"
        for text, times in self.assumed.items():
            yield f"{text} ({times:,})" if times > 1 else text


@dataclass(frozen=True, slots=True)
class _Source:
    """One file of a trace: its format, and how its rows lie in it."""

    path: TraceFile
    format: Format
    whole: bool
    """One JSON value, not a line a row."""
    header: int = 0
    """The number of the header's line (0: none)."""
    columns: Sequence[str] = ()
    delimiter: str = ","
    parquet: bool = False

    def parse(self, line: bytes) -> Mapping[str, Any]:
        """A line as a row."""
        if self.format is vllm_log.FORMAT:
            return {vllm_log.LINE: text_of(line)}
        return csv_row(line, self.columns, self.delimiter) if self.columns else json_row(line)


class Trace:
    """A trace, of a file, a folder of files of one format, Held, or a RemoteFile; each iteration reads it
    anew and yields its Requests in file order.

    ``hash_tokens`` is how many tokens one hash id stands for; where it is not given it is told from
    the lengths of the first rows. ``columns`` names those of any CSV or JSONL (``columns.parse``).
    ``tokenizer`` counts text, ``unpack_zstd`` reads zstd, ``parquet`` the rows of Parquet; all are of
    libraries that kvroom need not have.
    ``counts`` is what the latest iteration met. Arrivals count from the
    first request. KvroomError where the file cannot be read or is of no known format, and, unless
    ``skip_bad_lines``, at the first wrong line.
    """

    def __init__(
        self,
        path: str | TraceFile,
        *,
        hash_tokens: int | None = None,
        skip_bad_lines: bool = False,
        columns: str | Mapping[str, str] | None = None,
        tokenizer: Tokenizer | None = None,
        unpack_zstd: Unpack | None = None,
        parquet: ParquetRows | None = None,
    ) -> None:
        self.path = path if isinstance(path, Held | RemoteFile) else Path(path)
        self.skip_bad_lines = skip_bad_lines
        self.counts = Counts()
        self._named = None if columns is None else column_names.parse(columns)
        self._tokenizer = tokenizer
        self._unpack_zstd = unpack_zstd
        self._parquet = parquet
        self._names_sessions: bool | None = None
        self._files = _files(self.path)
        self._clients = servegen.client_files(self._files)
        if self._clients:
            self._first = _Source(self._files[0], servegen.FORMAT, whole=False)
        else:
            self._first = self._source(self._files[0])
        self.format = self._first.format
        self.hash_tokens = hash_tokens or self._told_hash_tokens()
        self._deltas = self._told_deltas()

    def __iter__(self) -> Iterator[Request]:
        counts = self.counts = Counts()
        origin: int | None = None
        latest = 0
        for request in self._read(counts):
            part = iter(request) if isinstance(request, RequestGraph) else iter((request,))
            for one in part:
                if origin is None:
                    origin = latest = one.arrival_ps
                if one.arrival_ps < latest:
                    counts.unordered += 1
                    counts.back += latest - one.arrival_ps > JUMP_PS
                else:
                    counts.jumps += one.arrival_ps - latest > JUMP_PS
                    latest = one.arrival_ps
                counts.requests += 1
                yield placed(one, one.arrival_ps - origin) if origin else one
        self._read_something(counts)

    @property
    def has_sessions(self) -> bool:
        """Whether rows are sessions, whose requests wait for each other."""
        return self.format.sessions

    @property
    def names_sessions(self) -> bool:
        """Whether rows name their sessions, whose requests then wait for each other."""
        if self.format.sessions or not self.format.timed:
            return False
        if self._names_sessions is None:
            rows = islice(self._read(Counts()), PEEK_LINES)
            self._names_sessions = False
            with suppress(KvroomError):
                self._names_sessions = any(
                    isinstance(row, Request) and row.session is not None for row in rows
                )
        return self._names_sessions

    def skip_late(self, error: KvroomError) -> None:
        """Count a request that comes too late to be put in order."""
        self._bad(self.counts.requests, error, self.counts)

    def sessions(self) -> Iterator[RequestGraph]:
        """The sessions of a trace that has such."""
        counts = self.counts = Counts()
        for graph in self._read(counts):
            if isinstance(graph, RequestGraph):
                counts.requests += len(graph.requests)
                yield graph
        self._read_something(counts)

    def _read_something(self, counts: Counts) -> None:
        if not counts.requests:
            why = f"holds no request ({counts.skipped_lines} bad lines)"
            raise KvroomError("trace", str(self.path), why, formats.KNOWN)

    def _read(self, counts: Counts) -> Iterator[Request | RequestGraph]:
        """All requests, or sessions of them, in file order."""
        if self._clients:
            counts.assumed[servegen.MADE_UP] = 1
            yield from servegen.requests(
                self._clients, lambda line, error: self._bad(line, error, counts)
            )
            return
        options = RowOptions(
            self.hash_tokens or 1, self._tokenizer, counts.assumed, deltas=self._deltas
        )
        if not self.format.timed and not self.format.sessions:
            options.note(UNTIMED)
        row = self.format.reader(options)
        plain = self.format.plain or _never
        for number, path in enumerate(self._files):
            source = self._source(path) if number else self._first
            if source.format.name != self.format.name:
                why = f"is {source.format.name}, others are {self.format.name}"
                raise KvroomError("trace", str(path), why, "Give a folder of one format.")
            rows = self._items(source, counts) if source.whole else self._lines(source)
            for place, line in rows:
                try:
                    plain_row = isinstance(line, bytes) and plain(line)
                    read = plain_row or row(source.parse(line) if isinstance(line, bytes) else line)
                except KvroomError as error:
                    self._bad(place, self._of_other(source, line, error), counts)
                    continue
                if isinstance(read, Request | RequestGraph):
                    yield read
                else:
                    yield from self._parts(read, place, counts)

    def _parts(
        self, items: Iterable[Item], place: int, counts: Counts
    ) -> Iterator[Request | RequestGraph]:
        """What a row holds; each part of it may be bad alone."""
        parts = iter(items)
        while True:
            try:
                item = next(parts)
            except StopIteration:
                return
            except KvroomError as error:
                self._bad(place, error, counts)
                return
            if isinstance(item, KvroomError):
                self._bad(place, item, counts)
            else:
                yield item

    def _of_other(
        self, source: _Source, line: bytes | Mapping[str, Any], error: KvroomError
    ) -> KvroomError:
        """``error``, or that the row is of another format than the trace."""
        if self._named is not None or source.columns:
            return error
        try:
            row = json_row(line) if isinstance(line, bytes) else line
            other = formats.format_of(row, "")
        except KvroomError:
            return error
        if other.name == self.format.name:
            return error
        why = f"is {other.name}, the trace is {self.format.name}"
        return KvroomError("row", ", ".join(row)[:60], why, "Give a trace of one format.")

    def _lines(self, source: _Source) -> Iterator[tuple[int, bytes | Mapping[str, Any]]]:
        if source.parquet:
            yield from enumerate(self._rows_of(source.path), 1)
            return
        for number, line in numbered_lines(source.path, self._unpack_zstd):
            if number > source.header:
                yield number, line
        if source.format is vllm_log.FORMAT:
            yield 0, {vllm_log.LINE: None}

    def _items(
        self, source: _Source, counts: Counts
    ) -> Iterator[tuple[int, bytes | Mapping[str, Any]]]:
        number = 0
        try:
            for number, item in json_items(source.path, self._unpack_zstd):
                yield number, item
        except KvroomError as error:
            self._bad(number + 1, error, counts)

    def _bad(self, number: int, error: KvroomError, counts: Counts) -> None:
        error_of_line = KvroomError(
            f"trace line {number:,}, {error.field}",
            error.value,
            error.message,
            f"{error.fix} {_SKIP}",
        )
        if not self.skip_bad_lines:
            raise error_of_line from None
        counts.skipped_lines += 1
        if len(counts.reasons) < 5:
            counts.reasons.append(
                f"line {number:,}: {error.field} {shortened(error.value)} {error.message}"
            )

    def _rows_of(self, path: TraceFile) -> Iterator[Mapping[str, Any]]:
        """The rows of a Parquet file; a CSV format's have its names and their text."""
        if self._parquet is None:
            fix = "Install kvroom[traces], or write it as CSV or JSONL."
            raise KvroomError("trace", str(path), "is Parquet", fix)
        text = None
        for row in self._parquet(path):
            if text is None:
                text = self._is_text(row)
            yield {key.strip().lower(): str(cell) for key, cell in row.items()} if text else row

    def _is_text(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of Parquet is one of a CSV format's columns."""
        if self._named is not None:
            return False
        try:
            return formats.format_of(row, "").csv
        except KvroomError:
            return True

    def _source(self, path: TraceFile) -> _Source:
        """The file's format and the way that its rows lie, told by its first row."""
        if is_parquet(path):
            for row in self._rows_of(path):
                keys = list(row) if self._is_text(row) else row
                told = ", ".join(row)[:60].encode()
                return _Source(path, self._format(keys, told), whole=False, parquet=True)
            raise KvroomError("trace", str(path), "is empty", formats.KNOWN)
        first: KvroomError | None = None
        for number, line in numbered_lines(path, self._unpack_zstd):
            text = line.lstrip(b"\xef\xbb\xbf \t\r\n")
            try:
                if not first and _is_whole(text):
                    return self._whole(path)
                if text.startswith(b"{"):
                    row = json_row(line)
                    return _Source(path, self._format(row, line), whole=False)
                if not first and self._is_log(path):
                    return _Source(path, vllm_log.FORMAT, whole=False)
                names, sign = header_of(line)
                return _Source(path, self._format(names, line), False, number, names, sign)
            except KvroomError as error:
                first = first or KvroomError(
                    f"trace line {number:,}", error.value, error.message, error.fix
                )
                if not self.skip_bad_lines or number > PEEK_LINES:
                    break
        raise first or KvroomError("trace", str(path), "is empty", formats.KNOWN)

    def _is_log(self, path: TraceFile) -> bool:
        """Whether one of the first lines is one of vLLM's request log."""
        if self._named is not None:
            return False
        lines = islice(numbered_lines(path, self._unpack_zstd), PEEK_LINES)
        return any(vllm_log.is_log(line) for _, line in lines)

    def _told_deltas(self) -> bool:
        tells = self.format.tells_deltas
        if tells is None or self._first.whole:
            return False

        def rows() -> Iterator[Mapping[str, Any]]:
            for _, line in islice(self._lines(self._first), PEEK_LINES):
                with suppress(KvroomError):
                    yield self._first.parse(line) if isinstance(line, bytes) else line

        return tells(rows())

    def _peeked(self) -> Iterator[tuple[int, bytes | Mapping[str, Any]]]:
        """The first file's lines, its header too, or its rows."""
        if self._first.parquet:
            return self._lines(self._first)
        return numbered_lines(self._first.path, self._unpack_zstd)

    def __reduce__(self) -> tuple[Callable[[], Trace], tuple[()]]:
        """Another process opens it anew."""
        again = partial(
            Trace,
            self.path,
            hash_tokens=self.hash_tokens,
            skip_bad_lines=self.skip_bad_lines,
            columns=self._named,
            tokenizer=self._tokenizer,
            unpack_zstd=self._unpack_zstd,
            parquet=self._parquet,
        )
        return again, ()

    def _whole(self, path: TraceFile) -> _Source:
        for _, item in json_items(path, self._unpack_zstd):
            start = ", ".join(item)[:60].encode()
            return _Source(path, self._format(item, start), whole=True)
        raise KvroomError("trace", str(path), "is an empty list", formats.KNOWN)

    def _format(self, keys: Mapping[str, Any] | Sequence[str], line: bytes) -> Format:
        if self._named is not None:
            return formats.named(self._named, keys)
        return formats.format_of(keys, shown(line))

    def _told_hash_tokens(self) -> int | None:
        """By which lengths and counts of ids agree: the format's own if they do, else a power of two."""
        usual = self.format.hash_tokens
        if usual is None or self.format.sessions or self._first.whole:
            return usual
        low, high = 1, 2**40
        least, most = 1, 2**40  # where no id stands for the partial end of a prompt
        fits: list[int] = []
        for number, line in self._peeked():
            if number > PEEK_LINES:
                break
            if isinstance(line, bytes) and (
                number <= self._first.header or b"hash_ids" not in line
            ):
                if b'"block_size"' in line[:4096] and (size := _header_size(line)):
                    return size
                continue
            with suppress(KvroomError):
                row = self._first.parse(line) if isinstance(line, bytes) else line
                tokens, ids = row.get("input_length"), row.get("hash_ids")
                if type(tokens) is int and tokens > 0 and isinstance(ids, list) and ids:
                    low = max(low, ceil_div(tokens, len(ids)))
                    least, most = (
                        max(least, tokens // (len(ids) + 1) + 1),
                        min(most, tokens // len(ids)),
                    )
                    if len(ids) > 1:
                        high = min(high, ceil_div(tokens, len(ids) - 1) - 1)
            fits = [1 << number for number in range(41) if low <= 1 << number <= high]
            if (len(fits) == 1 and high - low < low // 8) or low == high:
                return fits[0] if fits else low
        if low > high:
            low, high = least, most
            fits = [1 << number for number in range(41) if low <= 1 << number <= high]
        if low <= usual <= high or low > high:
            return usual
        return fits[-1] if fits else low


def _header_size(line: bytes) -> int | None:
    """Tokens of an id, where the line is a header that says so."""
    with suppress(KvroomError):
        size = json_row(line).get("block_size")
        return size if type(size) is int and 0 < size <= 2**20 else None
    return None


def _never(_: bytes) -> None:
    return None


def _files(path: TraceFile) -> Sequence[TraceFile]:
    """The files of a trace: of a folder all that are not hidden, by name; of a client of ServeGen both."""
    if isinstance(path, RemoteFile):
        return path.parts or (path,)
    if isinstance(path, Held) or not path.is_dir():
        if isinstance(path, Path) and path.name.endswith("-trace.csv"):
            other = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
            return (path, other) if other.is_file() else (path,)
        return (path,)
    try:
        inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError as error:
        fix = "Give a folder of traces."
        raise KvroomError("trace", str(path), f"cannot be read ({error.strerror})", fix) from None
    if not 0 < len(inside) <= MOST_FILES:
        fix = f"Give a folder of 1 to {MOST_FILES:,} traces."
        raise KvroomError(
            "trace", str(path), f"is not a folder of traces ({len(inside):,} files)", fix
        )
    return inside


def _is_whole(first: bytes) -> bool:
    """Whether a file with this first line is one JSON value: a list, or an object over several lines."""
    end = first.rstrip()[-1:]
    return first.startswith(b"[") or (first.startswith(b"{") and end in (b"{", b"[", b","))


def header_of(line: bytes) -> tuple[list[str], str]:
    """The columns of a CSV's header in lower case, and what parts them: a comma, else a tab or semicolon."""
    text = text_of(line).removeprefix("\ufeff")
    signs = [sign for sign in ",\t;" if sign in text]
    sign = signs[0] if signs else ","
    return [cell.strip().lower() for cell in _cells(text, sign)], sign


def csv_row(line: bytes, columns: Sequence[str], delimiter: str = ",") -> Mapping[str, str]:
    """The cells of one line by their column."""
    text = text_of(line).strip("\r\n" if delimiter == "\t" else None)
    cells = _cells(text, delimiter)
    if len(cells) != len(columns):
        why = f"has {len(cells)} cells where the header has {len(columns)}"
        raise KvroomError("row", text[:60], why, "Give every column a cell.")
    return dict(zip(columns, cells, strict=True))


def _cells(text: str, delimiter: str = ",") -> list[str]:
    if '"' not in text:
        return text.rstrip("\r\n").split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter))
    except csv.Error as error:
        raise KvroomError("row", text[:60], f"is not CSV ({error})", "Mend its quotes.") from None
