"""What a shell completes: models, cards, engines, widths and keys, by what is typed so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Words = Callable[[], Iterable[str]]


def _models() -> Iterable[str]:
    from kvroom import api

    return api.models()


def _cards() -> Iterable[str]:
    from kvroom import api

    return api.gpus()


def _engines() -> Iterable[str]:
    from kvroom.scenario.engine_names import engine_names

    return engine_names()


def _weight_dtypes() -> Iterable[str]:
    from kvroom.models.weight_dtypes import WEIGHT_DTYPES

    return WEIGHT_DTYPES


def _kv_dtypes() -> Iterable[str]:
    from kvroom.models.dtypes import CACHE_DTYPES

    return ("auto", *CACHE_DTYPES)


def _recipes() -> Iterable[str]:
    from kvroom.scenario.scenario import RECIPES

    return RECIPES


def _swept() -> Iterable[str]:
    from kvroom.optimize.sweep import known

    return (f"{key}=" for key in known())


def _price_terms() -> Iterable[str]:
    from kvroom.hardware.prices import OWNED, kinds

    return (*kinds(), f"{OWNED}:")


WORDS: dict[str, Words] = {
    "MODEL": _models,
    "--model": _models,
    "models [NAME]": _models,
    "gpus [NAME]": _cards,
    "--gpu": _cards,
    "--gpus": _cards,
    "--engine": _engines,
    "--engines": _engines,
    "--weight-dtype": _weight_dtypes,
    "--weight-dtypes": _weight_dtypes,
    "--kv-dtype": _kv_dtypes,
    "--kv-dtypes": _kv_dtypes,
    "--recipe": _recipes,
    "--sweep": _swept,
    "--price": _price_terms,
}
"""What may stand at an argument or option, by its name; lists with commas complete their last word."""
FILES = (
    "FILE", "FILE…", "TRACE", "A B [C …]", "--from-command", "--scenario", "--jsonl", "--trace",
    "--calibration", "--journal", "--script", "--tokenizer",
)  # fmt: skip
"""Arguments and options that are files."""


def complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The words that go on from ``incomplete``, whatever their case; a path where a file is meant."""
    name = parameter.opts[-1] if isinstance(parameter, click.Option) else str(parameter.metavar)
    name = f"{context.info_name} {name}" if name == "[NAME]" else name
    if name in FILES:
        return [CompletionItem(incomplete, type="file")]
    if name not in WORDS:
        return []
    before, comma, last = incomplete.rpartition(",")
    start = last.lower()
    words = [word for word in WORDS[name]() if word.lower().startswith(start)]
    items = [CompletionItem(f"{before}{comma}{word}") for word in words]
    if name in ("MODEL", "--model") and not words:
        items.append(CompletionItem(incomplete, type="file"))
    return items
