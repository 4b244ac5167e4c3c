"""Rules that go by turns, loads and sessions.

- ``round-robin``: one after the other.
- ``random``: any.
- ``least-loaded``: the fewest requests (or prompt tokens) sent and not yet answered.
- ``power-of-two``: of two drawn at random the one with fewer (Mitzenmacher, IEEE TPDS 2001; as SGLang's
  gateway, policies/power_of_two.rs).
- ``session``: all requests of a session to the same replica, by rendezvous hashing (Thaler and
  Ravishankar, IEEE/ACM ToN 1998), so that only the sessions of a replica that goes have to move. A
  request of no session is a session of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.routing.desk import RouterDesk, RoutingRule


class InTurn(RoutingRule):
    """One after the other; later turns of a chat stay."""

    looks = False

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The next one."""
        place = request.replica if request.replica in up else up[request.index % len(up)]
        self.desk.loads.sent(request, place)
        return place


class AnyOf(RoutingRule):
    """Any, at random."""

    looks = False

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """One drawn."""
        place = self.dice.choice(up)
        self.desk.loads.sent(request, place)
        return place


class ByLoad(RoutingRule):
    """The least loaded; of equal ones they take turns."""

    def __init__(self, desk: RouterDesk) -> None:
        super().__init__(desk)
        loads = desk.loads
        self.load = loads.requests if desk.routing.by == "requests" else loads.tokens

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The one that serves least."""
        load, turn = self.load, request.index
        place = min(up, key=lambda p: (load[p], (p - turn) % len(load)))
        self.desk.loads.sent(request, place)
        return place


class LessOfTwo(ByLoad):
    """Of two drawn at random the one that serves less, the first of equal ones."""

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The lighter of two."""
        drawn = self.dice.sample(up, min(2, len(up)))
        place = min(drawn, key=self.load.__getitem__)
        self.desk.loads.sent(request, place)
        return place


class Sticky(RoutingRule):
    """The same for all requests of a session."""

    looks = False

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """That of its session."""
        place = rendezvous(session_key(request), up)
        self.desk.loads.sent(request, place)
        return place


def session_key(request: ServedRequest) -> int | str:
    """The session of ``request``; one of no session is one of its own."""
    return request.index if request.session_id is None else request.session_id


def rendezvous(key: int | str, up: Sequence[int]) -> int:
    """Which of the replicas that are ``up`` keeps the session ``key``."""
    return max(up, key=lambda p: blake2b(f"{key}/{p}".encode(), digest_size=8).digest())
