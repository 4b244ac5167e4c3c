"""Times with bands: what the model of a deployment's steps says, and how far to trust it.

A band is 80 %: four of five measurements of such a deployment lay inside. It is as wide as the
measurements that the calibration had of this card, model and engine make it, and wider where it had none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import exp, hypot
from typing import Any

from kvroom.memory.deployment import Deployment
from kvroom.timing import calibration, serving
from kvroom.timing.serving import Load, Times
from kvroom.timing.steps import Clock, Rates, Terms
from kvroom.timing.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Seconds, and the ends of its 80 % band."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The times of one deployment."""

    clock: Clock
    levels: tuple[str, ...]
    kind: str
    table: Mapping[str, Any]

    @classmethod
    def of(cls, d: Deployment, rates: Rates, table: Mapping[str, Any] | None = None) -> Timing:
        """The times of ``d`` on a card of ``rates``, by the calibration ``table``."""
        table = calibration.shipped() if table is None else table
        found = calibration.levels(d)
        return cls(
            clock=Clock(work=Work.of(d), rates=rates, k=calibration.coefficients(found, table)),
            levels=found,
            kind=calibration.kind_of(d.model),
            table=table,
        )

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """Which of gpu, model, engine no measurement of the calibration had."""
        known: Mapping[str, int] = self.table["measured"]
        names = (level for level in self.levels if " " not in level)
        parts = ((level.split("=")[0], level) for level in names)
        return tuple(p for p, level in parts if p in calibration.NOVEL and level not in known)

    def span(self, metric: str, seconds: float) -> Span:
        """``seconds`` of ``metric`` (step, tpot, ttft) with its band."""
        widths: Mapping[str, float] = self.table["bands"][f"{metric} {self.kind}"]
        wide = hypot(widths["known"], *(widths[u] for u in self.unseen))
        return Span(seconds=seconds, low=seconds * exp(-wide), high=seconds * exp(wide))

    def step(self, requests: int, tokens: int) -> tuple[Terms, Span]:
        """A decode step of ``requests`` of ``tokens`` tokens each, by term and as a whole."""
        terms = self.clock.decode(requests, self.clock.work.decoding(tokens))
        return terms, self.span("step", terms.seconds)

    def served(self, load: Load, *, static: bool) -> Times:
        """TPOT and TTFT of ``load``."""
        return (serving.static_batch if static else serving.closed_loop)(self.clock, load)
