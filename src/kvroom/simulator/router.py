"""Which replica takes a request: the policies of routers, and what a router knows when it decides.

A router knows at once what it sends. What its replicas do (first tokens, answers, blocks cached and
evicted) it learns every ``stale_ps``; between two looks it decides by what it saw last and what it has
sent since.

- ``round-robin``: one after the other.
- ``least-loaded``: the fewest requests (or prompt tokens) sent and not yet answered.
- ``prefix``: the least ``weight`` × (prompt tokens it has still to compute, this prompt's among them
  without the leading ones that it has cached) + prompt tokens of all that it serves. That is the cost
  function of NVIDIA Dynamo's KV router (docs.nvidia.com/dynamo, "Routing Concepts": overlap weight ×
  prefill blocks + decode blocks), in tokens.
- ``session``: all requests of a session to the same replica, by rendezvous hashing (Thaler and
  Ravishankar, IEEE/ACM ToN 1998), so that only the sessions of a replica that goes have to move. A
  request of no session is a session of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from hashlib import blake2b
from itertools import chain
from math import inf

from kvroom.kvcache.extents import ExtentPool
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.scenario.cluster import Routing
from kvroom.simulator.event_engine import EventEngine


class ReplicaLoads:
    """What a router counts of each replica: requests and prompt tokens it serves (``requests``,
    ``tokens``), and tokens of prompts whose first token has not come (``owed``)."""

    def __init__(self, replicas: int) -> None:
        self.requests = [0] * replicas
        self.tokens = [0] * replicas
        self.owed = [0] * replicas
        self._news: list[tuple[int, ServedRequest, bool]] = []

    def sent(self, request: ServedRequest, place: int, cached_tokens: int = 0) -> None:
        """A request goes to the replica at ``place``, which is thought to have some of it cached."""
        request.routed_tokens = request.num_tokens
        request.owed_tokens = request.num_tokens - cached_tokens
        self.requests[place] += 1
        self.tokens[place] += request.routed_tokens
        self.owed[place] += request.owed_tokens

    def heard(self, time_ps: int, request: ServedRequest, *, over: bool) -> None:
        """A replica computed a first token, or (``over``) is through with a request."""
        self._news.append((time_ps, request, over))

    def settle(self, now: int) -> None:
        """Take in what happened up to ``now``."""
        later = []
        for one in self._news:
            time_ps, request, over = one
            if time_ps > now:
                later.append(one)
                continue
            place = request.replica
            self.owed[place] -= request.owed_tokens
            request.owed_tokens = 0
            if over:
                self.requests[place] -= 1
                self.tokens[place] -= request.routed_tokens
        self._news = later

    def clear(self, place: int) -> None:
        """The replica at ``place`` is gone, with all that it served."""
        self._news = [one for one in self._news if one[1].replica != place]
        self.requests[place] = self.tokens[place] = self.owed[place] = 0


class CachedNames:
    """The block names that a router takes as cached on one replica, as of its last look.

    A router that always looks sees the pool's own index; one that looks now and then (``stale``) hears
    what is cached and evicted (``KVEvents``), and takes it in when it looks. Of an engine that does
    not tell, it takes what it sent there as cached, the ``most`` latest names of it.
    """

    wants_removed = True

    def __init__(self, *, stale: bool, most: int = 0) -> None:
        self.names: Container[int] = set()
        self.stale = stale
        self.most = most
        self._pool: ExtentPool | None = None
        self._news: list[tuple[bool, Sequence[int]]] = []

    def watch(self, server: EventEngine) -> None:
        """See what ``server``, which is new, caches."""
        self._pool = server.extents
        if self.stale:
            server.listen(self)
        else:
            self.names = server.extents.names

    def stored(self, names: Sequence[int], blocks: int, first: int = 0) -> None:
        """The replica has cached these."""
        self._news.append((True, names))

    def removed(self, names: Sequence[int], blocks: int) -> None:
        """The replica no longer has these."""
        self._news.append((False, names))

    def look(self) -> None:
        """Take in what was cached and evicted up to now."""
        if self._pool is None:
            return
        self._pool.settle()
        names = self.names
        if isinstance(names, set):
            for cached, some in self._news:
                if cached:
                    names.update(some)
                else:
                    names.difference_update(some)
            self._news.clear()

    def sent(self, names: Sequence[int]) -> None:
        """A prompt of these names goes to the replica."""
        if self._pool is not None:
            return
        latest: OrderedDict[int, None] = OrderedDict()
        if isinstance(self.names, OrderedDict):
            latest = self.names
        self.names = latest
        for name in reversed(names):  # its end goes first
            latest[name] = None
            latest.move_to_end(name)
        while len(latest) > self.most:
            latest.popitem(last=False)

    def clear(self) -> None:
        """The replica is gone, and its cache with it."""
        self.names = set()
        self._pool = None
        self._news = []


def leading(names: Sequence[int], known: Container[int]) -> int:
    """How many leading ones of ``names`` are ``known``, where none is without all before it."""
    low, step, high = 0, 1, len(names)
    while low + step <= high:
        if names[low + step - 1] not in known:
            high = low + step - 1
            break
        low += step
        step *= 2
    while low < high:
        middle = (low + high) // 2
        if names[middle] in known:
            low = middle + 1
        else:
            high = middle
    return low


class Router:
    """Sends requests to the replicas of one pool, whose caches hold ``room`` tokens each.

    ``name_tokens``: how many tokens of a prompt one block name stands for.
    """

    def __init__(self, routing: Routing, room: Sequence[int], name_tokens: int = 1) -> None:
        self.routing = routing
        self.loads = ReplicaLoads(len(room))
        self.views = [
            CachedNames(stale=routing.stale_s > 0, most=tokens // name_tokens) for tokens in room
        ]
        self.name_tokens = name_tokens
        self.stale_ps = round(routing.stale_s * PS_PER_S)
        self.looks = routing.policy in ("least-loaded", "prefix")
        """Whether it decides by what its replicas are doing."""
        self.seen_ps = -1
        self._choose: Callable[[ServedRequest, Sequence[int]], int] = {
            "round-robin": self._in_turn,
            "least-loaded": self._least,
            "prefix": self._cheapest,
            "session": self._sticky,
        }[routing.policy]

    def due(self, now: int) -> int:
        """The last time up to ``now`` at which the router looks at its replicas."""
        return now - now % self.stale_ps if self.stale_ps else now

    def look(self, now: int) -> None:
        """Take in what the replicas did up to ``now``, to where they were let go on."""
        self.seen_ps = now
        self.loads.settle(now)
        if self.routing.policy == "prefix":
            for view in self.views:
                view.look()

    def route(self, request: ServedRequest, up: Sequence[int]) -> int:
        """Which of the replicas that are ``up`` takes ``request``; it counts as sent."""
        return self._choose(request, up)

    def lost(self, place: int) -> None:
        """The replica at ``place`` is gone, and its cache with it."""
        self.loads.clear(place)
        self.views[place].clear()

    def _in_turn(self, request: ServedRequest, up: Sequence[int]) -> int:
        place = request.replica if request.replica in up else up[request.index % len(up)]
        self.loads.sent(request, place)
        return place

    def _least(self, request: ServedRequest, up: Sequence[int]) -> int:
        loads = self.loads
        load = loads.requests if self.routing.by == "requests" else loads.tokens
        turn = request.index
        place = min(up, key=lambda p: (load[p], (p - turn) % len(load)))
        loads.sent(request, place)
        return place

    def _cheapest(self, request: ServedRequest, up: Sequence[int]) -> int:
        loads, views, weight, size = self.loads, self.views, self.routing.weight, self.name_tokens
        owed, tokens, extents = loads.owed, loads.tokens, request.extents
        names = extents.names[: request.num_tokens // size] if extents is not None else ()
        first, second = (*names[:2], None, None)[:2]
        turn = request.index % len(up)
        place, most, least = up[turn], 0, inf
        named = len(names) * size
        for each in chain(up[turn:], up[:turn]):  # of equal ones the first: they take turns
            if weight * (owed[each] - named) + tokens[each] >= least:
                continue  # not even with all of it cached
            known = views[each].names
            # Most have no more than what all prompts begin with.
            count = leading(names, known) if second in known else first in known
            cost = weight * (owed[each] - count * size) + tokens[each]
            if cost < least:
                place, most, least = each, count, cost
        loads.sent(request, place, most * size)
        views[place].sent(names)
        return place

    def _sticky(self, request: ServedRequest, up: Sequence[int]) -> int:
        key = request.index if request.session_id is None else request.session_id
        place = max(up, key=lambda p: blake2b(f"{key}/{p}".encode(), digest_size=8).digest())
        self.loads.sent(request, place)
        return place
