"""The seam between an engine's scheduling rules and the loops that drive them.

A rule set decides, pass by pass, which requests compute how many tokens; ``play`` (one pass after the
other, clocked in passes) or a faster clock calls it. vLLM's rules are ``scheduler.Scheduler``; another
engine brings its own class with these few methods, and its own way of keeping blocks behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kvroom.kvcache.request import Sequence


class Work(NamedTuple):
    """Tokens that one request computes in a pass, the last ``drafts`` of them drafted; ``samples``: the
    pass gives its next token."""

    sequence: Sequence
    tokens: int
    samples: bool
    drafts: int = 0


class Admitted(NamedTuple):
    """A request that came from the waiting queue, with what it found cached."""

    sequence: Sequence
    cached_tokens: int
    resumed: bool


@dataclass(slots=True)
class Pass:
    """What one scheduling pass decided, in the engine's order."""

    work: list[Work] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    dropped: list[Sequence] = field(default_factory=list)
    step: int = -1
    drafted: int | None = None
    """Tokens that each decoding request may have drafted; None: nothing is drafted, or nobody decodes."""

    @property
    def tokens(self) -> int:
        """Tokens computed in this pass."""
        return sum(work.tokens for work in self.work)


class RuleSet(Protocol):
    """An engine's rules: queues, admission, preemption and the blocks behind them."""

    passes_in_flight: int
    """Passes that may be scheduled before the output of the first is delivered."""

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

    @property
    def cached_keys(self) -> int:
        """Distinct prefixes that could be hit."""
        ...

    def add(self, sequence: Sequence) -> bool:
        """Queue a request; False where it can never be served (it is dropped)."""
        ...

    def schedule(self) -> Pass:
        """The next pass."""
        ...

    def deliver(self, done: Pass) -> list[Sequence]:
        """Take the output of a pass; gives the requests that it finished."""
        ...

    def drop_stuck(self) -> Sequence | None:
        """Give up the request that blocks the others though nothing runs; None where there is none."""
        ...
