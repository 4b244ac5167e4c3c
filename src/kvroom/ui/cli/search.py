"""``kvroom search``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.layout import DEGREES, counted_cards
from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import (
    cluster_options,
    play_options,
    scenario_from,
    scenario_options,
    trace_options,
)
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, file_options, write
from kvroom.ui.terminal.progress import units_progress
from kvroom.units import parse_count, parse_tokens

STAND_IN = "H100-SXM"
"""Taken where no card is named: a Scenario has one, and a search passes it over."""
STOPPED = 130
"""Exit status of a search that was interrupted."""
LISTS = (
    ("--gpus", "NAME,NAME", "Cards to choose from (default: those with a known price)."),
    ("--counts", "N,N", "How many of them in one deployment (default: 1,2,4,8)."),
    ("--engines", "NAME,NAME", "Engines to choose from (default: --engine)."),
    ("--weight-dtypes", "DTYPE,…", "Weights: own, fp8, int4 … (default: own and fp8)."),
    ("--kv-dtypes", "DTYPE,…", "Caches: auto, fp8 … (default: auto and fp8)."),
    ("--budgets", "TOKENS,…", "Tokens in a step at most (default: the engine's own)."),
    ("--shares", "SHARE,…", "Shares of the memory to take (default: the engine's own)."),
    ("--sequences", "N,…", "Requests at once at most (default: the engine's own)."),
    ("--drafts", "DRAFT,…", "Drafts: none, mtp:1 … (default: none and the model's own)."),
    ("--offload", "TIER,…", "Tiers: none, host … (default: host where requests reuse cache)."),
)


def list_options(command: Any) -> Any:
    """Give ``command`` an option for every choice of the space."""
    for flag, takes, words in reversed(LISTS):
        command = click.option(flag, metavar=takes, help=words, shell_complete=complete)(command)
    return command


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom search llama-3-70b --workload input=4000,output=500 --users 64 "
    "--slo ttft_p95=4s,tpot_p95=50ms",
)
@scenario_options
@click.option("--trace", metavar="FILE", help="What is served: a trace, in place of a workload.")
@play_options
@trace_options
@click.option("--slo", default="", metavar="SLO", help="Objectives: ttft_p95=2s,tpot_p95=50ms.")
@list_options
@click.option(
    "--scale-to",
    metavar="KEY=A..B",
    multiple=True,
    help="Targets of --fleet's autoscaler to choose from, over the whole day.",
)
@click.option("--no-pools", is_flag=True, help="Leave out pools of prompts and of answers.")
@click.option("--per", metavar="gpu", help="The best of each card.")
@click.option("--max-gpus", default="1024", metavar="N", help="Of all replicas (default: 1024).")
@click.option(
    "--simulate",
    "trials",
    default="8",
    metavar="N",
    help="Kinds of answer to bear out by simulation (default: 8; 0: none).",
)
@click.option("--seed", default="0", metavar="N", help="Of the simulations (default: 0).")
@cluster_options
@click.option("--jobs", metavar="N", hidden=True, help="--cluster processes:N.")
@click.option("--ray", metavar="ADDRESS", hidden=True, help="--cluster ray:ADDRESS.")
@file_options
@json_option
@answers_errors
def search(
    *,
    trace: str | None,
    sessions: str | None,
    recorded_times: bool,
    hash_tokens: str | None,
    skip_bad_lines: bool,
    columns: str | None,
    tokenizer: str | None,
    slo: str,
    scale_to: tuple[str, ...],
    no_pools: bool,
    per: str | None,
    trials: str,
    max_gpus: str,
    seed: str,
    journal: str | None,
    cluster: str | None,
    jobs: str | None,
    ray: str | None,
    csv: str | None,
    parquet: str | None,
    html: str | None,
    svg: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Find hardware, layout and settings for an objective.

    Every deployment is judged in closed form; the cheapest that may do are simulated, until none can be
    cheaper than the best. Without a rate or users the cheapest million tokens within the objectives are
    sought. Of a trace the simulations play its requests, as simulate does. With an autoscaler in --fleet
    what holds is played over the whole load, and the settings that cost least a day are told. Ctrl-C
    answers with what is known so far.
    """
    from kvroom.ui.terminal import search as text

    check_places(csv=csv, parquet=parquet, html=html, svg=svg)
    lists = {flag: given.pop(flag[2:].replace("-", "_")) for flag, _, _ in LISTS}
    base, counts = _base(given)
    space = {
        "gpus": _cards(lists["--gpus"], given, base),
        "counts": _numbers("--counts", lists["--counts"]) or counts,
        "engines": _words("--engines", lists["--engines"]) or (base.engine,),
        "weight_dtypes": _words("--weight-dtypes", lists["--weight-dtypes"]),
        "kv_dtypes": _words("--kv-dtypes", lists["--kv-dtypes"]),
        "budgets": tuple(
            parse_tokens("--budgets", w) for w in _words("--budgets", lists["--budgets"])
        ),
        "shares": _shares(lists["--shares"]),
        "sequences": _numbers("--sequences", lists["--sequences"]),
        "drafts": _words("--drafts", lists["--drafts"]),
        "tiers": _words("--offload", lists["--offload"]),
        "layout": {degree: getattr(base, degree) for degree in DEGREES if given.get(degree)},
        "splits": not no_pools,
        "max_gpus": _number("--max-gpus", max_gpus),
    }
    result = api.search(
        base,
        slo=slo,
        space=space,
        seed=_number("--seed", seed),
        simulate=_number("--simulate", trials),
        per=per,
        scale_to=scale_to,
        journal=journal,
        cluster=_cluster(cluster, jobs, ray),
        progress=units_progress(),
        trace=trace,
        sessions=None if sessions is None else _number("--sessions", sessions),
        recorded_times=recorded_times,
        hash_tokens=hash_tokens,
        skip_bad_lines=skip_bad_lines,
        columns=columns,
        tokenizer=tokenizer,
    )
    write(result, csv=csv, parquet=parquet, html=html, svg=svg)
    if as_json:
        say(result.to_dict())
    else:
        click.echo(text.show(result))
    if result.searched["stopped"]:
        raise SystemExit(STOPPED)


