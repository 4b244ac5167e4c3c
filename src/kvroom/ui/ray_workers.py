"""A search's units of work on a Ray cluster (the ``cluster`` extra)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib import import_module
from typing import Any

from kvroom.errors import KvroomError

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

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give ``fn`` to the cluster."""
        given = self._run.remote(fn, args, kwargs)
        answer: Future[Any] = Future()
        given.future().add_done_callback(lambda done: self._settle(done, answer))
        return answer

    def _settle(self, done: Future[Any], answer: Future[Any]) -> None:
        error = done.exception()
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


def ray_pool(address: str) -> Callable[[], Executor]:
    """What makes a pool on the Ray cluster at ``address`` (``auto``: the one this machine is part of).

    KvroomError where Ray is not installed or no cluster answers.
    """
    try:
        ray = import_module("ray")
    except ImportError:
        fix = "pip install 'kvroom[cluster]', or search with --jobs on this machine."
        raise KvroomError("--ray", address, "needs Ray", fix) from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            fix = "Start one with `ray start --head`, or give its address."
            said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise KvroomError(
                "--ray", address, f"is no cluster that answers ({said})", fix
            ) from None
    return lambda: RayPool(ray)
