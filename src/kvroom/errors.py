"""The one error that kvroom shows to people: which field, what was given, why not, what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from typing import Any


class KvroomError(ValueError):
    """A question that cannot be answered, told so that it can be mended.

    ``field`` is the option or key, ``value`` what was given (shown shortened), ``message`` why it is
    refused, ``fix`` what to write instead.
    """

    exit_status = 2

    def __init__(self, field: str, value: Any, message: str, fix: str) -> None:
        self.field = one_line(field, 200)
        self.value = value
        self.message = one_line(message)
        self.fix = one_line(fix)
        super().__init__(field, value, message, fix)  # what pickle makes it anew from

    def __str__(self) -> str:
        value = "" if self.value is None else f"{shortened(self.value)} "
        return f"{self.field}: {value}{self.message}. {self.fix}"

    def as_dict(self) -> dict[str, Any]:
        """The ``error`` object of JSON answers (CONTRACT: field, value, message, fix)."""
        return {
            "field": self.field,
            "value": jsonable(self.value),
            "message": self.message,
            "fix": self.fix,
        }


class StartRefused(KvroomError):
    """What is asked for would have the engine refuse to start."""

    exit_status = 3


_WORD = re.compile(r"[a-z]+")
_KEYS = frozenset(("tp", "pp", "dp", "ep", "dcp"))


def as_sentence(clause: str) -> str:
    """``clause`` as a sentence: a full stop behind it, and a capital letter in front, unless it begins with a
    name that has its own spelling (a program, a width). A flag or a key that begins it is set."""
    if not clause:
        return ""
    first = clause.partition(" ")[0].rstrip(",:")
    named = first in _KEYS or first.startswith("-") or "=" in first or "_" in first
    begin = clause[0].upper() if _WORD.fullmatch(first) and not named else clause[0]
    return f"{'Set ' if named else ''}{begin}{clause[1:].rstrip('.')}."


def one_line(text: str, limit: int = 600) -> str:
    """``text`` safe to print: no control characters (names from files may hold them), not too long."""
    text = text[: limit - 1] + "…" if len(text) > limit else text
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def shortened(value: Any, limit: int = 60) -> str:
    """``value`` as a reader would type it, cut to ``limit`` characters."""
    if isinstance(value, int) and value.bit_length() > 1000:
        return "a whole number of hundreds of digits"  # repr of a longer one is refused by Python
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # such an integer, or such nesting, further in
        text = f"a {type(value).__name__}"
    text = one_line(text, limit)
    return f"'{text}'" if isinstance(value, str) else text


def jsonable(value: Any) -> Any:
    """``value`` if JSON can hold it as it is (NaN and infinity it cannot), else its short text."""
    if value is None or isinstance(value, bool | str):
        return value if not isinstance(value, str) else _utf8(value[:200])
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return shortened(value)


def _utf8(text: str) -> str:
    """``text`` with ``?`` for what no UTF-8 can hold (undecodable bytes of a command line)."""
    return text.encode("utf-8", "replace").decode()


SHORTEST = 5
"""Letters of a name below which one that is like it may well be another."""


def nearest(word: str, known: Iterable[str], n: int = 3) -> list[str]:
    """Up to ``n`` of the ``known`` names that look like ``word``, best first, ignoring case."""
    by_lower = {k.lower(): k for k in known}
    from difflib import get_close_matches  # where a word is refused, and nowhere else

    found = get_close_matches(word.lower()[:80], list(by_lower), n=n, cutoff=0.5)
    return [by_lower[f] for f in found]


def is_slip(word: str, known: str) -> bool:
    """Whether ``word`` is ``known`` with one letter but the first missing, too many, another, or two that
    changed places."""
    short, long = sorted((word, known), key=len)
    if word == known or len(long) - len(short) > 1 or len(long) < SHORTEST or word[:1] != known[:1]:
        return False
    at = next((i for i, c in enumerate(short) if c != long[i]), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return swapped or short[at + 1 :] == long[at + 1 :]


def check_spelling(field: str, keys: Iterable[object], known: Collection[str]) -> None:
    """Refuse a key that is a slip of one of the ``known``; others may be another tool's."""
    for key in keys:
        meant = next((name for name in known if is_slip(str(key), name)), None)
        if key not in known and meant is not None:
            raise KvroomError(field, key, "is no known key", f"Did you mean {meant}?")


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """A fix sentence: the nearest known names, or ``otherwise`` where nothing is near."""
    names = nearest(word, known)
    return f"Did you mean {' or '.join(names)}?" if names else otherwise
