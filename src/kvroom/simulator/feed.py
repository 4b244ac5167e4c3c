"""From a trace or a made-up workload to the requests that a simulation serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from kvroom.errors import KvroomError
from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.workloads.requests import (
    HashIds,
    Request,
    RequestGraph,
    SessionProgress,
    TokenIds,
    TokenRuns,
    in_order,
)
from kvroom.workloads.synthetic import ONE, Synthetic
from kvroom.workloads.traces.reader import Trace

HELD_SESSIONS = 4096
"""How many sessions of a trace are held back to put them in order."""


class Naming:
    """How the blocks of prompts are named: one name for ``unit`` blocks of ``block_tokens``.

    ``numbered``: a token id is never shared without all before it, as in made-up workloads; then a block's
    last id names it.
    """

    def __init__(
        self, block_tokens: int, hash_tokens: int | None = None, *, numbered: bool = False
    ) -> None:
        self.block_tokens = block_tokens
        self.numbered = numbered
        whole = hash_tokens is not None and hash_tokens % block_tokens == 0
        self.unit = hash_tokens // block_tokens if hash_tokens and whole else 1

    def extents(self, request: Request) -> RequestExtents | None:
        """What ``request`` can share; None where nothing is known of what it holds."""
        prefix, size, tokens = request.prefix, self.block_tokens, request.input_tokens
        names: Sequence[int]
        match prefix:
            case None:
                return None
            case HashIds():
                if prefix.tokens == self.unit * size:
                    names = list(prefix.ids)
                    return RequestExtents(names, min(tokens // size, len(names) * self.unit))
                names = prefix.block_keys(size, tokens)
            case TokenIds():
                tokens += len(prefix.answer or ())
                names = prefix.block_keys(size, tokens)
            case TokenRuns():
                tokens += request.output_tokens
                names = last_ids(prefix, size) if self.numbered else prefix.block_keys(size, tokens)
        return RequestExtents(names, min(tokens // size, len(names)))


def last_ids(runs: TokenRuns, block_tokens: int) -> list[int]:
    """The last token id of every whole block of a prompt and its answer."""
    names: list[int] = []
    left = block_tokens - 1  # tokens before the next last one
    for first, count in (*runs.prompt, *runs.answer):
        ids = range(first + left, first + count, block_tokens)
        names += ids
        left += len(ids) * block_tokens - count
    return names


class Feed:
    """The requests of ``source``, as they come: those of a trace at their times, each further one of a
    session (made up, or of a trace that has such) when all that it waits for are answered and thought about.

    ``naming``: how what they share is named (None: nothing is shared). ``count`` is how many came.
    """

    def __init__(self, source: Iterable[Request], naming: Naming | None) -> None:
        self.naming = naming
        self.count = 0
        self._source = source
        self._sessions: Iterator[tuple[Request, ...]] = iter(())
        self._graphs = isinstance(source, Trace) and source.has_sessions
        self._users = 0
        if isinstance(source, Synthetic):
            if not (source.prefix.tokens or source.turns != ONE or source.agent != ONE):
                self.naming = None  # nothing is said twice
            self._sessions = source.sessions()
            self._users = source.arrivals.users if source.arrivals.kind == "closed" else 0

    @property
    def waits(self) -> bool:
        """Whether the source leaves open when requests come."""
        return self._graphs or isinstance(self._source, Synthetic)

    @property
    def follows(self) -> bool:
        """Whether requests may come because others are answered."""
        source = self._source
        return self._graphs or (
            isinstance(source, Synthetic)
            and (self._users > 0 or source.turns != ONE or source.agent != ONE)
        )

    def __iter__(self) -> Iterator[ServedRequest]:
        if self._graphs and isinstance(self._source, Trace):
            yield from self._started(self._source.sessions())
            return
        if not self.waits:
            for row in in_order(self._source):
                yield self._served(row, row.arrival_ps)
            return
        first = islice(self._sessions, self._users) if self._users else self._sessions
        for session in first:
            yield self._first_of(session, session[0].arrival_ps)

    def _started(self, sessions: Iterable[RequestGraph]) -> Iterator[ServedRequest]:
        """The requests of ``sessions`` that wait for none, by arrival, counted from the first."""
        coming: list[tuple[int, int, int, SessionProgress]] = []
        origin: int | None = None
        reached = 0

        def earliest() -> ServedRequest:
            nonlocal origin, reached
            arrival, _, place, progress = heappop(coming)
            origin = arrival if origin is None else origin
            if arrival < reached:
                fix = "Sort the trace by when its sessions begin."
                what = f"begins more than {HELD_SESSIONS:,} sessions too late in the file"
                raise KvroomError("trace", f"session {number:,} or before", what, fix)
            reached = arrival
            return self._of_session(progress, place, arrival - origin)

        number = 0
        for number, graph in enumerate(sessions, 1):
            progress = SessionProgress(graph)
            for place in progress.roots():
                heappush(coming, (graph.requests[place].arrival_ps, number, place, progress))
            if len(coming) > HELD_SESSIONS:
                yield earliest()
        while coming:
            yield earliest()

    def follow(self, request: ServedRequest, now: int) -> Iterator[ServedRequest]:
        """Who comes because ``request`` is done or dropped: those of its session that waited for it last, or
        the next of a closed loop where the session is over. Of a session nothing comes after one that is
        dropped."""
        progress, count = request.session, self.count
        if progress is not None and request.first_token_ps >= 0:
            for place in progress.answered(request.session_place):
                think_ps = progress.requests[place].think_ps
                after = self._of_session(progress, place, now + think_ps)
                after.replica = request.replica
                yield after
        if self._users and self.count == count:
            session = next(self._sessions, None)
            if session is not None:
                after = self._first_of(session, now)
                after.replica = request.replica
                yield after

    def _first_of(self, session: tuple[Request, ...], arrival_ps: int) -> ServedRequest:
        if len(session) == 1:
            return self._served(session[0], arrival_ps)
        return self._of_session(SessionProgress(RequestGraph.chain(session)), 0, arrival_ps)

    def _of_session(self, progress: SessionProgress, place: int, arrival_ps: int) -> ServedRequest:
        request = self._served(progress.requests[place], arrival_ps)
        request.session, request.session_place = progress, place
        return request

    def _served(self, row: Request, arrival_ps: int) -> ServedRequest:
        request = ServedRequest(self.count, arrival_ps, row.input_tokens, row.output_tokens)
        if self.naming and row.prefix is not None:
            request.extents = self.naming.extents(row)
        if row.priority:
            request.priority = row.priority
        if row.session is not None:
            request.session_id = row.session
        self.count += 1
        return request
