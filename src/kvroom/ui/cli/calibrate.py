"""``kvroom calibrate``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.ui import codec
from kvroom.ui.cli.options import keys_from, reconcile_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import save


@click.command(
    cls=Sectioned, epilog="Example: kvroom calibrate monday.log tuesday.log --out ours.json"
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--model", metavar="MODEL", help="The model, where a file names no known one.")
@reconcile_options
@click.option("--out", metavar="FILE", help="Write the calibration file there.")
@json_option
@answers_errors
def calibrate(
    files: tuple[str, ...], model: str | None, out: str | None, as_json: bool, **given: Any
) -> None:
    """Learn a machine's own memory and times from measurements.

    Each log is predicted with what the others measured, so the error after is of logs that were not
    learned from. Times come from outputs of benchmarks (vLLM's bench serve, SGLang's, llama-bench,
    GuideLLM, AIPerf, GenAI-Perf, inference-perf), recordings, a log's lines of throughput and
    records of kvroom prove, and are judged likewise. Files that teach nothing end it with exit
    status 2. What is written serves --calibration FILE anywhere.
    """
    from kvroom.ui.terminal import calibrate as text

    keys = keys_from(given) | ({"model": model} if model else {})
    answer = api.calibrate(files, **keys)
    if out is not None:
        save("--out", out, (codec.encode(answer.content(), pretty=True) + "\n").encode())
    if as_json:
        say(answer.to_dict())
    else:
        click.echo(text.show(answer, out))
