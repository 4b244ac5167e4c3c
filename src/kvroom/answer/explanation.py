"""One figure with its formula, the formula with its numbers, and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """``figure`` is the Plan's dotted key, ``formula`` is in words, ``numbers`` evaluates to ``value``."""

    figure: str
    label: str
    value: int | float
    unit: str
    formula: str
    numbers: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}
