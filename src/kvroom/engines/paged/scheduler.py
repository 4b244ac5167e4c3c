"""vLLM's scheduler, one step at a time: the readable form of its rules (0.33, V1 engine), and the oracle of
the event engine.

There are no phases: a request computes tokens until it has caught up with those it knows, and then
one token a step. Running requests come first, in the order of their admission; then waiting ones,
unless a running one had to be preempted. A request that gets no block preempts the last admitted one
(by priority: the least important), which starts again from its cached blocks, its output kept.
With ``Drafts`` a decoding request also computes its drafted tokens; those refused count as not computed,
their blocks stay its own.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.paged.alignment import aligned_tokens
from kvroom.engines.paged.scheduler_config import SchedulerConfig, never_fits
from kvroom.engines.scheduler import Admitted, ScheduledTokens, SchedulerOutput
from kvroom.kvcache.connector import KVConnector, RemoteHit, report_left, report_stored
from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import PLACE_BITS, PLACES, RequestStatus, ServedRequest


class Scheduler:
    """vLLM's rules over a ``PrefixCache``."""

    def __init__(
        self, config: SchedulerConfig, cache: PrefixCache, drafts: Drafts | None = None
    ) -> None:
        self.config = config
        self.cache = cache
        self.drafts = drafts
        self._drafted = 0  # tokens that a request may have drafted in this step
        self._ahead_tokens = drafts.ahead_tokens if drafts else 0
        cache.rereads = drafts is not None and drafts.rereads
        self.steps_in_flight = config.steps_in_flight
        self.queues_idle = config.queues_idle
        self._every = config.decodes_every
        self._calls = 0
        self.waiting = config.waiting_queue()
        self.running: list[ServedRequest] = []
        self.watermark_blocks = config.watermark_blocks(cache.pool.total)
        self.connector: KVConnector | None = None
        self.events: KVEvents | None = None
        self.blocks_per_name = 1
        """Blocks of a page that ``events`` hears of."""
        self.loading: list[
            tuple[int, int, ServedRequest]
        ] = []  # a heap: when its cache is there, order
        self._loads = 0

    def tell_evicted(self) -> None:
        """Tell ``events`` of what is evicted, too."""
        self.cache.pool.on_evicted = self._report_evicted

    def _report_evicted(self, key: int) -> None:
        """Tell of an evicted block, by its hash among ``RequestHashes``, where a page ends with it."""
        assert self.events is not None
        if key < 0:
            self.events.removed((), 1)
        elif ((key & PLACES) + 1) % self.blocks_per_name == 0:
            self.events.removed((key >> PLACE_BITS,), 0)

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        return len(self.running) + len(self.loading)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue, preempted ones among them."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests, without the null block."""
        return self.cache.pool.in_use

    def add_request(self, request: ServedRequest) -> bool:
        """Queue a request; False where its prompt is too long for the engine or for an empty pool.

        Its output ends at ``max_model_len``.
        """
        if not self.config.accepts(request) or not self.cache.fits_ever(request):
            request.status = RequestStatus.DROPPED
            return False
        self.cache.enter(request)
        self.waiting.append(request)
        return True

    def schedule(self, now: int = 0) -> SchedulerOutput:
        """The next step: blocks are given out and tokens counted as computed."""
        output = SchedulerOutput()
        self._calls += 1
        if self.drafts is not None:
            output.drafted = self._drafted = self.drafts.at(self.running_count)
        self.cache.begin_step()
        if self.loading:
            self._loaded(now)
        limit = self.config.prefill_limit(self.running_count + len(self.waiting))
        budget = self.config.max_num_batched_tokens
        tokens_of = self._schedule_running(output, budget, limit)
        budget -= sum(tokens_of.values())
        if not output.preempted:
            self._schedule_waiting(output, tokens_of, budget, limit, now)
        self.cache.end_step()
        for request, tokens in tokens_of.items():
            output.scheduled.append(self._advanced(request, tokens))
        return output

    def _schedule_running(
        self, output: SchedulerOutput, budget: int, limit: int
    ) -> dict[ServedRequest, int]:
        tokens_of: dict[ServedRequest, int] = {}
        place, calls = 0, self._calls
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            if calls < request.next_decode:
                place += 1
                continue
            tokens = self._tokens_to_compute(request, budget, limit)
            if tokens == 0:
                place += 1
                continue
            fits = request.num_computed_tokens + tokens + self._ahead_tokens <= request.quiet_tokens
            while not fits and not (
                fits := self.cache.allocate(request, tokens, ahead=self._ahead_tokens)
            ):
                where = self.config.victim(self.running)
                victim = self.running.pop(where)
                if where < place:
                    place -= 1
                budget += tokens_of.pop(victim, 0)
                self._preempt(victim, output)
                if victim is request:
                    break
            if fits:
                self._report_prompt(request)
                tokens_of[request] = tokens
                budget -= tokens
                place += 1
            elif not self.config.goes_on:
                break  # by priority those behind it matter more: they are tried with what it gave up
        return tokens_of

    def _tokens_to_compute(self, request: ServedRequest, budget: int, limit: int) -> int:
        if (
            not self.config.overruns
            and request.num_output_placeholders > 0
            and request.num_computed_tokens + 2 - request.num_output_placeholders
            >= request.final_tokens
        ):
            return 0  # its last token is on its way
        tokens = request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
        if request.num_draft_tokens:
            tokens += min(request.num_draft_tokens, self._drafted)
        if 0 < limit < tokens:
            tokens = limit
        start = request.num_computed_tokens
        tokens = min(tokens, budget, self.config.max_model_len - start - 1)
        return self._cut(request, start, tokens)

    def _cut(self, request: ServedRequest, start: int, tokens: int) -> int:
        """``tokens`` from ``start`` on, or fewer where a recurrent state must be written on the way."""
        if not self.cache.aligned:
            return tokens
        return aligned_tokens(self.cache, self.config, request, start, tokens)

    def _preempt(self, request: ServedRequest, output: SchedulerOutput) -> None:
        if self.events is not None:
            report_stored(self.events, request, request.cached_blocks[0], self.blocks_per_name)
        self.cache.free(request)
        request.num_computed_tokens = 0
        request.stale_tokens = request.in_flight_tokens
        request.num_output_placeholders = request.num_draft_tokens = 0
        if never_fits(request, alone=not self.running_count):
            request.status = RequestStatus.DROPPED
            output.dropped.append(request)
            return
        request.status = RequestStatus.PREEMPTED
        output.preempted.append(request)
        self.waiting.appendleft(request)

    def _schedule_waiting(
        self,
        output: SchedulerOutput,
        tokens_of: dict[ServedRequest, int],
        budget: int,
        limit: int,
        now: int,
    ) -> None:
        config, cache, waiting = self.config, self.cache, self.waiting
        skipped: list[ServedRequest] = []
        while budget > 0 and waiting and self.running_count < config.max_num_seqs:
            request = waiting[0]
            if request.stale_tokens:
                # Output of before its preemption is on its way.
                skipped.append(waiting.popleft())
                continue
            hit = cache.lookup(request)
            request.junction = hit.junction
            start, late, remote = hit.tokens, False, None
            if self.connector is not None:
                whole = (request.num_tokens - 1) // cache.block_tokens * cache.block_tokens
                remote = self.connector.lookup(request, now, start, whole)
                if remote is not None:
                    start, late = remote.tokens, remote.ready_ps > now
            tokens = config.chunk_tokens(0 if late else request.num_tokens - start, limit, budget)
            if tokens < 0:
                if not config.passes_over:
                    break
                skipped.insert(0, waiting.popleft())
                continue
            tokens = self._cut(request, start, tokens)
            if (tokens == 0 and not late) or not cache.allocate(
                request,
                tokens,
                hit,
                brought=start - hit.tokens,
                whole=config.scheduler_reserve_full_isl,
                headroom=self.watermark_blocks if self.running else 0,
                stored=not late,
                fits=partial(self._allocated, request, now, hit.tokens, remote),
            ):
                break  # nobody overtakes the head of the queue
            waiting.popleft()
            resumed = request.status is RequestStatus.PREEMPTED
            output.admitted.append(Admitted(request, start, resumed))
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = start
            if late and remote is not None:
                heappush(self.loading, (remote.ready_ps, self._loads, request))
                self._loads += 1
                continue
            self._report_prompt(request)
            self.running.append(request)
            tokens_of[request] = tokens
            budget -= tokens
        waiting.extendleft(reversed(skipped))

    def _allocated(
        self, request: ServedRequest, now: int, cached_tokens: int, remote: RemoteHit | None
    ) -> None:
        """``request`` has its place: what it found needs no report, and what is remote begins to move."""
        cached = remote.tokens if remote else cached_tokens
        request.reported_pages = cached // self.cache.block_tokens // self.blocks_per_name
        if self.connector is not None:
            self.connector.allocated(request, now, cached_tokens, remote)

    def _loaded(self, now: int) -> None:
        """Those whose cache is there by ``now`` run from now on."""
        while self.loading and self.loading[0][0] <= now:
            request = heappop(self.loading)[2]
            self.cache.register(request, request.num_computed_tokens)
            self.running.append(request)

    def _report_prompt(self, request: ServedRequest) -> None:
        """Tell of the blocks of its prompt that are cached by now."""
        if self.events is not None:
            whole = request.num_prompt_tokens // self.cache.block_tokens
            blocks = min(request.cached_blocks[0], whole)
            report_stored(self.events, request, blocks, self.blocks_per_name)

    def _advanced(self, request: ServedRequest, tokens: int) -> ScheduledTokens:
        request.num_computed_tokens += tokens
        request.in_flight_tokens += tokens
        beyond = request.num_computed_tokens - request.num_tokens - request.num_output_placeholders
        drafts = beyond if request.num_draft_tokens and beyond > 0 else 0
        request.num_draft_tokens = 0
        if beyond >= 0 and self.config.async_scheduling:
            request.num_output_placeholders += 1 + drafts
            if self._every > 1:
                request.next_decode = self._calls + self._every
            self._draft(request)
        return ScheduledTokens(request, tokens, beyond >= 0, drafts)

    def _draft(self, request: ServedRequest) -> None:
        if self.drafts is not None:
            request.num_draft_tokens = len(self.drafts.chances)

    def update_from_output(self, output: SchedulerOutput) -> list[ServedRequest]:
        """Take the output of a step; finished requests give their blocks back."""
        finished: list[ServedRequest] = []
        for request, tokens, samples, drafts in output.scheduled:
            request.in_flight_tokens -= tokens
            stale = request.stale_tokens > 0
            if stale:
                request.stale_tokens -= tokens
            if not samples or request.status in (RequestStatus.FINISHED, RequestStatus.DROPPED):
                continue
            gained = 1
            if self.drafts is not None:
                accepted = self.drafts.kept(request.index, request.num_tokens, drafts)
                if not stale:
                    request.num_computed_tokens -= drafts - accepted
                gained = min(1 + accepted, request.tokens_left)
                if not self.config.async_scheduling:
                    self._draft(request)
            request.new_tokens = gained
            request.num_tokens += gained
            request.alone_preempted = 0
            if not stale and request.num_output_placeholders:
                request.num_output_placeholders -= 1 + drafts
                if request.status is RequestStatus.RUNNING:
                    self.cache.register(
                        request, request.num_computed_tokens - request.in_flight_tokens
                    )
            if request.finished:
                finished.append(request)
        for request in finished:
            self._finish(request)
        return finished

    def _finish(self, request: ServedRequest) -> None:
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
            if self.events is not None:
                report_left(self.events, request, request.cached_blocks[0], self.blocks_per_name)
            self.cache.free(request)
        else:
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED

    def drop_stuck(self) -> ServedRequest | None:
        """Drop the head of the queue, which does not fit even into an empty pool."""
        if self.waiting:
            request = self.waiting.popleft()
        elif self.running:
            request = self.running.pop(0)
            self.cache.free(request)
        else:
            return None
        request.status = RequestStatus.DROPPED
        return request
