"""The seam between an engine's scheduler and the loops that drive it.

A scheduler decides, step by step, which requests compute how many tokens; ``simulator.replay`` (clocked in
steps) or ``simulator.step_engine`` (in picoseconds) calls it. vLLM's is ``engines.paged.scheduler``; another
engine brings its own class with these few methods, and its own way of keeping blocks behind them.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple, Protocol, runtime_checkable

from kvroom.kvcache.connector import KVConnector
from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.request import ServedRequest
from kvroom.records import dataclass


class ScheduledTokens(NamedTuple):
    """Tokens that one request computes in a step, the last ``drafts`` of them drafted; ``samples``: the
    step gives its next token."""

    request: ServedRequest
    tokens: int
    samples: bool
    drafts: int = 0


class Admitted(NamedTuple):
    """A request that came from the waiting queue, with what it found cached."""

    request: ServedRequest
    cached_tokens: int
    resumed: bool


@dataclass(slots=True)
class SchedulerOutput:
    """What was decided for one step, in the engine's order."""

    scheduled: list[ScheduledTokens] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[ServedRequest] = field(default_factory=list)
    dropped: list[ServedRequest] = field(default_factory=list)
    step: int = -1
    wait_ps: int = 0
    """How much longer it takes since its layers wait for cache that is brought."""
    drafted: int | None = None
    """Tokens that each decoding request may have drafted; None: nothing is drafted, or nobody decodes."""

    @property
    def tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(each.tokens for each in self.scheduled)


class EngineScheduler(Protocol):
    """An engine's rules: queues, admission, preemption and the blocks behind them."""

    steps_in_flight: int
    """Steps that may be scheduled before the output of the first is there."""
    queues_idle: bool
    """Whether a step that computes nothing takes a place among those in flight."""

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        ...

    @property
    def waiting_count(self) -> int:
        """Requests in the queue, preempted ones among them."""
        ...

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests."""
        ...

    def add_request(self, request: ServedRequest) -> bool:
        """Queue a request; False where it can never be served (it is dropped)."""
        ...

    def schedule(self, now: int = 0) -> SchedulerOutput:
        """The next step, decided at ``now``."""
        ...

    def update_from_output(self, output: SchedulerOutput) -> list[ServedRequest]:
        """Take the output of a step; gives the requests that it finished."""
        ...

    def drop_stuck(self) -> ServedRequest | None:
        """Give up the request that blocks the others though nothing runs; None where there is none."""
        ...


@runtime_checkable
class DecodingScheduler(EngineScheduler, Protocol):
    """A scheduler that takes many decode steps at one call, since each call has its price."""

    def decoding(self) -> list[ServedRequest]:
        """Those that run, where the step to come may be the last one over again: a token of each. Empty
        where it cannot be."""
        ...

    def decode(self, steps: int) -> int:
        """Take up to so many such steps, and their outputs but for those on their way; gives how many it
        took. What is decided otherwise is what ``schedule`` gives next. No answer may end meanwhile."""
        ...


@runtime_checkable
class TieredScheduler(EngineScheduler, Protocol):
    """Rules that ask a ``connector`` for what lies below their cache, and tell ``events`` of that."""

    connector: KVConnector | None
    events: KVEvents | None
    blocks_per_name: int
    """Blocks of a page that ``events`` hears of."""
    loading: list[tuple[int, int, ServedRequest]]
    """A heap of requests that wait for their cache: when it is there, order."""

    def tell_evicted(self) -> None:
        """Tell ``events`` of what is evicted, too."""
        ...
