"""``kvroom simulate``: what happens when requests come."""

from __future__ import annotations

import click

from kvroom.faces import codec
from kvroom.simulation.results import Played
from kvroom.simulation.script import Script


def script(path: str, *, as_json: bool) -> None:
    """Play the script of a JSON file and print what came of it."""
    played = Script.from_dict(codec.read_json(path, "--script")).play()
    if as_json:
        click.echo(codec.encode(played.to_dict()))
    else:
        click.echo(summary(played))


def summary(played: Played) -> str:
    """The totals of a run in a few lines."""
    totals = played.totals
    dropped = f", {totals.dropped:,} dropped (they can never be served)" if totals.dropped else ""
    return "\n".join(
        [
            f"requests     {totals.completed:,} completed{dropped}",
            f"steps        {played.total_steps:,}, {totals.scheduled_tokens:,} tokens computed",
            f"cache hits   {totals.cached_tokens_first:,} tokens at first schedule, "
            f"{totals.cached_tokens_all:,} with those after preemptions",
            f"preemptions  {totals.preemptions:,}",
            f"peaks        {totals.peak_blocks_in_use:,} blocks in use, "
            f"{totals.peak_running:,} running, {totals.peak_waiting:,} waiting",
        ]
    )
