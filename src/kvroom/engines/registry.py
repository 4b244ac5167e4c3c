"""Every engine by its name. The table is ``registry.json``: a line an engine, loaded when it is asked for.

No other module of kvroom imports an engine's folder by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module

from kvroom.engines.base import Engine
from kvroom.engines.command_line import CommandLine
from kvroom.engines.log_reader import LogReader
from kvroom.engines.metric_names import MetricNames
from kvroom.scenario.engine_names import engine_names, engine_place


def engine_of(name: str) -> Engine:
    """The engine of that name or alias; KvroomError where there is none."""
    return _loaded(engine_place(name))


def all_engines() -> Iterator[Engine]:
    """All engines, in the table's order."""
    return map(engine_of, engine_names())


def command_lines() -> tuple[CommandLine, ...]:
    """The command lines of all engines that have one, each once."""
    lines = [all_engine.command for all_engine in all_engines() if all_engine.command is not None]
    return tuple(dict.fromkeys(lines))


def log_readers() -> tuple[LogReader, ...]:
    """The log readers of all engines that have one, each once."""
    return tuple(
        dict.fromkeys(all_engine.log for all_engine in all_engines() if all_engine.log is not None)
    )


def log_reader(name: str) -> LogReader:
    """That of the engine called ``name``; one that knows no line where there is none."""
    return engine_of(name).log or LogReader(engine=name)


def metric_tables() -> tuple[MetricNames, ...]:
    """The metrics of all engines that tell any."""
    return tuple(
        all_engine.metrics for all_engine in all_engines() if all_engine.metrics is not None
    )


def benchmarked_engine(word: object) -> str | None:
    """The engine that a benchmark's tool or backend of that name runs; None where it may be any."""
    if not isinstance(word, str):
        return None
    return next(
        (
            all_engine.name
            for all_engine in all_engines()
            if all_engine.benchmarks and word.startswith(all_engine.benchmarks)
        ),
        None,
    )


@lru_cache(maxsize=64)
def _loaded(place: str) -> Engine:
    module, _, name = place.partition(":")
    engine: Engine = getattr(import_module(module), name)
    return engine
