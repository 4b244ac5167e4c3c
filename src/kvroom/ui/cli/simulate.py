"""``kvroom simulate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.optimize.split import Stopped
from kvroom.planner.simulate import parse_slo
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.cli.options import (
    cluster_options,
    engine_python_option,
    pauses_of,
    pauses_option,
    play_options,
    scenario_from,
    scenario_options,
    trace_options,
)
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, report_options, write
from kvroom.ui.rows import RowFile
from kvroom.ui.terminal.cluster import splits_text
from kvroom.ui.terminal.progress import Progress, seldom_collected, units_progress
from kvroom.ui.terminal.scaling import scaling_text
from kvroom.units import parse_count
from kvroom.workloads.synthetic import of_workload

STOPPED = 130
"""The exit status of a run that was ended with Ctrl-C."""


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom simulate llama-3-70b --gpu H100-SXM:4 "
    "--workload arrivals=poisson:2/s,input=1000,output=200,requests=2000",
)
@scenario_options
@click.option(
    "--trace", metavar="FILE", help="The requests: a trace of any known format, or a folder."
)
@trace_options
@click.option("--seed", metavar="NUMBER", help="Draw the workload anew.")
@click.option("--seeds", metavar="COUNT", help="Draw it so many times: bands over seeds.")
@click.option("--warmup", metavar="COUNT", help="Leave the first requests out of the times.")
@play_options
@pauses_option
@click.option("--slo", metavar="SLO", help="What is wanted: ttft_p95=2s,tpot_p95=50ms.")
@click.option("--per-request", metavar="OUT", help="Write one line a request (.jsonl, .parquet).")
@click.option(
    "--splits", is_flag=True, help="Try every prefill:decode split of --disaggregation's GPUs."
)
@click.option("--cliff", metavar="KEY=FROM..TO", help="Sweep rate or kv_blocks; where p99 breaks.")
@click.option(
    "--scale-to",
    metavar="KEY=A..B",
    multiple=True,
    help="Sweep the autoscaler: the cheapest target within the objectives (waiting=2..64).",
)
@click.option(
    "--day",
    "by_hour",
    is_flag=True,
    help="A day by the hour: replicas needed, times, cost, from a sample.",
)
@click.option(
    "--describe",
    "describe_only",
    is_flag=True,
    help="Tell what the requests are like, and no more.",
)
@click.option(
    "--script", "script_file", metavar="FILE", help="Play an engine and requests (-: stdin)."
)
@report_options
@click.option(
    "--scheduler",
    metavar="WHO",
    default="own",
    help="Who schedules: own rules (the default), or the engine that is installed.",
)
@engine_python_option
@cluster_options
@json_option
@answers_errors
def simulate(
    *,
    trace: str | None,
    hash_tokens: str | None,
    skip_bad_lines: bool,
    columns: str | None,
    tokenizer: str | None,
    seed: str | None,
    seeds: str | None,
    warmup: str | None,
    sessions: str | None,
    recorded_times: bool,
    pauses: str | None,
    slo: str | None,
    per_request: str | None,
    cliff: str | None,
    scale_to: tuple[str, ...],
    splits: bool,
    by_hour: bool,
    describe_only: bool,
    script_file: str | None,
    html: str | None,
    svg: str | None,
    scheduler: str,
    engine_python: str | None,
    journal: str | None,
    cluster: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Play requests: waits, speeds, cache hits, preemptions.

    The requests of a trace or of a made-up workload are served by the engine's own scheduling rules, on
    the blocks and step times of the plan. A script is played against the rules alone, clocked
    in engine steps.
    """
    from kvroom.ui.terminal import simulation as text
    from kvroom.ui.terminal.day import show as day_text

    check_places(html=html, svg=svg)
    if script_file is not None:
        _play(script_file, scheduler, engine_python, (html, svg), as_json=as_json)
        return
    if trace is not None and given.get("workload"):
        fix = "Give --trace or --workload."
        raise KvroomError("--trace", trace, "and --workload are two sources of requests", fix)
    requests: dict[str, Any] = {
        "trace": trace,
        "seed": None if seed is None else parse_count("--seed", seed, low=0, high=2**63),
        "hash_tokens": hash_tokens,
        "skip_bad_lines": skip_bad_lines,
        "columns": columns,
        "tokenizer": tokenizer,
    }
    if describe_only:
        described = api.describe(
            workload=None if trace is not None else _workload(given), **requests
        )
        _answer(described, text.describe_text, as_json=as_json)
        return
    if scheduler != "own" and (cliff is not None or splits or scale_to):
        fix = "Leave --cliff, --splits and --scale-to out, or --scheduler."
        raise KvroomError("--scheduler", scheduler, "serves one simulation at a time", fix)
    asked = given.get("replicas") is not None
    scenario = scenario_from(given)
    goals = parse_slo(slo) if slo else ()
    times: dict[str, Any] = {
        "warmup": _warmup(warmup),
        "sessions": _sessions(sessions),
        "recorded_times": recorded_times,
        **pauses_of(pauses),
    }
    many = 1 if seeds is None else parse_count("--seeds", seeds, low=1, high=1000)
    simulation: Any
    show: Callable[[Any], str]
    others = {"--cliff": cliff, "--splits": splits, "--per-request": per_request}
    others["--scale-to"] = ", ".join(scale_to)
    others["--scheduler"] = scheduler if scheduler != "own" else None
    who: dict[str, Any] = {"cluster": cluster, "journal": journal, "slo": goals}
    if by_hour:
        others |= {"--seeds": seeds, "--warmup": warmup, "--sessions": sessions, "--trace": trace}
        _check_alone("--day", {**others, "--recorded-times": recorded_times})
        who |= {"seed": requests["seed"], "all_day": asked or None}
        simulation, show = _or_stopped(partial(api.day, scenario, **who), journal), day_text
    elif cluster is not None or journal is not None:
        _check_alone("--cluster and --journal", others)
        who |= {**requests, **times, "seeds": many, "keep_requests": False}
        simulation, show = _or_stopped(partial(api.simulate, scenario, **who), journal), text.show
    else:
        run: dict[str, Any] = {**requests, "slo": goals}
        once = {**times, "seeds": many, "scheduler": scheduler, "engine_python": engine_python}
        with Progress(_expected(scenario, trace)) as progress, seldom_collected():
            run["watch"] = progress.watch
            sweeps = (cliff, scale_to)
            simulation, show = _alone(scenario, run, once, sweeps, splits=splits, rows=per_request)
    write(simulation, html=html, svg=svg)
    _answer(simulation.to_dict(), lambda _: show(simulation), as_json=as_json)
    if getattr(simulation, "stopped", False):
        _stopped()


