"""The samples of a day: which loads of how many replicas, and the curves that come of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, fsum
from typing import Any

from kvroom.distributed.journal import Journal
from kvroom.distributed.processes import MakePool
from kvroom.distributed.workers import Progress, run_all
from kvroom.optimize.day.hours import FleetCurves
from kvroom.optimize.day.levels import (
    FULL,
    TOGETHER,
    Level,
    LevelSamples,
    curve_of,
    mean_level,
)
from kvroom.optimize.day.question import DayQuestion
from kvroom.planner.plan import work

SAMPLES = 4
"""Replicas that are sampled at each load, each with requests of its own."""
SAMPLE_REQUESTS = 4_000
TIMES = 12
"""A sample has at least so many times the requests that a full replica runs at once."""
SHARES = (0.05, 0.2, 0.35, 0.5, 0.62, 0.72, 0.8, 0.86, 0.91, 0.95, 0.98)
"""Of the most that a replica can do: the loads at which it is sampled."""


class Sampler:
    """Samples one replica of a day's question on whatever workers there are."""

    def __init__(
        self,
        question: DayQuestion,
        journal: Journal,
        pool: MakePool | None,
        progress: Progress | None,
    ) -> None:
        self.question, self.journal, self.pool, self.progress = question, journal, pool, progress
        self.together = TOGETHER if question.looks else 1
        scenario = replace(question.workings.plan.scenario, replicas=self.together)
        self.samples = LevelSamples(
            workings=work(scenario),
            source=question.source,
            replicas=self.together,
        )
        self.requests = SAMPLE_REQUESTS * self.together
        self.full = [Level.of(told) for told in self._run([(FULL, self.together)])[0]]
        most = max(level.here for level in self.full)
        self.requests = max(SAMPLE_REQUESTS, ceil(TIMES * most)) * self.together
        self.levels: dict[int, list[list[Level]]] = {}

    @property
    def most_per_s(self) -> float:
        """Requests a second that a replica can do."""
        return fsum(level.rate_per_s for level in self.full) / len(self.full)

    def sample(self, counts: Sequence[int]) -> None:
        """Sample the loads of fleets of so many replicas."""
        sessions = self.most_per_s / self.question.source.calls
        wanted = [(share * sessions, count) for count in counts for share in SHARES]
        samples = self._run(wanted)
        for number, count in enumerate(counts):
            own = samples[number * len(SHARES) : (number + 1) * len(SHARES)]
            self.levels[count] = [[Level.of(told) for told in each] for each in own]

    def _run(self, wanted: Sequence[tuple[float | str, int]]) -> list[list[dict[str, Any]]]:
        """SAMPLES results of each (rate of sessions, replicas of the fleet)."""
        first = self.question.source.seed
        units = [
            {
                "rate_per_s": rate,
                "replicas": count,
                "seed": first + 1_000_003 * (sample + 1) + place,
                "requests": self.requests,
            }
            for place, (rate, count) in enumerate(wanted)
            for sample in range(SAMPLES)
        ]
        told = run_all(
            "samples", self.samples, units, self.journal, pool=self.pool, progress=self.progress
        )
        return [told[at : at + SAMPLES] for at in range(0, len(told), SAMPLES)]

    def curves(self, sample: int | None = None) -> FleetCurves:
        """The curves of all samples together, or of one of them."""

        def chosen(levels: Sequence[Level]) -> Level:
            return mean_level(levels) if sample is None else levels[sample]

        return FleetCurves(
            {
                count: curve_of([*map(chosen, each), chosen(self.full)])
                for count, each in self.levels.items()
            }
        )

    def told(self) -> dict[str, Any]:
        """What was sampled, as plain values: the loads with a replica's times at each."""
        count = max(self.levels)
        curve = self.curves().of(count)
        runs = SAMPLES * (1 + len(SHARES) * len(self.levels))
        return {
            "replicas": runs * self.together,
            "requests": runs * self.requests,
            "most_per_s": curve.most_per_s,
            "levels": [
                {
                    "requests_per_s": level.rate_per_s,
                    "at_once": level.here,
                    "ttft_mean_s": level.ttft_mean_s,
                    "ttft_p95_s": level.ttft_s[int(0.95 * len(level.ttft_s))],
                    "tpot_mean_s": level.tpot_mean_s,
                    "tpot_p95_s": level.tpot_s[int(0.95 * len(level.tpot_s))],
                }
                for level in curve.levels
            ],
        }
