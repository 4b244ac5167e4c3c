"""A Plan in a notebook: a figure and a table that need nothing, or the page's own figures as a widget.

``html(plan)`` is what ``Plan._repr_html_`` gives. ``widget(plan)`` needs the extra ``notebook``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError, did_you_mean
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.drawing import Mark, memory_drawing
from kvroom.ui.web import page
from kvroom.ui.web.figures import memory
from kvroom.ui.web.takeaway import command
from kvroom.units import show_gib, show_seconds, show_usd

_WEB = Path(__file__).with_name("web") / "static"
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


def html(plan: Plan) -> str:
    """The Plan as one piece of HTML: its verdict, the memory drawn, the figures as a table."""
    w = work(plan.scenario)
    held = memory(w)
    told = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:right">{escape(value)}</td></tr>'
        for name, value in _rows(plan, held)
    )
    notes = "".join(f"<li>{escape(text)}</li>" for text in plan.warnings)
    return (
        '<div style="max-width:960px;font-family:system-ui,sans-serif">'
        f"<p><strong>{escape(plan.verdict.sentence)}</strong></p>{_svg(memory_drawing(held))}"
        f'<table style="color:inherit"><tbody>{told}</tbody></table>'
        + (f"<ul>{notes}</ul>" if notes else "")
        + f"<p><code>{escape(command(plan.scenario))}</code></p></div>"
    )


def _rows(plan: Plan, held: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for account in held["accounts"]:
        yield str(account["name"]).capitalize(), show_gib(account["bytes"])
    yield "Room for cache", show_gib(held["kv_bytes"])
    yield "One request", show_gib(held["request_bytes"])
    yield "One token of cache", show_gib(plan.kv.bytes_per_token)
    if held["room"] is not None:
        yield "Requests with room", f"{held['room']:,}"
    step = plan.step
    if step.seconds is not None:
        band = ""
        if step.seconds_low is not None and step.seconds_high is not None:
            band = f" ({show_seconds(step.seconds_low)} to {show_seconds(step.seconds_high)})"
        yield f"A step of {step.batch:,}", show_seconds(step.seconds) + band
    price = plan.cost.usd_per_million_output_tokens
    if price is not None:
        yield "A million tokens written", show_usd(price)


def _svg(drawing: Mapping[str, Any]) -> str:
    """The drawing with its look written into it: notebooks bring no sheet."""
    inner = "".join(_element(m) for m in drawing["marks"] if not _classes(m) & _LEFT_OUT)
    inner += '<text x="0" y="143" fill="currentColor" fill-opacity=".75">weights</text>'
    said = escape(drawing["sentence"], quote=True)
    return (
        f'<svg role="img" aria-label="{said}" width="100%" height="{drawing["height"]}"'
        f' font-family="system-ui,sans-serif" font-size="13" style="overflow:visible">{inner}</svg>'
    )


def _classes(mark: Mark) -> set[str]:
    return set(str(mark.get("class", "")).split())


def _element(mark: Mark) -> str:
    looks: dict[str, Any] = {"fill": "currentColor"} if mark["tag"] == "text" else {}
    for name in str(mark.get("class", "")).split():
        looks |= _LOOKS.get(name, {})
    looks |= {k: v for k, v in mark.items() if k not in ("tag", "text", "title", "key", "class")}
    told = "".join(f' {k}="{escape(str(v), quote=True)}"' for k, v in looks.items())
    inner = f"<title>{escape(mark['title'])}</title>" if "title" in mark else ""
    return f"<{mark['tag']}{told}>{inner}{escape(str(mark.get('text', '')))}</{mark['tag']}>"


FIGURES = {
    "memory": ("kv-memory", "memory-bar.js"),
    "price": ("kv-price", "token-price.js"),
    "step": ("kv-step", "step-bar.js"),
}
"""The page's figures that a Plan alone fills: element and module by name."""
_IMPORTED = re.compile(r'(?:from|import)\s*"(\./[^"]+)"')
_KEYFRAMES = re.compile(r"@keyframes [\w-]+ \{(?:[^{}]*\{[^{}]*\})*\s*\}")


@lru_cache(maxsize=1)
def script() -> str:
    """The module of the widget: the figures' modules by name, and what puts them into a cell."""
    sources: dict[str, str] = {}
    left = ["notebook.js", "number.js", *(module for _, module in FIGURES.values())]
    while left:
        path = left.pop()
        if path not in sources:
            sources[path] = (_WEB / path).read_text(encoding="utf-8")
            folder = path.rpartition("/")[0]
            left += [f"{folder}/{p[2:]}".lstrip("/") for p in _IMPORTED.findall(sources[path])]
    loader = sources.pop("notebook.js")
    return f"const SOURCES = {json.dumps(sources, ensure_ascii=False)};\n{loader}"


@lru_cache(maxsize=1)
def sheet() -> str:
    """The figures' sheet, kept to the widget's own cells."""
    text = (_WEB / "figures.css").read_text(encoding="utf-8").replace(":root", ":scope")
    moving = "\n".join(_KEYFRAMES.findall(text))
    return f"{moving}\n@scope (.kvroom) {{\n{_KEYFRAMES.sub('', text)}\n}}\n"


def widget(plan: Plan | Scenario, figures: Iterable[str] = tuple(FIGURES)) -> Any:
    """The page's figures of ``plan`` in a notebook cell, as an anywidget.

    ``figures``: which of ``memory``, ``price``, ``step``. A number that is turned there asks anew;
    ``.plan`` is the Plan of what is shown. KvroomError where anywidget is not installed.
    """
    names = list(figures)
    for name in names:
        if name not in FIGURES:
            fix = did_you_mean(name, FIGURES, f"One of: {', '.join(FIGURES)}.")
            raise KvroomError("figures", name, "is no figure of a Plan", fix)
    try:
        import anywidget
        import traitlets
    except ImportError:
        fix = "Install it: pip install 'kvroom[notebook]'."
        raise KvroomError("notebook", None, "needs anywidget", fix) from None

    class Figures(anywidget.AnyWidget):
        """The elements, their answer, and what is turned in them."""

        _esm = script()
        _css = sheet()
        answer: Any = traitlets.Dict().tag(sync=True)
        elements: Any = traitlets.List().tag(sync=True)

        def ask(self, scenario: Scenario) -> None:
            """Show the answer to ``scenario``."""
            self.scenario = scenario
            self.answer = json.loads(codec.encode(page.answer(scenario)))

        @property
        def plan(self) -> Plan:
            """The Plan that is shown."""
            return work(self.scenario).plan

    made = Figures(elements=[FIGURES[name][0] for name in names])
    made.ask(plan if isinstance(plan, Scenario) else plan.scenario)
    made.on_msg(lambda _, turned, __: made.ask(turn(made.scenario, made.answer, turned)))
    return made


def turn(scenario: Scenario, answer: Mapping[str, Any], turned: Mapping[str, Any]) -> Scenario:
    """``scenario`` with one number of the product turned: ``name`` of it, ``value`` chosen."""
    turns = answer["figures"]["price"]["turns"]
    given = scenario.differences()
    if turned["name"] == "bits":
        given["kv_dtype"] = next(
            t["kv_dtype"] for t in turns["bits"] if t["value"] == turned["value"]
        )
    else:
        key = turns[turned["name"]]["key"]
        given["model"] = {"config": {**turns["config"], key: turned["value"]}}
    return Scenario.from_dict(given)
