"""Requests of a ``Server`` that wait for cache from elsewhere: they hold blocks and compute nothing."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kvroom.simulator.growing import register
from kvroom.simulator.live import Live

if TYPE_CHECKING:
    from kvroom.simulator.event_engine import Server

Loading = list[tuple[int, int, Live]]
"""A heap of (when it is there in ps, order of admission, request)."""


def load(server: Server, live: Live, ready_ps: int) -> None:
    """``live`` has its blocks and waits until ``ready_ps`` for what is to be in them."""
    heappush(server.loading, (ready_ps, server.loads, live))
    server.loads += 1


def arrived(server: Server) -> None:
    """Those whose cache is there go on as if it had been found."""
    loading = server.loading
    while loading and loading[0][0] <= server.decide:
        live = heappop(loading)[2]
        if live.held is not None:
            register(server, live, live.computed // server.block_tokens, ahead=0)
        server.start(live)
        server.filling.append(live)
    server.blocked = ""


def noted(server: Server, live: Live, blocks: int) -> None:
    """Tell of the pages among the first ``blocks`` of ``live`` that nobody was told of yet."""
    held = live.held
    if held is None or server.notices is None:
        return
    pages = min(blocks, held.named) // server.pool.unit
    if pages > live.noted:
        server.notices.filled(held.names[live.noted : pages], 0)
        live.noted = pages


def left(server: Server, live: Live, registered: int) -> None:
    """Tell of what ``live``, which is done, leaves in the cache: ``registered`` blocks."""
    noted(server, live, registered)
    named = live.held.named if live.held is not None else 0
    if server.notices is not None and registered > named:
        server.notices.filled((), registered - named)
