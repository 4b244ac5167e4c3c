"""``kvroom launch``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.ui.cli.options import scenario_from, scenario_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom launch llama-3.1-70b --gpu H100-SXM:4 --context 32K --engine vllm",
)
@scenario_options
@click.option(
    "--format",
    "form",
    metavar="FORM",
    default="shell",
    help="shell, helm, compose, kubernetes, kserve, llm-d, dynamo or ray-serve.",
)
@json_option
@answers_errors
def launch(*, form: str, as_json: bool, **given: Any) -> None:
    """Write the engine's command line, manifest or chart values.

    `kvroom plan --from-command` reads such a command, or one that you have, back. No command that its
    engine would refuse is handed out: exit status 3 then, and why.
    """
    command = api.launch(scenario_from(given))
    if as_json:
        say(command)
    else:
        click.echo(command.text(form))
