"""SGLang's scheduler, one batch at a time: prompts before decodes, a radix cache, retraction.

A batch is either prompts or decodes. Prompts are taken as long as what they and the running requests are
thought to need still fits; how much of their longest answers that is (the new-token ratio) falls while all
goes well and is set anew when requests have to be retracted. With overlap a batch is scheduled while the
one before it is computed; who ends with that one sits out. Once no more prompts fit, none is tried until
one of those who run has left. By ``managers/scheduler.py``, ``schedule_policy.py`` and
``schedule_batch.py`` of 0.5.4 to 0.5.23, which serve random loads the same to the last token
(``tests/engine/test_sglang.py``), for answers as long as their ``max_tokens``; what releases do otherwise
is in ``SglangRules``. Room of refused drafts stays with the request. Below the tree may lie host memory
(HiCache): what a prompt finds there is loaded while its batch runs, layer by layer. What storage holds
below that comes into host memory while the prompt waits; who still waits for it is passed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import field
from heapq import heappush
from itertools import islice

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, ScheduledTokens, SchedulerOutput
from kvroom.engines.sglang.versions import SglangRules, newest_rules
from kvroom.kvcache.connector import (
    FetchingConnector,
    KVConnector,
    report_left,
    report_stored,
)
from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.radix import Node, RadixTree, TokenText
from kvroom.kvcache.request import PLACE_BITS, PLACES, RequestStatus, ServedRequest
from kvroom.kvcache.tokens import Run
from kvroom.records import dataclass
from kvroom.workloads.requests import joined

CLIP_TOKENS = 4096
"""No answer is expected to become longer when room is reserved for it."""
FIRST_RATIO, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600
PAIRS = 1 << 300
"""Names of pairs from two runs lie beyond all ids."""
REFRESH_PASSES, REFRESHED_REQUESTS = 32, 128
"""Every so many passes over the queue the prefixes of so many that wait first are used anew, the first of
them last, so that they are not evicted meanwhile."""
RETRACTED_TOKENS = 20
"""Tokens that each running request is granted when the ratio is set after a retraction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangSettings:
    """``tokens`` of cache in pages of ``page``; names of shared blocks stand for ``page`` tokens too.

    ``overlap``: a batch is scheduled while another is computed. ``first_ratio`` is the share of answers that
    room is kept for at the start.
    """

    tokens: int
    page: int
    max_running_requests: int
    context_tokens: int
    chunked_prefill_size: int
    max_prefill_tokens: int = 16384
    caching: bool = True
    overlap: bool = False
    first_ratio: float = FIRST_RATIO
    rules: SglangRules = field(default_factory=newest_rules)
    """What the release does."""
    input_limits: bool = False
    """A prompt longer than what ``max_prefill_tokens`` has left waits for the next batch."""
    reserved_tokens: int = 0
    """Beyond what a request has computed it holds so many at each decode, for drafts that may be kept."""
    shares_beyond: bool = False
    """Drafts that were kept beyond an answer's end stay in the tree."""
    pairs: bool = False
    """The tree is of pairs of ids, as drafts from the model's states need them: it knows a token less."""


class HeldTokens:
    """What a request holds: its text, the ``node`` of the tree up to which it locks it, how many tokens that
    is, how many it holds beyond (``own``), and up to where its prompt is computed (``end``; ``prompting``
    until its first token is there)."""

    __slots__ = ("end", "locked", "node", "own", "prompting", "text")

    def __init__(self, text: TokenText, node: Node) -> None:
        self.text, self.node = text, node
        self.end = self.locked = self.own = 0
        self.prompting = True


class BatchRoom:
    """What is left to give to prompts while a batch is made: of the cache, and of the batch."""

    __slots__ = ("chunk", "later", "now", "prompts")

    def __init__(self, chunk: int, prompts: int, later: float) -> None:
        self.chunk, self.prompts = chunk, prompts
        self.now, self.later = 0.0, later
        """Tokens promised in this batch, and those that running requests may need besides."""


