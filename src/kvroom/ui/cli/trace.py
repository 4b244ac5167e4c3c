"""``kvroom trace``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.ui.cli.options import trace_options
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_writable
from kvroom.ui.terminal.text import paragraph


@click.group()
def trace() -> None:
    """Make a trace fit to leave the house."""


@trace.command(epilog="Example: kvroom trace anonymise requests.jsonl shared.jsonl.gz")
@click.argument("source", metavar="TRACE|SPEC")
@click.argument("out", metavar="OUT")
@click.option(
    "--salt", metavar="TEXT", help="One salt for several files (default: drawn, not kept)."
)
@trace_options
@json_option
@answers_errors
def anonymise(source: str, out: str, *, salt: str | None, as_json: bool, **given: Any) -> None:
    """Write lengths, times and salted block hashes of a log, and no more.

    Nothing that was said is written, no name and no date: requests by number from the first one's time on,
    sessions by number, what waits for what, and hashes that tell which prompts begin alike within the file.
    OUT is gzipped where its name ends in .gz.
    """
    check_writable("OUT", out)
    summary = api.anonymise(source, out, key=None if salt is None else salt.encode()[:64], **given)
    if as_json:
        say(summary | {"out": out})
        return
    text = f"{summary['requests']:,} requests are in {out}, with {summary['blocks']:,} salted block hashes."
    click.echo(paragraph(text, ""))
    for warning in summary["warnings"]:
        click.echo(paragraph(f"Note: {warning}.", ""))
