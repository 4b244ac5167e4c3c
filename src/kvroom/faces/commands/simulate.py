"""``kvroom simulate``."""

from __future__ import annotations

import click

from kvroom.faces.shell import answers_errors, json_option


@click.command(epilog="Example: kvroom simulate --script script.json")
@click.option(
    "--script", "script_file", metavar="FILE", required=True, help="Engine and requests (-: stdin)."
)
@json_option
@answers_errors
def simulate(script_file: str, as_json: bool) -> None:
    """What happens when requests come: steps, cache hits, preemptions.

    A script holds an engine's settings and requests with their token ids; it is played against the
    engine's scheduling rules alone, clocked in engine steps.
    """
    from kvroom.faces import simulate as face

    face.script(script_file, as_json=as_json)
