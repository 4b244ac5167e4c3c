"""``plan --sweep``: a curve as a table, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from kvroom.optimize.sweep import COLUMNS, Curve
from kvroom.units import show_gb, show_seconds, show_usd

SHOWN: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("requests", "fit", lambda v: f"{v:,.1f}"),
    ("weight_bytes", "weights", show_gb),
    ("cache_bytes", "cache", show_gb),
    ("step_s", "step", show_seconds),
    ("tokens_per_s", "tokens/s", lambda v: f"{v:,.0f}"),
    ("tpot_s", "TPOT", show_seconds),
    ("ttft_s", "TTFT", show_seconds),
    ("usd_per_million_output_tokens", "1M out", show_usd),
)


def show(curve: Curve) -> str:
    """The curve as lines: a value each, the crossover marked, errors in words."""
    rows = [point.row() for point in curve.points]
    columns = [c for c in SHOWN if any(row[c[0]] is not None for row in rows)]
    head = [curve.key, *(name for _, name, _ in columns)]
    cells = [
        [
            _value(point.value),
            *(show(row[k]) if row[k] is not None else "-" for k, _, show in columns),
        ]
        for point, row in zip(curve.points, rows, strict=True)
    ]
    widths = [max(len(line[index]) for line in (head, *cells)) for index in range(len(head))]
    lines = [_line(head, widths)]
    for point, line in zip(curve.points, cells, strict=True):
        mark = "  ◂ cache outweighs weights" if point.crossover else ""
        lines.append(f"{point.value}: {point.error}" if point.error else _line(line, widths) + mark)
    return "\n".join(lines)


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def as_csv(curve: Curve) -> str:
    """The curve as CSV, a header and a line a point; an empty cell is not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([curve.key, *COLUMNS[1:]])
    for point in curve.points:
        row = point.row()
        writer.writerow(["" if row[column] is None else row[column] for column in COLUMNS])
    return out.getvalue().rstrip("\n")


def as_json(curve: Curve) -> dict[str, Any]:
    """The curve as plain values."""
    return {
        "key": curve.key,
        "points": [
            point.row() | ({"error": point.error.as_dict()} if point.error is not None else {})
            for point in curve.points
        ],
    }
