"""llama.cpp's server: so many slots, each with the tokens of its last request, and one batch a pass.

A request takes a free slot: the one whose tokens begin most like its prompt, else the one idle for
longest. What the slot and the prompt have in common is not computed again. Each pass computes a token of
every slot that generates, and prompts in the order of slots as far as the batch goes. Nobody is
preempted. Where all slots share one cache, idle ones lose theirs to those that grow, and a request that
still finds no cell fails.
"""

from __future__ import annotations

from collections import deque

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, ScheduledTokens, SchedulerOutput
from kvroom.kvcache.request import RequestStatus, ServedRequest
from kvroom.records import dataclass

SIMILARITY = 0.1
"""A slot is chosen for its tokens only where so much of the prompt is there (--slot-prompt-similarity)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotSettings:
    """``slots`` that share ``tokens`` cells, ``context_tokens`` at most in one; ``stretch`` tokens a name."""

    slots: int
    tokens: int
    context_tokens: int
    batch_tokens: int
    stretch: int
    caching: bool = True


class Slot:
    """One slot: who is in it, and the names and tokens that it holds."""

    __slots__ = ("held", "names", "request", "used")

    def __init__(self) -> None:
        self.request: ServedRequest | None = None
        self.names: list[int] = []
        self.held = 0
        self.used = 0


class SlotScheduler:
    """llama.cpp's scheduler, an ``EngineScheduler``."""

    steps_in_flight = 1
    queues_idle = False

    def __init__(self, settings: SlotSettings, drafts: Drafts | None = None) -> None:
        self.settings = settings
        self.drafts = drafts
        self.slots = [Slot() for _ in range(settings.slots)]
        self.waiting: deque[ServedRequest] = deque()
        self._of: dict[ServedRequest, Slot] = {}
        self._now = 0

    @property
    def running_count(self) -> int:
        """Slots in use."""
        return len(self._of)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Stretches in cells of slots in use."""
        return -(-sum(slot.held for slot in self._of.values()) // self.settings.stretch)

    def add_request(self, request: ServedRequest) -> bool:
        """Queue a request; False where its prompt is longer than a slot."""
        settings = self.settings
        limit = min(settings.context_tokens, settings.tokens)
        if request.num_prompt_tokens >= limit:
            request.status = RequestStatus.DROPPED
            return False
        request.final_tokens = min(request.final_tokens, limit)
        self.waiting.append(request)
        return True

    def schedule(self, now: int = 0) -> SchedulerOutput:
        """The next batch."""
        output = SchedulerOutput()
        while self.waiting and len(self._of) < self.settings.slots:
            self._seat(self.waiting.popleft(), output)
        budget = self.settings.batch_tokens
        drafted = 0
        if self.drafts is not None:
            drafted = output.drafted = self.drafts.at(len(self._of))
        busy = [slot for slot in self.slots if slot.request is not None]
        # Those who generate first, then prompts.
        for prompts in (False, True):
            for slot in busy:
                request = slot.request
                if (
                    request is None
                    or (request.num_tokens - request.num_computed_tokens > 1) is not prompts
                ):
                    continue
                tokens = min(request.num_tokens - request.num_computed_tokens, budget)
                if not tokens:
                    continue
                drafts = 0
                if drafted and not prompts and request.num_tokens > request.num_prompt_tokens:
                    drafts = min(drafted, budget - tokens, request.tokens_left - 1)
                    tokens += drafts
                if not self._grow(slot, request.num_computed_tokens + tokens):
                    self._fail(request, output)
                    continue
                budget -= tokens
                request.num_computed_tokens += tokens
                samples = request.num_computed_tokens == request.num_tokens + drafts
                output.scheduled.append(ScheduledTokens(request, tokens, samples, drafts))
        return output

    def _seat(self, request: ServedRequest, output: SchedulerOutput) -> None:
        settings = self.settings
        limit = (request.num_tokens - 1) // settings.stretch
        names = request.hashes.first(limit)[:limit] if settings.caching else []
        self._now += 1
        free = [slot for slot in self.slots if slot.request is None]
        common = {id(slot): _common(slot.names, names) for slot in free}
        best = max(free, key=lambda slot: (common[id(slot)], -slot.used))
        cached = common[id(best)] * settings.stretch
        if cached < SIMILARITY * request.num_tokens:
            best = min(free, key=lambda slot: slot.used)
            cached = common[id(best)] * settings.stretch
        best.request, best.used = request, self._now
        best.names = best.names[: cached // settings.stretch]
        best.held = cached
        self._of[request] = best
        request.num_computed_tokens = cached
        request.status = RequestStatus.RUNNING
        output.admitted.append(Admitted(request, cached, False))

    def _grow(self, slot: Slot, tokens: int) -> bool:
        """Let ``slot`` hold ``tokens``; idle slots give their cells up, the one idle for longest first."""
        more = tokens - slot.held
        idle = sorted((slot for slot in self.slots if slot.request is None), key=lambda x: x.used)
        left = self.settings.tokens - sum(slot.held for slot in self.slots)
        for other in idle:
            if more <= left:
                break
            left += other.held
            other.held, other.names = 0, []
        if more > left:
            return False
        slot.held = max(slot.held, tokens)
        return True

    def _fail(self, request: ServedRequest, output: SchedulerOutput) -> None:
        request.status = RequestStatus.DROPPED
        self._leave(request, 0)
        output.dropped.append(request)

    def _leave(self, request: ServedRequest, accepted: int) -> None:
        slot = self._of.pop(request)
        self._now += 1
        slot.request, slot.used = None, self._now
        count = accepted // self.settings.stretch
        slot.names = request.hashes.first(count)[:count] if self.settings.caching else []
        slot.held = accepted

    def update_from_output(self, output: SchedulerOutput) -> list[ServedRequest]:
        """Take the output of a batch; a slot keeps what its request computed."""
        finished: list[ServedRequest] = []
        for request, _, samples, drafts in output.scheduled:
            if not samples or request.status is not RequestStatus.RUNNING:
                continue
            accepted = (
                self.drafts.kept(request.index, request.num_tokens, drafts) if self.drafts else 0
            )
            request.new_tokens = 1 + accepted
            request.num_tokens += request.new_tokens
            request.num_computed_tokens = request.num_tokens - 1
            if request.finished:
                finished.append(request)
        for request in finished:
            self._leave(request, request.num_computed_tokens if self.settings.caching else 0)
            request.status = RequestStatus.FINISHED
        return finished

    def drop_stuck(self) -> ServedRequest | None:
        """Give up what blocks the others though nothing runs."""
        if not self.waiting:
            return None
        request = self.waiting.popleft()
        request.status = RequestStatus.DROPPED
        return request


def _common(names: list[int], wanted: list[int]) -> int:
    """How many names both begin with: a name stands for all before it."""
    low, high = 0, min(len(names), len(wanted))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if names[middle - 1] == wanted[middle - 1] else (low, middle - 1)
    return low
