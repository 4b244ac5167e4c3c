"""Answers that are known beforehand, on a ``Server``: others may begin with what is generated just now.

Blocks of an answer are entered in the pool only when somebody asks for them, as far as they are computed by
then: a decoding request is never looked at otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.kvcache.extents import Holding
from kvroom.simulator.live import Live

if TYPE_CHECKING:
    from kvroom.simulator.event_engine import Server


def owner(server: Server, wanted: Holding, place: int) -> Live | None:
    """Who is generating the block of ``wanted`` at ``place``."""
    if place >= wanted.named:
        return None
    return server.growing.get(wanted.names[place // server.pool.unit])


def catch_up(server: Server, wanted: Holding, place: int, ahead: int = 1, number: int = -1) -> bool:
    """Let what a decoding request has generated so far be found, if it gets to what ``wanted`` misses at
    ``place``; whether there is more to find now. ``ahead`` is 0 before the next step, 1 in its midst.
    ``number``: the place of the one that asks among those who run, of whom only those before it got their
    token of this step by now."""
    live = owner(server, wanted, place)
    if live is None or live.held is None:
        return False
    before = live.held.covered
    behind = -1 < number < live.number
    computed = server.step + ahead - live.base - server.lag - behind
    server.pool.register(live.held, max(live.resumed_at, computed) // server.block_tokens)
    return live.held.covered > before


def register(server: Server, live: Live, full: int, ahead: int = 1) -> None:
    """Let the first ``full`` blocks of ``live`` be found; ``ahead`` as in ``catch_up``."""
    assert live.held is not None
    for place in range(live.held.covered, full):
        catch_up(server, live.held, place, ahead, live.number)  # who got there first is found first
    server.pool.register(live.held, full)
