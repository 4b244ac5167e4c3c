"""``kvroom pack``."""

from __future__ import annotations

import click

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.options import prices_from
from kvroom.ui.cli.shell import answers_errors, json_option, say
from kvroom.ui.export import check_places, file_options, write


@click.command(epilog="Example: kvroom pack models.yaml --gpu H100-SXM:2")
@click.argument("models", metavar="MODELS.yaml", shell_complete=complete)
@click.option(
    "--gpu",
    metavar="NAME[:COUNT]",
    shell_complete=complete,
    help="The node's cards, or slices: H100-SXM:mig=3g.40gb.",
)
@click.option(
    "--gpus",
    metavar="NAME,…",
    help="The cheapest node of these (1, 2, 4 and 8 of each, or NAME:2).",
)
@click.option(
    "--sharing",
    default="turns",
    metavar="turns|mps",
    help="How engines use one GPU: time slicing (default) or MPS.",
)
@click.option("--no-times", is_flag=True, help="Memory alone: simulate nothing.")
@click.option("--host-memory", metavar="SIZE", help="Host memory, for models that sleep: 512GiB.")
@click.option(
    "--price",
    multiple=True,
    metavar="[CARD=]PRICE",
    help="Dollars an hour of a card, or terms: reserved … (repeatable).",
)
@file_options
@json_option
@answers_errors
def pack(
    *,
    models: str,
    gpu: str | None,
    gpus: str | None,
    sharing: str,
    no_times: bool,
    host_memory: str | None,
    price: tuple[str, ...],
    csv: str | None,
    parquet: str | None,
    html: str | None,
    svg: str | None,
    as_json: bool,
) -> None:
    """Say how several models share one node: cards, shares, bursts.

    MODELS.yaml is a list; each entry has a model and what plan takes (engine, version, context, users or
    rate, input, output, weight_dtype, kv_dtype, engine_args), and may have gpus: [0] (pinned), share: 0.4,
    sleep: 1 or 2, starts: 1 (order), compute: 0.5 (MPS). Each engine is asked by its own rules what it
    takes, in the order of starting, with what is free at that moment.
    """
    check_places(csv=csv, parquet=parquet, html=html, svg=svg)
    cards = None if gpus is None else [part.strip() for part in gpus.split(",") if part.strip()]
    if cards == []:
        raise KvroomError("--gpus", gpus, "names no card", "Write --gpus L40S,H100-SXM.")
    packed = api.pack(
        models,
        gpu,
        gpus=cards,
        sharing=sharing,
        simulate=not no_times,
        prices=prices_from(price),
        host_memory_bytes=host_memory,
    )
    write(packed, csv=csv, parquet=parquet, html=html, svg=svg)
    if as_json:
        say(packed.to_dict())
        return
    from kvroom.ui.terminal import pack as text

    click.echo(text.show(packed))
