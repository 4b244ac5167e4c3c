"""The registry of figures: what each is called, its unit, its meaning, how it comes about, where from.

``figures.toml`` holds it. Explanations (``--explain``, the page's popovers), the JSON schema's descriptions
and the glossary all read it, so that a figure has one name and one formula everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.records import dataclass

_PLACE = re.compile(r"\.\d+(?=\.|$)")

ACCOUNTS = {
    "weights": "weights",
    "adapters": "adapters",
    "draft": "draft model",
    "activations": "activations",
    "runtime": "runtime",
    "graphs": "CUDA graphs",
    "encoder": "image encoder",
    "kv": "cache",
    "unused": "unused",
}
"""What each account of a GPU's memory is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureEntry:
    """One figure. Words in braces in ``label`` and ``formula`` are filled in from an answer; what is empty is
    known from an answer only."""

    key: str
    label: str = ""
    unit: str = ""
    meaning: str = ""
    formula: str = ""
    source: str = ""
    of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A figure of an answer: ``formula`` is in words, ``numbers`` evaluates to ``value``, ``of`` are the
    figures that it follows from."""

    figure: str
    label: str
    value: int | float
    unit: str
    formula: str
    numbers: str
    source: str
    of: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@lru_cache(maxsize=1)
def registry() -> Mapping[str, FigureEntry]:
    """Every figure by its key."""
    read = Path(__file__).with_name("figures.json")  # in a browser, where reading TOML takes longer
    if read.is_file():
        found = json.loads(read.read_text("utf-8"))
    else:
        import tomllib  # where figures are told, which a plan in text needs none of

        found = tomllib.loads(read.with_suffix(".toml").read_text("utf-8"))
    return {key: FigureEntry(key=key, **entry) for key, entry in found.items()}


def figure(key: str) -> FigureEntry:
    """The figure of ``key``, whose places in lists may be numbers; KeyError where there is none."""
    known = registry()
    if key in known:
        return known[key]
    pattern = _PLACE.sub(".*", key)
    if pattern in known:
        return known[pattern]
    return known[f"{pattern.rpartition('.')[0]}.*"]


def title(words: str) -> str:
    """``words`` with a capital to begin with."""
    return words[:1].upper() + words[1:]


def explained(
    key: str,
    value: int | float,
    *,
    numbers: str | None = None,
    label: str | None = None,
    formula: str | None = None,
    source: str | None = None,
    of: tuple[str, ...] | None = None,
    **words: Any,
) -> Explanation:
    """The figure of ``key`` in an answer.

    ``numbers`` is the formula with its numbers put in (none: the value itself); ``label``, ``formula`` and
    ``source`` are the registry's where an answer does not say otherwise, its ``words`` filled in.
    """
    known = figure(key)
    name = (known.label if label is None else label).format(**words)
    return Explanation(
        figure=key,
        label=title(name),
        value=value,
        unit=known.unit,
        formula=known.formula.format(**words) if formula is None else formula,
        numbers=f"{value:,}" if numbers is None else numbers,
        source=known.source if source is None else source,
        of=tuple(known.of) if of is None else of,
    )


def chained(explanations: Iterable[Explanation]) -> Iterator[Explanation]:
    """Each with ``of`` as the keys that are told too: in a pattern ``*`` stands for the figure's own places,
    or for every place there is."""
    all_told = list(explanations)
    keys = {e.figure: None for e in all_told}
    matched: dict[str, list[str]] = {}
    for e in all_told:
        keys_found = [
            key for pattern in e.of for key in _matching(pattern, e.figure, keys, matched)
        ]
        of = tuple(key for key in dict.fromkeys(keys_found) if key != e.figure)
        yield e if of == e.of else replace(e, of=of)


def _matching(
    pattern: str, figure_key: str, keys: Mapping[str, None], matched: dict[str, list[str]]
) -> list[str]:
    """The ``keys`` that ``pattern`` means for a figure; ``matched`` keeps what was looked for before."""
    if "*" not in pattern:
        return [pattern] if pattern in keys else []
    places = _PLACE.findall(figure_key)
    own = pattern.replace(".*", places[0], 1) if places else pattern
    if own not in matched:
        shape = re.compile(re.escape(own).replace(r"\.\*", r"\.\d+"))
        matched[own] = [key for key in keys if shape.fullmatch(key)]
    return matched[own]
