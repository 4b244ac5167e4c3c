"""``kvroom mcp``."""

from __future__ import annotations

import click

from kvroom.errors import KvroomError
from kvroom.ui.cli.shell import answers_errors


@click.command(epilog="Example: kvroom mcp, as the command that the client starts")
@answers_errors
def mcp() -> None:
    """Answer agents over stdio (model context protocol).

    Tools: plan, check, reconcile, levers, search, simulate. A client starts this command itself; it reads
    requests from standard input until that is closed.
    """
    try:
        from kvroom.ui import mcp_server
    except ModuleNotFoundError as error:
        fix = "Run: pip install kvroom[mcp]"
        raise KvroomError("mcp", str(error.name), "is not installed", fix) from None
    mcp_server.serve()
