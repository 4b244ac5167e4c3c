"""Rows of text as aligned columns: the one renderer of plain tables."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(
    rows: Sequence[Sequence[str]], *, left: int = 0, indent: str = "  ", trimmed: bool = False
) -> str:
    """``rows`` (the first may be headings) in columns as wide as need be; the first ``left`` of them to the
    left, figures to the right. ``trimmed``: no blanks at the ends of lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        indent
        + "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() if trimmed else line for line in lines)
