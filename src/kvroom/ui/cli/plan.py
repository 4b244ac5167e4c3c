"""``kvroom plan``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import click

from kvroom import api
from kvroom.errors import KvroomError, StartRefused
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import engine_python_option, scenario_from, scenario_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, report_options, write

if TYPE_CHECKING:
    from kvroom.answer.plan import Plan
    from kvroom.optimize.sweep import Curve


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom plan llama-3.1-70b --gpu H100-SXM:4 --context 32K --kv-dtype fp8",
)
@scenario_options
@click.option(
    "--jsonl",
    shell_complete=complete,
    metavar="FILE",
    help="A Scenario a line in, a Plan a line out (-: stdin).",
)
@click.option(
    "--explain", "explained", is_flag=True, help="Show every figure's formula and numbers."
)
@click.option(
    "--sweep",
    "curve",
    metavar="KEY=FROM..TO",
    shell_complete=complete,
    help="A curve over any key: batch=1..256, context, users, rate, gpu_count, "
    "weight_dtype=bf16,fp8, engine_args.FLAG=A,B …",
)
@click.option("--all", "everything", is_flag=True, help="Show every account, tier and step too.")
@click.option("--csv", "as_csv", is_flag=True, help="With --sweep: print CSV.")
@report_options
@click.option("--link", "as_link", is_flag=True, help="Print the page's address for this question.")
@engine_python_option
@click.option("--strict", is_flag=True, help="Exit with 3 where the engine's own start would fail.")
@json_option
@answers_errors
def plan(
    *,
    jsonl: str | None,
    explained: bool,
    curve: str | None,
    everything: bool,
    as_csv: bool,
    html: str | None,
    svg: str | None,
    as_link: bool,
    engine_python: str | None,
    strict: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Say where every byte goes and how many requests fit.

    MODEL is a catalogue name or hub id, a config.json or a folder with one, a .gguf file, a
    safetensors index, or a link from the page. Sizes: 80GB is decimal, 80GiB binary; tokens: 8K is
    8,192.
    """
    if as_csv and curve is None:
        raise KvroomError("--csv", None, "prints a curve, and none is asked for", "Add --sweep.")
    check_places(html=html, svg=svg)
    if engine_python is not None and (jsonl or curve or as_link):
        fix = "Ask it one question at a time, without --jsonl, --sweep and --link."
        raise KvroomError("--engine-python", engine_python, "is asked about one plan", fix)
    if jsonl is not None:
        sys.exit(0 if plan_lines(jsonl) else 1)
    notes: list[str] = []
    scenario = scenario_from(given, notes)
    if as_link:
        click.echo(scenario.link())
        return
    if curve is not None:
        swept = api.sweep(curve, scenario)
        write(swept, html=html, svg=svg)
        print_curve(swept, as_json=as_json, as_csv=as_csv)
        return
    workings = api.workings(scenario, engine_python=engine_python)
    if notes:
        workings = replace(
            workings, plan=replace(workings.plan, warnings=(*notes, *workings.plan.warnings))
        )
    write(workings.plan, html=html, svg=svg)
    if as_json:
        from kvroom.planner.tiers import plan_json

        answer: Any = plan_json(workings)
        if explained:
            from kvroom.planner.explain import explain

            answer["explanations"] = explain(workings)
        say(answer)
    else:
        from kvroom.ui.terminal import plan as text

        if everything:
            click.echo(text.show(workings))
        else:
            from kvroom.ui.terminal.brief import brief

            click.echo(brief(workings))
        if explained:
            from kvroom.planner.explain import explain

            click.echo("\n" + text.show_explanations(explain(workings)))
    if strict and not workings.plan.verdict.starts:
        sys.exit(StartRefused.exit_status)


def print_curve(curve: Curve, *, as_json: bool, as_csv: bool) -> None:
    """Print the curve that ``--sweep`` asks for."""
    from kvroom.ui.terminal import curve as text

    if as_json:
        say(text.as_json(curve))
    else:
        click.echo((text.as_csv if as_csv else text.show)(curve))


def plan_lines(path: str) -> bool:
    """Answer a Scenario a line; True where none of them failed."""
    good = True
    with _opened(path) as file:
        for line in whole_lines(file):
            if not line.strip():
                continue
            answer = plan_line(line)
            good = good and not isinstance(answer, dict)
            say(answer if isinstance(answer, dict) else answer.to_dict(), pretty=False)
    return good


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Every line; of one longer than any Scenario only so much that it is refused for its length."""
    limit = codec.MAX_SCENARIO_BYTES + 1
    while line := file.readline(limit):
        yield line
        while len(line) == limit and not line.endswith(b"\n"):
            line = file.readline(limit)


def plan_line(line: bytes) -> Plan | dict[str, Any]:
    """The Plan of one line, or its ``error`` object."""
    try:
        return api.plan(Scenario.from_dict(codec.decode(line)))
    except KvroomError as error:
        return {"error": error.as_dict()}
    except RecursionError:
        deep = KvroomError("scenario", "…", "is nested too deeply", "Give a plain one.")
        return {"error": deep.as_dict()}


def _opened(path: str) -> IO[bytes]:
    if path == "-":
        return click.open_file("-", "rb")
    try:
        return open(path, "rb")  # noqa: PTH123
    except (OSError, ValueError):
        fix = "Give a file with one Scenario a line, or - for standard input."
        raise KvroomError("--jsonl", path, "cannot be opened", fix) from None
