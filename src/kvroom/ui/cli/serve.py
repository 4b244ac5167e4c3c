"""``kvroom serve``."""

from __future__ import annotations

import click

from kvroom.errors import KvroomError
from kvroom.ui.cli.shell import answers_errors


@click.command(epilog="Example: kvroom serve --port 8642")
@click.option("--host", default="127.0.0.1", help="Address to listen on (default: this machine).")
@click.option("--port", default=8642, type=click.IntRange(1, 65535), help="Port (default: 8642).")
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@click.option(
    "--watch",
    metavar="URL",
    help="Show the engine at this address beside the plan (as kvroom watch).",
)
@answers_errors
def serve(host: str, port: int, open_browser: bool, watch: str | None) -> None:
    """Serve the page on 127.0.0.1."""
    try:
        from kvroom.ui.web import server
    except ModuleNotFoundError as error:
        fix = "Run: pip install kvroom[serve]"
        raise KvroomError("serve", str(error.name), "is not installed", fix) from None
    server.serve(port=port, host=host, open_browser=open_browser, watch=watch)
