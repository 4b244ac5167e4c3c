"""A report as one HTML file: no script, nothing fetched; plots as SVG, every figure in a table too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1a; --soft: #5c5c58; --paper: #fdfcf9; --line: #d8d5cc;
  --bar: #2f7d4f; --was: #8a8a84; --dot: #2f5d9d; --best: #b4472d; }
@media (prefers-color-scheme: dark) { :root { --ink: #ecebe6; --soft: #a9a8a1; --paper: #181817;
  --line: #3c3b38; --bar: #58b37c; --was: #85847d; --dot: #7faae0; --best: #ef8a6d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.soft, svg text.soft { color: var(--soft); fill: var(--soft); } svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
code { font-size: .95em; }
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its heading, the key of a row, how a value is shown."""

    title: str
    key: str
    number: bool = False
    decimals: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a chart: from ``start`` for ``length``."""

    label: str
    length: float
    start: float = 0.0
    kind: str = "bar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point of a scatter plot; ``best``: on the front."""

    x: float
    y: float
    label: str
    best: bool = False


def page(title: str, parts: Iterable[str]) -> str:
    """A whole HTML document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def heading(text: str) -> str:
    """A heading of a section."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, *, soft: bool = False) -> str:
    """A paragraph of plain text."""
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>"


def number(value: Any, decimals: int = 2) -> str:
    """A figure as people read it; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.{decimals}f}" if abs(value) >= 10**-decimals else f"{value:.2g}"
    return f"{value:,.0f}"


def table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a table; columns without any value are left out."""
    rows = list(rows)
    shown = [c for c in columns if any(r.get(c.key) is not None for r in rows)]
    head = "".join(f"<th{' class=n' if c.number else ''}>{escape(c.title)}</th>" for c in shown)
    body = "".join("<tr>" + "".join(_cell(c, r.get(c.key)) for c in shown) + "</tr>" for r in rows)
    return (
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(column: Column, value: Any) -> str:
    if column.number:
        return f"<td class=n>{number(value, column.decimals)}</td>"
    return f"<td>{'–' if value is None else escape(str(value))}</td>"


def bars(chart: Sequence[Bar], title: str) -> str:
    """Bars one below the other, labelled, to one scale from zero."""
    far = max((b.start + b.length for b in chart), default=0) or 1
    row, left, width = 26, 300, 560
    marks = []
    for i, b in enumerate(chart):
        y, x = i * row, left + b.start / far * width
        long = max(1.0, b.length / far * width)
        marks.append(
            f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{escape(b.label)}</text>'
            f'<rect x="{x:.1f}" y="{y + 4}" width="{long:.1f}" height="18" fill="var(--{b.kind})"/>'
            f'<text class="soft" x="{x + long + 6:.1f}" y="{y + 17}">{number(b.length, 1)}</text>'
        )
    return _svg(title, 960, len(chart) * row + 4, marks)


def scatter(dots: Sequence[Dot], title: str, x_title: str, y_title: str) -> str:
    """Points on logarithmic axes; those on the front are joined and of another shape."""
    dots = [d for d in dots if d.x > 0 and d.y > 0]
    if not dots:
        return ""
    width, height, edge = 880, 380, 56
    xs, ys = _scale([d.x for d in dots]), _scale([d.y for d in dots])

    def place(d: Dot) -> tuple[float, float]:
        across = (log10(d.x) - xs[0]) / (xs[1] - xs[0])
        up = (log10(d.y) - ys[0]) / (ys[1] - ys[0])
        return edge + across * (width - edge - 20), height - edge - up * (height - edge - 20)

    marks = [
        f'<path d="M{edge} 10V{height - edge}H{width - 10}" fill="none" stroke="var(--line)"/>',
        f'<text class="soft" x="{width - 12}" y="{height - 14}" text-anchor="end">{escape(x_title)}</text>',
        f'<text class="soft" x="{edge + 6}" y="18">{escape(y_title)}</text>',
        *(
            f'<text class="soft" x="{edge if i == 0 else width - 20}" y="{height - edge + 18}" '
            f'text-anchor="{"start" if i == 0 else "end"}">{10**v:.3g}</text>'
            for i, v in enumerate(xs)
        ),
        *(
            f'<text class="soft" x="{edge - 6}" y="{height - edge if i == 0 else 34}" '
            f'text-anchor="end">{10**v:.3g}</text>'
            for i, v in enumerate(ys)
        ),
    ]
    front = sorted((place(d) for d in dots if d.best), key=lambda p: p[0])
    if len(front) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in front)
        marks.append(f'<path d="M{path}" fill="none" stroke="var(--best)"/>')
    for d in dots:
        x, y = place(d)
        said = f"<title>{escape(d.label)}</title>"
        marks.append(
            f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="var(--best)">{said}</rect>'
            if d.best
            else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="var(--dot)">{said}</circle>'
        )
    return _svg(title, width, height, marks)


def curve(points: Sequence[tuple[float, float]], title: str) -> str:
    """A line through ``points``, both axes linear, the upper one from zero."""
    if len(points) < 2:
        return ""
    width, height, edge = 880, 240, 56
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) or 1
    drawn = " ".join(
        f"{edge + (x - left) / ((right - left) or 1) * (width - edge - 20):.1f},"
        f"{height - edge - y / top * (height - edge - 20):.1f}"
        for x, y in points
    )
    low = height - edge
    marks = [
        f'<path d="M{edge} 10V{low}H{width - 10}" fill="none" stroke="var(--line)"/>',
        f'<polyline fill="none" stroke="var(--dot)" points="{drawn}"/>',
        f'<text class="soft" x="{edge}" y="{low + 18}">{number(left)}</text>',
        f'<text class="soft" x="{width - 20}" y="{low + 18}" text-anchor="end">{number(right)}</text>',
        f'<text class="soft" x="{edge - 6}" y="24" text-anchor="end">{number(top)}</text>',
    ]
    return _svg(title, width, height, marks)


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = log10(min(values)), log10(max(values))
    return (low - 0.5, high + 0.5) if high - low < 1e-9 else (low, high)


def _svg(title: str, width: int, height: int, marks: Iterable[str]) -> str:
    said = escape(title, quote=True)
    inner = "".join(marks)
    return f'<svg role="img" aria-label="{said}" viewBox="0 0 {width} {height}">{inner}</svg>'


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as a data frame of polars or pandas, whichever is installed.

    Raises ImportError where neither is.
    """
    from importlib import import_module

    for name in ("polars", "pandas"):
        try:
            library = import_module(name)
        except ImportError:
            continue
        return library.DataFrame(list(map(dict, rows)))
    raise ImportError("a data frame needs polars or pandas: pip install polars")
