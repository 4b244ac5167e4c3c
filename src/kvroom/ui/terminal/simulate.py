"""``kvroom simulate``: from its options to a simulation, and what it tells in JSON or in text."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

import click

from kvroom.errors import KvroomError
from kvroom.optimize.cliff import Sweep, parse_sweep, sweep, to_dict
from kvroom.optimize.split import Stopped
from kvroom.optimize.split import splits as try_splits
from kvroom.planner.plan import work
from kvroom.planner.results import read_notes
from kvroom.planner.simulate import Objective, over_seeds, parse_slo, serve
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.script import Script
from kvroom.simulator.script_results import Played
from kvroom.ui import codec
from kvroom.ui.cli.options import scenario_from
from kvroom.ui.rows import RowFile
from kvroom.ui.terminal.cluster import fleet_text, splits_text
from kvroom.ui.terminal.plain import ascii_only
from kvroom.ui.terminal.progress import Progress, seldom_collected
from kvroom.ui.terminal.simulation import cliff_text, describe_text, show
from kvroom.units import check_int, parse_tokens
from kvroom.workloads.requests import Request
from kvroom.workloads.statistics import describe
from kvroom.workloads.synthetic import Synthetic, of_workload
from kvroom.workloads.traces.reader import Trace

STOPPED = 130
"""The exit status of a run that was ended with Ctrl-C."""


def say(value: Any) -> None:
    """Print ``value`` as JSON."""
    click.echo(codec.encode(value, pretty=True, ascii_only=ascii_only()))


def script(path: str, *, as_json: bool) -> None:
    """Play the script of a JSON file and print what came of it."""
    played = Script.from_dict(codec.read_json(path, "--script")).play()
    if as_json:
        click.echo(codec.encode(played.to_dict()))
    else:
        click.echo(summary(played))


def run(
    *,
    as_json: bool,
    trace: str | None,
    hash_tokens: str | None,
    skip_bad_lines: bool,
    seed: str | None,
    seeds: str | None,
    slo: str | None,
    per_request: str | None,
    cliff: str | None,
    splits: bool,
    describe_only: bool,
    **given: Any,
) -> None:
    """Answer what the options ask."""
    number = None if seed is None else _seed(seed)
    ids = parse_tokens("--hash-tokens", hash_tokens) if hash_tokens else None
    if trace is not None and given.get("workload"):
        fix = "Give --trace or --workload."
        raise KvroomError("--trace", trace, "and --workload are two sources of requests", fix)
    read = None
    if trace is not None:
        read = Trace(trace, hash_tokens=ids, skip_bad_lines=skip_bad_lines)
    if describe_only:
        _describe(read, given, number, as_json=as_json)
        return
    objectives = parse_slo(slo) if slo else ()
    scenario = scenario_from(given)
    workings = work(scenario)
    source = _source(read, scenario, number)
    if cliff is not None:
        _cliff(parse_sweep(cliff), scenario, source, objectives, as_json=as_json)
        return
    if splits:
        _splits(scenario, source, objectives, as_json=as_json)
        return
    many = 1 if seeds is None else _count(seeds)
    if many > 1 and not isinstance(source, Synthetic):
        why = "are drawn of made-up workloads only"
        raise KvroomError("--seeds", seeds, why, "Give --workload in place of --trace.")
    with Progress(_expected(source)) as progress, RowFile(per_request) as rows, seldom_collected():
        made = serve(workings, source, slo=objectives, on_over=rows.on_over, watch=progress.watch)
        answer = replace(made, warnings=(*made.warnings, *read_notes(read))).to_dict()
        if many > 1 and isinstance(source, Synthetic):
            made, answer["bands"] = over_seeds(
                made, answer, source, many, slo=objectives, watch=progress.watch
            )
    if as_json:
        say(answer)
    else:
        click.echo(show(made, answer))
        if "fleet" in answer:
            click.echo("\n" + fleet_text(answer["fleet"]))
    if made.fleet.stopped:
        _stopped()


def _stopped() -> NoReturn:
    click.echo("kvroom: stopped; this is what was done until then", err=True)
    sys.exit(STOPPED)


def _cliff(
    wanted: Sweep,
    scenario: Scenario,
    source: Iterable[Request],
    slo: tuple[Objective, ...],
    *,
    as_json: bool,
) -> None:
    expected = _expected(source)
    with Progress(expected) as progress, seldom_collected():
        points = sweep(wanted, scenario, source, slo=slo, watch=progress.watch)
    if as_json:
        say(to_dict(wanted, points))
    else:
        click.echo(cliff_text(wanted, points))
    if len(points) < len(wanted.values):
        _stopped()


def _splits(
    scenario: Scenario,
    source: Iterable[Request],
    slo: tuple[Objective, ...],
    *,
    as_json: bool,
) -> None:
    with Progress(_expected(source)) as progress:
        try:
            found = try_splits(scenario, source, slo=slo, watch=progress.watch)
        except Stopped:
            _stopped()
    if as_json:
        say(found.to_dict())
    else:
        click.echo(splits_text(found))


def _count(text: str) -> int:
    try:
        return check_int("--seeds", int(text), low=1, high=1000)
    except ValueError:
        raise KvroomError("--seeds", text, "is no count", "Write a whole number.") from None


def _seed(text: str) -> int:
    try:
        return check_int("--seed", int(text), low=0, high=2**63)
    except ValueError:
        raise KvroomError(
            "--seed", text, "is no seed", "Write a whole number, 0 or more."
        ) from None


def _source(read: Trace | None, scenario: Scenario, seed: int | None) -> Iterable[Request]:
    if read is not None:
        return read
    if scenario.workload is None:
        fix = "Give --trace FILE, or --workload arrivals=poisson:2/s,input=1000,output=200."
        raise KvroomError("workload", None, "is missing: no requests to serve", fix)
    return of_workload(scenario.workload, seed)


def _describe(
    read: Trace | None, given: dict[str, Any], seed: int | None, *, as_json: bool
) -> None:
    if read is not None:
        source: Iterable[Request] = read
    else:
        if not (given.get("model_name") or given.get("model_flag")):
            given["model_flag"] = "llama-3-8b"  # what comes does not depend on what serves it
        if not given.get("gpu"):
            given["gpu"] = "H100-SXM"
        source = _source(None, scenario_from(given), seed)
    found = describe(source)
    if read is not None:
        counts = read.counts
        found |= {"skipped_lines": counts.skipped_lines, "unordered": counts.unordered}
    if as_json:
        say(found)
    else:
        click.echo(describe_text(found))


def _expected(source: Iterable[Request]) -> int | None:
    """How many requests will come, where that is known beforehand."""
    return getattr(source, "requests", None)


def summary(played: Played) -> str:
    """The totals of a run in a few lines."""
    totals = played.totals
    dropped = f", {totals.dropped:,} dropped (they can never be served)" if totals.dropped else ""
    return "\n".join(
        [
            f"requests     {totals.completed:,} completed{dropped}",
            f"steps        {played.total_steps:,}, {totals.scheduled_tokens:,} tokens computed",
            f"cache hits   {totals.cached_tokens_first:,} tokens at first schedule, "
            f"{totals.cached_tokens_all:,} with those after preemptions",
            f"preemptions  {totals.preemptions:,}",
            f"peaks        {totals.peak_blocks_in_use:,} blocks in use, "
            f"{totals.peak_running:,} running, {totals.peak_waiting:,} waiting",
        ]
    )
