"""A request while it is served: what is known of it, what is computed, which blocks it holds."""

from __future__ import annotations

from enum import Enum

from kvroom.kvcache.tokens import BlockHashes


class State(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    DROPPED = "dropped"


class Sequence:
    """One request, with ``prompt_tokens`` in and ``output_tokens`` out, as the rules handle it.

    ``hashes`` are the chained hashes of its blocks, output included (the rules look only at those of
    tokens known so far); none are needed where nothing is cached. ``arrival`` is in steps or clock ticks.
    A smaller ``priority`` goes first.
    """

    __slots__ = (
        "alone_preempted",
        "arrival",
        "computed",
        "drafts",
        "gained",
        "hashes",
        "in_flight",
        "index",
        "junction",
        "known",
        "output_tokens",
        "partial",
        "placeholders",
        "priority",
        "prompt_tokens",
        "quiet_tokens",
        "registered",
        "stale",
        "state",
        "state_tables",
        "tables",
    )

    def __init__(
        self,
        index: int,
        arrival: int,
        prompt_tokens: int,
        output_tokens: int,
        *,
        hashes: BlockHashes | None = None,
        priority: int = 0,
    ) -> None:
        self.index = index
        self.arrival = arrival
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.priority = priority
        self.hashes = hashes or BlockHashes((), 1)
        self.state = State.WAITING
        self.known = prompt_tokens  # prompt and the output delivered so far
        self.drafts = 0  # tokens drafted for its next pass
        self.gained = 0  # tokens that its last pass gave
        self.computed = 0  # tokens with stored keys and values, those being computed among them
        self.in_flight = 0  # tokens of passes whose output is not there yet
        self.placeholders = 0  # output tokens on their way (asynchronous scheduling)
        self.stale = 0  # in-flight tokens of before a preemption
        self.junction = 0  # where a prefix shared with others ends that not every group has cached
        self.alone_preempted = 0  # times it gave up its blocks to itself since its last token
        self.quiet_tokens = 0  # up to so many tokens its blocks have room for
        self.tables: list[list[int]] = []  # by layer group: the block of each stretch of tokens
        self.registered: list[int] = []  # by layer group: leading blocks looked at for caching
        self.partial: dict[int, tuple[int, int]] = {}  # by group: place and block shared in part
        self.state_tables: dict[int, StateTable] = {}  # by group: how a recurrent state moves on

    def __lt__(self, other: Sequence) -> bool:
        return self.rank < other.rank

    @property
    def rank(self) -> tuple[int, int, int]:
        """Its place under the priority policy: the smallest goes first."""
        return (self.priority, self.arrival, self.index)

    @property
    def left(self) -> int:
        """Output tokens that are still to come."""
        return self.prompt_tokens + self.output_tokens - self.known

    @property
    def finished(self) -> bool:
        """Whether all its output is delivered."""
        return self.known >= self.prompt_tokens + self.output_tokens

    def forget_blocks(self, groups: int) -> None:
        """Empty tables for ``groups`` layer groups."""
        self.tables = [[] for _ in range(groups)]
        self.registered = [0] * groups
        self.quiet_tokens = 0
        self.partial.clear()
        self.state_tables.clear()


class StateTable:
    """What an aligned recurrent group remembers of a request between allocations."""

    __slots__ = ("allocated", "last_block", "retired")

    def __init__(self) -> None:
        self.allocated = False  # has been given blocks of its own
        self.last_block: int | None = None  # place of the state that the next one starts from
        self.retired = 0  # leading places already given back
