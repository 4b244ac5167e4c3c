"""An answer as one piece of HTML, for notebooks: a sentence, the memory drawn, figures, notes, a command.

Notebooks bring no sheet, so each mark has its looks written into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvroom.answer.drawing import Mark, memory_drawing
from kvroom.answer.html import element, svg, svg_mark, text

# Colours of figures.css that hold on light and dark paper; what is ink there takes the text's colour here.
_LOOKS: dict[str, dict[str, str]] = {
    "weights": {"fill": "currentColor", "fill-opacity": ".78"},
    "own": {"fill": "currentColor", "fill-opacity": ".45"},
    "cache": {"fill": "#009e73", "stroke": "#04130d", "stroke-width": ".6"},
    "free": {"fill": "none", "stroke": "#8a867c"},
    "left": {"fill": "none", "stroke": "#8a867c", "stroke-dasharray": "4 3"},
    "kept": {"fill": "#8a867c", "fill-opacity": ".18"},
    "waiting": {"fill": "#e69f00", "stroke": "#8a5f00"},
    "stuck": {
        "fill": "#e69f00",
        "fill-opacity": ".55",
        "stroke": "#8a5f00",
        "stroke-dasharray": "5 3",
    },
    "over": {"fill": "#d55e00", "fill-opacity": ".55", "stroke": "#d55e00"},
    "wall": {"stroke": "currentColor", "stroke-width": "2.5"},
    "tick": {"stroke": "#8a867c"},
    "on-cache": {"fill": "#04130d", "font-weight": "600"},
    "on-waiting": {"fill": "#1c1200", "font-weight": "600"},
    "soft": {"fill": "currentColor", "fill-opacity": ".75"},
    "strong": {"fill": "currentColor", "font-weight": "600"},
}
_LEFT_OUT = {"slim", "ask", "on-weights", "pool"}
"""Marks of narrow screens, of the guess, and words that would have to be the paper's colour."""


def card(
    sentence: str,
    memory: Mapping[str, Any],
    figures: Iterable[tuple[str, str]],
    notes: Iterable[str],
    command: str,
) -> str:
    """The whole of it; ``memory`` is what ``drawing`` draws, ``figures`` are names and values."""
    rows = (
        element(
            "tr",
            element("th", text(name), scope="row", style="text-align:left"),
            element("td", text(value), style="text-align:right"),
        )
        for name, value in figures
    )
    warnings = "".join(element("li", text(note)) for note in notes)
    return element(
        "div",
        element("p", element("strong", text(sentence))),
        _picture(memory_drawing(dict(memory))),
        element("table", element("tbody", *rows), style="color:inherit"),
        element("ul", warnings) if warnings else "",
        element("p", element("code", text(command))) if command else "",
        style="max-width:960px;font-family:system-ui,sans-serif",
    )


def _picture(drawing: Mapping[str, Any]) -> str:
    marks = [svg_mark(m, _looks(m)) for m in drawing["marks"] if not _classes(m) & _LEFT_OUT]
    soft: dict[str, Any] = {"x": 0, "y": 143, "fill": "currentColor", "fill_opacity": ".75"}
    return svg(
        drawing["sentence"],
        *marks,
        element("text", "weights", **soft),
        width="100%",
        height=drawing["height"],
        font_family="system-ui,sans-serif",
        font_size=13,
        style="overflow:visible",
    )


def _classes(mark: Mark) -> set[str]:
    return set(str(mark.get("class", "")).split())


def _looks(mark: Mark) -> dict[str, Any]:
    looks: dict[str, Any] = {"fill": "currentColor"} if mark["tag"] == "text" else {}
    for name in str(mark.get("class", "")).split():
        looks |= _LOOKS.get(name, {})
    return looks
