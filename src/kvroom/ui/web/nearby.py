"""Answers that a static page brings along: what its sliders may ask before Python runs in it.

They are much alike, so they are kept by columns: where all answers have the same shape, one tree holds it,
and at its ends what is the same in all, or one value for each. ``static/nearby.js`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web import page
from kvroom.ui.web.presets import REFERENCE
from kvroom.units import decimal_memory

CONTEXTS = tuple(2 ** (10 + step // 2) * (3 if step % 2 else 2) // 2 for step in range(23))
"""The steps of the page's slider: 1K, 1.5K, 2K, 3K … 2M tokens."""
KV_DTYPES = (None, "bf16", "fp8", "q4_0")
GROWTH = tuple(8192 * step for step in range(1, 17))
"""The steps of the one conversation that grows."""
MOST_USERS = 40


def questions() -> Iterator[dict[str, Any]]:
    """What one control after another may ask, from the page's own question on."""
    question = dict(REFERENCE.scenario)
    batches = [point["batch"] for point in _answer(question)["figures"]["step"]["curve"]]
    users = sorted({*range(1, MOST_USERS + 1), *batches})
    for kv_dtype in KV_DTYPES:
        for context_tokens in CONTEXTS:
            yield page.varied(question, {"kv_dtype": kv_dtype, "context_tokens": context_tokens})
    for context_tokens in GROWTH:
        yield page.varied(question, {"context_tokens": context_tokens, "concurrency": 1})
    for change in page.VARIANTS.values():
        yield page.varied(question, change)
    for kv_dtype in (None, "fp8"):
        for concurrency in users:
            yield page.varied(question, {"kv_dtype": kv_dtype, "concurrency": concurrency})


def key(scenario: Mapping[str, Any]) -> str:
    """A question's name, as the page's ``keyOf`` writes it."""
    return json.dumps(sorted(scenario.items()), ensure_ascii=False, separators=(",", ":"))


def nearby() -> dict[str, Any]:
    """``{"keys": […], "answers": columns}``: names of questions, and their answers by columns."""
    answers: dict[str, Any] = {}
    for scenario in questions():
        try:
            answers[key(scenario)] = _answer(scenario)
        except KvroomError:
            continue  # Python will say why
    return {"keys": [*answers], "answers": columns([*answers.values()])}


def _answer(scenario: dict[str, Any]) -> dict[str, Any]:
    with decimal_memory():
        answer: dict[str, Any] = json.loads(codec.encode(page.answer(Scenario.from_dict(scenario))))
    return answer


def columns(values: list[Any]) -> list[Any]:
    """Values as a tree: ``["=", v]`` all the same, ``["{", {key: tree}]`` objects of the same keys,
    ``["[", lengths, [tree, …]]`` lists (past a shorter one's end stands any value), else ``["/", …]``."""
    first = values[0]
    if all(value == first and type(value) is type(first) for value in values):
        return ["=", first]
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        return ["{", {k: columns([value[k] for value in values]) for k in first}]
    if all(isinstance(value, list) for value in values):
        longest = max(values, key=len)
        padded = [value + longest[len(value) :] for value in values]
        rows = [columns([value[place] for value in padded]) for place in range(len(longest))]
        return ["[", [len(value) for value in values], rows]
    return ["/", values]
