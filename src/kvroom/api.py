"""The Python call: the keys of a Scenario in, a Plan out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kvroom.answer import Plan
from kvroom.planning import plan as answer
from kvroom.scenario import Scenario


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


def _given(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
