"""Charts of a report as SVG: bars, points on logarithmic axes, a curve."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from kvroom.answer.html import element, number, svg, text
from kvroom.records import dataclass

WIDTH, EDGE = 880, 64
"""Pixels of a chart across, and what its axes' figures take to the left and below."""
LETTER, LINE = 6.6, 14
"""Pixels of a letter across, and of a line of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a chart: from ``start`` for ``length``."""

    label: str
    length: float
    start: float = 0.0
    kind: str = "bar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point of a scatter plot: ``label`` stands beside it, ``says`` is told of it; ``best``:
    Pareto-optimal."""

    x: float
    y: float
    label: str
    says: str = ""
    best: bool = False


def _words(words: str, x: float, y: float, anchor: str | None = None, cls: str = "soft") -> str:
    return element("text", text(words), cls=cls, x=x, y=y, text_anchor=anchor)


def _axes(height: int) -> str:
    way = f"M{EDGE} 10V{height - EDGE}H{WIDTH - 10}"
    return element("path", d=way, fill="none", stroke="var(--line)")


def _at(value: float) -> str:
    return f"{value:.1f}"


def bars(chart: Sequence[Bar], title: str) -> str:
    """Bars one below the other, labelled, to one scale from zero."""
    far = max((b.start + b.length for b in chart), default=0) or 1
    row, left, width = 26, 300, 560
    marks = []
    for index, b in enumerate(chart):
        y, x = index * row, left + b.start / far * width
        long = max(1.0, b.length / far * width)
        place: dict[str, Any] = {"x": _at(x), "y": y + 4, "width": _at(long), "height": 18}
        marks += [
            _words(b.label, left - 8, y + 17, "end", ""),
            element("rect", **place, fill=f"var(--{b.kind})"),
            _words(number(b.length, 1), round(x + long + 6, 1), y + 17),
        ]
    return svg(title, *marks, viewBox=f"0 0 960 {len(chart) * row + 4}")


def scatter(dots: Sequence[Dot], title: str, x_title: str, y_title: str) -> str:
    """Labelled points on logarithmic axes; Pareto-optimal ones are joined and of another shape."""
    dots = [dot for dot in dots if dot.x > 0 and dot.y > 0]
    if not dots:
        return ""
    height = 380
    low = height - EDGE
    xs, ys = _scale([dot.x for dot in dots]), _scale([dot.y for dot in dots])

    def place(dot: Dot) -> tuple[float, float]:
        across = (log10(dot.x) - xs[0]) / (xs[1] - xs[0])
        up = (log10(dot.y) - ys[0]) / (ys[1] - ys[0])
        return EDGE + across * (WIDTH - EDGE - 20), low - up * (low - 36)

    marks = [
        _axes(height),
        _words(x_title, WIDTH - 12, height - 14, "end"),
        _words(y_title, EDGE + 6, 18),
        _words(f"{10 ** xs[0]:.3g}", EDGE, low + 18, "start"),
        _words(f"{10 ** xs[1]:.3g}", WIDTH - 20, low + 18, "end"),
        _words(f"{10 ** ys[0]:.3g}", EDGE - 6, low, "end"),
        _words(f"{10 ** ys[1]:.3g}", EDGE - 6, 34, "end"),
    ]
    front = sorted((place(dot) for dot in dots if dot.best), key=lambda p: p[0])
    if len(front) > 1:
        way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in front)
        marks.append(element("path", d=way, fill="none", stroke="var(--best)"))
    for dot in dots:
        x, y = place(dot)
        says = element("title", text(dot.says or dot.label))
        if dot.best:
            corner = {"x": _at(x - 5), "y": _at(y - 5)}
            square = element("rect", says, **corner, width=10, height=10, fill="var(--best)")
            marks.append(square)
        else:
            marks.append(element("circle", says, cx=_at(x), cy=_at(y), r=4, fill="var(--dot)"))
    marks += _labels([(*place(dot), dot.label) for dot in dots])
    return svg(title, *marks, viewBox=f"0 0 {WIDTH} {height}")


def _labels(places: Sequence[tuple[float, float, str]]) -> list[str]:
    """Each label beside its point, to the left of it where the edge is near, below one that is in its way."""
    marks: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for x, y, label in sorted(places, key=lambda place: (place[1], place[0])):
        long = LETTER * len(label)
        left = x + 8 + long > WIDTH
        start = x - 8 - long if left else x + 8
        line = y - 7
        while any(abs(line - h) < LINE and start < b and a < start + long for a, b, h in taken):
            line += LINE
        taken.append((start, start + long, line))
        anchor = "end" if left else None
        marks.append(_words(label, round(x - 8 if left else x + 8, 1), round(line, 1), anchor))
    return marks


def curve(points: Sequence[tuple[float, float]], title: str, *, labelled: bool = False) -> str:
    """A line through ``points``, both axes linear, the upper one from zero; ``labelled``: each with its
    values beside it."""
    if len(points) < 2:
        return ""
    height = 240
    low = height - EDGE
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) or 1
    places = [
        (
            EDGE + (x - left) / ((right - left) or 1) * (WIDTH - EDGE - 20),
            low - y / top * (low - 20),
        )
        for x, y in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [
        _axes(height),
        element("polyline", fill="none", stroke="var(--dot)", points=line),
        _words(number(left), EDGE, low + 18),
        _words(number(right), WIDTH - 20, low + 18, "end"),
        _words(number(top), EDGE - 6, 24, "end"),
    ]
    if labelled:
        marks += [
            element("circle", cx=_at(x), cy=_at(y), r=3, fill="var(--dot)") for x, y in places
        ]
        points_text = [f"{number(x)}: {number(y, 3)}" for x, y in points]
        marks += _labels(
            [(*place, label) for place, label in zip(places, points_text, strict=True)]
        )
    return svg(title, *marks, viewBox=f"0 0 {WIDTH} {height}")


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = log10(min(values)), log10(max(values))
    room = 0.06 * (high - low) or 0.5  # no point on an axis: its label needs room
    return low - room, high + room
