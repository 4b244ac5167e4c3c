"""Rules that send a prompt to where most of it was sent before, or is cached.

- ``cache-aware``: SGLang's gateway (sgl-model-gateway, policies/cache_aware.rs). Loads are far apart where
  the most requests on a replica exceed the fewest by more than ``balance_abs_threshold`` and more than
  ``balance_rel_threshold`` times: then the one with the fewest. Else the one that was sent the longest
  prefix of the prompt, where that is more than ``cache_threshold`` of it; else the one with the fewest.
  Every ``eviction_interval`` seconds what was sent to a replica is cut to its ``max_tree_tokens`` latest
  (the gateway counts characters: 2^26, here at four a token).
- ``longest-prefix``: the vLLM production stack's prefixaware (routers/routing_logic.py): any of those that
  were sent the longest prefix, in chunks of ``chunk_tokens`` (128 characters); nothing is ever forgotten
  and loads do not count.
- ``longest-cached``: its kvaware: the one with the longest prefix cached, unless more than
  ``threshold_tokens`` of the prompt are not: then the one of the session, or, where there is none, the one
  that was sent the fewest requests in the last ``window`` seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.routing.desk import RouterDesk, RoutingRule
from kvroom.simulator.routing.plain import rendezvous, session_key
from kvroom.simulator.routing.views import RecentNames, leading


class LongestSent(RoutingRule):
    """``cache-aware``."""

    def __init__(self, desk: RouterDesk) -> None:
        super().__init__(desk)
        setting = desk.routing.setting
        self.threshold = setting("cache_threshold")
        self.apart = setting("balance_abs_threshold")
        self.times = setting("balance_rel_threshold")
        self.every_ps = round(setting("eviction_interval") * PS_PER_S)
        self.most = int(setting("max_tree_tokens")) // desk.name_tokens
        self.sent = [RecentNames() for _ in desk.room]
        self.cut_ps = 0

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The fewest requests, or the longest prefix."""
        if self.every_ps and now >= self.cut_ps + self.every_ps:
            self.cut_ps = now - now % self.every_ps
            for one in self.sent:
                one.shorten(self.most)
        loads, names = self.desk.loads, self.desk.names(request)
        counts = [loads.requests[place] for place in up]
        most, fewest = max(counts), min(counts)
        place = up[counts.index(fewest)]
        if not (most - fewest > self.apart and most > self.times * fewest):
            place = self._longest(request, names, up, place)
        loads.sent(request, place)
        self.sent[place].sent(names, now)
        return place

    def _longest(
        self, request: ServedRequest, names: Sequence[int], up: Sequence[int], fewest: int
    ) -> int:
        depths = [leading(names, self.sent[place]) for place in up]
        depth = max(depths)
        if depth * self.desk.name_tokens <= self.threshold * request.num_tokens or not depth:
            return fewest
        last = names[depth - 1]
        deepest = (place for place, each in zip(up, depths, strict=True) if each == depth)
        return max(deepest, key=lambda place: self.sent[place].sent_ps(last))

    def lost(self, place: int) -> None:
        """Its tree goes with it."""
        self.sent[place].clear()


class LongestChunks(RoutingRule):
    """``longest-prefix``."""

    looks = False

    def __init__(self, desk: RouterDesk) -> None:
        super().__init__(desk)
        self.chunk = int(desk.routing.setting("chunk_tokens"))
        self.sent = [RecentNames() for _ in desk.room]

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """Any of the longest."""
        names, size = self.desk.names(request), self.desk.name_tokens
        depths = [leading(names, self.sent[place]) * size // self.chunk for place in up]
        deepest = max(depths)
        place = self.dice.choice(
            [p for p, depth in zip(up, depths, strict=True) if depth == deepest]
        )
        self.desk.loads.sent(request, place)
        self.sent[place].sent(names, now)
        return place

    def lost(self, place: int) -> None:
        """A new one at its address is another."""
        self.sent[place].clear()


class LongestCached(RoutingRule):
    """``longest-cached``."""

    def __init__(self, desk: RouterDesk) -> None:
        super().__init__(desk)
        self.threshold = int(desk.routing.setting("threshold_tokens"))
        self.window_ps = round(desk.routing.setting("window") * PS_PER_S)
        self.times: list[deque[int]] = [deque() for _ in desk.room]

    @property
    def reads_cache(self) -> bool:
        """Always."""
        return True

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The longest, the session's, or the one with the fewest lately."""
        desk, names = self.desk, self.desk.names(request)
        cached = [leading(names, desk.views[place].names) * desk.name_tokens for place in up]
        most = max(cached)
        if most and most >= request.num_tokens - self.threshold:
            place = up[cached.index(most)]
        elif request.session_id is not None:
            place = rendezvous(session_key(request), up)
        else:
            place = min(up, key=lambda each: self._lately(each, now))
        desk.loads.sent(request, place)
        desk.views[place].sent(names)
        self.times[place].append(now)
        return place

    def _lately(self, place: int, now: int) -> int:
        times = self.times[place]
        while times and times[0] <= now - self.window_ps:
            times.popleft()
        return len(times)

    def lost(self, place: int) -> None:
        """A new one has been sent nothing."""
        self.times[place].clear()
