"""One search under way: deployments scored in closed form, then simulated until none can be cheaper.

Deployments are simulated in the order of the least that each could cost, which the closed form and its error
tell, and only with as many replicas as are cheaper than the best found. Where the least that the next one
could cost is no less than the best, that is the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import ceil, inf
from typing import Any

from kvroom.distributed.journal import Journal
from kvroom.distributed.processes import MakePool
from kvroom.distributed.workers import Progress, Unit, run_all, unit_name
from kvroom.engines.registry import engine_of
from kvroom.hardware.device import Device
from kvroom.hardware.reader import resolve
from kvroom.latency.load import error_ratio
from kvroom.optimize.search.closed_form import (
    CHUNK,
    DEVIATIONS,
    Question,
    closed_chunk,
    closed_split,
    priced,
)
from kvroom.optimize.search.demand import Demand
from kvroom.optimize.search.space import Candidate, Space, candidates
from kvroom.optimize.search.trial import tried
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

ROUND = 4
"""Deployments simulated before the best found is looked at again."""
MOST_RUNS = 60
"""Simulations after which the cheapest so far is the answer, proven or not."""
KINDS = 3
"""Kinds of card for each of two pools that differ in their card."""
SPLITS = 8
"""Kinds of deployment, the cheapest, that are tried as pools of prompts and of answers."""
UNPRICED = 1e6
"""Dollars an hour of a card whose price is not known: after all others, by their number."""


@dataclass(kw_only=True)
class Scored:
    """A deployment with its closed form, and with what simulations made of it."""

    candidate: Candidate
    row: dict[str, Any]
    trial: dict[str, Any] | None = None
    closed: dict[str, Any] = field(default_factory=dict)
    """The closed form's row, where ``row`` is a simulation's."""

    @property
    def card_usd(self) -> float:
        """What a card costs, those without a price dearer than any."""
        price = self.row["usd_per_card_hour"]
        return UNPRICED if price is None else float(price)

    def usd(self, replicas: int) -> float:
        """An hour of so many replicas."""
        return self.card_usd * float(self.row["cards"]) * replicas


@dataclass(kw_only=True)
class Hunt:
    """One search under way."""

    question: Question
    space: Space
    base: Scenario
    journal: Journal
    pool: MakePool | None
    progress: Progress | None
    simulate: int
    stopped: bool = False
    """Whether it was interrupted."""
    proven: bool = False
    """Whether nothing of the space can be cheaper than the best answer."""
    runs: int = 0
    """Simulations so far."""
    trials: list[Scored] = field(default_factory=list)

    @cached_property
    def demand(self) -> Demand:
        """What has to be served."""
        return self.question.demand()

    def work(self, stage: str, function: Callable[[Unit], Any], units: Sequence[Unit]) -> list[Any]:
        """Results of ``units``; of an interrupted stage None for those that were not done."""
        if self.stopped:
            return [None] * len(units)
        try:
            return run_all(
                stage, function, units, self.journal, pool=self.pool, progress=self.progress
            )
        except KeyboardInterrupt:
            self.stopped = True
            return [self.journal.done.get(unit_name(stage, unit)) for unit in units]

    def scored(self) -> tuple[list[Scored], list[Scored]]:
        """(deployments with figures, deployments that are refused), in the space's order."""
        every = list(candidates(self.base, self.space, reuses=self.demand.reuses))
        question = self.question.to_dict()
        units = [
            {
                "question": question,
                "candidates": [dict(c.keys) for c in every[index : index + CHUNK]],
            }
            for index in range(0, len(every), CHUNK)
        ]
        chunks = self.work("closed form", closed_chunk, units)
        both: list[Scored] = []
        for start, rows in zip(range(0, len(every), CHUNK), chunks, strict=True):
            some = every[start : start + CHUNK]
            both += [Scored(candidate=c, row=r) for c, r in zip(some, rows or (), strict=False)]
        return [x for x in both if "refused" not in x.row], [x for x in both if "refused" in x.row]

    def price(self, scored: Scored) -> float:
        """What a deployment costs by what is known of it: dollars an hour, or for a million tokens where no
        load is to be served."""
        if self.demand.free:
            return scored.card_usd * float(scored.row["cards"] / scored.row["output_tokens_per_s"])
        return scored.usd(scored.row["replicas"])

    def bound(self, scored: Scored) -> float:
        """The least that it could cost."""
        if self.demand.free:
            return self.price(scored) / float(error_ratio("tpot") ** DEVIATIONS)
        return scored.usd(scored.row["least"])

    def rank(self, scored: Scored) -> tuple[float, float, float, str]:
        """What answers are ranked by."""
        return (self.price(scored), scored.row["gpus"], scored.row["e2e_s"], scored.candidate.name)

    def optimum(self, rows: Iterable[Scored]) -> bool:
        """Simulate ``rows`` until none can be cheaper than the best that holds; whether it came so far."""
        may = [row for row in rows if row.row["least"] is not None]
        queue = sorted(may, key=lambda x: (self.bound(x), self.rank(x)))
        best, start = inf, self.runs
        while queue and self.bound(queue[0]) < best:
            if self.stopped or self.runs - start >= MOST_RUNS:
                return False
            batch = [x for x in queue[:ROUND] if self.bound(x) < best]
            queue = queue[len(batch) :]
            met = self._simulated(batch, best)
            best = min([best, *map(self.price, met)])
            if met and self.space.splits and not self.demand.free and not self.question.replicas:
                pools = self._pools(may, best)
                queue += [row for row in pools if row.row["least"] is not None]
                queue.sort(key=lambda x: (self.bound(x), self.rank(x)))
                may = []
        return not self.stopped

    def others(self, rows: Iterable[Scored], many: int) -> None:
        """Simulate more until ``many`` kinds of deployment hold."""
        rows = [row for row in rows if row.row["least"] is not None]
        for _ in range(MOST_RUNS):
            kinds = {
                trial.candidate.kind for trial in self.trials if trial.trial and trial.trial["met"]
            }
            tried_kinds = {trial.candidate.kind for trial in self.trials}
            left = list(
                firsts(
                    row
                    for row in sorted(rows, key=self.rank)
                    if row.candidate.kind not in tried_kinds
                )
            )
            if len(kinds) >= many or not left or self.stopped or self.runs >= 2 * MOST_RUNS:
                return
            self._simulated(left[: min(ROUND, many - len(kinds))], inf)

    def _simulated(self, batch: Sequence[Scored], best: float) -> list[Scored]:
        """Those of ``batch`` that hold with so few replicas that they are cheaper than ``best``."""
        question, units = self.question.to_dict(), []
        for x in batch:
            split = x.candidate.keys.get("disaggregation")
            copies = sum(pool["count"] for pool in split.values()) if split else 1
            most = self.question.replicas or self.question.max_gpus * copies // x.row["cards"]
            if best < inf and not self.demand.free:
                most = min(most, ceil(best * copies / x.usd(1)) - 1)
            units.append(
                {
                    "question": question,
                    "keys": dict(x.candidate.keys),
                    "least": x.row["least"],
                    "first": self.question.replicas or x.row["replicas"],
                    "most": max(most, x.row["least"]),
                    "users": x.row["users"],
                    "pool_usd": x.row.get("pool_usd"),
                    "budget": None if best == inf else best,
                }
            )
        results = self.work(f"simulations from {len(self.trials) + 1}", tried, units)
        simulated = []
        for x, result in zip(batch, results, strict=True):
            if result is None:
                continue
            self.runs += result["runs"]
            x.trial, x.closed = result, x.row
            self.trials.append(x)
            if result["met"]:
                x.row = x.row | _measured(x, result)
                simulated.append(x)
        return simulated

    def _pools(self, rows: Sequence[Scored], best: float) -> list[Scored]:
        """Pools of prompts and of answers that could be cheaper than ``best``: of one of the cheapest kinds
        of deployment, and of two kinds of card, one cheap by its arithmetic, one by its memory's rate."""
        wide = ("pp", "dp", "dcp")
        alike = firsts(
            row
            for row in sorted(rows, key=lambda x: (x.usd(1), self.rank(x)))
            if row.usd(1) < best
            and all(row.candidate.keys.get(k, 1) == 1 for k in wide)
            and engine_of(row.candidate.keys["engine"]).support.split is not None
        )
        some = list(alike)
        question = self.question.to_dict()
        units = [
            {
                "question": question,
                "keys": dict(two.candidate.keys),
                "prefill": _other(one, two) if one is not two else {},
                "usd": [one.usd(1), two.usd(1)],
                "cards": [one.row["cards"], two.row["cards"]],
                "budget": best,
            }
            for one, two in [*((x, x) for x in some[:SPLITS]), *_two_kinds(some)]
            if one.usd(1) + two.usd(1) < best
        ]
        splits = [r for r in self.work("pools", closed_split, units) if r and "refused" not in r]
        return [Scored(candidate=Candidate(keys=r.pop("keys")), row=r) for r in splits]


