"""The page's own figures in a notebook, as a widget; it needs the extra ``notebook``.

What a notebook shows of a Plan without any extra is ``Plan._repr_html_``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom import api
from kvroom.answer import drawing
from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError, did_you_mean
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web import page
from kvroom.units import decimal_memory

_WEB = Path(__file__).with_name("web") / "static"
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

    class FiguresWidget(anywidget.AnyWidget):
        """The elements, their answer, and what is turned in them."""

        _esm = script()
        _css = sheet()
        answer: Any = traitlets.Dict().tag(sync=True)
        elements: Any = traitlets.List().tag(sync=True)

        def ask(self, scenario: Scenario) -> None:
            """Show the answer to ``scenario``."""
            self.scenario = scenario
            with decimal_memory():
                self.answer = json.loads(codec.encode(page.answer(scenario)))

        @property
        def plan(self) -> Plan:
            """The Plan that is shown."""
            return api.plan(self.scenario)

        def _repr_mimebundle_(self, **asked: Any) -> Any:
            """The figures, and beside them the Plan's own picture for whatever runs no widgets."""
            bundle = super()._repr_mimebundle_(**asked)
            if bundle is not None:
                svg = drawing.to_svg(self.answer["figures"]["memory"]["drawing"])
                bundle[0].update({"text/html": self.plan._repr_html_(), "image/svg+xml": svg})
            return bundle

    made = FiguresWidget(elements=[FIGURES[name][0] for name in names])
    made.ask(plan if isinstance(plan, Scenario) else plan.scenario)
    made.on_msg(lambda _, turned, __: made.ask(turn(made.scenario, made.answer, turned)))
    return made


def turn(scenario: Scenario, answer: Mapping[str, Any], turned: Mapping[str, Any]) -> Scenario:
    """``scenario`` with one number of the product turned: ``name`` of it, ``value`` chosen."""
    turns = answer["figures"]["price"]["turns"]
    keys = scenario.differences()
    if turned["name"] == "bits":
        keys["kv_dtype"] = next(
            turn["kv_dtype"] for turn in turns["bits"] if turn["value"] == turned["value"]
        )
    else:
        key = turns[turned["name"]]["key"]
        keys["model"] = {"config": {**turns["config"], key: turned["value"]}}
    return Scenario.from_dict(keys)
