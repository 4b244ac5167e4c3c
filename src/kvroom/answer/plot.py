"""A plain plot as SVG: predicted lines, measured dots, names at the lines' ends. Colours are classes,
so that one picture suits a light and a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2, log10
from typing import Any

from kvroom.answer.html import element, svg, text
from kvroom.records import dataclass

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 112, 34, 44
COLOURS = 5
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
LABEL_GAP = 14
"""Pixels between two names, so that both can be read."""

STYLE = """
.plot { width: 100%; min-width: 460px; height: auto; font: 12px system-ui, sans-serif; }
.plot text { fill: var(--soft); } .plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .axis { fill: var(--ink); } .plot .line { fill: none; stroke-width: 2; }
.plot .dot { stroke: var(--paper); stroke-width: 1.5; }
.plot .band { opacity: .13; }
.c0 { --c: #2a6fb0; } .c1 { --c: #b2571b; } .c2 { --c: #2e7d4f; } .c3 { --c: #8a4fa3; }
.c4 { --c: #7a6a1c; }
@media (prefers-color-scheme: dark) {
.c0 { --c: #6fb1ee; } .c1 { --c: #f0995c; } .c2 { --c: #6fcb97; } .c3 { --c: #cf9ae6; }
.c4 { --c: #d8c661; } }
.plot .line { stroke: var(--c); } .plot .dot, .plot .band { fill: var(--c); }
.plot .name { fill: var(--c); font-weight: 600; }
"""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of predictions and dots of measurements, or what ``said`` says; ``band`` are (x, low, high)."""

    name: str
    line: Sequence[tuple[float, float]]
    dots: Sequence[tuple[float, float]] = ()
    band: Sequence[tuple[float, float, float]] = ()
    said: str = "measured"


def plot(says: str, x_name: str, y_name: str, series: Sequence[Series]) -> str:
    """The picture; x in doublings, y from zero. ``says`` tells it to who cannot see it."""
    xs = [x for series in series for x, _ in (*series.line, *series.dots)]
    ys = [y for series in series for _, y in (*series.line, *series.dots)]
    if not xs or min(xs) <= 0:
        return ""
    low, high = log2(min(xs)), log2(max(xs))
    span = (high - low) or 1.0
    step = nice(max(ys) / 4)
    top = step * -(-max(ys) // step) if step else 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * (log2(x) - low) / span
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(y, top) / top

    parts = [_axes(at, sorted({round(x) for series in series for x, _ in series.dots}), step, top)]
    parts += [
        element("text", text(x_name), cls="axis", x=LEFT, y=HEIGHT - 6),
        element("text", text(y_name), cls="axis", x=4, y=14),
    ]
    names: list[tuple[float, float, int, str]] = []
    for index, one_series in enumerate(series):
        colour = f"c{index % COLOURS}"
        if one_series.band:
            edge = [at(x, b) for x, _, b in one_series.band] + [
                at(x, a) for x, a, _ in reversed(one_series.band)
            ]
            parts.append(element("path", cls=f"band {colour}", d=f"M{_path(edge)}Z"))
        if one_series.line:
            way = _path([at(x, y) for x, y in one_series.line])
            parts.append(element("path", cls=f"line {colour}", d=f"M{way}"))
        for x, y in one_series.dots:
            cx, cy = at(x, y)
            says_dot = element(
                "title", text(f"{one_series.name}: {x:g}, {one_series.said} {y:.3g}")
            )
            place = {"cx": f"{cx:.1f}", "cy": f"{cy:.1f}", "r": 5}
            parts.append(element("circle", says_dot, cls=f"dot {colour}", **place))
        if one_series.line or one_series.dots:
            end = at(*max((*one_series.line, *one_series.dots)))
            names.append((end[1], end[0], index % COLOURS, one_series.name))
    last = 0.0
    for y, x, colour_number, name in sorted(names):
        last = max(y, last + LABEL_GAP)
        corner: dict[str, Any] = {"x": f"{x + 10:.1f}", "y": f"{last + 4:.1f}"}
        parts.append(element("text", text(name), cls=f"name c{colour_number}", **corner))
    return svg(says, *parts, cls="plot", viewBox=f"0 0 {WIDTH} {HEIGHT}")


def nice(value: float) -> float:
    """The next round number: 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** floor(log10(value))
    return next(n * power for n in _NICE if n * power >= value * 0.999)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _axes(at: object, ticks: Sequence[int], step: float, top: float) -> str:
    assert callable(at)
    parts = []
    y = 0.0
    while y <= top * 1.001:
        _, height = at(ticks[0] if ticks else 1, y)
        line: dict[str, Any] = {
            "x1": LEFT,
            "x2": WIDTH - RIGHT,
            "y1": f"{height:.1f}",
            "y2": f"{height:.1f}",
        }
        corner: dict[str, Any] = {"x": LEFT - 8, "y": f"{height + 4:.1f}", "text_anchor": "end"}
        parts += [element("line", cls="grid", **line), element("text", f"{y:g}", **corner)]
        y += step
    shown = -1e9
    for tick in ticks:
        across, height = at(tick, 0)
        if across - shown < 34:
            continue
        shown = across
        corner = {
            "x": f"{across:.1f}",
            "y": f"{height + 18:.1f}",
            "text_anchor": "middle",
        }
        parts.append(element("text", f"{tick:,}", **corner))
    return "".join(parts)
