"""The Python calls: the keys of a Scenario in, a Plan out, or what to change about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvroom.answer import Plan
from kvroom.planning import plan as answer
from kvroom.scenario import Scenario

if TYPE_CHECKING:
    from kvroom.decisions.levers import Levers


def plan(
    model: str | os.PathLike[str] | Mapping[str, Any],
    gpu: str | os.PathLike[str] | Mapping[str, Any],
    **keys: Any,
) -> Plan:
    """Where every byte goes, how many requests fit, what a step moves.

    ``model`` is a name, a path or ``{"config": {…}}``; ``gpu`` a card's name, a machine file or an
    inline card; ``keys`` are the other keys of a Scenario (``gpu_count``, ``context_tokens``,
    ``kv_dtype`` …). Sizes and tokens may be text with a unit. Raises KvroomError, which names the key,
    its value and the fix; a deployment that does not fit is an answer.

    >>> small = plan("llama-3-8b", "RTX-4090", engine="arithmetic", context_tokens="8K")
    >>> small.verdict.fits, small.capacity.ceiling.requests
    (True, 7)
    >>> plan("llama-3-8b", "RTX-4090", context_tokens="8G")
    Traceback (most recent call last):
    kvroom.errors.KvroomError: context_tokens: '8G' has an unknown unit 'G'. Write 32768, 32K or 1M.
    """
    return answer(Scenario.from_dict({"model": _given(model), "gpu": _given(gpu), **keys}))


def levers(
    model: str | os.PathLike[str] | Mapping[str, Any],
    gpu: str | os.PathLike[str] | Mapping[str, Any],
    *,
    by: str = "requests",
    together: Sequence[str] | None = None,
    **keys: Any,
) -> Levers:
    """Every lever of a question, ranked ``by`` requests, step, ttft or cost.

    Arguments are those of ``plan``; ``together`` names levers to combine. The answer has ``before``,
    ``levers``, ``together``, ``waterfall`` and ``first``; ``to_dict()``, ``rows()``, ``to_frame()`` (polars
    or pandas) and ``to_html()`` turn it into other shapes. Raises KvroomError as ``plan`` does.

    >>> found = levers("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K", engine="arithmetic")
    >>> found.before.requests, found.first.lever.id, found.first.after.requests
    (16, 'kv_dtype=fp8', 33)
    >>> found.first.changes
    {'kv_dtype': 'fp8'}
    """
    from kvroom.decisions.levers import levers as ranked

    asked = Scenario.from_dict({"model": _given(model), "gpu": _given(gpu), **keys})
    return ranked(asked, by=by, together=together)


def _given(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
