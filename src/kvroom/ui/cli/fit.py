"""``kvroom fit``."""

from __future__ import annotations

from typing import Any

import click

from kvroom import api
from kvroom.ui.cli.completion import complete
from kvroom.ui.cli.shell import answers_errors, json_option, say


@click.command(epilog="Example: kvroom fit qwen3-32b --gpu RTX-4090")
@click.argument("model", metavar="[MODEL]", required=False, shell_complete=complete)
@click.option(
    "--gpu",
    metavar="NAME[:COUNT]",
    shell_complete=complete,
    help="The card (default: this machine's, as its driver tells).",
)
@click.option(
    "--memory", metavar="SIZE", help="The card's memory, where it is sold in sizes: 64GB."
)
@click.option("--host-memory", metavar="SIZE", help="Host memory beside the card: 64GB.")
@click.option(
    "--context", default="8K", metavar="TOKENS", help="Tokens that must have room (default: 8K)."
)
@click.option("--kv-dtype", metavar="DTYPE", help="The cache's width: q8_0 holds twice.")
@click.option("--engine", metavar="NAME", help="llama.cpp (default) or ollama.")
@click.option("--all", "everything", is_flag=True, help="Every model, slow ones too.")
@json_option
@answers_errors
def fit(
    *,
    model: str | None,
    gpu: str | None,
    memory: str | None,
    host_memory: str | None,
    context: str,
    kv_dtype: str | None,
    engine: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show what fits your own card: models, files, tokens/s.

    Without MODEL every known model, in the widest file that fits whole; with it the ladder of its files:
    size, speed, the longest context, and what each loses.
    """
    from kvroom.ui.terminal import fit as text

    keys: dict[str, Any] = {
        "context_tokens": context,
        "engine": engine,
        "host_memory_bytes": host_memory,
        "kv_dtype": kv_dtype,
    }
    answer = api.fit(
        gpu,
        model,
        memory=memory,
        progress=text.progress,
        **{key: value for key, value in keys.items() if value is not None},
    )
    if as_json:
        say(answer.to_dict())
    else:
        click.echo(text.show(answer, everything=everything))
