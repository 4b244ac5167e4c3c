"""kvroom: you are not renting the weights, you are renting the cache.

>>> import kvroom
>>> answer = kvroom.plan("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K", engine="arithmetic")
>>> answer.capacity.ceiling.requests
16
>>> answer.kv.bytes_per_token
327680

``plan`` answers, ``compare`` sets answers side by side, ``levers`` says what to change, ``search`` what to
choose; ``simulate`` plays requests, ``reuse`` says what a prefix cache would hold. ``Scenario`` is the
question, ``Plan`` the answer, ``KvroomError`` what a question that cannot be answered raises. Each is loaded
when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; typing is slow to import
if TYPE_CHECKING:
    from typing import Any

    from kvroom.answer.plan import Plan
    from kvroom.api import compare, levers, plan, reuse, search, simulate
    from kvroom.errors import KvroomError
    from kvroom.scenario.scenario import Scenario

__version__ = "0.1.0"
__all__ = [
    "KvroomError",
    "Plan",
    "Scenario",
    "__version__",
    "compare",
    "levers",
    "plan",
    "reuse",
    "search",
    "simulate",
]

_HOMES = {
    "compare": "kvroom.api",
    "levers": "kvroom.api",
    "plan": "kvroom.api",
    "reuse": "kvroom.api",
    "search": "kvroom.api",
    "simulate": "kvroom.api",
    "Plan": "kvroom.answer.plan",
    "Scenario": "kvroom.scenario.scenario",
    "KvroomError": "kvroom.errors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
