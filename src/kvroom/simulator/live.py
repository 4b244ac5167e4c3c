"""A request while a simulation serves it, and the stream of those that come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kvroom.kvcache.extents import Holding
from kvroom.workloads.requests import Request

if TYPE_CHECKING:
    from kvroom.simulator.handover import Source

FOREVER = 1 << 200
"""Later than anything happens (picoseconds)."""


class Live:
    """A request on a server.

    ``total`` is how many tokens it ends with, ``known`` how many it has (kept while it does not decode).
    While it decodes it has computed ``step − base`` tokens before each step, and ``last`` is the step that
    computes its last one. ``number`` is its place in the order of admission, −1 while it waits. Of a
    prompt being computed ``computed`` tokens are done and ``blocks`` held.
    """

    # Most fields are set as they come to matter: making a request is half of what an easy one costs.
    priority = 0
    number = -1
    computed = 0
    blocks = 0
    base = 0
    last = -1
    decoding = False
    first_ps = -1
    token_ps = -1
    resumed_at = 0  # tokens computed when it last began to decode
    alone = 0
    preemptions = 0
    cached_tokens = 0
    late_ps = 0  # how much later than its steps its tokens are out
    noted = 0  # pages of its blocks that an engine's ``notices`` were told of
    session: Iterator[Request] | None = None  # those of it that are still to come
    chat: int | str | None = None  # which session it is of
    place = -1  # the replica that has it
    owed = 0  # tokens of its prompt that a router takes as still to be computed
    retries = 0  # times that it went elsewhere because its replica died
    seen = False  # whether its prompt has been counted
    goal = 0  # tokens that it ends with elsewhere, where only its prompt is computed here
    kept = False  # whether its blocks are kept when it is done, for another engine to fetch
    begun_ps = 0  # when its prompt was first computed, where that matters
    source: Source | None = None  # who has its computed prompt

    def __init__(
        self, index: int, arrival_ps: int, prompt: int, output: int, held: Holding | None = None
    ) -> None:
        self.index = index
        self.arrival_ps = arrival_ps
        self.prompt = prompt
        self.known = prompt
        self.total = prompt + (output or 1)
        self.held = held

    def __lt__(self, other: Live) -> bool:
        return self.rank < other.rank

    @property
    def rank(self) -> tuple[int, int, int]:
        """Its place under the priority policy: the smallest goes first."""
        return (self.priority, self.arrival_ps, self.index)


Follow = Callable[[Live, int], "Live | None"]
"""(a request that is done or dropped, when) → the one that comes because of it."""


class Arrivals:
    """Requests that come: those handed over in order (``push``), and those that follow on others."""

    def __init__(self, follow: Follow | None = None) -> None:
        self.follow = follow
        self.decide = 0  # when the engine decides next
        self.next_ps = FOREVER  # when the next known request comes
        self._coming: deque[Live] = deque()
        self._later: list[tuple[int, int, Live]] = []

    def push(self, live: Live) -> None:
        """A request that comes: no earlier than those before it."""
        self._coming.append(live)
        if live.arrival_ps < self.next_ps:  # noqa: PLR1730 (a call costs more)
            self.next_ps = live.arrival_ps

    def come(self, live: Live, time_ps: int) -> None:
        """A request that comes at ``time_ps``, whenever it first arrived."""
        heappush(self._later, (time_ps, live.index, live))
        self.next_ps = min(self.next_ps, time_ps)

    def gather(self, now: int) -> None:
        """Queue all who have come by ``now``, if the next decision is no earlier: an engine at work may
        leave that until somebody can start."""
        while self.next_ps <= now <= self.decide:
            self._queue(self.next())

    def _queue(self, live: Live) -> None:
        raise NotImplementedError

    def take_coming(self) -> list[Live]:
        """Those that were to come, taken away again."""
        taken = []
        while self.next_ps < FOREVER:
            taken.append(self.next())
        return taken

    def next(self) -> Live:
        """Take the request that comes first."""
        coming, later = self._coming, self._later
        if later and (not coming or later[0][0] < coming[0].arrival_ps):
            live = heappop(later)[2]
        else:
            live = coming.popleft()
        self.next_ps = coming[0].arrival_ps if coming else FOREVER
        if later and later[0][0] < self.next_ps:
            self.next_ps = later[0][0]
        return live

    def over(self, live: Live, now: int) -> None:
        """``live`` is done or dropped: whoever waited for that comes."""
        after = self.follow(live, now) if self.follow else None
        if after is not None:
            self.come(after, after.arrival_ps)
