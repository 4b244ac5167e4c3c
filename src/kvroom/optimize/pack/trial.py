"""One engine as it would start beside what others hold: its own memory answer, never a second one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, floor
from typing import Any

from kvroom.answer.verdict import Verdict
from kvroom.engines.base import EngineAnswer
from kvroom.errors import KvroomError
from kvroom.hardware.mig import MARK
from kvroom.optimize.pack.question import PackedModel
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import Workings, place, work
from kvroom.planner.verdict import judge, requests_held
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.simulator.occupancy import expected_room
from kvroom.units import longest_fit, smallest

STEPS = 1000
"""Shares are chosen in thousandths, as people write them."""
KEPT_ASLEEP = ("runtime", "graphs")
"""Accounts that sleep leaves on the GPU, beside the context: vLLM's pool for sleep has the weights and the
cache alone (``CuMemAllocator``, tags ``weights`` and ``kv_cache``), and empties PyTorch's own."""


@dataclass(frozen=True, kw_only=True)
class PackTrial:
    """An engine started with ``share`` (None: as it takes by itself) where others hold ``others_bytes`` of
    each of its cards. ``requests``: whole ones that it runs at once (None: they store nothing)."""

    scenario: Scenario
    deployment: Deployment
    answer: EngineAnswer
    verdict: Verdict
    requests: int | None
    share: float | None
    others_bytes: int
    needed: int

    @property
    def enough(self) -> bool:
        """Whether it starts and holds all who are there at once."""
        return self.verdict.starts and (self.requests is None or self.requests >= self.needed)

    @property
    def held_bytes(self) -> int:
        """Of each of its cards, once it has started."""
        return self.answer.held_bytes

    @property
    def asleep_bytes(self) -> int:
        """Of each of its cards, while it sleeps: context, communication buffers and graphs stay."""
        stays = sum(a.bytes for a in self.answer.accounts if a.name in KEPT_ASLEEP)
        return min(self.held_bytes, stays + self.answer.outside_bytes[0])

    @property
    def spread_bytes(self) -> int:
        """How much more than estimated its context may take, which no share bounds."""
        middle, _, high = self.answer.outside_bytes
        return high - middle

    @property
    def cards(self) -> int:
        """How many it takes."""
        return self.scenario.gpu_count

    @property
    def layout(self) -> str:
        """How it lies on them."""
        s = self.scenario
        degrees = ((key, getattr(s, key)) for key in ("tp", "pp", "dp", "ep"))
        return " ".join(f"{key} {degree}" for key, degree in degrees if degree > 1) or "one card"


