"""``kvroom mcp``."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from kvroom.errors import KvroomError
from kvroom.ui.cli.shell import answers_errors

VARIABLE = "KVROOM_PAGE"


@click.command(epilog="Example: kvroom mcp, as the command that the client starts")
@click.option(
    "--page",
    metavar="ADDRESS",
    default="",
    envvar=VARIABLE,
    help=f"A page that its users can open, which answers link to (or {VARIABLE}; default: no links).",
)
@answers_errors
def mcp(page: str) -> None:
    """Answer agents over stdio (model context protocol).

    Tools: plan, check, reconcile, levers, search, simulate. A client starts this command itself; it reads
    requests from standard input until that is closed. kvroom site writes a page that can be put anywhere.
    """
    if page and urlsplit(page).scheme not in ("http", "https", "file"):
        fix = "Write it whole, such as https://example.org/kvroom/."
        raise KvroomError("--page", page, "is no address of a page", fix)
    try:
        from kvroom.ui import mcp_server
    except ModuleNotFoundError as error:
        fix = "Run: pip install kvroom[mcp]"
        raise KvroomError("mcp", str(error.name), "is not installed", fix) from None
    mcp_server.serve(page.partition("#")[0])