def _two_kinds(rows: Sequence[Scored]) -> Iterable[tuple[Scored, Scored]]:
    """(prompts, answers) of two kinds of card with a price, by the same engine and the same cache."""

    def cheapest(rate: Callable[[Device], float | None]) -> list[Scored]:
        each: dict[str, tuple[float, Scored]] = {}
        for row in rows:
            device = resolve(row.candidate.keys["gpu"])
            if row.row["usd_per_card_hour"] and rate(device):
                # The largest deployment of a card holds most prompts beside its weights.
                each.setdefault(device.name, (row.card_usd / float(rate(device) or 1), row))
        return [row for _, row in sorted(each.values(), key=lambda x: x[0])[:KINDS]]

    for one in cheapest(lambda device: device.flops("bf16")):
        for two in cheapest(lambda device: device.memory_bytes_per_s):
            keys, others = one.candidate.keys, two.candidate.keys
            same = all(keys.get(k) == others.get(k) for k in ("engine", "kv_dtype", "tiers"))
            if same and keys["gpu"] != others["gpu"]:
                yield one, two


def _other(one: Scored, two: Scored) -> dict[str, Any]:
    """What the pool of ``one`` sets beside the question's keys, which are those of ``two``."""
    names = ("gpu", "gpu_count", "tp", "ep", "weight_dtype")
    keys, others = one.candidate.keys, two.candidate.keys
    return {key: keys[key] for key in names if keys.get(key) not in (None, others.get(key))}