def _base(given: dict[str, Any]) -> tuple[Scenario, tuple[int, ...]]:
    """The Scenario that is asked about, and how many cards it names (none: the usual counts)."""
    from kvroom.optimize.search.space import COUNTS

    named = given.get("gpu") or given.get("scenario_file") or "://" in str(given.get("model_name"))
    counted = counted_cards(given.get("gpu") or "")[1] or given.get("gpu_count")
    if not named:
        given["gpu"] = STAND_IN
    base = scenario_from(dict(given))
    if not named:
        given["gpu"] = None
    return base, (base.gpu_count,) if counted else COUNTS


def _cards(text: str | None, given: dict[str, Any], base: Scenario) -> tuple[Any, ...]:
    if text is not None:
        return _words("--gpus", text)
    return (base.gpu,) if given.get("gpu") or given.get("scenario_file") else ()


def _words(flag: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(part.strip() for part in text.split(",") if part.strip())
    if not words:
        fix = "Name one or more with commas between them, or leave the option out."
        raise KvroomError(flag, text, "names nothing to choose from", fix)
    return words


def _numbers(flag: str, text: str | None) -> tuple[int, ...]:
    return tuple(_number(flag, word) for word in _words(flag, text))


def _shares(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in _words("--shares", text))
    except ValueError:
        raise KvroomError("--shares", text, "are no numbers", "Write such as 0.85,0.92.") from None


def _number(flag: str, text: str) -> int:
    return parse_count(flag, text, low=0, high=10**12)


def _cluster(cluster: str | None, jobs: str | None, ray: str | None) -> str:
    """Who works, of the one word or of one of those that it took the place of."""
    said = {"--cluster": cluster, "--jobs": jobs, "--ray": ray}
    several = [flag for flag, value in said.items() if value is not None]
    if len(several) > 1:
        raise KvroomError(several[1], said[several[1]], f"and {several[0]} are two", "Give one.")
    if jobs is not None:
        return f"processes:{_number('--jobs', jobs)}"
    return f"ray:{ray}" if ray is not None else cluster or "processes"
