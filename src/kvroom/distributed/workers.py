"""Units of work on whatever runs them: this process, a pool of processes, a cluster.

A unit is a plain dict, its function a module's own, its result plain JSON values. What is in the journal is
not done again; a unit whose worker died is given to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, as_completed
from typing import Any

from kvroom.distributed.journal import Journal, fingerprint
from kvroom.distributed.processes import MakePool
from kvroom.errors import KvroomError

TRIES = 3
"""Times that a unit is given out before a search gives up."""

Unit = Mapping[str, Any]
Function = Callable[[Unit], Any]
Progress = Callable[[str, int, int], None]
"""Told of (what is done, how many are done, of how many)."""


def unit_name(stage: str, unit: Unit) -> str:
    """What the journal calls a unit of work."""
    return fingerprint({"stage": stage, **unit})


def run_all(
    stage: str,
    function: Function,
    units: Sequence[Unit],
    journal: Journal,
    *,
    pool: MakePool | None = None,
    progress: Progress | None = None,
) -> list[Any]:
    """The results of ``units``, in their order."""
    results: list[Any] = [None] * len(units)
    take = results.__setitem__
    run_each(stage, function, units, journal, take, pool=pool, progress=progress)
    return results


def run_each(
    stage: str,
    function: Function,
    units: Sequence[Unit],
    journal: Journal,
    take: Callable[[int, Any], None],
    *,
    pool: MakePool | None = None,
    progress: Progress | None = None,
) -> None:
    """Hand each result to ``take`` as it is there, with its unit's place among ``units``."""
    places: dict[str, list[int]] = {}
    left: dict[str, Unit] = {}
    for place, unit in enumerate(units):
        name = unit_name(stage, unit)
        places.setdefault(name, []).append(place)
        left[name] = unit
    total = len(left)

    def over(name: str, result: Any) -> None:
        del left[name]
        for place in places[name]:
            take(place, result)

    def done(name: str, result: Any) -> None:
        journal.add(name, result)
        over(name, result)
        if progress:
            progress(stage, total - len(left), total)

    for name in [name for name in left if name in journal]:
        over(name, journal.result(name))
    if progress and total:
        progress(stage, total - len(left), total)
    if pool is None or len(left) < 2:
        for name, unit in list(left.items()):
            done(name, function(unit))
    else:
        _pooled(function, left, done, pool)


def _pooled(
    function: Function, left: dict[str, Unit], done: Callable[[str, Any], None], pool: MakePool
) -> None:
    """Give ``left`` out until none is; a pool that broke is made anew."""
    for _ in range(TRIES):
        if not left:
            return
        with pool() as executor:
            given: dict[Future[Any], str] = {}
            try:
                for name, unit in left.items():
                    given[executor.submit(function, unit)] = name
            except BrokenExecutor:
                continue
            try:
                for future in as_completed(given):
                    try:
                        done(given[future], future.result())
                    except (BrokenExecutor, ConnectionError):
                        continue  # its worker died: another round
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
    if left:
        fix = (
            "Look at the workers' memory, or take fewer (--cluster processes:2); --journal keeps what "
            "is done."
        )
        raise KvroomError("--cluster", len(left), "units of work were lost with their workers", fix)