def paired(runs: Iterable[Run]) -> list[Run]:
    """Each id with the next as an id of its own: within a run it is named by the first of both."""
    made: list[Run] = []
    joint: int | None = None
    for first, count in joined(runs):
        if joint is not None:
            made.append((PAIRS + (joint << 128) + first, 1))
        if count > 1:
            made.append((first, count - 1))
        joint = first + count - 1
    return made


def _generated(request: ServedRequest) -> tuple[int, int]:
    """Who has more of it is retracted later."""
    return request.num_tokens - request.num_prompt_tokens, -request.num_prompt_tokens


class SglangScheduler:
    """SGLang's scheduler, an ``EngineScheduler``."""

    def __init__(self, settings: SglangSettings, drafts: Drafts | None = None) -> None:
        self.settings = settings
        self.drafts = drafts
        self.steps_in_flight = 2 if settings.overlap else 1
        self.queues_idle = False
        self.cache = RadixTree(settings.page)
        self.free = settings.tokens  # neither held by a request nor in the tree
        self.ratio = settings.first_ratio
        self.waiting: deque[ServedRequest] = deque()
        self.running: list[ServedRequest] = []
        """Those that decode, in the order in which they came to it."""
        self._held: dict[ServedRequest, HeldTokens] = {}
        self._texts: dict[ServedRequest, TokenText] = {}
        self._chunked: ServedRequest | None = None
        self._last: list[ServedRequest] = []  # of the batch before, where it was of prompts
        self._connector: KVConnector | None = None
        self._storage: FetchingConnector | None = None
        self.events: KVEvents | None = None
        self.blocks_per_name = 1
        self.loading: list[tuple[int, int, ServedRequest]] = []
        """Who waits for what is fetched from storage; a batch itself waits for what is loaded."""
        self._queued: list[ServedRequest] = []
        """Those for whom nothing is looked for in storage yet."""
        self._surplus: dict[ServedRequest, int] = {}
        self._passes = 0  # over the queue
        self._full = False
        """No more prompts fit; none is tried until a request has left."""

    @property
    def connector(self) -> KVConnector | None:
        """What brings cache that lies below the tree."""
        return self._connector

    @connector.setter
    def connector(self, connector: KVConnector | None) -> None:
        self._connector = connector
        self._storage = None
        if isinstance(connector, FetchingConnector) and self.settings.caching:
            self._storage = connector

    @property
    def running_count(self) -> int:
        """Requests that hold tokens."""
        return len(self._held)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Pages held by requests, those of the tree that are locked among them."""
        used = self.settings.tokens - self._idle
        return -(-used // self.settings.page)

    @property
    def _idle(self) -> int:
        """Tokens that nobody holds."""
        return self.free + self.cache.evictable

    def add_request(self, request: ServedRequest) -> bool:
        """Queue a request; False where its prompt is too long for the engine or an empty cache."""
        limit = self.settings.context_tokens
        need = self._paged(request.num_prompt_tokens + 1) + self.settings.page
        if request.num_prompt_tokens >= limit or need > self.settings.tokens:
            request.status = RequestStatus.DROPPED
            return False
        if not self._held and not self.waiting:
            self.ratio = self.settings.first_ratio  # set anew while it is idle
            self.running, self._full = [], False  # who had ended has left
        request.final_tokens = min(request.final_tokens, limit)
        runs = request.hashes.runs(self.settings.page)
        if self.settings.shares_beyond:
            own = -(request.index + 1 << PLACE_BITS) + request.final_tokens
            runs = (*runs, (own, self.settings.reserved_tokens))
        self._texts[request] = TokenText(paired(runs) if self.settings.pairs else runs)
        self.waiting.append(request)
        self._queued.append(request)
        return True

    def schedule(self, now: int = 0) -> SchedulerOutput:
        """The next batch: prompts where any may start or go on, else a decode of all that run."""
        output = SchedulerOutput()
        self._fetch(now)
        self._merge()
        self._prefill(output, now)
        if output.scheduled:
            self._last = [row.request for row in output.scheduled]
            self._lay_out(self._last)
        elif self.running:
            self._decode(output)
            if not self.running and self.waiting and not self._in_flight:
                return self.schedule(now)  # who had ended kept prompts out
        return output

    @property
    def _in_flight(self) -> bool:
        return any(request.in_flight_tokens for request in self._held)

    def _fetch(self, now: int) -> None:
        """Have what storage holds of those who came into the queue fetched."""
        if self._storage is not None:
            for request in self._queued:
                _, cached = self.cache.match(
                    self._texts[request], self._known(request.num_tokens - 1)
                )
                self._storage.queued(request, now, cached)
        self._queued.clear()
        self.loading.clear()

    def _merge(self) -> None:
        """Have those decode whose prompts the batch before computed."""
        if self._chunked is not None:
            self._share(self._chunked, self._held[self._chunked].end)
        if self._last:
            new = [q for q in self._last if q in self._held and q is not self._chunked]
            self._full = self._full and bool(self.running) and len(new) == len(self._last)
            self.running += new
            self._last = []

    # Prompts

    def _prefill(self, output: SchedulerOutput, now: int) -> None:
        settings = self.settings
        self._full = self._full and bool(self.running)
        if (self._full or not self.waiting) and self._chunked is None:
            return
        if len(self.running) >= settings.max_running_requests and self._chunked is None:
            self._full = True
            return
        self._refresh()
        room = BatchRoom(
            settings.chunked_prefill_size, settings.max_prefill_tokens, self._reserved()
        )
        if self._chunked is not None:
            self._go_on(self._chunked, room, output)
        # Each holds a row of the request table, from its first batch on.
        rows = settings.max_running_requests - len(self._held)
        rows += len(output.scheduled) if settings.rules.chunk_has_its_row else 0
        most = min(settings.max_running_requests - len(self.running), rows)
        passed: list[ServedRequest] = []
        while self.waiting:
            spent = min(room.chunk, room.prompts) <= 0 and self._fits(room)
            if spent and (settings.rules.spent_try_nobody or output.admitted):
                break
            if len(output.scheduled) >= most:
                self._full = True
                break
            if not self._fetched(self.waiting[0], now):
                passed.append(self.waiting.popleft())
            elif not self._start(self.waiting[0], room, output, now):
                break
        self.waiting.extendleft(reversed(passed))

    def _fetched(self, request: ServedRequest, now: int) -> bool:
        """Whether ``request`` need not wait for storage any longer."""
        if self._storage is None:
            return True
        ready = self._storage.fetched(request, now)
        if ready is not None:
            heappush(self.loading, (ready, request.index, request))
        return ready is None

    def _refresh(self) -> None:
        """Use what of those who wait is in the tree."""
        settings = self.settings
        if not self.waiting or not settings.caching or not settings.rules.refreshes_waiting:
            return
        if self._passes % REFRESH_PASSES == 0:
            for request in reversed(list(islice(self.waiting, REFRESHED_REQUESTS))):
                self.cache.match(self._texts[request], self._known(request.num_tokens))
        self._passes += 1

    def _go_on(self, request: ServedRequest, room: BatchRoom, output: SchedulerOutput) -> None:
        """Compute the next chunk of a prompt, or its last."""
        left = request.num_tokens - request.num_computed_tokens
        most = min(room.chunk, int(self._left(room)))
        if most <= 0:
            most = room.chunk
        tokens = min(left, most)
        done = tokens == left
        self._take(request, tokens, room, output, done)

    def _start(
        self, request: ServedRequest, room: BatchRoom, output: SchedulerOutput, now: int
    ) -> bool:
        """Admit a request; False where the batch is closed instead, or after it."""
        settings, text = self.settings, self._texts[request]
        node, start = self.cache.root, 0
        if settings.caching:
            node, start = self.cache.match(text, self._known(request.num_tokens - 1))
        self.cache.lock(node)
        more = request.num_tokens - start
        need = more + min(request.tokens_left, CLIP_TOKENS)
        need += settings.page if settings.rules.page_needed else 0
        tokens, page = more, settings.page
        if self._paged(more) > room.chunk:
            whole = (start + room.chunk) // page * page - start
            tokens = room.chunk - page + 1 if settings.rules.chunk_of_part_page else whole
        fits = need < self._left(room)
        alone = settings.input_limits and output.scheduled and self._paged(more) >= room.prompts
        if not fits or alone or tokens <= 0:
            self.cache.unlock(node)
            if not fits:
                self._full = bool(output.scheduled or self.running)
            return False
        self.waiting.popleft()
        if self.connector is not None:
            node, start = self._loaded(request, node, start, output, now)
            more = request.num_tokens - start
            tokens = min(tokens, more)
        held = self._held[request] = HeldTokens(text, node)
        held.locked = request.num_computed_tokens = start
        resumed = request.status is RequestStatus.PREEMPTED
        output.admitted.append(Admitted(request, start, resumed))
        request.status = RequestStatus.RUNNING
        self._take(request, tokens, room, output, tokens == more)
        if not self._fits(room):
            self._full = True
            return False
        return True

    def _loaded(
        self, request: ServedRequest, node: Node, start: int, output: SchedulerOutput, now: int
    ) -> tuple[Node, int]:
        """Where what lies below the tree behind the ``start`` tokens up to ``node`` ends: it is loaded into
        room that is made for it, and the batch waits for its layers. Without room nothing is."""
        assert self.connector is not None
        hit = self.connector.lookup(request, now, start, self._whole(request.num_tokens - 1))
        if hit is not None:
            self._evict(hit.tokens - start)
            if hit.tokens - start > self.free:
                hit = None
        self.connector.allocated(request, now, start, hit)
        if hit is not None:
            end, known = self.cache.insert(self._texts[request], hit.tokens)
            self.free -= hit.tokens - known
            self.cache.lock(end)
            self.cache.unlock(node)
            node, start = end, hit.tokens
            output.wait_ps = max(output.wait_ps, hit.ready_ps - now)
        request.reported_pages = start // self.settings.page // self.blocks_per_name
        return node, start

    def tell_evicted(self) -> None:
        """Tell ``events`` of what is evicted, too."""
        self.cache.on_evicted = self._report_evicted

    def _report_evicted(self, runs: tuple[Run, ...]) -> None:
        """Tell of an evicted leaf, by the ids of ``RequestHashes.runs``, where pages end in it."""
        assert self.events is not None
        page = self.settings.page
        span = page * self.blocks_per_name
        for first, count in reversed(runs):
            if first < 0:
                self.events.removed((), count // page)
            elif ((first & PLACES) + count) % span == 0:
                self.events.removed((first >> PLACE_BITS,), 0)

    def _known(self, tokens: int) -> int:
        """How many of ``tokens`` the tree may know."""
        return max(0, tokens - 1) if self.settings.pairs else tokens

    def _whole(self, tokens: int) -> int:
        return tokens - tokens % self.settings.page

    def _take(
        self,
        request: ServedRequest,
        tokens: int,
        room: BatchRoom,
        output: SchedulerOutput,
        done: bool,
    ) -> None:
        """Compute ``tokens`` of its prompt; what it may need later is promised once it is ``done``."""
        request.num_computed_tokens += tokens
        request.in_flight_tokens += tokens
        self._held[request].end = request.num_computed_tokens
        paged = self._paged(tokens)
        room.now += paged + (self.settings.page if self.settings.rules.page_promised else 0)
        room.later += min(request.output_tokens, CLIP_TOKENS) if done else 0
        room.chunk -= paged
        room.prompts -= paged
        self._chunked = None if done else request
        output.scheduled.append(ScheduledTokens(request, tokens, done))

    def _left(self, room: BatchRoom) -> float:
        """Tokens of the cache that nobody holds and none are promised."""
        return self._idle - room.now - room.later

    def _fits(self, room: BatchRoom) -> bool:
        """Whether anything is left of the cache."""
        return self._left(room) > 0 and self._idle - room.now > 0

    def _lay_out(self, requests: list[ServedRequest]) -> None:
        """Give those of a batch of prompts their tokens; of pages more are made free than are needed."""
        held = [self._held[request] for request in requests]
        need = sum(each.end - each.locked - each.own for each in held)
        page = self.settings.page
        self._evict(need + (page * len(requests) if page > 1 else 0))
        for request in requests:
            self._allocate(request, request.num_computed_tokens)

    def _reserved(self) -> float:
        """Tokens that running requests are thought to need yet."""
        return self.ratio * sum(min(request.tokens_left, CLIP_TOKENS) for request in self.running)

    # Decodes

    def _decode(self, output: SchedulerOutput) -> None:
        drafted = 0
        if self.drafts is not None:
            drafted = output.drafted = self.drafts.at(len(self.running))
        here = decoding = [q for q in self.running if not q.finished]
        if self.settings.rules.ending_sit_out:
            decoding = [q for q in here if not (q.in_flight_tokens and q.tokens_left <= 1)]
        sits_out = len(decoding) < len(here)
        self._full = self._full and len(decoding) == len(self.running)
        self.running = decoding
        if not decoding:
            return
        tokens = 1 + drafted
        if not self._room_for_all(decoding, tokens):
            if sits_out:
                return
            decoding = self._retract(decoding, output, tokens)
            self._full = False
        else:
            settings = self.settings
            least = settings.first_ratio * LEAST_SHARE
            step = settings.first_ratio * (1 - LEAST_SHARE) / DECAY_STEPS
            self.ratio = max(least, self.ratio - step)
        need = self._needed(decoding, tokens)
        if self.settings.page > 1 and (need or not self.settings.reserved_tokens):
            more = need if self.settings.reserved_tokens else 0
            self._evict(more + self.settings.page * len(decoding))
        for request in decoding:
            self._allocate(request, self._next(request, tokens))
            request.num_computed_tokens += tokens
            request.in_flight_tokens += tokens
            output.scheduled.append(ScheduledTokens(request, tokens, True, drafted))

    def _retract(
        self, decoding: list[ServedRequest], output: SchedulerOutput, tokens: int
    ) -> list[ServedRequest]:
        """Take their tokens from those that have generated least, until the others' next fit."""
        order = list(decoding)
        if self.drafts is None or self.settings.rules.drafting_sorted:
            order.sort(key=_generated, reverse=True)
        while len(order) > 1 and (not output.preempted or not self._room_for_all(order, tokens)):
            victim = order.pop()
            if victim.in_flight_tokens and self.settings.rules.surplus_freed_late:
                self._keep_surplus(victim)
            self._release(victim)
            self._evict(RETRACTED_TOKENS * len(order))
            victim.status = RequestStatus.PREEMPTED
            output.preempted.append(victim)
            self.waiting.append(victim)
            self._queued.append(victim)
        if not self._room_for_all(order, tokens):
            (last,) = order
            self._release(last)
            self._texts.pop(last)
            last.status = RequestStatus.DROPPED
            output.dropped.append(last)
            order = []
        kept = self.running = order
        decoded = sum(q.num_tokens - q.num_prompt_tokens for q in kept)
        longest = sum(q.output_tokens for q in kept)
        self.ratio = min(1.0, (decoded + RETRACTED_TOKENS * len(kept)) / (longest + 1))
        return kept

    def _room_for_all(self, requests: list[ServedRequest], tokens: int) -> bool:
        need = self._needed(requests, tokens)
        self._evict(need)
        return need <= self.free

    def _needed(self, requests: list[ServedRequest], tokens: int) -> int:
        return sum(max(0, self._more(q, self._next(q, tokens))) for q in requests)

    def _next(self, request: ServedRequest, tokens: int) -> int:
        """What ``request`` is to hold at a decode of ``tokens``: with drafts, how many it has computed is
        known when the output is there."""
        if not self.settings.reserved_tokens:
            return request.num_computed_tokens + tokens
        held = self._held[request]
        known = max(held.end, request.num_tokens - 1) + self.settings.reserved_tokens
        ahead = self.settings.rules.claims_ahead and request.in_flight_tokens and not held.prompting
        return known + 1 if ahead else known

    # Tokens

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self.settings.page) * self.settings.page

    def _more(self, request: ServedRequest, tokens: int) -> int:
        """What ``request`` lacks to hold ``tokens``."""
        held = self._held[request]
        return self._paged(tokens) - held.locked - held.own

    def _evict(self, tokens: int) -> None:
        """Have so many free, as far as leaves can go."""
        if tokens > self.free:
            here = self.free if self.settings.rules.evicts_lacking else 0
            self.free += self.cache.evict(tokens - here)

    def _allocate(self, request: ServedRequest, tokens: int) -> None:
        """Have ``request`` hold ``tokens``."""
        more = self._more(request, tokens)
        if more > 0:
            self._evict(more)
            self.free -= more
            self._held[request].own += more

    def _share(self, request: ServedRequest, tokens: int) -> None:
        """Put its first ``tokens`` into the tree and hold them there."""
        held, settings = self._held[request], self.settings
        if not settings.caching:
            return
        tokens = self._whole(self._known(tokens))
        node, known = self.cache.insert(held.text, tokens)
        prompt = self._whole(self._known(request.num_prompt_tokens))
        if settings.rules.splits_prompts and 0 < prompt < tokens:
            self.cache.insert(held.text, prompt)  # so that an answer may go without its prompt
        self.free += known - held.locked  # what another had put there is held twice no longer
        held.own -= tokens - held.locked
        self.cache.unlock(held.node)
        self.cache.lock(node)
        held.node, held.locked = node, tokens

    def _release(self, request: ServedRequest) -> None:
        held = self._held.pop(request)
        self.free += held.own
        self.cache.unlock(held.node)
        request.num_computed_tokens = 0
        request.stale_tokens = request.in_flight_tokens
        if self._chunked is request:
            self._chunked = None

    def update_from_output(self, output: SchedulerOutput) -> list[ServedRequest]:
        """Take the output of a batch; finished requests leave their tokens to the tree."""
        finished: list[ServedRequest] = []
        for request, tokens, samples, drafts in output.scheduled:
            request.in_flight_tokens -= tokens
            if request.stale_tokens:
                request.stale_tokens -= tokens
                self.free += self._surplus.pop(request, 0)
                continue
            if not samples or request not in self._held:
                continue
            kept = self.drafts.kept(request.index, request.num_tokens, drafts) if self.drafts else 0
            computed = request.num_tokens + kept
            request.new_tokens = min(1 + kept, request.tokens_left)
            request.num_tokens += request.new_tokens
            request.num_computed_tokens -= drafts - request.new_tokens + 1 if drafts else 0
            held = self._held[request]
            if request.finished:
                late = bool(request.in_flight_tokens) and self.drafts is None
                if late and not self.settings.rules.surplus_freed_late:
                    computed += 1  # its last token is in the batch on its way, for nothing
                if not self.settings.shares_beyond:
                    computed = min(computed, request.num_tokens)
                self._share(request, computed if self.settings.rules.shares_answers else held.end)
                if self.events is not None:
                    blocks = held.locked // self.settings.page
                    report_left(self.events, request, blocks, self.blocks_per_name)
                if late and self.settings.rules.surplus_freed_late:
                    self._keep_surplus(request)
                self._release(request)
                if self.settings.rules.ended_leave_first and request in self.running:
                    self.running.remove(request)
                    self._full = False
                self._texts.pop(request)
                request.status = RequestStatus.FINISHED
                finished.append(request)
            elif held.prompting:
                held.prompting = False
                self._share(request, held.end)
                if self.events is not None:
                    blocks = held.locked // self.settings.page
                    report_stored(self.events, request, blocks, self.blocks_per_name)
        return finished

    def _keep_surplus(self, request: ServedRequest) -> None:
        """Leave the place of the token that ``request`` computes for nothing with it until it has: of pages
        only where that one is on a page of its own."""
        page = self.settings.page
        if (request.num_tokens - 1) % page == 0:
            self._surplus[request] = page
            self._held[request].own -= page

    def drop_stuck(self) -> ServedRequest | None:
        """Give up what blocks the others though nothing runs."""
        request = next(iter(self._held), None)
        if request is not None:
            self._release(request)
            if request in self.running:
                self.running.remove(request)
        elif self.waiting:
            request = self.waiting.popleft()
        else:
            return None
        self._texts.pop(request)
        request.status = RequestStatus.DROPPED
        return request
