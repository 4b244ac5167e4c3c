"""Terminals that show no colour, or ASCII only: signs spelled out, whoever prints them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

SIGNS = {
    "×": "x",
    "−": "-",
    "–": "-",
    "·": ".",
    "…": "...",
    "⌊": "floor(",
    "⌋": ")",
    "≥": ">=",
    "≤": "<=",
    "→": "->",
    "◂": "<",
    "÷": "/",
    "µ": "u",
    "█": "#",
    "▓": "+",
    "▒": "=",
    "░": "-",
}
_TABLE = str.maketrans(SIGNS)
COLUMNS, LEAST_COLUMNS, MOST_COLUMNS = 80, 60, 120
"""The width of text where no terminal tells one, and what is used of narrower and wider ones: longer lines
are hard to read."""


def text_width() -> int:
    """How wide text may be: the terminal's columns (``COLUMNS`` wins, as everywhere), within reason."""
    told = os.environ.get("COLUMNS", "")
    width = int(told) if told.isdecimal() else 0
    if not width and sys.__stdout__ is not None:
        with suppress(ValueError, OSError):  # a pipe, a file, a closed stream
            width = os.get_terminal_size(sys.__stdout__.fileno()).columns
    return min(max(width or COLUMNS, LEAST_COLUMNS), MOST_COLUMNS)


def ascii_only(stream: TextIO | None = None) -> bool:
    """Whether ``stream`` (standard output) cannot show more than ASCII."""
    stream = stream or sys.stdout
    return "utf" not in (getattr(stream, "encoding", None) or "ascii").lower()


def colour() -> bool | None:
    """False where the user wants none (``NO_COLOR``, a dumb terminal), None: as the stream can."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def spelled(text: str) -> str:
    """``text`` in ASCII: known signs by their twins, others as ``?``."""
    return text.translate(_TABLE).encode("ascii", "replace").decode()


def plain_text(text: str) -> str:
    """``text`` as standard output can show it."""
    return spelled(text) if ascii_only() else text


class Ascii(io.TextIOBase):
    """A text stream that spells out on its way to ``stream``.

    It offers no ``buffer``: what finds one writes UTF-8 into it.
    """

    encoding = "ascii"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write ``text``, spelled out."""
        return self._stream.write(spelled(text))

    def flush(self) -> None:
        """Flush the stream behind."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream behind is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor of the stream behind."""
        return self._stream.fileno()


def spell_out() -> None:
    """Put ``Ascii`` in front of standard output and error where they need it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Ascii) and ascii_only(stream):
            setattr(sys, name, Ascii(stream))
