"""Where the quotes, substitutions and words of a shell's text end. One pass, no recursion."""

from __future__ import annotations

import re

from kvroom.errors import KvroomError

BLANKS = frozenset(" \t\r")
METACHARACTERS = frozenset(" \t\r\n;|&()<>")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\s]*)\])?(\+?)=")
_CONTINUED = re.compile(r"[\\`^][ \t]*\r?\n")
_OPENERS = {"$(": ")", "${": "}", "<(": ")", ">(": ")"}


def not_closed(text: str, at: int, sign: str) -> KvroomError:
    """That a quote or a substitution has no end."""
    line = text.count("\n", 0, at) + 1
    what = "a quote" if sign in "'\"`" else sign
    return KvroomError(
        "--from-command", f"line {line}: {text[at : at + 40]}", f"has {what} that is not closed",
        "Close it.",
    )  # fmt: skip


def continued(text: str, at: int) -> int:
    """Past a line continuation (a shell's, PowerShell's or Windows') at ``at``; ``at`` where none is."""
    match = _CONTINUED.match(text, at) if text[at : at + 1] in ("\\", "`", "^") else None
    return match.end() if match else at


def _ansi_end(text: str, at: int) -> int:
    """Past a ``$'…'``, whose text begins at ``at``."""
    i = at
    while i < len(text) and text[i] != "'":
        i += 2 if text[i] == "\\" else 1
    return i + 1


def past(text: str, start: int) -> int:
    """Past the quote, substitution or parenthesis opened at ``start``; KvroomError where it has no end."""
    closers: list[str] = []
    i, count = start, len(text)
    while i < count:
        c, pair = text[i], text[i : i + 2]
        top = closers[-1] if closers else ""
        quoted = top == '"' or (top == "}" and closers[-2:-1] == ['"'])
        if c == "\\":
            i += 2
            continue
        if c == "'" and not quoted:
            end = text.find("'", i + 1)
            if end < 0:
                raise not_closed(text, i, "'")
            i = end
        elif pair == "$'" and not quoted:
            i = _ansi_end(text, i + 2) - 1
        elif pair in ("$(", "${") or (pair in _OPENERS and not closers):
            closers.append(_OPENERS[pair])
            i += 1
        elif c == top:
            closers.pop()
        elif c in '"`':
            closers.append(c)
        elif c == "(" and (top == ")" or not closers):
            closers.append(")")
        i += 1
        if not closers:
            return min(i, count)
    raise not_closed(text, start, "a quote" if text[start] == '"' else text[start : start + 2])


def word_end(text: str, start: int, stops: frozenset[str] = METACHARACTERS) -> int:
    """Past the word that begins at ``start``."""
    i, count = start, len(text)
    while i < count:
        c, pair = text[i], text[i : i + 2]
        if c == "\\":
            after = continued(text, i)
            if after > i and i == start:
                return i
            i = max(after, i + 2)
        elif c == "`" and continued(text, i) > i:
            return i
        elif c in "'\"`" or pair in ("$(", "${", "$'"):
            i = past(text, i)
        elif c == "(" and (match := ASSIGNMENT.match(text, start)) and match.end() == i:
            i = past(text, i)  # an array
        elif c in stops:
            break
        else:
            i += 1
    return min(i, count)
