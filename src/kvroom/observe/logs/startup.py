"""A start-up log → what engine it is, what it was asked, what it printed.

All engines' shapes are tried on every line that matters. A file may hold several starts, and
several engines: the one that printed most is the one read, and the rest is told of.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO

from kvroom.engines.log_memory import ELSEWHERE
from kvroom.engines.log_reader import LogReader
from kvroom.engines.log_shapes import Figures, Record, Shape, take
from kvroom.engines.registry import log_reader, log_readers, metric_tables
from kvroom.errors import KvroomError
from kvroom.observe import recorded
from kvroom.observe.logs.lines import Log
from kvroom.observe.logs.startup_log import StartupLog

CLOSING = ("kv_tokens", "num_blocks", "max_concurrency", "kv_available_bytes")
"""A start has come to its end when one of these was printed."""


HEAD_BYTES = 65_536
"""A file with a metric in its first bytes is a recording, or an engine's metrics."""
RANK_WORDS = {
    "TP": ("tensor_parallel_size", "tp_size"),
    "PP": ("pipeline_parallel_size", "pp_size"),
}
"""Ranks in lines' prefixes → the settings that state how many there are."""


@cache
def _metrics() -> re.Pattern[bytes]:
    """A line of a recording, or of an engine's metrics."""
    prefixes = "|".join(re.escape(metric_table.prefix) for metric_table in metric_tables())
    return re.compile(rf'^(\{{"kvroom_recording"|({prefixes})\w+[{{ ])'.encode(), re.MULTILINE)


def read_file(path: str) -> StartupLog:
    """The log, recording or metrics text at ``path`` (``-``: a log on standard input).

    KvroomError where it cannot be opened.
    """
    if path == "-":
        return read(sys.stdin.buffer)
    fix = "Give the file that the engine's output went to."
    try:
        if Path(path).is_dir():
            raise KvroomError("file", path, "is a folder", fix)
        with Path(path).open("rb") as stream:
            is_metrics = _metrics().search(stream.read(HEAD_BYTES)) is not None
            if is_metrics and (recording := recorded.read_file(path)) is not None:
                return recording
            stream.seek(0)
            return read(stream)
    except KvroomError:
        raise
    except (OSError, ValueError):
        raise KvroomError("file", path, "cannot be opened", fix) from None


def read_bytes(data: bytes) -> StartupLog:
    """The log, recording or metrics text that ``data`` is."""
    if (
        _metrics().search(data[:HEAD_BYTES])
        and (recording := recorded.read_bytes(data)) is not None
    ):
        return recording
    return read(io.BytesIO(data))


