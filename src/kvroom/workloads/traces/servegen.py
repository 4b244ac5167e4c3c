"""ServeGen's client tables (github.com/alibaba/ServeGen): how often each client asks, and how long.

A client is two files: ``chunk-N-trace.csv``, a window a line (its start in s, requests a second, their
variation, the family of gaps, its two parameters), and ``chunk-N-dataset.json``, the lengths' histograms by
window. Requests are drawn from them, client by client, by one seed; gaps are Gamma or Weibull with the
parameters of the table, scaled to its rate.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import accumulate
from math import pi
from operator import itemgetter
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.units import check_float
from kvroom.workloads.distributions import WeightedValues
from kvroom.workloads.draws import Draws, exp, log
from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.opened import TraceFile, json_items, numbered_lines

PATTERNS = ("Gamma", "Weibull")
NS = 1e9
MADE_UP = (
    "requests are drawn from ServeGen's tables: as many, at such times and as long as they say"
)


@dataclass(frozen=True, slots=True)
class ClientWindow:
    """So many seconds of a client: gaps of mean ``gap_s`` and a family's ``shape``."""

    start_s: float
    end_s: float
    gap_s: float
    family: str
    shape: float


Bad = Callable[[int, KvroomError], None]


def client_files(files: Sequence[TraceFile]) -> list[tuple[Path, Path]]:
    """The pairs (trace, dataset) among the files of a folder; none where it is no folder of clients."""
    named = {path.name: path for path in files if isinstance(path, Path)}
    pairs: list[tuple[Path, Path]] = []
    for name, path in named.items():
        other = named.get(name.replace("-trace.csv", "-dataset.json"))
        if name.endswith("-trace.csv") and other is not None:
            pairs.append((path, other))
    return pairs


def requests(pairs: Sequence[tuple[Path, Path]], bad: Bad, seed: int = 0) -> Iterator[Request]:
    """The requests of all clients, by arrival. ``bad`` is told of lines that are none."""
    clients = [_client(number, *pair, bad, seed) for number, pair in enumerate(pairs)]
    yield from merge(*clients, key=itemgetter(0))


def _client(number: int, trace: Path, dataset: Path, bad: Bad, seed: int) -> Iterator[Request]:
    lengths = _lengths(dataset)
    draws = {part: Draws(seed, f"{part} of client {number}") for part in ("gaps", "lengths")}
    at = 0.0
    for window in _windows(trace, bad):
        here = _at(lengths, window.start_s)
        if here is None:
            continue
        at = max(at, window.start_s)
        while True:
            at += _gap(window, draws["gaps"])
            if at >= window.end_s:
                at = window.end_s
                break
            prompt, answer = (int(each.draw(draws["lengths"])) for each in here)
            yield Request(int(at * NS) * (PS_PER_S // 10**9), max(1, prompt), answer)


def _gap(window: ClientWindow, draws: Draws) -> float:
    shape = window.shape
    if window.family == "Gamma":
        return window.gap_s * draws.gamma(shape) / shape
    # Weibull: (−ln u)^(1/k) has the mean Γ(1 + 1/k).
    wide = exp(log(draws.exponential() or 1e-300) / shape)
    return window.gap_s * wide / _gamma(1 + 1 / shape)


def _gamma(x: float) -> float:
    """Γ(x) for x ≥ 1, to some ten digits on every platform (Stirling's series from 9 on)."""
    below = 1.0
    while x < 9:
        below *= x
        x += 1
    series = 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5)
    return exp((x - 0.5) * log(x) - x + 0.5 * log(2 * pi) + series) / below


def _windows(path: Path, bad: Bad) -> Iterator[ClientWindow]:
    rows = list(_rows(path, bad))
    for place, (start, rate, family, shape) in enumerate(rows):
        end = rows[place + 1][0] if place + 1 < len(rows) else start + _width(rows)
        if rate > 0 and family:
            yield ClientWindow(start, end, 1 / rate, family, shape)


def _width(rows: Sequence[tuple[float, float, str, float]]) -> float:
    return rows[-1][0] - rows[-2][0] if len(rows) > 1 else 600.0


def _rows(path: Path, bad: Bad) -> Iterator[tuple[float, float, str, float]]:
    reached = -1.0
    for number, line in numbered_lines(path):
        cells = line.decode("utf-8", "replace").strip().split(",")
        try:
            row = _row(cells)
            if row[0] <= reached:
                fix = "Give windows by their start."
                raise KvroomError("start", row[0], "is no later than the window before", fix)
        except KvroomError as error:
            bad(number, error)
            continue
        reached = row[0]
        yield row


def _row(cells: Sequence[str]) -> tuple[float, float, str, float]:
    fix = "A window is start,rate,cv,family,shape,scale."
    if len(cells) != 6:
        raise KvroomError("window", ",".join(cells)[:60], f"has {len(cells)} cells, not 6", fix)
    try:
        start, rate = float(cells[0]), float(cells[1])
        shape = float(cells[4]) if cells[3] else 1.0
    except ValueError:
        raise KvroomError("window", ",".join(cells)[:60], "holds no numbers", fix) from None
    if cells[3] and cells[3] not in PATTERNS:
        raise KvroomError("family", cells[3], "is no known family of gaps", "Gamma or Weibull.")
    check_float("start", start, low=0.0, high=1e10)
    check_float("rate", rate, low=0.0, high=1e9)
    # Weibull tables have shape and scale; the shape of Gamma is its first parameter too.
    return start, rate, cells[3], check_float("shape", shape, low=0.02, high=1e4)


Lengths = list[tuple[float, tuple[WeightedValues, WeightedValues]]]


def _lengths(path: Path) -> Lengths:
    """The histograms of prompts and answers by the windows from which they hold."""
    lengths: Lengths = []
    for _, tables in json_items(path):
        for start, fields in tables.items():
            if not isinstance(fields, Mapping):
                raise KvroomError("dataset", start, "holds no histograms", f"Mend {path.name}.")
            prompt = _histogram(fields, "input_tokens")
            answer = _histogram(fields, "output_tokens", "reason_tokens", "answer_tokens")
            if prompt is not None and answer is not None and start.isdecimal():
                lengths.append((float(start), (prompt, answer)))
    if not lengths:
        raise KvroomError("dataset", path.name, "holds no histograms", "Give ServeGen's file.")
    return sorted(lengths, key=itemgetter(0))


def _histogram(fields: Mapping[str, Any], *names: str) -> WeightedValues | None:
    text = next((fields[name] for name in names if name in fields), None)
    try:
        table = ast.literal_eval(text) if isinstance(text, str) else text
        pairs = [(int(key), float(weight)) for key, weight in dict(table or {}).items()]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise KvroomError("dataset", str(text)[:40], "is no histogram", "length: share") from None
    pairs = sorted((key, weight) for key, weight in pairs if weight > 0 and key >= 0)
    if not pairs:
        return None
    values = tuple(float(key) for key, _ in pairs)
    return WeightedValues(values, tuple(accumulate(weight for _, weight in pairs)))


def _at(lengths: Lengths, start: float) -> tuple[WeightedValues, WeightedValues] | None:
    place = bisect_right([begin for begin, _ in lengths], start)
    return lengths[place - 1][1] if place else None


def _never(_: RowOptions) -> Row:
    return lambda _: ()


FORMAT = Format("ServeGen clients", (), _never, csv=True)
"""Of two files a client: what a trace does with them is ``requests``."""
