"""Brace expansion: ``{a,b}``, ``{1..9}``, ``{01..12..2}``, ``x{a,b}y``. Quoted braces are characters."""

from __future__ import annotations

import re

from kvroom.errors import KvroomError
from kvroom.launchers.shell.scan import past

MOST_WORDS = 1_000
_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")
_OPENERS = ("$(", "${", "$'", "<(", ">(")


def braced(word: str) -> list[str]:
    """The words that ``word``, as typed, becomes; itself where it has no braces that expand."""
    if "{" not in word or (word.startswith("{") and word.endswith("}") and len(word) == 2):
        return [word]
    found = [word]
    done: list[str] = []
    while found and len(found) + len(done) <= MOST_WORDS:
        first, *found = found
        parts = _first(first)
        if parts is None:
            done.append(first)
        else:
            before, values, after = parts
            found = [f"{before}{value}{after}" for value in values] + found
    return (done + found)[:MOST_WORDS]


def _first(word: str) -> tuple[str, list[str], str] | None:
    """(before, values, after) of the first braces that expand; None where there are none."""
    i, count = 0, len(word)
    while i < count:
        after = _skipped(word, i)
        if after > i:
            i = after
        elif word[i] == "{" and (parts := _values(word, i)) is not None:
            values, end = parts
            return word[:i], values, word[end:]
        else:
            i += 1
    return None


def _skipped(word: str, at: int) -> int:
    """Past what is quoted or substituted at ``at``; ``at`` where nothing is."""
    if word[at] == "\\":
        return at + 2
    if word[at] in "'\"`" or word[at : at + 2] in _OPENERS:
        try:
            return past(word, at)
        except KvroomError:
            return len(word)
    return at


def _values(word: str, at: int) -> tuple[list[str], int] | None:
    """(values, past the brace) of the braces opened at ``at``; None where they are characters."""
    depth, i, begin = 0, at + 1, at + 1
    values: list[str] = []
    while i < len(word):
        after = _skipped(word, i)
        if after > i:
            i = after
            continue
        sign = word[i]
        if sign == "{":
            depth += 1
        elif sign == "}" and depth:
            depth -= 1
        elif sign == "," and not depth:
            values.append(word[begin:i])
            begin = i + 1
        elif sign == "}":
            if values:
                return [*values, word[begin:i]], i + 1
            numbers = _range(word[at + 1 : i])
            return None if numbers is None else (numbers, i + 1)
        i += 1
    return None


def _range(text: str) -> list[str] | None:
    match = _RANGE.fullmatch(text)
    if match is None or match[1].isalpha() != match[2].isalpha():
        return None
    letters = match[1].isalpha()
    low, high = (ord(match[1]), ord(match[2])) if letters else (int(match[1]), int(match[2]))
    step = abs(int(match[3] or 1)) or 1
    numbers = range(low, high + 1, step) if high >= low else range(low, high - 1, -step)
    if letters:
        return [chr(number) for number in numbers[:MOST_WORDS]]
    padded = any(re.match(r"-?0\d", end) for end in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    return [f"{number:0{width}d}" for number in numbers[:MOST_WORDS]]
