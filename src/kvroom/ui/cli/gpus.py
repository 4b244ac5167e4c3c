"""``kvroom gpus``."""

from __future__ import annotations

import click

from kvroom import api
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.shell import answers_errors, json_option, say


@click.command(epilog="Example: kvroom gpus H100-SXM")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete)
@json_option
@answers_errors
def gpus(name: str | None, as_json: bool) -> None:
    """List accelerators known by name; with NAME, its figures."""
    from kvroom.ui.terminal import tables

    if name is not None:
        device = api.gpu(name)
        if as_json:
            say(device.to_dict())
        else:
            tables.gpu(device)
        return
    devices = [api.gpu(name) for name in api.gpus()]
    if as_json:
        say({"gpus": [device.to_dict() for device in devices]})
    else:
        tables.gpus(devices)
