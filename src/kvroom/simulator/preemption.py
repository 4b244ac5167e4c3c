"""A step in which blocks or tokens give out, taken request by request: who preempts, who has to wait."""

from __future__ import annotations

from collections import deque
from heapq import heappush
from typing import TYPE_CHECKING

from kvroom.engines.vllm.scheduler import ALONE_AT_MOST
from kvroom.kvcache.extents import Holding
from kvroom.simulator.admission import admit
from kvroom.simulator.live import Live
from kvroom.simulator.loading import noted

if TYPE_CHECKING:
    from kvroom.simulator.event_engine import Server


def crowded(server: Server) -> None:
    """One step request by request: who gets no block preempts, and tokens may not last."""
    step, size, pool = server.step, server.block_tokens, server.pool
    budget = server.settings.max_num_batched_tokens
    longest = server.longest()
    given: dict[Live, int] = {}
    order = list(server.running)
    preempted = False
    place = 0
    while place < len(order) and budget > 0:
        live = order[place]
        tokens = _wanted(live, budget, longest)
        if not tokens:
            place += 1
            continue
        computed = step - live.base if live.decoding else live.computed
        blocks = -(-computed // size) if live.decoding else live.blocks
        more = -(-(computed + tokens) // size) - blocks
        while more > pool.free:
            victim = max(order) if server.by_priority else order[-1]
            where = order.index(victim) if server.by_priority else len(order) - 1
            del order[where]
            if where < place:
                place -= 1
            budget += given.get(victim, 0)
            preempted |= _preempt(server, victim, given.pop(victim, 0))
            if victim is live:
                break
        if live.number >= 0:
            if live.decoding:
                pool.take(more)
            else:
                server.grow(live, tokens, more)
            given[live] = tokens
            budget -= tokens
            place += 1
        elif not server.by_priority:
            break
    for live in order[place:]:
        if live.decoding and live.last >= step:
            _starve(server, live)
    chunks = [(live, tokens) for live, tokens in given.items() if not live.decoding]
    if preempted:
        server.blocked = ""
    else:
        admit(server, chunks, budget, longest)
    if chunks or any(live.decoding for live in given):
        server.run(chunks)
    elif server.lag:
        server.decide = max(server.decide, server.end)
        server.leaving = deque((0, live) for _, live in server.leaving)


def _wanted(live: Live, budget: int, longest: int) -> int:
    if live.decoding:
        return 1
    if live.last >= 0:
        return 0  # its last token is on its way
    tokens = live.known - live.computed
    if 0 < longest < tokens:
        tokens = longest
    return min(tokens, budget)


def _preempt(server: Server, live: Live, given: int) -> bool:
    """Take all its blocks from ``live``, which was ``given`` tokens of this step already.

    False where it has to be dropped.
    """
    step, size = server.step, server.block_tokens
    del server.running[live]
    delivered = False
    if live.decoding:
        computed = step - live.base
        held = computed + given
        # With a pass in flight the newest token is not known yet, and not cached.
        registered = max(live.resumed_at, held - server.lag) // size
        blocks = -(-held // size)
        server.stop(live, step)
        live.known = computed + 1
        live.token_ps = server.end
        delivered = True
    elif live.last >= 0:
        computed = live.total - 1
        registered = max(live.resumed_at, computed - server.lag) // size
        blocks = -(-computed // size)
    else:
        server.filling.remove(live)
        registered = (live.computed + given) // size
        blocks = live.blocks
    live.number = -1
    noted(server, live, registered)
    if live.held is None and server.caching:
        live.held = Holding()
    if live.held is None:
        server.pool.release(blocks, 0)
    else:
        server.pool.leave(live.held, blocks, registered, back=True)
    finishing = live.last >= 0 and not delivered
    if not finishing:
        live.last = -1
        live.alone = (
            0
            if delivered and server.lag
            else live.alone + (not server.running and not server.loading)
        )
        if live.alone > ALONE_AT_MOST:
            server.drop(live)
            return False
    live.preemptions += 1
    server.outcome.preempted += 1
    if finishing:
        return True
    if server.by_priority:
        heappush(server.queue, live)
    else:
        server.waiting.appendleft(live)
    return True


def _starve(server: Server, live: Live) -> None:
    """No token is left for ``live`` in this step: it has one to compute when there is."""
    server.stop(live, server.step)
    live.last = -1
    live.computed = server.step - live.base
    live.blocks = -(-live.computed // server.block_tokens)
    live.known = live.computed + 1
    live.token_ps = server.end
    server.filling.append(live)
    server.filling.sort(key=lambda each: each.number)
