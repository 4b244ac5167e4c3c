"""Every engine by its name. The table is ``registry.json``: a line an engine, loaded when it is asked for.

No other module of kvroom imports an engine's folder by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module

from kvroom.engines.base import Engine
from kvroom.scenario.engine_names import engine_names, engine_place


def engine_of(name: str) -> Engine:
    """The engine of that name or alias; KvroomError where there is none."""
    return _loaded(engine_place(name))


def all_engines() -> Iterator[Engine]:
    """All engines, in the table's order."""
    return map(engine_of, engine_names())


@lru_cache(maxsize=64)
def _loaded(place: str) -> Engine:
    module, _, name = place.partition(":")
    engine: Engine = getattr(import_module(module), name)
    return engine
