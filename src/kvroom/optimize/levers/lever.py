"""A lever: one change of a Scenario, with what it needs and what it is known to cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kvroom.optimize.levers.published import Effect
from kvroom.records import dataclass

SAME = Effect(
    effect="none: the same numbers are computed", source="by construction", loss_ratio=0.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One change of a Scenario.

    ``family``: levers of one family exclude each other. ``patch``: the keys to set, objects merged into
    what they hold. ``keeps``: which of model, cards, limit stay as they are. ``one_flag``: nothing but a
    flag of the engine is needed. ``reading``: how its requests are counted (``cost.STAIRS``).
    """

    id: str
    label: str
    family: str
    patch: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    quality: Effect | None = None
    latency: Effect | None = None
    keeps: tuple[str, ...] = ("model", "cards", "limit")
    one_flag: bool = True
    reading: str = "held"
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmodelled:
    """A lever that a Plan says nothing of yet, and why."""

    id: str
    label: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """Plain JSON values."""
        return {"id": self.id, "label": self.label, "why": self.why}
