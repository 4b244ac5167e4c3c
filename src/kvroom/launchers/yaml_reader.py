"""A reader of the YAML that manifests are written in.

Mappings, lists, both also in brackets, quoted, literal and folded text, comments. Anchors, tags and
templates are refused, named by their line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError

MAX_DEPTH = 40
FIX = "Give plain YAML (helm template prints it), or the command itself."
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')"""
_QUOTE = re.compile(_QUOTED, re.DOTALL)
_KEY = re.compile(rf"""({_QUOTED}|[^\s\[\]{{}},"'#&*!|>%@`-][^\n#]*?)\s*:(?=\s|$)""")
_FLOW_KEY = re.compile(rf"""({_QUOTED}|[^\s:,{{}}\[\]]+)\s*:""")
_NUMBER = re.compile(r"[-+]?(?:\d+|\d*\.\d+(?:e[-+]?\d+)?)", re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_yaml(text: str) -> Any:
    """The one document of ``text``; KvroomError names the line that cannot be read."""
    return _Yaml(text).document()


@dataclass(frozen=True, slots=True)
class _Line:
    indent: int
    text: str


class _Yaml:
    """A reader of the part of YAML that manifests use, line by line."""

    def __init__(self, text: str) -> None:
        self.lines = [_Line(len(t) - len(t.lstrip(" ")), t.strip()) for t in text.splitlines()]
        self.raw = text.splitlines()
        self.at = 0

    def document(self) -> Any:
        """The whole text as one value."""
        found = self._block(0, 0)
        if self._next() is not None:
            raise self._error("is indented as nothing above it")
        return found

    def _error(self, why: str) -> KvroomError:
        line = self.raw[min(self.at, len(self.raw) - 1)] if self.raw else ""
        return KvroomError("--from-command", f"line {self.at + 1}: {line.strip()}", why, FIX)

    def _next(self) -> _Line | None:
        """The next line that says something, without moving past it."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.text and not line.text.startswith("#"):
                if "\t" in self.raw[self.at][: line.indent + 1]:
                    raise self._error("is indented with a tab")
                return line
            self.at += 1
        return None

    def _block(self, indent: int, depth: int) -> Any:
        """The value whose lines are indented by ``indent`` or more."""
        first = self._next()
        if first is None or first.indent < indent:
            return None
        if depth > MAX_DEPTH:
            raise self._error("is nested too deep")
        if first.text == "-" or first.text.startswith("- "):
            return self._list(first.indent, depth)
        if _KEY.match(first.text):
            return self._mapping(first.indent, depth)
        self.at += 1
        return self._inline(first.text, first.indent, depth)

    def _list(self, indent: int, depth: int) -> list[Any]:
        made: list[Any] = []
        while (line := self._next()) is not None and line.indent == indent:
            if not (line.text == "-" or line.text.startswith("- ")):
                break
            inner = line.text[1:].lstrip()
            if not inner or inner.startswith("#"):
                self.at += 1
                made.append(self._block(indent + 1, depth + 1))
            elif _KEY.match(inner) or inner.startswith("- "):
                # a mapping or list that begins on the dash's own line
                shifted = indent + len(line.text) - len(inner)
                self.lines[self.at] = _Line(shifted, inner)
                made.append(self._block(shifted, depth + 1))
            else:
                self.at += 1
                made.append(self._inline(inner, indent, depth))
        return made

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while (line := self._next()) is not None and line.indent == indent:
            found = _KEY.match(line.text)
            if found is None:
                raise self._error("is neither a key nor an item")
            key, text = str(_scalar(found[1])), line.text[found.end() :].strip()
            self.at += 1
            if not text or text.startswith("#"):
                following = self._next()
                listed = following is not None and following.text.startswith("-")
                deeper = indent if listed else indent + 1
                made[key] = self._block(deeper, depth + 1)
            else:
                made[key] = self._inline(text, indent, depth)
        if line is not None and line.indent > indent:
            raise self._error("is indented as nothing above it")
        return made

    def _inline(self, text: str, indent: int, depth: int) -> Any:
        """A value that begins on a line of its own or behind a key."""
        if text[0] in "|>":
            return self._text(text, indent)
        if text[0] in "&*!%@`" or "{{" in text:
            raise self._error("is more YAML than kvroom reads")
        if text[0] in "[{":
            while not _balanced(text) and self.at < len(self.lines):
                text += " " + self.lines[self.at].text
                self.at += 1
            value, rest = _flow(text, depth)
            if rest.strip() and not rest.lstrip().startswith("#"):
                raise self._error("does not end where its bracket does")
            return value
        if text[0] in "\"'":
            while not _closed(text) and self.at < len(self.lines):
                text += " " + self.lines[self.at].text
                self.at += 1
            return _scalar(_uncommented(text))
        made = [_uncommented(text)]
        while (line := self._next()) is not None and line.indent > indent:
            made.append(_uncommented(line.text))  # plain text over several lines
            self.at += 1
        return _scalar(" ".join(made))

    def _text(self, head: str, indent: int) -> str:
        """Literal (``|``) or folded (``>``) text."""
        kept: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.text and line.indent <= indent:
                break
            kept.append(line.text)
            self.at += 1
        return ("\n" if head[0] == "|" else " ").join(kept).strip()


def _uncommented(text: str) -> str:
    if text[0] in "\"'":
        end = _end_of_quote(text, 0)
        return text if end is None else text[:end]
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()


def _end_of_quote(text: str, at: int) -> int | None:
    """Where the quoted text that begins at ``at`` ends; None where it does not."""
    found = _QUOTE.match(text, at)
    return found.end() if found else None


def _closed(text: str) -> bool:
    return _end_of_quote(text, 0) is not None


def _balanced(text: str) -> bool:
    """Whether every bracket outside quotes is closed."""
    open_, at = 0, 0
    while at < len(text):
        c = text[at]
        if c in "\"'":
            end = _end_of_quote(text, at)
            if end is None:
                return False
            at = end
            continue
        open_ += (c in "[{") - (c in "]}")
        at += 1
    return open_ <= 0


def _flow(text: str, depth: int) -> tuple[Any, str]:
    """(a value in brackets, quotes or plain, the text behind it)."""
    text = text.lstrip()
    if depth > MAX_DEPTH or not text:
        raise KvroomError("--from-command", text[:40], "is cut or nested too deep", FIX)
    if text[0] in "\"'":
        end = _end_of_quote(text, 0) or len(text)
        return _scalar(text[:end]), text[end:]
    if text[0] not in "[{":
        plain = re.match(r"[^,\]}]*", text)
        word = plain[0] if plain else ""
        return _scalar(word.strip()), text[len(word) :]
    closing = "]" if text[0] == "[" else "}"
    made: list[Any] = []
    pairs: dict[str, Any] = {}
    rest = text[1:].lstrip()
    while rest and rest[0] != closing:
        if closing == "}":
            found = _FLOW_KEY.match(rest)
            if found is None:
                raise KvroomError("--from-command", rest[:40], "is no key", FIX)
            value, rest = _flow(rest[found.end() :], depth + 1)
            pairs[str(_scalar(found[1]))] = value
        else:
            value, rest = _flow(rest, depth + 1)
            made.append(value)
        rest = rest.lstrip()
        if rest[:1] == ",":
            rest = rest[1:].lstrip()
        elif rest[:1] != closing:
            raise KvroomError("--from-command", text[:40], "has a bracket that is not closed", FIX)
    return (made if closing == "]" else pairs), rest[1:]


def _scalar(text: str) -> Any:
    """A quoted or plain word."""
    if text[:1] == '"':
        try:
            return json.loads(text, strict=False)
        except ValueError:
            return text.strip('"')
    if text[:1] == "'":
        return text[1:-1].replace("''", "'")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text) and len(text) < 1000:
        return float(text) if re.search(r"[.eE]", text) else int(text)
    return text
