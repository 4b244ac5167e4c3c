"""Processes that share work, and a value that all of them hold because it is too large to travel with
every piece of it."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from kvroom.models.load import HubReader, ask

MakePool = Callable[[], Executor]
_LENT: list[Any] = []
"""What this process holds, the latest last."""


def lent() -> Any:
    """The value that the process which gave out the work lent to its workers; None where there is none."""
    return _LENT[-1] if _LENT else None


@contextmanager
def lending(value: Any) -> Iterator[None]:
    """``value`` is ``lent`` in this process while this is open."""
    _LENT.append(value)
    try:
        yield
    finally:
        _LENT.pop()


def processes(jobs: int, hub: HubReader | None = None, value: Any = None) -> MakePool | None:
    """A pool of ``jobs`` processes that also read models from ``hub`` and to which ``value`` is lent;
    None: do the work in this process."""
    if jobs <= 1:
        return None
    return lambda: _Processes(jobs, hub, value)


class _Processes(ProcessPoolExecutor):
    """What is lent lies in a file meanwhile: a worker that dies at its start leaves nobody waiting to give it
    more than a pipe holds."""

    def __init__(self, jobs: int, hub: HubReader | None, value: Any) -> None:
        self._place = ""
        if value is not None:
            handle, self._place = mkstemp(prefix="kvroom-")
            with os.fdopen(handle, "wb") as file:
                pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
        super().__init__(
            jobs,
            mp_context=get_context("spawn"),
            initializer=_begin,
            initargs=(hub, self._place),
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As usual; what was lent is taken back."""
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        if self._place:
            Path(self._place).unlink(missing_ok=True)


def _begin(hub: HubReader | None, place: str) -> None:
    """A worker reads models as its parent does, and leaves an interrupt from the keyboard to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ask(hub)
    if place:
        with Path(place).open("rb") as file:
            _LENT.append(pickle.load(file))  # of this program's own making


def carrying(pool: MakePool, value: Any) -> MakePool:
    """``pool``, whose workers are others' and are lent ``value`` with every piece of work (None: nothing)."""
    return pool if value is None else lambda: _Carrier(pool(), value)


class _Carrier(Executor):
    def __init__(self, inner: Executor, value: Any) -> None:
        self._inner, self._value = inner, value

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give ``fn`` to the pool, with what is lent."""
        return self._inner.submit(_with, self._value, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As the pool's own."""
        self._inner.shutdown(wait=wait, cancel_futures=cancel_futures)


def _with(value: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with lending(value):
        return fn(*args, **kwargs)
