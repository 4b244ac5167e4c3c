"""Rows as a data frame, where a library for them is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as a data frame of polars or pandas, whichever is installed.

    Raises ImportError where neither is.
    """
    for name in ("polars", "pandas"):
        try:
            library = import_module(name)
        except ImportError:
            continue
        return library.DataFrame(list(map(dict, rows)))
    raise ImportError("a data frame needs polars or pandas: pip install polars")
