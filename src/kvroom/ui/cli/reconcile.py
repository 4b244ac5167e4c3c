"""``kvroom reconcile``."""

from __future__ import annotations

from typing import Any

import click

from kvroom.ui.cli.options import reconcile_options
from kvroom.ui.cli.shell import answers_errors, json_option, say


@click.command(epilog="Example: kvroom reconcile vllm.log --model llama-3-8b --gpu L40S")
@click.argument("file", metavar="FILE")
@click.option(
    "--model", metavar="MODEL", help="The model, where the log does not name a known one."
)
@reconcile_options
@click.option(
    "--expect",
    metavar="N",
    type=float,
    help="Requests that you reckoned with: the way to the printed.",
)
@click.option("--calibrate", metavar="OUT", help="Write a calibration file from the log.")
@json_option
@answers_errors
def reconcile(
    file: str,
    model: str | None,
    expect: float | None,
    calibrate: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """An engine's own start-up log against the prediction, account by account.

    FILE is what vLLM, SGLang, TensorRT-LLM, llama.cpp or Ollama wrote as it started (-: standard
    input; gzip does), or a recording of kvroom watch, or a metrics text. Model, flags and figures are
    read from it; what it does not say is asked for.
    """
    from kvroom.ui.terminal import reconcile as face

    answer = face.ask(file, model, given, calibrate, expect)
    if as_json:
        say(answer)
    else:
        click.echo(face.show(answer))
