"""``kvroom prove``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kvroom import api
from kvroom.observe.prove.session import PARTS
from kvroom.ui import codec
from kvroom.ui.cli.options import scenario_from, scenario_options
from kvroom.ui.cli.sections import Sectioned
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_writable, save


@click.command(
    cls=Sectioned,
    epilog="Example: kvroom prove http://127.0.0.1:8000 llama-3-8b --gpu H100-SXM --engine vllm",
)
@click.argument("url", metavar="URL")
@scenario_options
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Ask this part (repeatable).")
@click.option("--seed", default=0, type=click.IntRange(0), help="The workload's seed (default: 0).")
@click.option(
    "--pid", type=click.IntRange(1), help="The engine's first process, where it runs here."
)
@click.option("--record", metavar="FILE", help="Keep all that was asked and answered there.")
@click.option("--html", metavar="FILE", help="Write the report there, with plots.")
@json_option
@answers_errors
def prove(
    *,
    url: str,
    only: tuple[str, ...],
    seed: int,
    pid: int | None,
    record: str | None,
    html: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure a running vLLM beside its plan.

    It takes minutes and loads the server: ask one that serves nobody else. MODEL and the options of plan
    say what runs there. URL may be a record that --record wrote: it is judged again. With --pid, times
    are the engine's own, what others on the machine took left out. Exit status 1 where what must come out
    exactly (the cache, counters one request at a time) does not.
    """
    from kvroom.ui.terminal import prove as text

    for flag, path in (("--record", record), ("--html", html)):
        check_writable(flag, path)
    if "://" not in url and Path(url).is_file():
        proofs, about = api.judge(codec.read_json(url, "record"), url)
    else:
        measured = api.measure(url, scenario_from(given), parts=only, seed=seed, pid=pid)
        if record is not None:
            save("--record", record, (json.dumps(measured) + "\n").encode())
        proofs, about = api.judge(measured)
    if html is not None:
        from kvroom.ui import proof_page

        save("--html", html, proof_page.render(proofs, about).encode())
    if as_json:
        say({"about": about, "engines": [proof.to_dict() for proof in proofs]})
    else:
        click.echo(text.show(proofs, about))
    if not all(proof.exact for proof in proofs):
        raise SystemExit(1)
