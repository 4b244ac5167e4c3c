"""A part of a fleet that can be served by itself: some of its replicas, and what comes to them."""

from __future__ import annotations

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.simulator.routing.plain import rendezvous


@dataclass(frozen=True, slots=True)
class Part:
    """Of ``replicas`` every ``cells``-th, from number ``cell`` on, and what is sent there.

    Requests that follow on no other one are sent to all replicas in turn, unless ``sticky``: then each goes
    where its session is kept. ``narrow``: its fleet has no other replicas than its own, numbered from 0.
    """

    cell: int
    cells: int
    replicas: int
    sticky: bool = False
    narrow: bool = True

    @property
    def places(self) -> range:
        """The numbers of its replicas among all."""
        return range(self.cell, self.replicas, self.cells)

    def takes(self, turn: int, key: int | str | None = None, *, follows: bool = False) -> bool:
        """Whether the ``turn``-th request that follows on none (from 0) comes to it; ``key`` is its session.

        KvroomError where it has none and others ``follow`` on answers: its number among all, by which it is
        kept, then depends on every replica.
        """
        if not self.sticky:
            return turn % self.replicas % self.cells == self.cell
        if key is None:
            if follows:
                fix = "Leave --cluster out, or give every row its session."
                raise KvroomError("--cluster", turn + 1, "is a request of no session", fix)
            key = turn
        return rendezvous(key, range(self.replicas)) % self.cells == self.cell
