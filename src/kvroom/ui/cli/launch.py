"""``kvroom launch``."""

from __future__ import annotations

import sys
from typing import Any

import click

from kvroom.ui.cli.options import scenario_from, scenario_options
from kvroom.ui.cli.shell import WOULD_NOT_START, answers_errors, json_option, say


@click.command(
    epilog="Example: kvroom launch llama-3-70b --gpu H100-SXM:4 --context 32K --engine vllm"
)
@scenario_options
@click.option("--format", "form", metavar="FORM", default="shell", help="shell or helm (vLLM).")
@json_option
@answers_errors
def launch(*, form: str, as_json: bool, **given: Any) -> None:
    """The engine's command line (or Helm values) that realises a plan.

    `kvroom plan --from-command` reads such a command, or one that you have, back. No command that its
    engine would refuse is handed out: exit status 3 then, and why.
    """
    from kvroom.ui.terminal import launch as face

    made = face.ask(scenario_from(given))
    if made.refused:
        if as_json:
            say({"refused": made.refused, "scenario": made.scenario})
        else:
            click.echo(made.refused, err=True)
        sys.exit(WOULD_NOT_START)
    if as_json:
        say(made)
    else:
        click.echo(face.show(made, form))
