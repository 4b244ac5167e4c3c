"""``kvroom site``."""

from __future__ import annotations

from pathlib import Path

import click

from kvroom.ui.cli.shell import answers_errors


@click.command(epilog="Example: kvroom site build/site --pyodide node_modules/pyodide")
@click.argument("folder", metavar="DIR")
@click.option(
    "--pyodide",
    metavar="FOLDER",
    required=True,
    help="npm's folder of that name: Python for browsers.",
)
@answers_errors
def site(folder: str, pyodide: str) -> None:
    """Write the page as files for any static host.

    Python runs in the reader's browser: the host answers nothing, and no other is asked.
    """
    from kvroom.ui.web.site import write

    written = write(Path(folder), Path(pyodide))
    size = sum(written.files.values())
    click.echo(f"The page is in {folder}: {len(written.files)} files, {size / 1e6:.1f} MB.")
    if not written.bytecode:
        click.echo("No Node here: Python's sources are in it, and it starts more slowly.")
    click.echo("Any host of plain files shows it; here: python -m http.server -d " + folder)
