"""The command line: thin shells round the same calls that the page and the Python API make."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from kvroom import __version__
from kvroom.ui.terminal.plain import colour, spell_out

COMMANDS = {
    "calibrate": "Learn a machine's own memory and times from measurements.",
    "check": "Tell before launch whether what a file starts holds.",
    "compare": "Set Scenario files or links side by side.",
    "gpus": "List accelerators known by name; with NAME, its figures.",
    "launch": "Write the engine's command line, manifest or chart values.",
    "levers": "Rank every lever by requests, step time and cost.",
    "mcp": "Answer agents over stdio (model context protocol).",
    "models": "List models known by name; with NAME, its layers.",
    "plan": "Say where every byte goes and how many requests fit.",
    "probe": "Measure this machine's memory tiers, as a machine file.",
    "prove": "Measure a running vLLM beside its plan.",
    "reconcile": "Hold an engine's start-up log against the prediction.",
    "reuse": "Say how much of a trace a prefix cache of any size reuses.",
    "schema": "Print the JSON schema of Scenario, Plan and Check.",
    "search": "Find hardware, layout and settings for an objective.",
    "serve": "Serve the page on 127.0.0.1.",
    "simulate": "Play requests: waits, speeds, cache hits, preemptions.",
    "watch": "Show a running engine's cache, filling, beside the plan.",
}
"""Each is the function of its name in ``ui/cli``, with the first sentence of its help: the list of commands
is shown without importing any."""


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

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with what it says of itself."""
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, click.Command(name, help=sentence).get_short_help_str(limit))
                    for name, sentence in COMMANDS.items()
                ]
            )

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin like ``incomplete``, and options."""
        options = click.Command.shell_complete(self, context, incomplete)
        return [
            CompletionItem(name, help=click.Command(name, help=sentence).get_short_help_str())
            for name, sentence in COMMANDS.items()
            if name.startswith(incomplete)
        ] + options

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
