"""A request while it is served: what is known of it, what is computed, which blocks it holds.

Names are those of vLLM's ``Request``. The step-by-step schedulers keep the counts at every step and the
blocks in ``block_tables``; the event engine keeps a decoding request as (``base_step``, ``last_step``)
and its cached blocks as ``extents``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar, NamedTuple

from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.holding import Holding
from kvroom.kvcache.tokens import BlockHashes, Run
from kvroom.workloads.requests import SessionProgress
from kvroom.workloads.sessions import LinkedRow


class RequestStatus(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    DROPPED = "dropped"


NO_HASHES = BlockHashes((), 1)


class ServedRequest:
    """One request of ``num_prompt_tokens`` that ends with ``final_tokens``, its answer included.

    ``arrival`` is on the clock it is served by: picoseconds, or steps in a script. ``hashes`` are the
    chained hashes of its blocks, answer included (schedulers look only at those of tokens known so far);
    ``extents`` what it can share of an ``ExtentPool``. A smaller ``priority`` goes first.
    """

    __slots__ = (
        "admission",
        "alone_preempted",
        "arrival",
        "base_step",
        "block_tables",
        "cached_blocks",
        "decode_final_tokens",
        "decode_start_tokens",
        "decoding",
        "extents",
        "final_tokens",
        "first_token_ps",
        "hashes",
        "holding",
        "in_flight_tokens",
        "index",
        "junction",
        "keeps_blocks",
        "last_step",
        "last_token_ps",
        "mamba_states",
        "new_tokens",
        "next_decode",
        "num_blocks",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_draft_tokens",
        "num_output_placeholders",
        "num_preemptions",
        "num_prompt_tokens",
        "num_tokens",
        "outside_ps",
        "owed_tokens",
        "partial_hits",
        "pipeline_ps",
        "prefill_start_ps",
        "priority",
        "quiet_tokens",
        "replica",
        "reported_pages",
        "retries",
        "routed_tokens",
        "seen",
        "session",
        "session_id",
        "session_place",
        "stale_tokens",
        "status",
    )

    block_tables: list[list[int]]
    cached_blocks: list[int]
    """By group: leading blocks looked at for caching."""
    partial_hits: dict[int, tuple[int, int]]
    """By group: place and block shared in part."""
    mamba_states: dict[int, MambaState]
    """By group: how a recurrent state moves on."""

    # Every field is set here: reading a class's default through an instance costs several times more.
    def __init__(  # noqa: PLR0915
        self,
        index: int,
        arrival: int,
        num_prompt_tokens: int,
        output_tokens: int,
        *,
        extents: RequestExtents | None = None,
        hashes: BlockHashes = NO_HASHES,
    ) -> None:
        self.index = index
        self.arrival = arrival
        self.num_prompt_tokens = num_prompt_tokens
        self.num_tokens = num_prompt_tokens  # prompt and the output delivered so far
        self.final_tokens = num_prompt_tokens + (output_tokens or 1)
        self.extents = extents
        self.hashes = hashes
        self.priority = 0
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        """Tokens with stored keys and values, those being computed among them."""
        self.num_cached_tokens = 0
        """Those of its prompt that were found cached when it was first scheduled."""
        self.num_preemptions = 0
        self.num_output_placeholders = 0
        """Output tokens on their way (asynchronous scheduling)."""
        self.num_draft_tokens = 0
        """Drafted for its next step."""
        self.new_tokens = 0
        """Given by its last step."""
        self.in_flight_tokens = 0
        """Of steps whose output is not there yet."""
        self.stale_tokens = 0
        """In-flight tokens of before a preemption."""
        self.next_decode = 0
        """The call of the scheduler from which on it may decode, where decodes are spread over a pipeline."""
        self.junction = 0
        """Where a prefix shared with others ends that not every group has cached."""
        self.alone_preempted = 0
        """Times it gave up its blocks to itself since its last token."""
        self.quiet_tokens = 0
        """Up to so many tokens nothing changes in its blocks."""
        self.holding: Holding | None = None
        """What an engine that jumps over several layer groups keeps of it."""

        # Kept by the event engine
        self.admission = -1
        """Its place in the order of admission; −1 while it waits."""
        self.num_blocks = 0
        """Blocks it holds while its prompt is computed."""
        self.decoding = False
        self.base_step = 0
        """While it decodes, ``step − base_step`` tokens are computed before each step."""
        self.last_step = -1
        """The step that computes its last token."""
        self.decode_start_tokens = 0
        """Tokens computed when it last began to decode."""

        # Times and places
        self.first_token_ps = -1
        self.last_token_ps = -1
        self.pipeline_ps = 0
        """How much later than its steps its tokens are out."""
        self.outside_ps = 0
        """How much later a client sees its tokens than the engine gives them."""
        self.reported_pages = 0
        """Pages of its blocks that an engine's cache events told of."""
        self.replica = -1
        self.session: SessionProgress | LinkedRow | None = None
        """Those of its session that are still to come, and its own place among them."""
        self.session_place = 0
        self.session_id: int | str | None = None
        self.routed_tokens = 0
        """What it counts for with the router that sent it."""
        self.owed_tokens = 0
        """Tokens of its prompt that the router takes as still to be computed."""
        self.retries = 0
        """Times that it went elsewhere because its replica died."""
        self.seen = False
        """Whether its prompt has been counted."""
        self.decode_final_tokens = 0
        """Tokens that it ends with elsewhere, where only its prompt is computed here."""
        self.keeps_blocks = False
        """Whether its blocks stay when it is done, for another engine to fetch."""
        self.prefill_start_ps = 0

    # Each is itself: told, since a compiled class that compares has no hash unless it says so.
    __hash__: ClassVar[Callable[[object], int]] = object.__hash__

    def __lt__(self, other: ServedRequest) -> bool:
        return self.rank < other.rank

    @property
    def rank(self) -> tuple[int, int, int]:
        """Its place under the priority policy: the smallest goes first."""
        return (self.priority, self.arrival, self.index)

    @property
    def output_tokens(self) -> int:
        """Tokens of its whole answer."""
        return self.final_tokens - self.num_prompt_tokens

    @property
    def tokens_left(self) -> int:
        """Output tokens that are still to come."""
        return self.final_tokens - self.num_tokens

    @property
    def prefill_end(self) -> int:
        """Where its prompt ends; after a preemption, what was generated before is computed like one."""
        return max(self.num_prompt_tokens, self.num_tokens - 1)

    @property
    def finished(self) -> bool:
        """Whether all its output is delivered."""
        return self.num_tokens >= self.final_tokens

    def clear_blocks(self, groups: int) -> None:
        """Empty block tables for ``groups`` layer groups."""
        self.block_tables = [[] for _ in range(groups)]
        self.cached_blocks = [0] * groups
        self.partial_hits = {}
        self.mamba_states = {}
        self.quiet_tokens = 0

    def restart(self) -> None:
        """Nothing of it is computed or held any more: what it generated is computed anew with its prompt."""
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = self.num_output_placeholders = self.num_draft_tokens = 0
        self.in_flight_tokens = self.stale_tokens = self.junction = self.alone_preempted = 0
        self.num_blocks = self.decode_start_tokens = self.reported_pages = 0
        self.admission = self.last_step = -1
        self.decoding = False
        self.holding = None
        if self.extents is not None:
            self.extents = RequestExtents(self.extents.names, self.extents.named)


