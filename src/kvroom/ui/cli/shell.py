"""What every command shares: errors told in one sentence, JSON out, exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from kvroom.errors import KvroomError
from kvroom.ui.terminal.plain import ascii_only


def answers_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """One sentence and exit status 2 for a bad question, 3 for what an engine would refuse; in JSON mode
    the ``error`` object."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KvroomError as error:
            refuse(error, as_json=bool(kwargs.get("as_json")))
        except RecursionError:
            refuse(
                KvroomError("input", "…", "is nested too deeply", "Give a plain one."),
                as_json=bool(kwargs.get("as_json")),
            )

    return run


def say(value: Any, *, pretty: bool = True) -> None:
    """Print ``value`` as JSON."""
    from kvroom.ui import codec

    click.echo(codec.encode(value, pretty=pretty, ascii_only=ascii_only()))


def refuse(error: KvroomError, *, as_json: bool) -> None:
    """Say what is wrong and end with its exit status."""
    if as_json:
        say({"error": error.as_dict()}, pretty=False)
    else:
        click.echo(f"kvroom: {error}", err=True)
    sys.exit(error.exit_status)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