class Trials:
    """Trials that were made, each once."""

    def __init__(self, prices: Mapping[str, float | str], host_bytes: int | None) -> None:
        self._node = {"prices": dict(prices) or None, "host_memory_bytes": host_bytes}
        self._alone: dict[Any, Workings] = {}
        self._made: dict[Any, PackTrial] = {}
        self._least: dict[Any, PackTrial] = {}

    def counts(self, entry: PackedModel, cards: int) -> tuple[int, ...]:
        """How many cards it may take, the fewest first: as told, else 1, 2, 4 and 8."""
        keys = entry.keys
        if any(key in keys for key in ("gpu_count", "tp", "pp", "dp")):
            told = Scenario.from_dict({**keys, "gpu": "H100-SXM"}).gpu_count
            if entry.gpus is not None and told != len(entry.gpus):
                fix = "Pin it to as many cards as its layout takes."
                raise KvroomError(f"{entry.at}.gpus", list(entry.gpus), f"are not {told}", fix)
            return (told,)
        if entry.gpus is not None:
            return (len(entry.gpus),)
        return tuple(count for count in (1, 2, 4, 8) if count <= cards)

    def alone(self, entry: PackedModel, card: str, count: int) -> Workings:
        """Its plan with such cards for itself, as ``plan`` has it."""
        key = entry.name, card, count
        if key not in self._alone:
            keys = {**entry.keys, **self._node, "gpu": card, "gpu_count": count}
            if count > 1 and MARK in card:
                raise KvroomError(f"{entry.at}.gpus", count, "slices are not linked", "Take one.")
            try:
                scenario = laid_out(Scenario.from_dict(keys))[0]
                self._alone[key] = work(replace(scenario, engine_args=self._args(entry, scenario)))
            except KvroomError as error:
                raise KvroomError(
                    f"{entry.at}.{error.field}", error.value, error.message, error.fix
                ) from None
        return self._alone[key]

    @staticmethod
    def _args(entry: PackedModel, scenario: Scenario) -> dict[str, object]:
        args, limits = dict(scenario.engine_args), entry.engine.limits
        if entry.sleep:
            args[entry.engine.sleep_flag] = True
        if not limits.share and limits.sequences and limits.sequences not in args:
            # it takes what it needs: so many at once, and no more
            args[limits.sequences] = scenario.concurrency or 1
        return args

    def needed(self, entry: PackedModel, card: str, count: int) -> int:
        """Requests that are there at once: its users, or by Little's law those of its rate; else one."""
        workings = self.alone(entry, card, count)
        if workings.plan.scenario.concurrency is not None:
            return workings.plan.scenario.concurrency
        load, serving = workings.load, workings.plan.serving
        if load is None or load.requests_per_s is None or serving.ttft_s is None:
            return 1
        stay = serving.ttft_s + (load.output_tokens - 1) * (serving.tpot_s or 0.0)
        return max(1, ceil(load.requests_per_s * stay))

    def default_share(self, entry: PackedModel, card: str, count: int) -> float | None:
        """The share that it takes unless told; None where it has no such flag."""
        share = entry.engine.memory_share(self.alone(entry, card, count).deployment)
        return None if share is None else share[1]

    def trial(
        self, entry: PackedModel, card: str, count: int, others: int, share: float | None
    ) -> PackTrial:
        """It, started with ``share`` where ``others`` hold so many bytes of each of its cards."""
        key = entry.name, card, count, others, share
        if key not in self._made:
            self._made[key] = self._start(entry, card, count, others, share)
        return self._made[key]

    def _start(
        self, entry: PackedModel, card: str, count: int, others: int, share: float | None
    ) -> PackTrial:
        alone = self.alone(entry, card, count)
        scenario, engine = alone.plan.scenario, entry.engine
        if share is not None:
            flag = engine.limits.share_flag(scenario.engine_args)
            scenario = replace(scenario, engine_args={**scenario.engine_args, flag: share})
        if others:
            free = engine.free_at_start(alone.deployment, others)
            known_bytes = {**(scenario.known_bytes or {}), "free_before_load": free}
            scenario = replace(scenario, known_bytes=known_bytes)
        placed = place(scenario)
        deployment, answer = placed.deployment, placed.answer
        plain, shared = expected_room(deployment, answer, scenario.workload)
        room = plain if shared.requests is None else shared
        return PackTrial(
            scenario=scenario,
            deployment=deployment,
            answer=answer,
            verdict=judge(scenario, deployment, answer, placed.limit, room),
            requests=requests_held(deployment, answer, placed.limit, room),
            share=share,
            others_bytes=others,
            needed=self.needed(entry, card, count),
        )

    def least(self, entry: PackedModel, card: str, count: int, others: int) -> PackTrial:
        """It with the least share that holds its users, or its fixed one; with as much as it takes by
        itself where even that is not enough (``enough`` says so)."""
        key = entry.name, card, count, others
        if key not in self._least:
            self._least[key] = self._lowest(entry, card, count, others)
        return self._least[key]

    def _lowest(self, entry: PackedModel, card: str, count: int, others: int) -> PackTrial:
        if entry.share is not None:
            return self.trial(entry, card, count, others, entry.share)
        most = self.default_share(entry, card, count)
        if most is None:
            return self.trial(entry, card, count, others, None)
        steps = floor(most * STEPS)

        def holds(step: int) -> bool:
            return self.trial(entry, card, count, others, step / STEPS).enough

        # what is free bounds a share from above: looked for is the least, below that bound
        top = next((n for n in range(steps, 0, -max(1, steps // 24)) if holds(n)), None)
        if top is None:
            return self.trial(entry, card, count, others, most)
        step = smallest(holds, top)
        return self.trial(entry, card, count, others, (step or top) / STEPS)

    def most(
        self, entry: PackedModel, card: str, count: int, others: int, allotted: int
    ) -> PackTrial:
        """It with the largest share with which it starts and holds at most ``allotted`` bytes of a card, no
        more than it takes by itself."""
        least = self.least(entry, card, count, others)
        limit = self.default_share(entry, card, count)
        if entry.share is not None or limit is None or least.share is None:
            return least
        first = round(least.share * STEPS)

        def holds(more: int) -> bool:
            trial = self.trial(entry, card, count, others, (first + more) / STEPS)
            return trial.verdict.starts and trial.held_bytes <= allotted

        more = longest_fit(holds, max(0, floor(limit * STEPS) - first))
        return self.trial(entry, card, count, others, (first + more) / STEPS)
