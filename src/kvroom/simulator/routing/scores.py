"""``scores``: the highest weighted sum of scores between 0 and 1, as the endpoint picker of the Gateway API
inference extension and llm-d's router compute it (llm-d-router, pkg/epp/framework/plugins; weights of
llm-d's guide "optimized baseline": prefix 3, queue 2, kv 2, cold 2).

- prefix: leading blocks of ``block_tokens`` that were sent there, of the prompt's (up to
  ``max_prefix_tokens``). An index by replica remembers the ``lru_blocks`` latest (0: as many as the replica
  has blocks, though its own are smaller). ``precise``: the blocks that the replica says it has cached.
- queue: (longest queue − its queue) / (longest − shortest); 1 where all are equal.
- kv: the share of its blocks that nobody holds.
- cold: where the prompt is known nowhere, 1 for the replica whose last such prompt is longest ago, down to
  0; else 0.5 for all.

Queues and blocks are those of the last look (metrics are scraped every 50 ms). Of equal sums any.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.routing.desk import RouterDesk, RoutingRule
from kvroom.simulator.routing.views import RecentNames, leading


class HighestScore(RoutingRule):
    """``scores``."""

    reads_gauges = True

    def __init__(self, desk: RouterDesk) -> None:
        super().__init__(desk)
        setting = desk.routing.setting
        self.weights = tuple(setting(key) for key in ("prefix", "queue", "kv", "cold"))
        self.block = int(setting("block_tokens"))
        self.longest = int(setting("max_prefix_tokens"))
        self.precise = bool(setting("precise"))
        most = [int(setting("lru_blocks")) or room // desk.block_tokens for room in desk.room]
        self.recent = [RecentNames(count * self.block // desk.name_tokens) for count in most]
        self.cold: OrderedDict[int, None] = OrderedDict()
        """Replicas that got a prompt known nowhere, the latest last."""

    @property
    def reads_cache(self) -> bool:
        """Where it asks the replicas themselves."""
        return self.precise

    def scores(self, request: ServedRequest, up: Sequence[int]) -> list[tuple[float, ...]]:
        """Prefix, queue, kv and cold of each that is ``up``."""
        desk = self.desk
        names, size = desk.names(request), desk.name_tokens
        total = min(request.num_tokens, self.longest) // self.block
        matched = []
        for place in up:
            known = desk.views[place].names if self.precise else self.recent[place]
            matched.append(min(leading(names, known) * size, self.longest) // self.block)
        queues = [desk.waiting[place] for place in up]
        longest, shortest = max(queues), min(queues)
        spread = longest - shortest
        cold = self._cold(up) if not any(matched) else [0.5] * len(up)
        return [
            (
                count / total if total else 0.0,
                (longest - queue) / spread if spread else 1.0,
                1.0 - desk.used[place],
                score,
            )
            for place, count, queue, score in zip(up, matched, queues, cold, strict=True)
        ]

    def _cold(self, up: Sequence[int]) -> list[float]:
        if len(up) == 1:
            return [1.0]
        latest = list(self.cold)
        order = [p for p in up if p not in self.cold] + [p for p in latest if p in up]
        rank = {place: index for index, place in enumerate(order)}
        return [1.0 - rank[place] / (len(up) - 1) for place in up]

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The highest sum."""
        scores = self.scores(request, up)
        sums = [sum(w * s for w, s in zip(self.weights, each, strict=True)) for each in scores]
        best = max(sums)
        place = self.dice.choice([p for p, value in zip(up, sums, strict=True) if value == best])
        if not any(each[0] for each in scores):
            self.cold[place] = None
            self.cold.move_to_end(place)
        names = self.desk.names(request)
        self.desk.loads.sent(request, place)
        if self.precise:
            self.desk.views[place].sent(names)
        else:
            self.recent[place].sent(names[: self.longest // self.desk.name_tokens])
        return place

    def lost(self, place: int) -> None:
        """It is forgotten."""
        self.recent[place].clear()
        self.cold.pop(place, None)
