"""The command line: thin shells round the same calls that the page and the Python API make."""

from __future__ import annotations

import errno
import gc
import io
import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from kvroom import __version__
from kvroom.errors import KvroomError, nearest
from kvroom.ui.cli.shell import refuse
from kvroom.ui.terminal.plain import MOST_COLUMNS, colour, spell_out
from kvroom.version import is_compiled

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a full or broken disk says of what is printed to it."""
SELDOM = 50_000
"""Objects made between two looks for garbage in circles."""
COMMANDS = {
    "agents": "Say how many sessions of agents hold, and why no more.",
    "calibrate": "Learn a machine's own memory and times from measurements.",
    "check": "Tell before launch whether what a file starts holds.",
    "compare": "Set Scenario files (JSON or TOML) or links side by side.",
    "fit": "Show what fits your own card: models, files, tokens/s.",
    "gpus": "List accelerators known by name; with NAME, its figures.",
    "launch": "Write the engine's command line, manifest or chart values.",
    "levers": "Rank every lever by requests, step time and cost.",
    "mcp": "Answer agents over stdio (model context protocol).",
    "models": "List models known by name; with NAME, its layers.",
    "pack": "Say how several models share one node: cards, shares, bursts.",
    "plan": "Say where every byte goes and how many requests fit.",
    "probe": "Measure this machine's memory tiers, as a machine file.",
    "prove": "Measure a running vLLM beside its plan.",
    "reconcile": "Hold an engine's start-up log against the prediction.",
    "reuse": "Say how much of a trace a prefix cache of any size reuses.",
    "schema": "Print the JSON schema of Scenario, Plan and Check.",
    "search": "Find hardware, layout and settings for an objective.",
    "serve": "Serve the page on 127.0.0.1.",
    "simulate": "Play requests: waits, speeds, cache hits, preemptions.",
    "site": "Write the page as files for any static host.",
    "trace": "Make a trace fit to leave the house.",
    "watch": "Show a running engine's cache, filling, beside the plan.",
}
"""Each is the function of its name in ``ui/cli``, with the first sentence of its help: the list of commands
is shown without importing any."""

JOBS = {
    "Will it fit, how fast is it, what does it cost?": ("plan", "fit", "levers", "compare"),
    "Which hardware for these users?": ("search", "agents", "pack"),
    "What happens when the requests come?": ("simulate", "reuse", "trace"),
    "Will this start, and how do I start it?": ("check", "launch"),
    "My engine says something else": ("reconcile", "watch", "prove", "calibrate"),
    "This machine, and what is known": ("probe", "models", "gpus", "schema"),
}
"""Commands by the question that they answer; those of no question come last."""
OTHERS = "As a page, and for agents"
EXAMPLES = """\
\b
Examples (kvroom COMMAND --help has more):
  kvroom plan llama-3.3-70b --gpu 4xH100 --context 32K --users 16
  kvroom reconcile vllm.log --expect 16
  kvroom search qwen3-32b --users 300 --slo ttft_p95=1s \\
      --workload input=2K,output=300"""


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

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with; an unknown one is told with those that look like it."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = [f"kvroom {name}" for name in nearest(args[0], COMMANDS)]
            fix = f"Did you mean {' or '.join(near)}?" if near else "kvroom alone lists them."
            context.fail(f"{args[0]!r} is no command. {fix}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by the question that each answers, with what it says of itself."""
        widest = max(map(len, COMMANDS))
        jobs = {name for names in JOBS.values() for name in names}
        rest = tuple(name for name in COMMANDS if name not in jobs)
        for question, names in {**JOBS, OTHERS: rest}.items():
            formatter.write(f"\n{question}\n")
            for name in names:
                if name in COMMANDS:
                    help_text = click.Command(name, help=COMMANDS[name])
                    sentence = help_text.get_short_help_str(formatter.width - widest - 4)
                    formatter.write(f"  {name:{widest}}  {sentence}\n")

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands first: they are what is looked for."""
        self.format_commands(context, formatter)
        click.Command.format_options(self, context, formatter)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin like ``incomplete``, and options."""
        options = click.Command.shell_complete(self, context, incomplete)
        return [
            CompletionItem(name, help=click.Command(name, help=sentence).get_short_help_str())
            for name, sentence in COMMANDS.items()
            if name.startswith(incomplete)
        ] + options

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Spell signs out where a terminal shows ASCII only, then run as any group does.

        Modules are read, and questions answered, with next to no garbage in circles: it is looked for seldom.
        """
        spell_out()
        if sys.stdin is None:  # a shell's <&-: nothing comes
            sys.stdin = io.TextIOWrapper(io.BytesIO())
        before = gc.get_threshold()
        gc.set_threshold(SELDOM, *before[1:])
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in UNWRITTEN or error.filename is not None:
                raise
            why = f"cannot be written ({(error.strerror or '').lower()})"
            fix = "Send it where there is room."
            refuse(KvroomError("output", None, why, fix), as_json=False)
        finally:
            gc.set_threshold(*before)


def _tell_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(
            f"kvroom, version {__version__} ({'compiled' if is_compiled() else 'pure Python'})"
        )
        context.exit()


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": MOST_COLUMNS,
    },
    subcommand_metavar="COMMAND …",
    options_metavar="",
    epilog=EXAMPLES,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version, whether the simulator is compiled, and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Where every byte of a served language model goes, and how many requests have room.

    You are not renting the weights, you are renting the cache.
    """
    context.color = colour()


if __name__ == "__main__":
    main()
