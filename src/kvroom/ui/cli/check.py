"""``kvroom check``."""

from __future__ import annotations

import sys
from typing import Any

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.command_line import FLAGS
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import key_options, keys_from, set_option, settings_from
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors

_KEYS = (
    "--gpu", "--gpu-count", "--engine-version", "--context", "--kv-dtype", "--weight-dtype", "--input-tokens",
    "--output-tokens", "--rate",
)  # fmt: skip


def _options(command: Any) -> Any:
    for option in reversed(key_options(*(flag for flag, _, _, _ in FLAGS if flag in _KEYS))):
        command = option(command)
    return command


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom check deploy/*.yaml --gpu H100-SXM --expect concurrency=16",
)
@click.argument("files", nargs=-1, metavar="FILE…", shell_complete=complete)
@click.option(
    "--model",
    metavar="MODEL",
    shell_complete=complete,
    help="The model of files that name none that is known.",
)
@_options
@click.option("--users", metavar="N", help="Users at once, for promises of times.")
@set_option
@click.option(
    "--expect", default="", metavar="PROMISES", help="What was promised: concurrency=16,ttft_p95=1s"
)
@click.option(
    "--format", "form", default="text", metavar="FORM", help="text, json, sarif, github or junit."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--fix", "fixes", is_flag=True, help="Print a patch with the flags that make it start."
)
@click.option("--skip-others", is_flag=True, help="Pass over files that start no engine.")
@answers_errors
def check(
    *,
    files: tuple[str, ...],
    model: str | None,
    settings: tuple[str, ...],
    expect: str,
    form: str,
    as_json: bool,
    fixes: bool,
    skip_others: bool,
    **given: Any,
) -> None:
    """Tell before launch whether what a file starts holds.

    FILE is a shell script, a Dockerfile, a compose file, a Kubernetes object, a chart's values, a KServe,
    Dynamo or Ray Serve file, an Ollama Modelfile, a systemd unit (-: standard input). Nothing of it is
    run. Exit status 0 where all is fine, 1 with a finding, 2 where a file could not be read.
    """
    from kvroom.ui.check_formats import FORMS, no_form
    from kvroom.ui.terminal import check as text

    form = "json" if as_json else form
    if form != "text" and form not in FORMS:
        raise KvroomError("--format", form, "is no form of a check", no_form(form))
    if not files and not skip_others:
        raise KvroomError(
            "FILE", None, "is missing", "Name the files to check (-: standard input)."
        )
    keys = keys_from(given) | ({"model": model} if model else {})
    values = settings_from(settings)
    if fixes:
        for file in files:
            click.echo(api.check_patch(file, settings=values, **keys), nl=False)
    report = api.check(*files, expect=expect, settings=values, skip_others=skip_others, **keys)
    shown = text.show(report) if form == "text" else FORMS[form](report)
    if shown:
        click.echo(shown, err=fixes)
    sys.exit(report.exit_status)
