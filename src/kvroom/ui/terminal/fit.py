"""What fits one's own card, as one screen."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from kvroom.optimize.fit import Fit, FittedFile
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph

WHOLE, PARTLY = 14, 5
"""Rows of one screen."""
NAME = 26
"""Columns of a model's name beside where its layers lie."""


def show(fit: Fit, *, everything: bool = False) -> str:
    """The first sentence, and the rows of one screen or all of them."""
    blocks = [paragraph(fit.sentence)]
    if fit.model is not None:
        blocks.append(_ladder(fit))
        if fit.commands:
            blocks.append(
                "\n".join(
                    ["Start it (the repository's name is a usual publisher's: check it)"]
                    + [f"  {line}" for line in fit.commands]
                )
            )
    else:
        blocks += _screen(fit, everything=everything)
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def _ladder(fit: Fit) -> str:
    head: tuple[str, ...] = ("file", "size", "tokens/s", "longest", "perplexity", "on the CPU")
    lossy = any(row.perplexity_ratio is not None for row in fit.rows)
    rows: list[tuple[str, ...]] = [
        (
            row.weight_dtype.upper(),
            f"{row.file_bytes / 1e9:.1f} GB",
            _speed(row),
            _length(row.longest_tokens) if row.on_gpu else "–",
            "–" if row.perplexity_ratio is None else f"+{row.perplexity_ratio:.1%}",
            _placed(row),
        )
        for row in fit.rows
    ]
    note = (
        f"Tokens a second of one user at {_length(fit.context_tokens)} tokens. Longest: the most tokens "
        "that stay on the card."
    )
    if lossy:
        note += " Perplexity: Llama 3 8B's, as llama.cpp publishes it; larger models lose less."
    else:  # published in one width alone: there is no loss to tell
        head, rows = (*head[:4], *head[5:]), [(*row[:4], *row[5:]) for row in rows]
    return f"{_table(head, rows)}\n\n{paragraph(note)}"


def _screen(fit: Fit, *, everything: bool) -> list[str]:
    whole = [row for row in fit.rows if row.on_gpu]
    partly = [row for row in fit.rows if not row.on_gpu]
    if everything:
        partly += fit.slow
    else:
        whole = _largest(whole, WHOLE)
        partly = _largest(partly, PARTLY)
    head = ("model", "file", "size", "tokens/s", "longest")
    blocks = []
    if whole:
        rows = [
            (
                row.model,
                row.weight_dtype.upper(),
                f"{row.file_bytes / 1e9:.1f} GB",
                _speed(row),
                _length(row.longest_tokens),
            )
            for row in whole
        ]
        blocks.append(f"Whole on the card\n{_table(head, rows)}")
    if partly:
        rows = [
            (
                row.model[:NAME],
                row.weight_dtype.upper(),
                f"{row.file_bytes / 1e9:.1f} GB",
                _speed(row),
                _placed(row),
            )
            for row in partly
        ]
        blocks.append(f"With the rest in host memory\n{_table((*head[:4], 'on the CPU'), rows)}")
    note = "" if everything else "The largest of each architecture; --all shows every one. "
    note += (
        f"Tokens a second are one user's at {_length(fit.context_tokens)} tokens. "
        "kvroom fit MODEL shows a model's files."
    )
    if fit.too_large:
        note += f" {len(fit.too_large)} models are too large for card and host memory."
    blocks.append(paragraph(note))
    return blocks


def _largest(rows: list[FittedFile], most: int) -> list[FittedFile]:
    """The largest of each architecture."""
    kinds: dict[str, FittedFile] = {}
    for row in rows:
        kinds.setdefault(row.model_type, row)
    return list(kinds.values())[:most]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return aligned([head, *rows], left=1, trimmed=True)


def _placed(row: FittedFile) -> str:
    """What of it lies in host memory, where the column's head says so."""
    if not row.starts:
        return "does not fit"
    words = row.placed.removesuffix(" on the CPU").removeprefix("the ")
    return "–" if row.on_gpu else re.sub(r"(\d+) of (\d+)", r"\1/\2", words)


def _speed(row: FittedFile) -> str:
    if row.tokens_per_s is None:
        return "–"
    return f"{row.tokens_per_s:.0f}" if row.tokens_per_s >= 10 else f"{row.tokens_per_s:.1f}"


def _length(tokens: int | None) -> str:
    if tokens is None:
        return "any"
    return f"{tokens // 1024}K" if tokens >= 1024 else str(tokens)


def progress(done: int, of: int) -> None:
    """How many models are done, on a terminal's standard error."""
    if sys.stderr.isatty():
        end = "\r" if done + 1 < of else "\r\x1b[K"
        sys.stderr.write(f"{done + 1} of {of} models{end}")
        sys.stderr.flush()
