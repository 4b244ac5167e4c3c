"""``kvroom compare``."""

from __future__ import annotations

from dataclasses import replace

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import price_option, prices_from
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, file_options, write


@click.command(epilog="Example: kvroom compare bf16.json fp8.json")
@click.argument("questions", metavar="A B [C …]", nargs=-1, shell_complete=complete)
@price_option
@file_options
@json_option
@answers_errors
def compare(
    questions: tuple[str, ...],
    *,
    price: tuple[str, ...],
    csv: str | None,
    parquet: str | None,
    html: str | None,
    svg: str | None,
    as_json: bool,
) -> None:
    """Set Scenario files (JSON or TOML) or links side by side.

    Requests at once, TTFT, TPOT, throughput and dollars, beside what was asked differently.
    """
    check_places(csv=csv, parquet=parquet, html=html, svg=svg)
    if len(questions) < 2:
        fix = "Give two or more Scenario files (JSON or TOML) or links."
        raise KvroomError("compare", len(questions), "is too few to compare", fix)
    prices = prices_from(price)
    scenarios = [question(text) for text in questions]
    comparison = api.compare(
        *(replace(one, prices={**(one.prices or {}), **prices} or None) for one in scenarios)
    )
    write(comparison, csv=csv, parquet=parquet, html=html, svg=svg)
    if as_json:
        say(comparison.to_dict())
        return
    from kvroom.ui.terminal import tables

    tables.compare(comparison.plans)


def question(text: str) -> Scenario:
    """The Scenario of a file or of a link."""
    if "#s=" in text or text.startswith(("http://", "https://")):
        return Scenario.from_link(text)
    return Scenario.from_dict(codec.read_json(text, "compare"))
