"""Cache that comes from storage into host memory while its request waits, as in SGLang's HiCache.

When a request is queued, what follows the pages that the GPU and the host have of it is looked for in
storage; pages that stand there without a gap are read, first come, first served, straight into host memory.
When its turn comes, a request starts with what is there, waits for the rest, or waits so long: what was read
is then host memory's, and loaded as such. Sources: SGLang's ``mem_cache/hiradix_cache.py``, since 0.5.19
``unified_radix_cache.py``, and ``managers/cache_controller.py``. The query takes the tier's latency.
"""

from __future__ import annotations

from kvroom.engines.serving_rules import FetchRules
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.records import dataclass
from kvroom.simulator.offload_level import OffloadLevel
from kvroom.simulator.transfer_queue import READ

BATCH_PAGES = 128
"""Pages that are asked of storage at a time; of what is cut short, whole batches are there
(``storage_batch_size``)."""


@dataclass(kw_only=True)
class Fetch:
    """Pages of a request from the ``first`` on, which come between ``start_ps`` and ``end_ps``; it asked for
    ``asked_tokens`` at ``began_ps``. ``turn_ps``: when its turn first came."""

    first: int
    pages: list[int]
    asked_tokens: int
    began_ps: int
    start_ps: int
    end_ps: int
    turn_ps: int = -1

    def there(self, now: int) -> int:
        """Pages that have come by ``now``."""
        count = len(self.pages)
        if now >= self.end_ps:
            return count
        if now <= self.start_ps:
            return 0
        done = (now - self.start_ps) * count // (self.end_ps - self.start_ps)
        return done // BATCH_PAGES * BATCH_PAGES


class StoragePrefetch:
    """What one engine fetches from ``storage`` into ``host``; pages are of ``page_tokens`` and ``unit``
    blocks. ``gpu_pages``: of the GPU's own pool.
    """

    def __init__(
        self,
        rules: FetchRules,
        host: OffloadLevel,
        storage: OffloadLevel,
        *,
        page_tokens: int,
        unit: int,
        gpu_pages: int,
    ) -> None:
        self.rules = rules
        self.host = host
        self.storage = storage
        self.page_tokens = page_tokens
        self.unit = unit
        room = host.store.room
        beyond = gpu_pages if rules.beyond_gpu else 0
        self._most = (
            None if room is None else int(rules.share * max(0, room - beyond)) * page_tokens
        )
        self.asked_tokens = 0
        """Of requests that wait."""
        self._going: dict[ServedRequest, Fetch] = {}
        self._brought: dict[ServedRequest, tuple[int, int]] = {}

    def queued(self, request: ServedRequest, now: int, cached_tokens: int) -> None:
        """As ``FetchingConnector.queued``."""
        extents, size = request.extents, self.page_tokens
        if extents is None:
            return
        names, whole = extents.names, extents.named // self.unit
        place = cached_tokens // size
        while place < whole and self.host.store.ready_ps(names[place]) is not None:
            place += 1
        tokens = (request.num_tokens // size - place) * size
        if tokens < self.rules.least_tokens or (
            self._most is not None and self.asked_tokens >= self._most
        ):
            return
        end = place
        while end < whole:
            written = self.storage.store.ready_ps(names[end])
            if written is None or written > now:
                break
            end += 1
        pages = list(names[place:end])
        room = self.host.store.room
        if len(pages) * size < self.rules.least_tokens or (room is not None and len(pages) > room):
            return
        self.storage.store.used(pages)
        self.host.store.used(names[:place])  # it stays while what follows it comes
        link, blocks = self.storage.links[-1], len(pages) * self.unit
        done = link.carry(READ, now + self.storage.latency_ps, blocks, self.storage.width)
        start = done - link.takes_ps(blocks, self.storage.width)
        self.asked_tokens += tokens
        self._going[request] = Fetch(
            first=place, pages=pages, asked_tokens=tokens, began_ps=now, start_ps=start, end_ps=done
        )

    def fetched(self, request: ServedRequest, now: int) -> int | None:
        """As ``FetchingConnector.fetched``."""
        fetch = self._going.get(request)
        if fetch is None:
            return None
        until = self._until(fetch, now)
        if now < until:
            return until
        del self._going[request]
        self.asked_tokens -= fetch.asked_tokens
        count = fetch.there(now)
        pages = fetch.pages[:count]
        self.storage.read_blocks += count * self.unit
        self.storage.waits_ps.append(min(now, fetch.end_ps) - fetch.began_ps)
        if now < fetch.end_ps:
            spare = (len(fetch.pages) - count) * self.unit
            self.storage.links[-1].give_back(READ, fetch.end_ps, spare, self.storage.width)
        self.host.store.add(self.host.store.ordered(pages), now)
        self._brought[request] = (fetch.first, fetch.first + count)
        return None

    def _until(self, fetch: Fetch, now: int) -> int:
        """Up to when its request waits at most."""
        rules = self.rules
        if rules.policy == "best_effort":
            return now
        if rules.policy == "wait_complete":
            return fetch.end_ps
        if fetch.turn_ps < 0:
            fetch.turn_ps = now
        since = fetch.turn_ps if rules.from_turn else fetch.began_ps
        tokens = fetch.asked_tokens if rules.from_turn else len(fetch.pages) * self.page_tokens
        waits = round((rules.wait_s + tokens * rules.wait_s_per_token) * PS_PER_S)
        return min(fetch.end_ps, since + waits)

    def brought(self, request: ServedRequest, first: int, last: int) -> int:
        """How many of the pages ``first … last`` of a request it brought, told once."""
        start, end = self._brought.pop(request, (0, 0))
        return max(0, min(last + 1, end) - max(first, start))