def _play(
    script_file: str,
    scheduler: str,
    engine_python: str | None,
    places: tuple[str | None, str | None],
    *,
    as_json: bool,
) -> None:
    """A script against the rules alone."""
    from kvroom.ui.terminal import simulation as text

    script = codec.read_json(script_file, "--script")
    played = api.play(script, scheduler=scheduler, engine_python=engine_python)
    html, svg = places
    write(played, html=html, svg=svg)
    click.echo(codec.encode(played.to_dict()) if as_json else text.script_text(played))


def _alone(
    scenario: Scenario,
    run: Mapping[str, Any],
    once: Mapping[str, Any],
    sweeps: tuple[str | None, tuple[str, ...]],
    *,
    splits: bool,
    rows: str | None,
) -> tuple[Any, Callable[[Any], str]]:
    """What this process simulates: a sweep (of loads, of the autoscaler's targets), splits, or one
    simulation (``once``); how it is shown."""
    from kvroom.ui.terminal import simulation as text

    cliff, scale_to = sweeps
    if scale_to:
        return api.scale_to(scale_to, scenario, **run), scaling_text
    if cliff is not None:
        return api.cliff(cliff, scenario, **run), text.cliff_text
    if splits:
        try:
            return api.splits(scenario, **run), splits_text
        except Stopped:
            _stopped()
    with RowFile(rows) as file:
        keep: dict[str, Any] = {"on_end": file.on_over, "keep_requests": False}
        return api.simulate(scenario, **run, **once, **keep), text.show


def _check_alone(what: str, said: Mapping[str, str | bool | None]) -> None:
    """KvroomError for a flag that does not go with ``what``."""
    for flag, value in said.items():
        if value:
            told = None if value is True else value
            raise KvroomError(
                flag, told, f"does not go with {what}", f"Leave out {flag} or {what}."
            )


def _or_stopped(ask: Callable[..., Any], journal: str | None) -> Any:
    """What comes of asking; Ctrl-C ends it."""
    try:
        return ask(progress=units_progress())
    except KeyboardInterrupt:
        click.echo(f"kvroom: stopped; {_goes_on(journal)}", err=True)
        sys.exit(STOPPED)


def _goes_on(journal: str | None) -> str:
    if journal is None:
        return "with --journal FILE it would go on from here"
    return f"the same command goes on from {journal}"


def _sessions(text: str | None) -> int | None:
    return None if text is None else parse_count("--sessions", text, low=1, high=10**6)


def _warmup(text: str | None) -> int | None:
    return None if text is None else parse_count("--warmup", text, low=0, high=10**9)


def _answer(value: Any, show: Callable[[Any], str], *, as_json: bool) -> None:
    if as_json:
        say(value)
    else:
        click.echo(show(value))


def _stopped() -> NoReturn:
    click.echo("kvroom: stopped; this is what was done until then", err=True)
    sys.exit(STOPPED)


def _workload(given: dict[str, Any]) -> dict[str, Any] | None:
    """The workload that the flags ask for; what it would be served by is not asked."""
    if not (given.get("model_name") or given.get("model_flag")):
        given["model_flag"] = "llama-3-8b"
    given["gpu"] = given.get("gpu") or "H100-SXM"
    workload = scenario_from(given).workload
    return workload.differences() if workload else None


def _expected(scenario: Scenario, trace: str | None) -> int | None:
    """How many requests will come, where that is known beforehand."""
    if trace is not None or scenario.workload is None:
        return None
    return of_workload(scenario.workload).requests
