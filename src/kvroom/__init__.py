"""kvroom: you are not renting the weights, you are renting the cache.

>>> import kvroom
>>> answer = kvroom.plan("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K", engine="arithmetic")
>>> answer.capacity.ceiling.requests
16
>>> answer.kv.bytes_per_token
327680

``plan`` answers, ``explain`` says how each figure comes about, ``compare`` sets answers side by side,
``sweep`` turns one key, ``check`` judges launch files,
``levers`` says what to change, ``search`` what to choose, ``pack`` what fits one node, ``launch`` gives the
engine's command; ``simulate`` plays requests, ``reuse`` says what a prefix cache would hold; ``reconcile``,
``calibrate``, ``watch``, ``prove`` and ``probe`` hold all that against what really happens. ``Scenario`` is
the question, ``Plan`` the answer, ``KvroomError`` what a question that cannot be
answered raises. Each is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module

from kvroom.version import VERSION as __version__

TYPE_CHECKING = False  # type checkers take it for true; typing is slow to import
if TYPE_CHECKING:
    from typing import Any

    from kvroom.answer.plan import Plan
    from kvroom.api import (
        calibrate,
        check,
        compare,
        day,
        explain,
        fit,
        launch,
        levers,
        pack,
        plan,
        probe,
        prove,
        reconcile,
        reuse,
        search,
        simulate,
        sweep,
        watch,
    )
    from kvroom.errors import KvroomError
    from kvroom.scenario.scenario import Scenario

__all__ = [
    "KvroomError",
    "Plan",
    "Scenario",
    "__version__",
    "calibrate",
    "check",
    "compare",
    "day",
    "explain",
    "fit",
    "launch",
    "levers",
    "pack",
    "plan",
    "probe",
    "prove",
    "reconcile",
    "reuse",
    "search",
    "simulate",
    "sweep",
    "watch",
]

_HOMES = {
    "Plan": "kvroom.answer.plan",
    "Scenario": "kvroom.scenario.scenario",
    "KvroomError": "kvroom.errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "kvroom.api")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