def firsts(rows: Iterable[Scored]) -> Iterable[Scored]:
    """The first of each kind."""
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        if row.candidate.kind not in seen:
            seen.add(row.candidate.kind)
            yield row


def _measured(scored: Scored, t: Mapping[str, Any]) -> dict[str, Any]:
    """What a simulation makes of a row's figures."""
    cards = scored.row["cards"]
    price = scored.row["usd_per_card_hour"]
    if pools := t.get("pools"):
        split = scored.candidate.keys["disaggregation"]
        cards = sum(scored.row["pools"][name] * count for name, count in pools.items())
        if price is not None:
            usd = scored.row["pool_usd"]
            price = sum(usd[name] * count for name, count in pools.items()) / cards
        split = {name: {**own, "count": pools[name]} for name, own in split.items()}
        scored.candidate = Candidate(keys={**scored.candidate.keys, "disaggregation": split})
    steps = (scored.row["e2e_s"] - scored.row["ttft_s"]) / scored.row["tpot_s"]
    rate = t["output_tokens_per_s"]
    return {
        "replicas": t["replicas"],
        "cards": cards,
        "users": t["users"] or scored.row["users"],
        **priced(price, cards * t["replicas"], rate),
        "e2e_s": t["ttft_s"] + t["tpot_s"] * steps,
    }
