"""The page as HTML: one template, its numbers filled in from a real Plan before any script has run.

In the template ``[[path|format]]`` is a figure of the asked question's answer, and
``[[path|format|variant]]`` the same of a neighbouring question (VARIANTS), as elements that the page's
script keeps up to date; ``[[=name]]`` is a part of the page made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom import api
from kvroom.answer import drawing, html
from kvroom.answer.figures import chained
from kvroom.errors import KvroomError
from kvroom.planner.explain import explain
from kvroom.planner.tiers import plan_json
from kvroom.scenario.engine_names import engine_names
from kvroom.scenario.link import words_of
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.derived import explanations
from kvroom.ui.web.figures import figures
from kvroom.ui.web.presets import COMPARED, PRESETS, REFERENCE
from kvroom.ui.web.sections import card, reality
from kvroom.ui.web.takeaway import take_away
from kvroom.units import (
    decimal_memory,
    show_count,
    show_gb,
    show_gib,
    show_memory,
    show_rate,
    show_seconds,
    show_tokens,
    show_usd,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "8k": {"context_tokens": 8192, "concurrency": None},
    "32k": {"context_tokens": 32768, "concurrency": None},
    "128k": {"context_tokens": 131072, "concurrency": None},
    "fp8": {"kv_dtype": "fp8", "concurrency": None},
    "bf16": {"kv_dtype": "bf16", "concurrency": None},
    "full": {"concurrency": None},
    "1 at 2k": {"context_tokens": 2048, "concurrency": 1},
    "64 at 2k": {"context_tokens": 2048, "concurrency": 64},
}
"""Neighbouring questions that the text speaks of: what each changes in the asked one."""
_TOKEN = re.compile(
    r"\[\[(?:=(?P<part>\w+)|(?P<path>[\w.]+)\|(?P<form>\w+)(?:\|(?P<of>[\w ]+))?)\]\]"
)
MARKER = "<!--watch-->"
"""Where in the page stands what depends on who answers it."""
_WEB = Path(__file__).with_name("static")


def answer(scenario: Scenario) -> dict[str, Any]:
    """The Plan as JSON with ``explanations``, ``figures`` and ``take_away`` beside its own keys."""
    workings = api.workings(scenario, paths=False, hub=False)
    data = figures(workings)
    data["card"] = card.card(workings, scenario)
    explained = (
        *explain(workings),
        *explanations(workings, data),
        *card.explanations(workings, data["card"]),
    )
    data["memory"]["drawing"] = drawing.memory_drawing(data["memory"])
    return {
        **plan_json(workings),
        "explanations": [e.to_dict() for e in chained(explained)],
        "figures": data,
        "take_away": take_away(workings, scenario),
    }


@lru_cache(maxsize=1)
def models() -> list[str]:
    """Names of the catalogue's models."""
    return api.models()


@lru_cache(maxsize=1)
def gpus() -> list[str]:
    """Names of the catalogue's devices."""
    return api.gpus()


