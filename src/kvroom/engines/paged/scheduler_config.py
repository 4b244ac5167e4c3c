"""vLLM's scheduler settings, and the rules that follow from them (0.33, V1 engine).

Two schedulers read them here: ``engines.paged.scheduler``, one step at a time, and
``simulator.event_scheduler``, which does the same in jumps. A rule that changes changes for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Literal

from kvroom.kvcache.request import ServedRequest
from kvroom.records import dataclass

Junctions = Literal["none", "first step", "prompt"]
"""In which steps of a prompt it counts what others share: the newcomer's own, or all."""
ALONE_AT_MOST = 2
"""A request that preempts itself more often, with the pool to itself and no token gained, never fits."""


class PriorityQueue(list[ServedRequest]):
    """Waiting requests by priority, used like the deque of those first come, first served."""

    def append(self, request: ServedRequest) -> None:
        """Queue one."""
        heappush(self, request)

    appendleft = append

    def extendleft(self, requests: Iterable[ServedRequest]) -> None:
        """Queue several."""
        for request in requests:
            heappush(self, request)

    def popleft(self) -> ServedRequest:
        """Take out who is next."""
        return heappop(self)

    def remove(self, request: ServedRequest) -> None:
        """Take one out wherever it stands."""
        super().remove(request)
        heapify(self)


WaitingQueue = deque[ServedRequest] | PriorityQueue
"""The head is who is next; preempted requests go back to the left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """vLLM's own settings, under its names."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    overruns: bool = False
    """With steps in flight, a request whose last token is on its way computes one more that nobody takes."""
    stages: int = 1
    """Pipeline stages; as many steps are in them at once."""
    spreads: bool = False
    """With asynchronous scheduling a request of a pipeline decodes in every ``stages``-th step, a step more
    is scheduled ahead, and one that computes nothing takes its place among those in flight."""
    policy: str = "fcfs"
    tries_others: bool = True
    """By priority, a request that gave way to itself does not keep those behind it from this step."""
    state_short_of_end: bool = True
    """A prompt of whole blocks is cut a block before its end too: its last token is computed again."""
    state_replays: bool = True
    """A request that comes back with a part of its answer stops at blocks like a prompt, and nobody starts
    from a recurrent state in the step that writes it."""
    junctions: Junctions = "prompt"
    """Where a prompt leaves what others share, a step ends, so that its recurrent state is kept."""
    state_inside: bool = True
    """Hits may end inside the blocks of recurrent layers that are wider than the others'."""
    rest_uncut: bool = True
    """What a prompt has behind its last whole block is computed in one step, so that states can be kept."""
    lone_prompt_uncapped: bool = True
    """``long_prefill_token_threshold`` holds back nobody who is alone."""
    in_turn: bool = False
    """Freed blocks that were not cached are used again after those that were freed before them, cached or
    not; else before all that are cached."""
    bounding_batches: int | None = None
    """A newcomer's windows are counted at their reach and so many batches at most, 0: at all of its prompt,
    and keep nothing for steps in flight. None: at those that may be in flight, which they keep."""
    passes_over: bool = False
    """A whole prompt that a step has no tokens left for is passed over, and those passed over queue the other
    way round for the next step; else it holds up those behind it."""

    @property
    def by_priority(self) -> bool:
        """Whether the least important running request is preempted, not the last admitted."""
        return self.policy == "priority"

    @property
    def goes_on(self) -> bool:
        """Whether running requests behind one that gave way to itself are tried in the same step."""
        return self.by_priority and self.tries_others

    @property
    def steps_in_flight(self) -> int:
        """Steps scheduled before the output of the first is there."""
        ahead = self.async_scheduling and (self.stages == 1 or self.spreads)
        return self.stages + ahead

    @property
    def queues_idle(self) -> bool:
        """Whether a step that computes nothing takes a place among those in flight."""
        return self.spreads and self.stages > 1

    @property
    def decodes_every(self) -> int:
        """Calls of the scheduler from one decode of a request to its next, at least."""
        return self.stages if self.async_scheduling and self.spreads else 1

    @property
    def depth(self) -> int:
        """Steps that a pipeline computes at once: with asynchronous scheduling that does not spread decodes
        each waits for the tokens of the one before."""
        return 1 if self.async_scheduling and not self.spreads else self.stages

    @property
    def bounding_tokens(self) -> int:
        """What windows are counted to hold beside their reach."""
        batches = self.steps_in_flight if self.bounding_batches is None else self.bounding_batches
        return batches * self.max_num_batched_tokens if batches else self.max_model_len

    def waiting_queue(self) -> WaitingQueue:
        """An empty queue: first come first served, or by priority."""
        return PriorityQueue() if self.by_priority else deque()

    def accepts(self, request: ServedRequest) -> bool:
        """Whether a prompt is shorter than ``max_model_len``; its answer then ends there."""
        if request.num_prompt_tokens >= self.max_model_len:
            return False
        if request.final_tokens > self.max_model_len:  # noqa: PLR1730 (a call costs more)
            request.final_tokens = self.max_model_len
        return True

    def prefill_limit(self, requests: int) -> int:
        """Most tokens of one request in a step, 0 for no limit, with so many ``requests`` running and
        waiting: where one is alone there is nobody to hold it back for."""
        alone = requests <= 1 and self.lone_prompt_uncapped
        return 0 if alone else self.long_prefill_token_threshold

    def chunk_tokens(self, tokens: int, limit: int, budget: int) -> int:
        """How many of ``tokens`` a waiting request computes in its first step; −1: it has to wait for a
        step with more room, since its prompt may not be cut."""
        if 0 < limit < tokens:
            tokens = limit
        if tokens <= budget:
            return tokens
        return budget if self.enable_chunked_prefill else -1

    def watermark_blocks(self, num_blocks: int) -> int:
        """Of ``num_blocks`` (the null block among them), those that a newcomer leaves free while others
        run."""
        return int(self.watermark * num_blocks)

    def victim(self, running: Sequence[ServedRequest]) -> int:
        """Whose blocks are taken when they give out, by place: the last admitted, or the least important."""
        if not self.by_priority:
            return len(running) - 1
        # of equals the later one: were it the first admitted, two of one moment could give way to each other
        # for ever
        return running.index(max(running))


def never_fits(request: ServedRequest, alone: bool) -> bool:
    """Count a preemption; whether ``request`` is to be dropped since it does so with the pool to itself
    again and again."""
    request.alone_preempted += alone
    return request.alone_preempted > ALONE_AT_MOST
