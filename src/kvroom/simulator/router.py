"""Which replica takes a request: a router of a name, the rule that it goes by, and when it looks.

A router knows at once what it sends. What its replicas do (first tokens, answers, blocks cached and
evicted) it learns every ``stale_ps``; between two looks it decides by what it saw last and what it has
sent since. The rules are those of ``simulator/routing/``; which name goes by which, and with what
settings, is told in ``scenario/routers.json``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.scenario.routing import Routing
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.routing.costs import LeastBlocks, LeastToCompute
from kvroom.simulator.routing.desk import RouterDesk, RoutingRule
from kvroom.simulator.routing.longest import LongestCached, LongestChunks, LongestSent
from kvroom.simulator.routing.plain import AnyOf, ByLoad, InTurn, LessOfTwo, Sticky
from kvroom.simulator.routing.scores import HighestScore
from kvroom.simulator.timeline import ServingEngine

RULES: dict[str, type[RoutingRule]] = {
    "round-robin": InTurn,
    "random": AnyOf,
    "least-loaded": ByLoad,
    "power-of-two": LessOfTwo,
    "session": Sticky,
    "prefix": LeastToCompute,
    "kv-cost": LeastBlocks,
    "scores": HighestScore,
    "cache-aware": LongestSent,
    "longest-prefix": LongestChunks,
    "longest-cached": LongestCached,
}


class Router(RouterDesk):
    """Sends requests to the replicas of one pool, whose caches hold ``room`` tokens each.

    ``name_tokens``: how many tokens of a prompt one block name stands for; ``block_tokens``: tokens of a
    block.
    """

    def __init__(
        self,
        routing: Routing,
        room: Sequence[int],
        name_tokens: int = 1,
        block_tokens: int | None = None,
    ) -> None:
        super().__init__(routing, room, name_tokens, block_tokens or name_tokens)
        self.stale_ps = round(routing.stale_s * PS_PER_S)
        self.rule = RULES[routing.rule](self)
        self.looks = self.rule.looks
        """Whether it decides by what its replicas are doing."""
        self.seen_ps = -1

    def watch(self, place: int, engine: ServingEngine) -> None:
        """See what ``engine``, which is new at ``place``, caches and how full it is."""
        if self.rule.reads_cache and isinstance(engine, EventEngine) and engine.tells_names:
            self.views[place].watch(engine)
        if self.rule.reads_gauges:
            self.engines[place] = engine

    def due(self, now: int) -> int:
        """The last time up to ``now`` at which the router looks at its replicas."""
        return now - now % self.stale_ps if self.stale_ps else now

    def look(self, now: int) -> None:
        """Take in what the replicas did up to ``now``, to where they were let go on."""
        self.seen_ps = now
        self.loads.settle(now)
        if self.rule.reads_cache:
            for view in self.views:
                view.look()
        if self.rule.reads_gauges:
            self.read_gauges(now)

    def route(self, request: ServedRequest, up: Sequence[int], now: int = 0) -> int:
        """Which of the replicas that are ``up`` takes ``request`` at ``now``; it counts as sent."""
        return self.rule.choose(request, up, now)

    def lost(self, place: int) -> None:
        """The replica at ``place`` is gone, and its cache with it."""
        self.loads.clear(place)
        self.views[place].clear()
        self.engines.pop(place, None)
        self.waiting[place], self.used[place] = 0, 0.0
        self.rule.lost(place)
