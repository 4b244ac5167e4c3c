"""The names of engines: one table, ``engines/registry.json``, which holds a line an engine.

A Scenario is checked against the names; ``engines.registry`` loads what a line points at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from kvroom.errors import KvroomError, did_you_mean

_FILE = Path(__file__).parents[1] / "engines" / "registry.json"


class _Row(TypedDict):
    at: str
    aliases: NotRequired[list[str]]


class _Table(TypedDict):
    default: str
    ceiling: str
    engines: dict[str, _Row]


_TABLE: _Table = json.loads(_FILE.read_text(encoding="utf-8"))
_PLACES: dict[str, str] = {name: row["at"] for name, row in _TABLE["engines"].items()}
_ALIASES: dict[str, str] = {
    alias: name for name, row in _TABLE["engines"].items() for alias in row.get("aliases", ())
}
DEFAULT_ENGINE: str = _TABLE["default"]
"""The engine of a question that names none."""
CEILING_ENGINE: str = _TABLE["ceiling"]
"""The one that is plain arithmetic: what any engine has at most."""


def engine_names() -> tuple[str, ...]:
    """Every engine's name, in the table's order."""
    return tuple(_PLACES)


def engine_aliases() -> Mapping[str, str]:
    """Other words for some of them → the name."""
    return _ALIASES


def engine_name(field: str, word: str) -> str:
    """The engine that ``word`` names; KvroomError of ``field`` where there is none."""
    plain = word.strip().lower()
    plain = _ALIASES.get(plain, plain)
    if plain not in _PLACES:
        known = engine_names()
        fix = did_you_mean(plain, (*known, *_ALIASES), f"One of: {', '.join(known)}.")
        raise KvroomError(field, word, "is no engine that kvroom knows", fix)
    return plain


def engine_place(name: str) -> str:
    """Where the engine lies, as ``module:OBJECT``."""
    return _PLACES[engine_name("engine", name)]


def add_engine(name: str, place: str, aliases: Iterable[str] = ()) -> None:
    """One more engine, at ``module:OBJECT``."""
    _PLACES[name] = place
    _ALIASES.update(dict.fromkeys(aliases, name))


def remove_engine(name: str) -> None:
    """Take one away again that was added."""
    del _PLACES[name]
    for alias in [key for key, value in _ALIASES.items() if value == name]:
        del _ALIASES[alias]
