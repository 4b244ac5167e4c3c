"""``kvroom reuse``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.planner.reuse import capacities_of
from kvroom.ui import codec
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import trace_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom reuse trace.jsonl.gz --policy lru --capacity 10000,100000",
)
@click.argument("trace", metavar="TRACE", required=False, shell_complete=complete)
@click.option("--workload", metavar="SPEC", help="A made-up workload in place of TRACE.")
@click.option(
    "--block-tokens", metavar="TOKENS", help="A block's size (default: a hash id's, or 16)."
)
@click.option(
    "--policy", "policies", multiple=True, help="lru, lru-tail, fifo, lfu, belady (repeatable)."
)
@click.option("--capacity", metavar="A,B,…", help="Cache sizes in blocks.")
@click.option(
    "--model",
    metavar="MODEL",
    shell_complete=complete,
    help="Tell sizes in bytes of this model's cache.",
)
@click.option(
    "--kv-dtype", metavar="DTYPE", default="auto", help="Its cache's width (default: auto)."
)
@click.option("--hbm", metavar="SIZE", help="Room for prefixes in GPU memory.")
@click.option("--host", metavar="SIZE", help="Room for prefixes in host memory.")
@click.option("--nvme", metavar="SIZE", help="Room for prefixes on NVMe.")
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="KIND:SIZE",
    help="The same as simulate's: host:512GiB, nvme:4TB, network:20TB (repeatable).",
)
@trace_options
@json_option
@answers_errors
def reuse(
    *,
    capacity: str | None,
    hbm: str | None,
    host: str | None,
    nvme: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Say how much of a trace a prefix cache of any size reuses.

    TRACE is a file of any known format, plain or packed (gzip, xz, zstd), or a folder of such; any other
    CSV or JSONL is read by --columns.
    """
    rooms = {"hbm": hbm, "host": host, "nvme": nvme}
    answer = api.reuse(
        **given,
        capacities=capacities_of(capacity),
        rooms={name: size for name, size in rooms.items() if size is not None},
    )
    if as_json:
        click.echo(codec.encode(answer.to_dict(), pretty=True))
        return
    from kvroom.ui.terminal import reuse as text

    click.echo(text.show(answer))
