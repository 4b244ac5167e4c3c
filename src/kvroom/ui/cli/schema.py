"""``kvroom schema``."""

from __future__ import annotations

import click

from kvroom.ui import codec
from kvroom.ui.cli.shell import answers_errors, say


@click.command(epilog="Example: kvroom schema > kvroom.schema.json")
@click.option("--json", "as_json", is_flag=True, help="JSON, as it is anyway.")
@answers_errors
def schema(as_json: bool) -> None:
    """Print the JSON schema of Scenario, Plan and Check."""
    say(codec.schema())
