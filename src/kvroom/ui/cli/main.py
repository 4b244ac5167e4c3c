"""The command line: thin shells round the same calls that the page and the Python API make."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from kvroom import __version__
from kvroom.ui.terminal.plain import colour, spell_out

COMMANDS = (
    "calibrate",
    "check",
    "compare",
    "gpus",
    "launch",
    "levers",
    "models",
    "plan",
    "probe",
    "prove",
    "reconcile",
    "reuse",
    "schema",
    "search",
    "serve",
    "simulate",
    "watch",
)
"""Each is the function of its name in ``ui/cli``."""


class Commands(click.Group):
    """The commands, each imported only when it is asked for, on any terminal."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Every command's name."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name, None for an unknown one."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"kvroom.ui.cli.{name}"), name)
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Spell signs out where a terminal shows ASCII only, then run as any group does."""
        spell_out()
        return super().main(*args, **kwargs)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Example: kvroom plan llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic",
)
@click.version_option(__version__, prog_name="kvroom")
@click.pass_context
def main(context: click.Context) -> None:
    """Where every byte of a served language model goes, and how many requests have room.

    You are not renting the weights, you are renting the cache.
    """
    context.color = colour()


if __name__ == "__main__":
    main()
