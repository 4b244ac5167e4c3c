"""The registry of figures: what each is called, its unit, its meaning, how it comes about, where from.

``figures.toml`` holds it. Explanations (``--explain``, the page's popovers), the JSON schema's descriptions
and the glossary all read it, so that a figure has one name and one formula everywhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A figure of an answer: ``formula`` is in words, ``numbers`` evaluates to ``value``."""

    figure: str
    label: str
    value: int | float
    unit: str
    formula: str
    numbers: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@lru_cache(maxsize=1)
def registry() -> Mapping[str, FigureEntry]:
    """Every figure by its key."""
    text = files("kvroom.answer").joinpath("figures.toml").read_text("utf-8")
    return {key: FigureEntry(key=key, **entry) for key, entry in tomllib.loads(text).items()}


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
    )
