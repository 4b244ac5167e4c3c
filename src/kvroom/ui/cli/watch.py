"""``kvroom watch``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.ui.cli.options import scenario_from, scenario_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option


@click.command(
    cls=Sectioned, epilog="Example: kvroom watch http://127.0.0.1:8000 --record run.jsonl"
)
@click.argument("url", metavar="URL")
@scenario_options
@click.option(
    "--interval",
    "interval_s",
    default=1.0,
    type=click.FloatRange(0.05, 3600),
    help="Seconds between samples (default: 1).",
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many samples.")
@click.option(
    "--window",
    "window_s",
    default=60.0,
    type=click.FloatRange(1, 3600),
    help="Rates and percentiles are of so many last seconds (default: 60).",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=5.0,
    type=click.FloatRange(0.1, 600),
    help="Seconds that an answer may take (default: 5).",
)
@click.option("--record", metavar="FILE", help="Write every sample there (JSON lines).")
@click.option(
    "--trace", metavar="FILE", help="Of a recording: write a trace of its requests there."
)
@json_option
@answers_errors
def watch(
    *,
    url: str,
    interval_s: float,
    count: int | None,
    window_s: float,
    timeout_s: float,
    record: str | None,
    trace: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show a running engine's cache, filling, beside the plan.

    URL is the server's address (vLLM, SGLang with --enable-metrics, llama.cpp's with --metrics); no
    other is contacted. With MODEL and the options of plan, what the plan says stands beside. URL may be
    a recording that --record wrote: it is told again, and --trace makes a trace of it.
    """
    from kvroom.ui.terminal import watch as text

    plan = api.plan(scenario_from(given)) if any(given.values()) else None
    if text.is_recording(url):
        text.replay(url, trace, as_json=as_json)
        return
    text.refuse_trace(trace)
    text.run(
        url,
        plan,
        interval_s=interval_s,
        count=count,
        window_s=window_s,
        timeout_s=timeout_s,
        record=record,
        as_json=as_json,
    )
