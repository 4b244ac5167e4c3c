"""Reading Python's own way of writing objects, as engines print their settings.

``{'model': 'a/b', 'mode': <Mode.NONE: 0>}`` and ``Args(model='a/b', tp_size=4)``: values that are no
plain literal stay text. A line that was cut gives what stood before the cut.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
MAX_ITEMS = 2000
MAX_DEPTH = 50


def read_dict(text: str) -> dict[str, Any]:
    """The entries of ``{'key': value, …`` (the text may go on behind it)."""
    brace = text.find("{")
    if brace < 0:
        return {}
    entries: dict[str, Any] = {}
    for item in _items(text[brace + 1 :], "}"):
        key, colon, value = item.partition(":")
        name = literal(key.strip())
        if colon and isinstance(name, str):
            entries[name] = literal(value.strip())
    return entries


def read_keywords(text: str) -> dict[str, Any]:
    """The entries of ``key=value, key=value …`` (up to a closing bracket, if there is one)."""
    entries: dict[str, Any] = {}
    for item in _items(text, ")"):
        key, equals, value = item.partition("=")
        if equals and key.strip().isidentifier():
            entries[key.strip()] = literal(value.strip())
    return entries


def literal(text: str) -> Any:
    """The value that ``text`` writes, or the text itself."""
    if len(text) > 20_000:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # "1for": what is no literal stays text
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return text
    return value


def _items(text: str, end: str) -> list[str]:
    """``text`` cut at its outermost commas, up to the outermost ``end``."""
    items: list[str] = []
    closers: list[str] = []
    quote, start, skip = "", 0, False
    for index, c in enumerate(text):
        if skip:
            skip = False
        elif quote:
            if c == "\\":
                skip = True
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in _PAIRS and len(closers) < MAX_DEPTH:
            closers.append(_PAIRS[c])
        elif closers and c == closers[-1]:
            closers.pop()
        elif not closers and c in (",", end):
            items.append(text[start:index].strip())
            start = index + 1
            if c == end or len(items) >= MAX_ITEMS:
                return [item for item in items if item]
    if not quote and not closers:
        items.append(text[start:].strip())
    return [item for item in items if item]
