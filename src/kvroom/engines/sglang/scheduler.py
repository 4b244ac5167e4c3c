"""SGLang's scheduler, one batch at a time (0.5): prompts before decodes, a radix cache, retraction.

A batch is either prompts or decodes. Prompts are taken as long as what they and the running requests are
thought to need still fits; how much of their longest answers that is (the new-token ratio) falls while
all goes well and is set anew when requests have to be retracted. Below the tree may lie host memory
(HiCache): what a prompt finds there is loaded while its batch runs, layer by layer. Not modelled: the
overlap of one batch's scheduling with the one before it. Room of refused drafts stays with the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, ScheduledTokens, SchedulerOutput
from kvroom.kvcache.connector import KVConnector, RemoteHit, report_left, report_stored
from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.radix import Node, RadixCache
from kvroom.kvcache.request import RequestStatus, ServedRequest
from kvroom.records import dataclass

CLIP_TOKENS = 4096
"""No answer is expected to become longer when room is reserved for it."""
FIRST_RATIO, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600
RETRACTED_TOKENS = 20
"""Tokens that each running request is granted when the ratio is set after a retraction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangSettings:
    """``tokens`` of cache in pages of ``page``; prompts are cached in stretches of ``stretch`` tokens."""

    tokens: int
    page: int
    stretch: int
    max_running_requests: int
    context_tokens: int
    chunked_prefill_size: int
    max_prefill_tokens: int = 16384
    caching: bool = True


