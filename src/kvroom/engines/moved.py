"""Calls into an installed engine whose names and arguments move between its releases.

Loaded by path in the engine's own Python, beside its script (``observe/installed/child.py``).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any


def named(places: Mapping[str, tuple[str, ...]], name: str) -> Any:
    """The object called ``name``, in the first of its modules (``places``) that has it; ImportError where
    none does."""
    tried = []
    for module in places[name]:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            tried.append(f"{module}: {error}")
    raise ImportError(f"this release has no {name} ({'; '.join(tried)})")


def filled(call: Callable[..., Any], **given: Any) -> Any:
    """``call`` with those of ``given`` that it takes, and None for what else it needs."""
    known, needed = _arguments(call)
    return call(**{**needed, **{name: value for name, value in given.items() if name in known}})


@lru_cache(64)
def _arguments(call: Callable[..., Any]) -> tuple[Mapping[str, Any], dict[str, None]]:
    """The arguments of a call, and None for those that it needs."""
    known = inspect.signature(call).parameters
    needed = {
        name: None
        for name, parameter in known.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    return known, needed


def given_to(call: Callable[..., Any], **given: Any) -> Any:
    """``call`` with those of ``given`` that it takes."""
    known = inspect.signature(call).parameters
    return call(**{name: value for name, value in given.items() if name in known})
