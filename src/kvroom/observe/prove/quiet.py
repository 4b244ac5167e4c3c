"""What an engine's own work took on a machine that others use too.

The kernel counts for each thread how long it ran and how long it was ready and waited for a core
(``/proc/PID/task/TID/schedstat``, nanoseconds). A step passes between two threads, the scheduler's and
the worker's, which take turns; so a span less what the two busiest threads waited is what it would have
taken undisturbed, and no less than what the busiest ran. Memory and caches that others used meanwhile
are not seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kvroom.records import dataclass

NS_PER_S = 1e9
TURNS = 2
"""Threads that take turns in a step: the scheduler's and the worker's busiest."""

Times = Mapping[str, tuple[int, int]]
"""Thread → (ns it ran, ns it waited for a core)."""


@dataclass(frozen=True, slots=True)
class TimedSpan:
    """Seconds by the clock; of the busiest thread's run; and undisturbed (None: not known)."""

    wall_s: float
    ran_s: float | None = None
    undisturbed_s: float | None = None

    @property
    def seconds(self) -> float:
        """What the engine needed, as well as it is known."""
        return self.wall_s if self.undisturbed_s is None else self.undisturbed_s

    @property
    def disturbed(self) -> float | None:
        """The share of the span that others took."""
        return None if self.undisturbed_s is None else 1 - self.undisturbed_s / self.wall_s


class Meter:
    """Measures spans of the engine whose first process is ``pid`` (None: it runs elsewhere, and only
    the clock is known)."""

    def __init__(self, pid: int | None, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc
        self._at = 0.0
        self._times: Times = {}

    def begin(self) -> None:
        """A span begins."""
        self._at = time.monotonic()  # first: what runs while it reads is within the span
        self._times = self._read()

    def end(self) -> TimedSpan:
        """The span since ``begin``."""
        return between(self._times, self._read(), time.monotonic() - self._at)

    def _read(self) -> Times:
        times: dict[str, tuple[int, int]] = {}
        for process in () if self._pid is None else self._tree(self._pid):
            with suppress(OSError):
                for task in (self._proc / str(process) / "task").iterdir():
                    with suppress(OSError, ValueError, IndexError):
                        ran, waited = (task / "schedstat").read_text().split()[:2]
                        times[f"{process}/{task.name}"] = (int(ran), int(waited))
        return times

    def _tree(self, pid: int) -> Iterator[int]:
        """``pid`` and all that descend from it."""
        yield pid
        with suppress(OSError):
            for task in (self._proc / str(pid) / "task").iterdir():
                with suppress(OSError):
                    for child in (task / "children").read_text().split():
                        yield from self._tree(int(child))


def between(before: Times, after: Times, wall_s: float) -> TimedSpan:
    """The span between two readings."""
    moved = sorted(
        (
            (value[0] - before[key][0], value[1] - before[key][1])
            for key, value in after.items()
            if key in before
        ),
        reverse=True,
    )
    if not moved or wall_s <= 0:
        return TimedSpan(wall_s)
    ran = moved[0][0] / NS_PER_S
    waited = sum(w for _, w in moved[:TURNS]) / NS_PER_S
    return TimedSpan(wall_s, ran, min(wall_s, max(ran, wall_s - waited)))


def load() -> float | None:
    """Processes that want a core, the last minute's mean (None where the system does not tell)."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
