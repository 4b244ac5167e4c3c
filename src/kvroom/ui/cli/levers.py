"""``kvroom levers``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.ui.cli.options import scenario_from, scenario_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, file_options, write
from kvroom.units import parse_count


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom levers llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic",
)
@scenario_options
@click.option(
    "--by", default="requests", metavar="FIGURE", help="Rank by requests, step, ttft or cost."
)
@click.option("--together", metavar="ID,ID,…", help="Levers to combine (default: the best).")
@click.option(
    "--simulate",
    is_flag=True,
    help="Serve the workload with drafts, tiers and split pools too (takes longer).",
)
@click.option("--trace", metavar="FILE", help="Serve the requests of a trace (with --simulate).")
@click.option("--sessions", metavar="COUNT", help="Sessions of the trace at a time.")
@click.option("--all", "everything", is_flag=True, help="Show those that do not help too.")
@file_options
@json_option
@answers_errors
def levers(
    *,
    by: str,
    together: str | None,
    simulate: bool,
    trace: str | None,
    sessions: str | None,
    everything: bool,
    csv: str | None,
    parquet: str | None,
    html: str | None,
    svg: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Rank every lever by requests, step time and cost.

    Each lever is one change of the question, pulled alone and with others; what it needs, and what it
    costs in quality where somebody published it.
    """
    check_places(csv=csv, parquet=parquet, html=html, svg=svg)
    ids = _ids(together) if together else None
    if trace is not None and not simulate:
        raise KvroomError("--trace", trace, "is served with --simulate only", "Add --simulate.")
    many = None if sessions is None else parse_count("--sessions", sessions, low=1, high=10**6)
    answer = api.levers(
        scenario_from(given), by=by, together=ids, simulate=simulate, trace=trace, sessions=many
    )
    write(answer, csv=csv, parquet=parquet, html=html, svg=svg)
    if as_json:
        say(answer.to_dict())
        return
    from kvroom.ui.terminal import levers as text

    click.echo(text.show(answer, everything=everything))


def _ids(text: str) -> list[str]:
    """The ids of a list with commas, some of which hold commas themselves (``gpu_count=8,tp=8``)."""
    ids: list[str] = []
    for part in text.split(","):
        grown = ids and part.partition("=")[0].strip() in ("tp", "pp", "dp", "ep", "dcp")
        if grown and ids[-1].startswith(("gpu_count=", "tp=", "pp=", "dp=", "ep=")):
            ids[-1] += f",{part.strip()}"
        else:
            ids.append(part.strip())
    return ids
