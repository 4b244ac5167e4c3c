"""Who of those that wait on a ``Server`` may start, with what they find cached or have brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.kvcache.connector import Brought
from kvroom.kvcache.extents import Hits
from kvroom.simulator.growing import catch_up, owner
from kvroom.simulator.live import Live
from kvroom.simulator.loading import load

if TYPE_CHECKING:
    from kvroom.simulator.event_engine import Server


def admit(  # noqa: PLR0915 (calls would cost more than what they do)
    server: Server, chunks: list[tuple[Live, int]], budget: int, longest: int
) -> None:
    """Let those who wait start, as far as blocks, places and tokens go: more of ``chunks``."""
    settings, pool, size = server.settings, server.pool, server.block_tokens
    bringer = server.bringer
    while server.waiting or server.queue:
        if len(server.running) + len(server.loading) >= settings.max_num_seqs:
            server.blocked = "places"
            return
        if budget <= 0:
            # Next step prompts may leave more; those who decode will not.
            server.blocked = "" if chunks else "tokens"
            return
        live = server.queue[0] if server.by_priority else server.waiting[0]
        held = live.held
        hits: Hits = []
        cached = unheld = 0
        limit = (live.known - 1) // size
        if held is not None:
            hits, cached, unheld = pool.lookup(held, limit)
            while server.growing and catch_up(server, held, min(cached, limit)):
                hits, cached, unheld = pool.lookup(held, limit)
        start, late, brought = cached * size, False, None
        if bringer is not None:
            brought = bringer.offer(live, server.decide, start, limit * size)
            if brought is not None:
                start, late = brought.tokens, brought.ready_ps > server.decide
        tokens = 0 if late else live.known - start
        if 0 < longest < tokens:
            tokens = longest
        if tokens > budget:
            if not settings.enable_chunked_prefill:
                # What is brought of it may be more another time.
                again = chunks or (server.active and bringer is not None)
                server.blocked = "" if again else "tokens"
                return
            tokens = budget
        room = pool.free - unheld - (server.watermark_blocks if server.running else 0)
        more = -(-(start + tokens) // size) - cached
        whole = -(-live.known // size) - cached
        if more > room or (settings.scheduler_reserve_full_isl and whole > room):
            server.blocked = "" if _may_need_less(server, live, cached, chunks) else "room"
            return
        server.pop()
        if hits:
            assert held is not None
            pool.adopt(held, hits)
        if bringer is not None:
            bringer.admitted(live, server.decide, cached * size, brought)
        if server.notices is not None:
            live.noted = start // size // pool.unit
        live.computed = start
        live.blocks = cached
        server.outcome.admitted(live, start)
        server.blocked = ""
        if brought is not None and late:
            _load(server, live, more, brought)
            continue
        server.grow(live, tokens, more)
        server.start(live)
        if start + tokens < live.known:
            server.filling.append(live)
        chunks.append((live, tokens))
        budget -= tokens


def _may_need_less(server: Server, live: Live, cached: int, chunks: list[tuple[Live, int]]) -> bool:
    """Whether the next step may find less to be needed though nothing is given back until then."""
    if server.bringer is not None and not server.settings.scheduler_reserve_full_isl:
        return bool(
            server.active or chunks
        )  # what is brought takes more at once than a chunk, or less
    # Another may have generated more of what it begins with.
    return bool(server.growing and live.held is not None and owner(server, live.held, cached))


def _load(server: Server, live: Live, blocks: int, brought: Brought) -> None:
    """``live`` gets ``blocks`` more and waits for what is to be in them."""
    server.pool.take(blocks)
    live.blocks += blocks
    load(server, live, brought.ready_ps)
