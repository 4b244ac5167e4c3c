"""The seam through which a request gets part of its cache from elsewhere, and by which others hear what
an engine's own cache holds.

Offload tiers, remote stores and hand-over between prefill and decode engines are ``Bringer``s. One is
asked when a request is about to be admitted, after the engine's own prefix cache was looked up and
before blocks are given. What it brings later than now makes the request wait in ``loading``: it holds its
blocks and its place, computes nothing and is not preempted (vLLM's WAITING_FOR_REMOTE_KVS), and from the
first decision at or after that time it runs, behind those that run already, as if those tokens had been
found cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kvroom.simulator.live import Live


class Brought(NamedTuple):
    """So many leading ``tokens`` of a request, what its engine had of them included, are there at
    ``ready_ps``; ``note`` is the bringer's own."""

    tokens: int
    ready_ps: int
    note: object = None


class Bringer(Protocol):
    """Brings cache to one engine."""

    def offer(self, live: Live, now: int, found: int, limit: int) -> Brought | None:
        """What it can bring at ``now`` to a request that finds ``found`` of its tokens in the engine.

        At most ``limit`` tokens are of use: whole blocks, short of the last known token. A bringer that
        hands a computed prompt over may bring up to all known tokens but the last. Nothing is moved yet,
        and asking changes nothing. None: there is nothing to bring, or computing it is quicker.
        """
        ...

    def admitted(self, live: Live, now: int, found: int, brought: Brought | None) -> None:
        """The request has its place, and what was offered begins to move. Called of every request that
        is admitted, before blocks are taken for it."""
        ...


class Notices(Protocol):
    """Told of an engine's own prefix cache, in pages of as many blocks as one name stands for.

    ``blocks`` counts those beside the names that nobody can ask for by name: answers of which nothing
    is known. What is told of between two admissions comes in the engine's order.
    """

    @property
    def hears_evictions(self) -> bool:
        """Whether ``evicted`` is wanted: finding out what went costs an engine time."""
        ...

    def filled(self, names: Sequence[int], blocks: int) -> None:
        """Pages that can be found from now on: a prompt's when it is scheduled, an answer's when its
        request leaves."""
        ...

    def evicted(self, names: Sequence[int], blocks: int) -> None:
        """Pages of which the engine no longer has all, in the order in which they went."""
        ...


class Several:
    """Notices passed on to several who want to know."""

    def __init__(self, *told: Notices) -> None:
        self.told = told

    @property
    def hears_evictions(self) -> bool:
        """Whether any of them wants to know."""
        return any(each.hears_evictions for each in self.told)

    def filled(self, names: Sequence[int], blocks: int) -> None:
        """As ``Notices.filled``."""
        for each in self.told:
            each.filled(names, blocks)

    def evicted(self, names: Sequence[int], blocks: int) -> None:
        """As ``Notices.evicted``."""
        for each in self.told:
            if each.hears_evictions:
                each.evicted(names, blocks)
