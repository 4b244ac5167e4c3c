"""``kvroom reconcile``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.ui import codec
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import engine_python_option, keys_from, reconcile_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import save


@click.command(
    cls=Sectioned, epilog="Example: kvroom reconcile vllm.log --model llama-3-8b --gpu L40S"
)
@click.argument("file", metavar="FILE", shell_complete=complete)
@click.option(
    "--model",
    metavar="MODEL",
    shell_complete=complete,
    help="The model, where the log does not name a known one.",
)
@reconcile_options
@click.option(
    "--expect",
    metavar="N",
    type=float,
    help="Requests that you reckoned with: the way to the printed.",
)
@click.option("--calibrate", metavar="OUT", help="Write a calibration file from the log.")
@engine_python_option
@json_option
@answers_errors
def reconcile(
    file: str,
    *,
    model: str | None,
    expect: float | None,
    calibrate: str | None,
    engine_python: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Hold an engine's start-up log against the prediction.

    FILE is what vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama or LMDeploy wrote as it started (-:
    standard input; gzip does), or a recording of kvroom watch, or a metrics text. Model, flags and
    figures are read from it; what it does not say is asked for.
    """
    from kvroom.ui.terminal import reconcile as text

    keys = keys_from(given) | ({"model": model} if model else {})
    answer = api.reconcile(file, expect=expect, engine_python=engine_python, **keys)
    if calibrate:
        profile = api.calibration_of(answer, Path(file).name)
        save("--calibrate", calibrate, (codec.encode(profile, pretty=True) + "\n").encode())
    if as_json:
        say(answer)
    else:
        click.echo(text.show(answer))
    if expect is not None and answer.way is None and not (answer.refusals or answer.shortage):
        sys.exit(KvroomError.exit_status)  # what was asked has no answer
