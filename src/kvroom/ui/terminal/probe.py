"""``kvroom probe`` for a terminal: every figure beside what the catalogue says, and what is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap

import click

from kvroom.errors import KvroomError
from kvroom.observe.probe.machine import Probe, Row
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.text import paragraph
from kvroom.units import show_count, show_gib, show_rate

_SHOW: dict[str, Callable[[float], str]] = {
    "bytes": show_gib,
    "bytes_per_s": show_rate,
    "flops_per_s": lambda v: f"{show_count(v)} FLOP/s",
    "s": lambda v: f"{v * 1e6:,.0f} µs",
    "count": lambda v: f"{v:,.0f}",
}


def existing(place: Path) -> Path:
    """``place`` where something is; KvroomError otherwise."""
    if not place.exists():
        fix = "Give a folder that may be written, a large file, or --no-disk."
        raise KvroomError("--disk", str(place), "does not exist", fix)
    return place


def complete(probe: Probe) -> None:
    """KvroomError where too little was found for a machine file."""
    for key in ("memory_bytes", "memory_bytes_per_s"):
        if not probe.machine.get(key):
            why = "could not be measured: " + "; ".join(probe.missing)
            raise KvroomError(key, None, why, "Raise --memory-share, or write the file by hand.")


def tell(what: str) -> None:
    """Say what is being measured, where someone is looking."""
    if sys.stderr.isatty():
        click.echo(f"measuring {what} …", err=True)


def show(probe: Probe, out: str | None) -> str:
    """The whole answer."""
    blocks = [click.style(paragraph(str(probe.machine.get("name", "This machine")), ""), bold=True)]
    blocks.append("\n".join([_head(), *(_line(row) for row in probe.figures)]))
    blocks.append("\n".join(paragraph(remark, "! ") for remark in probe.remarks))
    blocks.append("\n".join(paragraph(f"not measured: {m}", "? ") for m in probe.missing))
    if out is not None:
        blocks.append(paragraph(f"Written to {out}. Use it: kvroom plan MODEL --gpu {out}", ""))
    else:
        blocks.append(paragraph("Nothing is written: --out FILE keeps it for --gpu FILE.", ""))
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def _head() -> str:
    return f"  {'':24}{'measured':>14}{'catalogue':>13}  how"


def _line(row: Row) -> str:
    show = _SHOW[row.unit]
    measured = "-" if row.measured is None else show(row.measured)
    expected = "-" if row.expected is None else show(row.expected)
    first, *more = wrap(row.how, 25) or [""]
    told = "".join(f"\n{'':55}{rest}" for rest in more)
    return f"  {row.name:24}{measured:>14}{expected:>13}  {first}{told}"