def varied(keys: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The question with a variant's changes; what is changed to None is no longer asked."""
    merged = {**keys, **change}
    return {key: value for key, value in merged.items() if value is not None}


def render(query: str = "") -> tuple[int, str]:
    """Status and HTML for an address's query; a question that fails shows the reference and says why."""
    with decimal_memory():
        return _rendered(query)


def _rendered(query: str) -> tuple[int, str]:
    status, error = 200, ""
    keys = dict(REFERENCE.scenario)
    try:
        if words_of(query):
            keys = Scenario.from_link(f"?{query}").differences()
        reply = answer(Scenario.from_dict(keys))
    except KvroomError as one_error:
        status, error = 422, str(one_error)
        keys = dict(REFERENCE.scenario)
        reply = answer(Scenario.from_dict(keys))
    answers = {"": reply}
    for name, change in VARIANTS.items():
        try:
            answers[name] = answer(Scenario.from_dict(varied(keys, change)))
        except KvroomError:
            answers[name] = {}
    parts = _parts(keys, reply, error)

    def fill(match: re.Match[str]) -> str:
        if match["part"]:
            return parts[match["part"]]
        return number(answers, match["path"], match["form"], match["of"] or "")

    return status, _TOKEN.sub(fill, _template())


def _template() -> str:
    """The page with Plan's part in its place."""
    page, plan = ((_WEB / name).read_text(encoding="utf-8") for name in ("index.html", "plan.html"))
    return page.replace("<!--plan-->", plan[plan.index("<section") :])


_NUMBERS = (
    "None", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven",
    "Twelve", "Thirteen", "Fourteen", "Fifteen", "Sixteen", "Seventeen", "Eighteen", "Nineteen", "Twenty",
)  # fmt: skip
FORMATS: dict[str, Any] = {
    "memory": show_memory,
    "gib": show_gib,
    "gb": show_gb,
    "rate": show_rate,
    "count": lambda v: f"{v:,}",
    "short": show_count,
    "tokens": lambda v: f"{v:,} tokens",
    "times": lambda v: f"{v:,.1f}" if v < 10 and round(v, 1) != round(v) else f"{round(v):,}",
    "usd": show_usd,
    "seconds": show_seconds,
    "requests": reality.requests,
    "words": lambda v: _NUMBERS[v] if v < len(_NUMBERS) else f"{v:,}",
    "text": str,
}
"""How a figure is written, by name; the page's script writes them the same way."""


def number(answers: Mapping[str, Any], path: str, form: str, of: str) -> str:
    """One live figure as an element."""
    value: Any = answers[of]
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    shown = "none" if value is None else FORMATS[form](value)
    which: dict[str, Any] = {"figure": path, "as": form, "of": of or None}
    return html.element("kv-n", html.text(shown), **which)


def _options(pairs: Iterable[tuple[Any, str]], chosen: Any) -> str:
    return "".join(
        html.element("option", html.text(label), value=v, selected=v == chosen)
        for v, label in pairs
    )


@lru_cache(maxsize=1)
def _patterns() -> str:
    return (_WEB / "patterns.js").read_text(encoding="utf-8").split("`")[1]


def _fits(reply: dict[str, Any], error: str) -> str:
    if error:
        return "unknown"
    waits = reply["figures"]["memory"]["waiting"]
    return "yes" if reply["verdict"]["fits"] and not waits else "no"


def _card(reply: dict[str, Any]) -> str:
    """The answer card as words, for whoever runs no script."""
    rows = [
        html.element("dt", html.text(row["label"]))
        + html.element("dd", html.text(FORMATS[row["form"]](row["value"])))
        for row in reply["figures"]["card"]["rows"]
        if row["value"] is not None
    ]
    return html.element("dl", "".join(rows))


def _parts(keys: dict[str, Any], reply: dict[str, Any], error: str) -> dict[str, str]:
    from kvroom.ui.web import replays  # who only answers, in a browser, needs none of these
    from kvroom.ui.web.sections import levers, tiers

    scenario = reply["scenario"]
    memory = reply["figures"]["memory"]
    model, gpu = scenario["model"], scenario["gpu"]
    by_value = isinstance(model, dict)
    preset = next((preset.id for preset in PRESETS if preset.scenario == keys), "")
    start = {
        "scenario": keys,
        "answer": reply,
        "variants": VARIANTS,
        "presets": [
            {"id": preset.id, "says": preset.says, "scenario": preset.scenario}
            for preset in PRESETS
        ],
        "compared": COMPARED,
        "catalogue": {"models": models(), "gpus": gpus(), "engines": list(engine_names())},
        "replays": replays.catalogue(),
        "error": error,
    }
    verdict = reply["verdict"]
    fault = html.element("strong", html.text(error), cls="fault") + " " if error else ""
    return {
        "presets": _options(
            [("", "a question of your own"), *((preset.id, preset.label) for preset in PRESETS)],
            preset,
        ),
        "gpu_count": str(scenario["gpu_count"]),
        "kv": html.quoted(scenario["kv_dtype"]),
        "engine": html.quoted(scenario["engine"]),
        "model_value": html.quoted("your own config" if by_value else str(model)),
        "gpu_value": html.quoted(gpu if isinstance(gpu, str) else f"your own: {gpu.get('name')}"),
        "card": _card(reply),
        "context": str(scenario["context_tokens"]),
        "users": "" if scenario["concurrency"] is None else str(scenario["concurrency"]),
        "model": html.text("your model" if by_value else str(model)),
        "gpu": html.text(gpu if isinstance(gpu, str) else str(gpu.get("name"))),
        "context_short": show_tokens(scenario["context_tokens"]),
        "traits": " ".join(reply["figures"]["traits"]),
        "verdict": fault
        + html.text("Shown below is the reference case." if error else verdict["sentence"]),
        "fits": _fits(reply, error),
        "memory": drawing.to_svg(memory["drawing"]),
        "patterns": _patterns(),
        "tiers_say": html.text(tiers.says(Scenario.from_dict(keys))),
        "reality_says": html.text(reality.says(Scenario.from_dict(keys))),
        "levers_command": html.text(levers.levers_command(Scenario.from_dict(keys))),
        "command": html.text(reply["take_away"]["command"]),
        "python": html.text(reply["take_away"]["python"]),
        "start": json.dumps(start, ensure_ascii=False, separators=(",", ":")).replace(
            "<", "\\u003c"
        ),
    }
