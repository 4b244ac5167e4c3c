"""Progress of a long run on standard error, and an end to it by Ctrl-C that keeps what is done."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.timeline import Moment

EVERY_S, EVERY_S_IN_A_LOG = 0.2, 10.0


class Progress:
    """While it is open Ctrl-C asks the simulation to end, and a line says how far it is.

    ``expected``: how many requests will come, where that is known. Outside a terminal the line is printed
    only now and then.
    """

    def __init__(self, expected: int | None) -> None:
        from time import monotonic

        self._clock = monotonic
        self._expected = expected
        self._stop = False
        self._terminal = sys.stderr.isatty()
        self._due = monotonic() + (EVERY_S if self._terminal else EVERY_S_IN_A_LOG)
        self._shown = False
        self._before: Any = None

    def __enter__(self) -> Progress:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._shown and self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _on_interrupt(self, _: int, __: FrameType | None) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True

    def watch(self, moment: Moment) -> bool:
        """Say how things stand, now and then; whether to end."""
        now = self._clock()
        if now >= self._due:
            self._due = now + (EVERY_S if self._terminal else EVERY_S_IN_A_LOG)
            self._shown = True
            of = f" of {self._expected:,}" if self._expected else ""
            line = (
                f"{moment.done:,}{of} requests done, {moment.running:,} running, "
                f"{moment.waiting:,} waiting, {moment.time_ps / PS_PER_S:,.0f} s simulated"
            )
            end = "" if self._terminal else "\n"
            start = "\r\x1b[K" if self._terminal else ""
            print(f"{start}{line[:79]}", end=end, file=sys.stderr, flush=True)
        return self._stop


class Waiting:
    """While it is open a line on a terminal says how many pieces of work are done, and for how long it has
    been going: from its first moment on, whoever does the work. Nothing is said outside a terminal."""

    def __init__(self, what: str) -> None:
        from time import monotonic

        self._clock = monotonic
        self._began = monotonic()
        self._line = f"none of the {what} is done yet"
        self._what = what
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def tell(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` are, ``what`` was the last."""
        self._line = f"{done:,} of {total:,} {self._what} done, the last: {what}"

    def _tick(self) -> None:
        over = False
        while not over:
            line = f"{self._line} · {self._clock() - self._began:.0f} s"
            print(f"\r\x1b[K{line[:79]}", end="", file=sys.stderr, flush=True)
            over = self._over.wait(EVERY_S)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for garbage in circles a hundred times less often: requests come and go without any.

    It holds for the whole process, so only a command that does nothing else asks for it.
    """
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def units_progress() -> Callable[[str, int, int], None]:
    """Tell on standard error how many units are done: a line rewritten on a terminal, else every quarter."""
    live = sys.stderr.isatty()
    told: dict[str, int] = {}

    def tell(stage: str, done: int, total: int) -> None:
        quarter = 4 * done // total
        if not live and told.get(stage) == quarter:
            return
        told[stage] = quarter
        line = f"{stage}: {done:,} of {total:,} units"
        end = "" if live and done < total else "\n"
        print(f"\r\x1b[K{line[:79]}" if live else line, end=end, file=sys.stderr, flush=True)

    return tell