def read(stream: IO[bytes]) -> StartupLog:
    """The log in ``stream``, whatever it holds; nothing known in it gives an engine of None."""
    by_needle: dict[str, list[tuple[str, Shape]]] = {}
    for reader in log_readers():
        for shape in reader.shapes:
            by_needle.setdefault(shape.needle, []).append((reader.engine, shape))
    servers: dict[str, dict[str, _Starts]] = {}
    quiet = {needle for needle, shapes in by_needle.items() if all(s.quiet for _, s in shapes)}
    log = Log(stream, sorted(by_needle), quiet)
    for line, needles in log:
        source = _source(line)
        if source not in servers:
            source = source if len(servers) < MOST_SERVERS else next(iter(servers))
            servers.setdefault(
                source, {log_reader.engine: _Starts(log_reader) for log_reader in log_readers()}
            )
        for needle in needles:
            if needle in line:
                for name, shape in by_needle[needle]:
                    servers[source][name].take(line, shape)
    notes = [log.cut_short] if log.cut_short else []
    if log.passed_over:
        notes.append(
            f"the engine starts over and over: {log.passed_over:,} bytes in the middle are passed over"
        )
    best = {key: (s, s.best()) for key, s in _each(servers)}
    figures = {key: figures_of(r) for key, (_, r) in best.items()}
    ranked = sorted(
        (key for key, (_, r) in best.items() if r.lines),
        key=lambda k: (-len(figures[k]), -best[k][1].lines),
    )
    if not ranked:  # an allocation without room may be the whole of what was kept
        ranked = [key for key, (_, r) in best.items() if r.shortages][:1]
        if ranked and ELSEWHERE in best[ranked[0]][1].settings:  # frames, and none of an engine
            return StartupLog(engine=None, shortage=best[ranked[0]][1].shortage, notes=tuple(notes))
        notes += [f"no line says whose log it is: read as {k}'s" for _, k in ranked]
    if not ranked:
        return StartupLog(engine=None, notes=tuple(notes))
    server, name = key = ranked[0]
    starts, record = best[key]
    reader = log_reader(name)
    if starts.count > 1:
        notes.append(
            f"{'more than ' if log.passed_over else ''}{starts.count} starts are in the file: "
            "the last that printed its cache"
        )
    others = [k for k in ranked[1:] if len(figures[k]) > 1 or best[k][0].count]
    if apart := [fromkey for fromkey in dict.fromkeys(s for s, _ in others) if fromkey != server]:
        notes.append(
            f"{', '.join(apart[:5])} writes to the file too: {server or 'what has no prefix'} is read"
        )
    if mixed := [n for s, n in others if s == server]:
        notes.append(f"lines of {' and '.join(mixed)} are in the file too; they are left out")
    question = reader.question(record)
    stated = {**record.settings, **(record.settings.get("config") or {})}
    for kind, words in RANK_WORDS.items():
        if record.ranks.get(kind) and not any(word in stated for word in words):
            question[kind.lower()] = record.ranks[kind] + 1
            notes.append(f"{kind.lower()} {record.ranks[kind] + 1} is told from the ranks' names")
    spread = {
        one_key: (value.low, value.high)
        for one_key, value in record.figures.items()
        if isinstance(value.low, int | float)
        and value.low != value.high
        and one_key in figures[key]
    }
    return StartupLog(
        engine=question["engine"],
        printed=figures[key],
        question=question,
        quantisation=reader.quantization(record),
        spread=spread,
        refusals=tuple(record.refusals),
        shortage=record.shortage,
        notes=tuple(notes),
        cpu=bool(record.settings.get("cpu")),
        padding=tuple(record.parts.get("padding", ())),
        devices=reader.devices(record),
    )


_PREFIX = re.compile(
    r"(?!(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|[\d.-]+) )([\w.-]{1,64}) +\| "
    r"|\[(?:pod/)?([\w./-]{1,120}/[\w.-]+)\] ",
    re.IGNORECASE,
)
MOST_SERVERS = 16
"""Beyond so many prefixes they are none of servers'."""


def _source(line: str) -> str:
    """Whose line it is, where several servers write to one file (``docker compose logs``, ``kubectl
    logs --prefix``); "" where it has no such prefix."""
    match = _PREFIX.match(line)
    return "" if match is None else match[1] or match[2]


def _each(
    servers: Mapping[str, Mapping[str, _Starts]],
) -> Iterator[tuple[tuple[str, str], _Starts]]:
    for source, by_engine in servers.items():
        for name, starts in by_engine.items():
            yield (source, name), starts


def figures_of(record: Record) -> Figures:
    """The record's figures under the common names."""
    return log_reader(record.engine).figures(record)


class _Starts:
    """The starts of one engine in a file: the current one, and the last that came to its end."""

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader
        self.current = Record(reader.engine)
        self.ended: Record | None = None
        self.count = 0

    def take(self, line: str, shape: Shape) -> None:
        """One line of one shape: into the current start, or into a new one where it opens one."""
        match = shape.pattern.search(line)
        if match is None:
            return
        if shape.opens and (self._closed() or not self.count):
            if self._closed():
                self.ended = self.current
                settings = {
                    key: value
                    for key, value in self.ended.settings.items()
                    if key in self.reader.lasting
                }
                self.current = Record(self.reader.engine, settings=settings)
            self.count += 1
        take(self.current, match, shape)

    def _closed(self) -> bool:
        current = self.current
        return bool(
            current.refusals
            or current.shortages
            or current.parts.get("caches")
            or any(n in current.figures for n in CLOSING)
        )

    def best(self) -> Record:
        """The last start that printed its cache, else the last."""
        if self.ended is not None and not self._closed():
            return self.ended
        return self.current