class SglangScheduler:
    """SGLang's scheduler, an ``EngineScheduler``."""

    steps_in_flight = 1

    def __init__(self, settings: SglangSettings, drafts: Drafts | None = None) -> None:
        self.settings = settings
        self.drafts = drafts
        self.cache = RadixCache()
        self.free = settings.tokens  # neither held by a request nor in the tree
        self.ratio = FIRST_RATIO
        self.waiting: deque[ServedRequest] = deque()
        self.running: list[ServedRequest] = []
        self._paths: dict[ServedRequest, list[Node]] = {}  # what of the tree it holds
        self._own: dict[ServedRequest, int] = {}  # tokens beyond that
        self._chunked: ServedRequest | None = None
        self._matched: tuple[tuple[int, int, int], list[Node]] = ((-1, 0, 0), [])
        self.connector: KVConnector | None = None
        self.events: KVEvents | None = None
        self.blocks_per_name = 1
        """Stretches of a page that ``events`` hears of."""
        self.loading: list[tuple[int, int, ServedRequest]] = []
        """Nobody: a batch itself waits for what is loaded."""

    def tell_evicted(self, told: Callable[[int], None]) -> None:
        """Call ``told`` with the key of each stretch that leaves the tree."""
        self.cache.on_evicted = told

    @property
    def running_count(self) -> int:
        """Requests that hold tokens."""
        return len(self.running)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Stretches held by requests, those of the tree that are locked among them."""
        idle = self.free + self.cache.evictable * self.settings.stretch
        return -(-(self.settings.tokens - idle) // self.settings.stretch)

    def add_request(self, request: ServedRequest) -> bool:
        """Queue a request; False where its prompt is too long for the engine or an empty cache."""
        limit = self.settings.context_tokens
        need = self._paged(request.num_prompt_tokens + 1) + self.settings.page
        if request.num_prompt_tokens >= limit or need > self.settings.tokens:
            request.status = RequestStatus.DROPPED
            return False
        request.final_tokens = min(request.final_tokens, limit)
        self.waiting.append(request)
        return True

    def schedule(self, now: int = 0) -> SchedulerOutput:
        """The next batch: prompts where any may start or go on, else a decode of all that run."""
        output = SchedulerOutput()
        self._prefill(output, now)
        if not output.scheduled and self.running:
            self._decode(output)
        return output

    # Prompts

    def _prefill(self, output: SchedulerOutput, now: int) -> None:
        settings = self.settings
        budget = min(settings.chunked_prefill_size, settings.max_prefill_tokens)
        if self._chunked is not None:
            budget -= self._take(self._chunked, budget, output)
        while self.waiting and budget > 0 and self._chunked is None:
            request = self.waiting[0]
            if len(self.running) >= settings.max_running_requests:
                break
            path = self._match(request)
            start = len(path) * settings.stretch
            evictable = (self.cache.evictable - self.cache.unlocked(path)) * settings.stretch
            more = self._paged(request.num_tokens) - start
            left = request.tokens_left
            need = more + min(left, CLIP_TOKENS) + settings.page
            if need >= self.free + evictable - self._reserved() and self.running:
                break
            if more >= self.free + evictable:
                break
            if request.num_tokens - start > budget and budget < settings.page:
                break
            self.cache.lock(path)
            self.waiting.popleft()
            path = self._loaded(request, path, now, output)
            start = len(path) * settings.stretch
            self._paths[request], self._own[request] = path, 0
            request.num_computed_tokens = start
            output.admitted.append(
                Admitted(request, start, request.status is RequestStatus.PREEMPTED)
            )
            request.status = RequestStatus.RUNNING
            self.running.append(request)
            budget -= self._take(request, budget, output)

    def _loaded(
        self, request: ServedRequest, path: list[Node], now: int, output: SchedulerOutput
    ) -> list[Node]:
        """``path`` and what lies below the cache behind it: that is loaded into room that is made for it, and
        the batch waits for its layers. Without room nothing is loaded."""
        if self.connector is None:
            return path
        stretch = self.settings.stretch
        start = len(path) * stretch
        whole = (request.num_tokens - 1) // stretch * stretch
        hit: RemoteHit | None = self.connector.lookup(request, now, start, whole)
        if hit is not None:
            count = hit.tokens // stretch
            lacks = (count - len(path)) * stretch - self.free
            if lacks > 0:
                self.free += stretch * self.cache.evict(-(-lacks // stretch))
            if (count - len(path)) * stretch > self.free:
                hit = None
            else:
                keys = request.hashes.first(count)[len(path) : count]
                nodes, new = self.cache.insert(keys, path)
                self.cache.lock(nodes[len(path) :])
                self.free -= new * stretch
                path = nodes
        self.connector.allocated(request, now, start, hit)
        if hit is not None:
            output.wait_ps = max(output.wait_ps, hit.ready_ps - now)
        request.reported_pages = len(path) // self.blocks_per_name
        return path

    def _take(self, request: ServedRequest, budget: int, output: SchedulerOutput) -> int:
        """Compute as much of its prompt as ``budget`` allows; gives how much."""
        left = request.num_tokens - request.num_computed_tokens
        tokens = min(left, budget)
        if tokens < left:
            tokens = tokens // self.settings.page * self.settings.page
        if not tokens or not self._allocate(request, request.num_computed_tokens + tokens):
            return 0
        request.num_computed_tokens += tokens
        done = tokens == left
        self._chunked = None if done else request
        output.scheduled.append(ScheduledTokens(request, tokens, done))
        return tokens

    def _match(self, request: ServedRequest) -> list[Node]:
        if not self.settings.caching:
            return []
        count = (request.num_tokens - 1) // self.settings.stretch
        asked = request.index, count, self.cache.version
        if self._matched[0] == asked:  # the head of the queue, once more
            self.cache.touch(self._matched[1])
        else:
            path = self.cache.match(request.hashes.first(count)[:count])
            self._matched = asked, path
        return self._matched[1]

    def _reserved(self) -> float:
        """Tokens that running requests are thought to need yet."""
        return self.ratio * sum(min(request.tokens_left, CLIP_TOKENS) for request in self.running)

    # Decodes

    def _decode(self, output: SchedulerOutput) -> None:
        self.ratio = max(
            FIRST_RATIO * LEAST_SHARE, self.ratio - FIRST_RATIO * (1 - LEAST_SHARE) / DECAY_STEPS
        )
        drafted = 0
        if self.drafts is not None:
            drafted = output.drafted = self.drafts.at(len(self.running))
        retracted = False
        while not self._room_for_all(1 + drafted):
            victim = min(
                self.running,
                key=lambda q: (q.num_tokens - q.num_prompt_tokens, -q.num_prompt_tokens, -q.index),
            )
            self._release(victim)
            self.running.remove(victim)
            if not self.running:
                victim.status = RequestStatus.DROPPED
                output.dropped.append(victim)
                return
            retracted = True
            victim.status = RequestStatus.PREEMPTED
            output.preempted.append(victim)
            self.waiting.appendleft(victim)
        if retracted:
            decoded = sum(
                request.num_tokens - request.num_prompt_tokens for request in self.running
            )
            longest = sum(request.output_tokens for request in self.running)
            self.ratio = min(1.0, (decoded + RETRACTED_TOKENS * len(self.running)) / (longest + 1))
        for request in self.running:
            self._allocate(request, request.num_computed_tokens + 1 + drafted)
            request.num_computed_tokens += 1 + drafted
            output.scheduled.append(ScheduledTokens(request, 1 + drafted, True, drafted))

    def _room_for_all(self, tokens: int) -> bool:
        need = sum(
            max(0, self._more(request, request.num_computed_tokens + tokens))
            for request in self.running
        )
        return need <= self.free + self.cache.evictable * self.settings.stretch

    # Tokens

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self.settings.page) * self.settings.page

    def _more(self, request: ServedRequest, tokens: int) -> int:
        """What ``request`` lacks to hold ``tokens``."""
        held = len(self._paths[request]) * self.settings.stretch + self._own[request]
        return self._paged(tokens) - held

    def _allocate(self, request: ServedRequest, tokens: int) -> bool:
        """Have ``request`` hold ``tokens``, leaves evicted as need be; False where there is no room."""
        stretch = self.settings.stretch
        more = self._more(request, tokens)
        if more <= 0:
            return True
        if more > self.free:
            self.free += stretch * self.cache.evict(-(-(more - self.free) // stretch))
        if more > self.free:
            return False
        self.free -= more
        self._own[request] += more
        return True

    def _share(self, request: ServedRequest) -> None:
        """Put what it has computed into the tree and hold it there."""
        if not self.settings.caching:
            return
        stretch = self.settings.stretch
        count = request.num_computed_tokens // stretch
        old = self._paths[request]
        if count <= len(old):
            return
        nodes, new = self.cache.insert(request.hashes.first(count)[len(old) : count], old)
        self.cache.lock(nodes[len(old) :])
        moved = (count - len(old)) * stretch
        self._own[request] -= moved
        # What another had put there already is held twice no longer.
        self.free += moved - new * stretch
        self._paths[request] = nodes

    def _release(self, request: ServedRequest) -> None:
        self.free += self._own.pop(request)
        self.cache.unlock(self._paths.pop(request))
        request.num_computed_tokens = 0
        if self._chunked is request:
            self._chunked = None

    def update_from_output(self, output: SchedulerOutput) -> list[ServedRequest]:
        """Take the output of a batch; finished requests leave their tokens to the tree."""
        finished: list[ServedRequest] = []
        for request, tokens, samples, drafts in output.scheduled:
            if tokens - drafts > 1 or not samples:
                self._share(request)
            if not samples:
                continue
            if self.events is not None and tokens - drafts > 1:
                report_stored(self.events, request, len(self._paths[request]), self.blocks_per_name)
            kept = self.drafts.kept(request.index, request.num_tokens, drafts) if self.drafts else 0
            request.new_tokens = min(1 + kept, request.tokens_left)
            request.num_tokens += request.new_tokens
            request.num_computed_tokens = request.num_tokens - 1
            if request.finished:
                finished.append(request)
        for request in finished:
            self._share(request)
            if self.events is not None:
                report_left(self.events, request, len(self._paths[request]), self.blocks_per_name)
            self._release(request)
            self.running.remove(request)
            request.status = RequestStatus.FINISHED
        return finished

    def drop_stuck(self) -> ServedRequest | None:
        """Give up what blocks the others though nothing runs."""
        if self.running:
            request = self.running.pop(0)
            self._release(request)
        elif self.waiting:
            request = self.waiting.popleft()
        else:
            return None
        request.status = RequestStatus.DROPPED
        return request