class PrefillCheckpoint(NamedTuple):
    """A state that a step saves on its way: that after ``tokens``, in the block at ``place``."""

    tokens: int
    place: int


class MambaState:
    """What an aligned recurrent group remembers of a request between two allocations."""

    __slots__ = ("allocated", "checkpoint", "last_block", "retired")

    def __init__(self) -> None:
        self.checkpoint: PrefillCheckpoint | None = None  # saved inside the step that is scheduled
        self.allocated = False  # has been given blocks of its own
        self.last_block: int | None = None  # place of the state that the next one starts from
        self.retired = 0  # leading places already given back


PLACE_BITS = 40
PLACES = (1 << PLACE_BITS) - 1
"""The low bits of a block's hash among ``RequestHashes``: its place in its request."""


class RequestHashes(BlockHashes):
    """The hashes of a request's blocks one by one: those of its ``extents``, each of which stands for
    ``unit`` blocks, then its own."""

    def __init__(self, request: ServedRequest, unit: int) -> None:
        super().__init__((), 1)
        self._request = request
        self.unit = unit

    def runs(self, block_tokens: int) -> tuple[Run, ...]:
        """Ids that are equal where names are, for tokens in blocks of ``block_tokens``."""
        request, span = self._request, self.unit * block_tokens
        runs: list[Run] = []
        shared = 0
        if request.extents is not None:
            shared = request.extents.named * block_tokens
            for low in range(0, shared, span):
                name = request.extents.names[low // span]
                runs.append((name << PLACE_BITS | low, min(span, shared - low)))
        left = max(0, request.final_tokens - shared)
        return (*runs, (-(request.index + 1 << PLACE_BITS) + shared, left))

    def first(self, count: int) -> list[int]:
        """The first ``count`` of them at least."""
        hashes, extents, unit = self._hashes, self._request.extents, self.unit
        named = extents.named if extents is not None else 0
        for place in range(len(hashes), count):
            if extents is not None and place < named:
                hashes.append(extents.names[place // unit] << PLACE_BITS | place)
            else:
                hashes.append(-((self._request.index + 1) << PLACE_BITS | place))
        return hashes
