"""Text as wide as the terminal: paragraphs, and a line whose note goes on below itself."""

from __future__ import annotations

from textwrap import wrap

from kvroom.ui.terminal.plain import plain_text, text_width

LEAST_NOTE = 24
"""A note is never narrower than this."""


def paragraph(text: str, indent: str = "  ") -> str:
    """``text`` wrapped to the width, every line indented."""
    lines = wrap(
        plain_text(text),
        text_width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def wrapped(start: str, note: str) -> str:
    """``start`` and then ``note``, which goes on below itself where the line ends."""
    start = plain_text(start)
    room = max(LEAST_NOTE, text_width() - len(start))
    lines = wrap(plain_text(note), room, break_on_hyphens=False)
    return ("\n" + " " * len(start)).join([start + "".join(lines[:1]), *lines[1:]]).rstrip()
