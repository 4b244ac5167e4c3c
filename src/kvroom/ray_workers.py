"""Units of work on a Ray cluster (the ``cluster`` extra)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib import import_module
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import parse_count

CLIENT = "ray://"
"""How the address of a cluster's client port begins."""
ANSWER_S = 5.0
"""Within so many seconds a cluster's port is reached; Ray itself waits for minutes, and says little."""
START = "Start one with `ray start --head`, or give its address: ray:HOST:6379."
RETRIES = 3
"""Times that Ray itself gives a unit to another worker after its own died."""


class RayPool(Executor):
    """An Executor whose workers are a Ray cluster's.

    A unit whose worker or node dies is run again elsewhere; one that is lost for good raises
    BrokenExecutor, as a process pool's would.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._run = ray.remote(max_retries=RETRIES, retry_exceptions=False)(_call)
        self._given: list[Any] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give ``fn`` to the cluster."""
        given = self._run.remote(fn, args, kwargs)
        self._given.append(given)
        answer: Future[Any] = Future()
        given.future().add_done_callback(lambda done: self._settle(done, answer))
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let go of what was given out; ``cancel_futures`` ends what is not done."""
        for given in self._given if cancel_futures else ():
            self._ray.cancel(given, force=True)
        self._given.clear()

    def _settle(self, done: Future[Any], answer: Future[Any]) -> None:
        error = done.exception()
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(done.result())
            return
        lost = self._ray.exceptions
        gone = (lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError)
        if isinstance(error, gone):
            answer.set_exception(BrokenExecutor(str(error)))
        else:
            answer.set_exception(getattr(error, "cause", None) or error)


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def ray_pool(address: str, field: str = "--cluster") -> Callable[[], Executor]:
    """What makes a pool on the Ray cluster at ``address`` (``auto``: the one this machine is part of).

    Workers get this kvroom; what reads Parquet they must have themselves. KvroomError where Ray is not
    installed or no cluster answers.
    """
    ray = _connected(address, field)
    return lambda: RayPool(ray)


def ray_cpus(address: str, field: str = "--cluster") -> int:
    """How many CPUs the cluster at ``address`` has, at least one."""
    return max(1, int(_connected(address, field).cluster_resources().get("CPU", 1)))


def _check_reached(address: str, field: str) -> None:
    """KvroomError where nothing listens at an address that has a port."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not colon:
        return  # auto, or a name of Ray's own
    try:
        with socket.create_connection(
            (host.strip("[]"), parse_count(field, port, low=1, high=65535)), ANSWER_S
        ):
            pass
    except OSError as error:
        said = error.strerror or str(error)
        raise KvroomError(field, address, f"is no cluster that answers ({said})", START) from None


def _connected(address: str, field: str) -> Any:
    try:
        ray = import_module("ray")
        if not hasattr(ray, "init"):  # a folder of that name, such as Ray's own below /tmp
            raise ImportError("ray")
    except ImportError:
        fix = "pip install 'kvroom[cluster]', or write --cluster processes."
        raise KvroomError(field, address, "needs Ray", fix) from None
    if not ray.is_initialized():
        _check_reached(address, field)
        # The same code everywhere: figures are the same to the last digit only then.
        own = {"py_modules": [str(Path(__file__).parent)], "excludes": ["**/__pycache__"]}
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", runtime_env=own)
        except (ConnectionError, ImportError, ValueError, RuntimeError) as error:
            fix = START
            if isinstance(error, ImportError):
                fix = "pip install 'ray[client]', or give the address of its head: ray:HOST:6379."
            said = " ".join(str(error).split())[:120] or type(error).__name__
            raise KvroomError(field, address, f"is no cluster that answers ({said})", fix) from None
    return ray
