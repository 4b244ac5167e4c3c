"""Times with bands: what the model of a deployment's steps says, and how far to trust it.

A band is 80 %: four of five measurements of such a deployment lay inside. It is as wide as the
measurements that the calibration had of this card, model and engine make it, and wider where it had none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import ceil, exp, hypot, log
from typing import Any

from kvroom.latency import calibration
from kvroom.latency.drafting import drafting_of
from kvroom.latency.host import SPREAD
from kvroom.latency.load import error_ratio
from kvroom.latency.step_time import Clock, Rates, Terms
from kvroom.latency.work import Work
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment

CHUNK_TOKENS = 8192
"""Prompt tokens that an engine computes in one step, unless it is told otherwise."""


MODELLED = ("tpot", "ttft")
"""Times under load, which follow from steps by a closed form with an error of its own."""


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
    card: str
    engine: str
    table: Mapping[str, Any]
    own_bands: Mapping[str, float] = field(default_factory=dict)
    """Half widths (logarithms) by metric where one's own measurements say them."""

    @classmethod
    def of(cls, deployment: Deployment, rates: Rates) -> Timing:
        """The times of ``deployment`` on a card of ``rates``, by the calibration that comes with the
        package."""
        table = calibration.shipped()
        levels = calibration.levels(deployment)
        k, every = calibration.coefficients(levels, table), calibration.takes_in_every(deployment)
        if every is not None:
            k = calibration.waiting(k, every)
        clock = Clock(work=Work.of(deployment), rates=rates, k=k, drafting=drafting_of(deployment))
        return cls(
            clock=clock.within_peaks(cache=not calibration.unsaid_cache(deployment)),
            levels=levels,
            kind=calibration.kind_of(deployment.model),
            card=deployment.device.name,
            engine=deployment.engine,
            table=table,
        )

    def unseen(self, metric: str) -> tuple[str, ...]:
        """What the calibration has no measurement of ``metric`` for: card, model or engine, where one
        is new; else the cell, where only their combination is new; else the setting. A generation
        without any measurement stands for its card."""
        known: Mapping[str, Mapping[str, int]] = self.table["measured"]
        parts = []
        for level in self.levels:
            kind, seen = calibration.kind_of_level(level), known.get(level, {})
            if kind in calibration.NOVEL and not (seen if kind == "generation" else metric in seen):
                parts.append(kind)
        if "generation" in parts:
            parts = [part for part in parts if part != "gpu"]
        together = (calibration.CELL, calibration.SETTING)
        new = tuple(part for part in parts if part not in together) or tuple(parts[:1])
        return (*new, calibration.SOURCE) if calibration.UNKNOWN_RECIPE in self.levels else new

    def _own_width(self, metric: str) -> float:
        """How many times as wide as usual measurements of such deployments lie apart."""
        own: Mapping[str, Mapping[str, float]] = self.table["own_bands"]
        width = 1.0
        for kind in calibration.BANDED:
            for level in self.levels:
                if calibration.kind_of_level(level) == kind:
                    width = own.get(level, {}).get(metric, width)
        return width

    def span(self, metric: str, seconds: float) -> Span:
        """``seconds`` of ``metric`` (step, tpot, ttft; whole: of a static batch) with its band."""
        wide = self.own_bands.get(metric)
        if wide is None:
            widths: Mapping[str, float] = self.table["bands"][f"{metric} {self.kind}"]
            known = widths["known"] * self._own_width(metric)
            wide = hypot(known, *(widths[u] for u in self.unseen(metric)))
        if metric == "tpot" and self.clock.drafting is not None:
            wide = hypot(wide, self.clock.drafting.spread)
        if metric in MODELLED:
            wide = hypot(wide, log(error_ratio(metric)))
        if self.clock.host is not None:
            wide = hypot(wide, SPREAD)
        return Span(seconds=seconds, low=seconds * exp(-wide), high=seconds * exp(wide))

    def rests_on(self, metric: str) -> str:
        """The line of the board of accuracy that a time of ``metric`` rests on."""
        line = calibration.board_line(self.card, self.engine)
        row = self.table["board"].get(line, {}).get(metric)
        if row is None:
            return f"{line}: not measured, from what others share"
        return f"{line}: {100 * row['median']:.0f} % median error, n {row['n']:,}"

    def step(self, requests: int, tokens: int) -> tuple[Terms, Span]:
        """A decode step of ``requests`` of ``tokens`` tokens each, by term and as a whole."""
        clock = self.clock.at(requests / self.clock.work.layout.dp)
        terms = clock.decode(requests, clock.decoding(tokens))
        return terms, self.span("step", terms.seconds)

    def prefill_s(self, tokens: int) -> float:
        """Seconds to compute a prompt of ``tokens`` by itself, no request waiting before it."""
        chunks = ceil(tokens / CHUNK_TOKENS)
        return self.clock.prefill(tokens, self.clock.prefilling(tokens), chunks=chunks).seconds
