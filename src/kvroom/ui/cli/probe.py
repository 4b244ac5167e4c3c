"""``kvroom probe``."""

from __future__ import annotations

from pathlib import Path

import click

from kvroom import api
from kvroom.ui.cli.shell import answers_errors, json_option, say


@click.command(epilog="Example: kvroom probe --out machine.json")
@click.option("--out", metavar="FILE", help="Write the machine file there (a .json file).")
@click.option(
    "--memory-share",
    default=0.1,
    type=click.FloatRange(0.001, 0.5),
    help="Use at most this share of free memory, the host's and a GPU's (default: 0.1).",
)
@click.option(
    "--disk",
    metavar="PATH",
    default=".",
    help="Read a test file in this folder, or this file itself (default: here).",
)
@click.option("--no-disk", is_flag=True, help="Leave the disk out.")
@click.option(
    "--gpu-python", metavar="PROGRAM", help="A Python that has torch or CuPy (default: this one)."
)
@json_option
@answers_errors
def probe(
    *,
    out: str | None,
    memory_share: float,
    disk: str,
    no_disk: bool,
    gpu_python: str | None,
    as_json: bool,
) -> None:
    """Measure this machine's memory tiers, as a machine file.

    GPUs through their driver and, where torch or CuPy is installed, by short runs; CPU caches, memory
    and disk on any machine; control groups' limits honoured. It says what it could not measure.
    """
    from kvroom.observe.probe import machine as machine_files
    from kvroom.ui.terminal import probe as text

    if out is not None:
        machine_files.checked_path(out)
    answer = api.probe(
        memory_share=memory_share,
        disk=None if no_disk else text.existing(Path(disk)),
        gpu_python=gpu_python,
        progress=text.tell,
    )
    if out is not None:
        text.complete(answer)
        machine_files.write(answer.machine, out)
    if as_json:
        say(answer.machine)
    else:
        click.echo(text.show(answer, out))
