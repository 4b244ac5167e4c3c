"""JSON by the standard library alone says what msgspec says."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from kvroom.scenario.scenario import Scenario
from kvroom.ui import plain_json
from kvroom.ui.web import page
from kvroom.ui.web.nearby import columns
from kvroom.ui.web.presets import PRESETS


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_answers_are_written_alike(preset):
    answer = page.answer(Scenario.from_dict(preset.scenario))
    assert json.loads(plain_json.encode(answer)) == msgspec.json.decode(msgspec.json.encode(answer))


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], {"a": -math.inf, 1: (1e-07, 2**70)}, 'é€😀\u2028"\\\x00', 1e22]
)
def test_odd_values_are_written_alike(value):
    assert json.loads(plain_json.encode(value)) == msgspec.json.decode(msgspec.json.encode(value))


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "{'a': 1}", b"\xff", "1 2", "[1,]"])
def test_what_is_no_json_is_refused_by_both(text):
    for decode in (plain_json.decode, msgspec.json.decode):
        with pytest.raises(ValueError):
            decode(text)


def at(tree, place):
    """As ``static/nearby.js`` reads it."""
    kind, one, *rows = tree
    if kind == "=":
        return one
    if kind == "/":
        return one[place]
    if kind == "[":
        return [at(row, place) for row in rows[0][: one[place]]]
    return {key: at(column, place) for key, column in one.items()}


def test_columns_give_back_every_value():
    values = [
        {"a": 1, "b": [1, 2], "c": {"d": None}},
        {"a": 1, "b": [], "c": {"d": 2.5}},
        {"a": 1, "b": [3, {"e": True}, 5], "c": {"f": 1}},
        {"a": 1.0, "b": [1], "c": {"d": "x"}},
    ]
    for some in (values, values[:2], values[:1], [1, True, 1], [[], []], [{}, {}]):
        tree = json.loads(json.dumps(columns(some)))
        back = [at(tree, place) for place in range(len(some))]
        assert json.dumps(back) == json.dumps(some)
