"""What every rule of a router sees, and what a rule is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from kvroom.kvcache.request import ServedRequest
from kvroom.scenario.routing import Routing
from kvroom.simulator.routing.loads import ReplicaLoads
from kvroom.simulator.routing.views import CachedNames
from kvroom.simulator.timeline import ServingEngine


class RouterDesk:
    """One router's view of replicas whose caches hold ``room`` tokens each.

    ``name_tokens``: how many tokens of a prompt one block name stands for; ``block_tokens``: tokens of a
    block.
    """

    def __init__(
        self, routing: Routing, room: Sequence[int], name_tokens: int, block_tokens: int
    ) -> None:
        self.routing = routing
        self.room = room
        self.loads = ReplicaLoads(len(room))
        self.views = [
            CachedNames(stale=routing.stale_s > 0, most=tokens // name_tokens) for tokens in room
        ]
        self.name_tokens = name_tokens
        self.block_tokens = block_tokens
        self.engines: dict[int, ServingEngine] = {}
        """By place: those whose queue and cache are read."""
        self.waiting = [0] * len(room)
        """Requests in each one's queue, as of the last look."""
        self.used = [0.0] * len(room)
        """The share of each one's blocks that is held, as of the last look."""

    def names(self, request: ServedRequest) -> Sequence[int]:
        """The names of the whole blocks of ``request`` as it is sent."""
        if request.extents is None:
            return ()
        return request.extents.names[: request.num_tokens // self.name_tokens]

    def read_gauges(self, now: int) -> None:
        """Note how full each replica is."""
        for place, engine in self.engines.items():
            engine.gather(now)
            self.waiting[place] = engine.waiting_count
            blocks = self.room[place] // self.block_tokens
            self.used[place] = engine.blocks_in_use / blocks if blocks else 0.0


class RoutingRule:
    """How a router chooses. ``looks``: by what its replicas do; ``reads_cache``: by the blocks that they
    say they have cached; ``reads_gauges``: by their queues and how full they are."""

    looks: ClassVar[bool] = True
    reads_gauges: ClassVar[bool] = False

    def __init__(self, desk: RouterDesk) -> None:
        self.desk = desk
        self.dice = Random(int(self._setting("seed", 0)))

    @property
    def reads_cache(self) -> bool:
        """Whether it goes by the blocks that replicas say they have cached."""
        return False

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """Which of the replicas that are ``up`` takes ``request``; it counts as sent."""
        raise NotImplementedError

    def lost(self, place: int) -> None:
        """The replica at ``place`` is gone, and its cache with it."""

    def _setting(self, key: str, usual: float) -> float:
        """A setting of routers that have it, else ``usual``."""
        return (self.desk.routing.settings or {}).get(key, usual)
