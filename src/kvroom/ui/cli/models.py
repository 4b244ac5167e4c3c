"""``kvroom models``."""

from __future__ import annotations

import click

from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.shell import answers_errors, json_option, say


@click.command(epilog="Example: kvroom models gemma-3-27b")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete)
@json_option
@answers_errors
def models(name: str | None, as_json: bool) -> None:
    """List models known by name; with NAME, its layers.

    NAME may be all that plan takes: a catalogue name, a config.json, a GGUF file …
    """
    from kvroom.ui.terminal import tables

    if name is None:
        rows = tables.model_rows()
        if as_json:
            say({"models": rows})
        else:
            tables.models(rows)
        return
    card = tables.model_card(name)
    if as_json:
        say(card)
    else:
        tables.model(card)
