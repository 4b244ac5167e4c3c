"""``kvroom agents``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.models.catalogue import known
from kvroom.ui.cli.options import (
    pauses_of,
    pauses_option,
    scenario_from,
    scenario_options,
    trace_options,
)
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, file_options, write
from kvroom.ui.terminal.progress import Waiting, seldom_collected
from kvroom.units import parse_count


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom agents agents=40 glm-4.5-air --gpu H200-SXM:8 --context 200K",
)
@click.argument("sessions_of", metavar="TRACE|SPEC")
@scenario_options
@trace_options
@pauses_option
@click.option("--slo", metavar="SLO", help="Objectives (default: ttft_p95=10s,tpot_p95=50ms).")
@click.option(
    "--sessions", metavar="COUNT", help="Sessions that are to be held (of a SPEC its own)."
)
@click.option("--seeds", default="3", metavar="COUNT", help="Draws of the sessions (default: 3).")
@click.option("--seed", metavar="NUMBER", help="Begin with another draw.")
@click.option(
    "--changes", metavar="ID,…", help="Try these only: host, nvme, store … (none: no change)."
)
@click.option("--most", metavar="COUNT", help="Sessions that are tried at most.")
@click.option(
    "--cluster",
    metavar="WORKERS",
    default="processes",
    help="Who works: processes:N, ray, ray:ADDRESS, auto (default: a process a core).",
)
@file_options
@json_option
@answers_errors
def agents(
    *,
    sessions_of: str,
    slo: str | None,
    sessions: str | None,
    seeds: str,
    seed: str | None,
    changes: str | None,
    most: str | None,
    pauses: str | None,
    cluster: str,
    csv: str | None,
    parquet: str | None,
    html: str | None,
    svg: str | None,
    hash_tokens: str | None,
    skip_bad_lines: bool,
    columns: str | None,
    tokenizer: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Say how many sessions of agents hold, and why no more.

    TRACE is a log or trace of sessions, SPEC made-up ones such as agents=40. So many are served at a time by
    simulation; the number that keeps the objectives is found for the deployment as asked, and for changes of
    it: memory below the GPUs, a narrower cache, more GPUs, routers.
    """
    check_places(csv=csv, parquet=parquet, html=html, svg=svg)
    if not (given.get("model_name") or given.get("model_flag")) and known(sessions_of):
        fix = f"Give the trace, or sessions made up, before it: kvroom agents agents=40 {sessions_of}."
        raise KvroomError("TRACE", sessions_of, "is a model", fix)
    scenario = scenario_from(given)
    with seldom_collected(), Waiting("draws") as waiting:
        answer = api.agents(
            sessions_of,
            scenario,
            slo=slo or "",
            sessions=_count("--sessions", sessions),
            seeds=parse_count("--seeds", seeds, low=1, high=1000),
            seed=None if seed is None else parse_count("--seed", seed, low=0, high=2**63),
            only=_ids(changes),
            most=_count("--most", most),
            **pauses_of(pauses),
            cluster=cluster,
            hash_tokens=hash_tokens,
            skip_bad_lines=skip_bad_lines,
            columns=columns,
            tokenizer=tokenizer,
            progress=waiting.tell,
        )
    write(answer, csv=csv, parquet=parquet, html=html, svg=svg)
    if as_json:
        say(answer.to_dict())
        return
    from kvroom.ui.terminal import agents as text

    click.echo(text.show(answer))


def _count(flag: str, text: str | None) -> int | None:
    return None if text is None else parse_count(flag, text, low=1, high=10**6)


def _ids(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip() and part != "none")
