"""From a trace or a made-up workload to the requests that a simulation serves."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from kvroom.errors import KvroomError
from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.part import Part
from kvroom.workloads.requests import (
    HashIds,
    Request,
    RequestGraph,
    SessionProgress,
    TokenIds,
    TokenRuns,
    in_order,
)
from kvroom.workloads.sessions import (
    LinkedRow,
    SessionOrder,
    SessionPool,
    as_graph,
    by_arrival,
)
from kvroom.workloads.synthetic import Session, Synthetic
from kvroom.workloads.traces.reader import Trace

HELD_SESSIONS = 4096
"""How many sessions of a trace, or rows that begin one, are held back to put them in order."""
LIVE_SESSIONS = 200_000
"""Sessions of a log that are remembered, the latest; what comes of others begins one anew."""


class Naming:
    """How the blocks of prompts are named: one name for ``unit`` blocks of ``block_tokens``.

    ``numbered``: a token id is never shared without all before it, as in made-up workloads; then a block's
    last id names it. ``shared_tokens``: others hold no more of a prompt than so many at its beginning, which
    are one run (None: any of it); blocks behind them have no names.
    """

    def __init__(
        self,
        block_tokens: int,
        hash_tokens: int | None = None,
        *,
        numbered: bool = False,
        shared_tokens: int | None = None,
    ) -> None:
        self.block_tokens = block_tokens
        self.numbered = numbered
        self.shared_tokens = shared_tokens
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
                if prefix.answer:
                    whole = tokens // prefix.tokens
                    prefix = HashIds(_behind(prefix.ids[:whole], prefix.answer), prefix.tokens)
                    tokens += request.output_tokens
                if prefix.tokens == self.unit * size:
                    names = prefix.ids[:]
                    return RequestExtents(names, min(tokens // size, len(names) * self.unit))
                names = prefix.block_keys(size, tokens)
            case TokenIds():
                tokens += len(prefix.answer or ())
                names = prefix.block_keys(size, tokens)
            case TokenRuns() if self.shared_tokens is not None:
                first = prefix.prompt[0][0]
                names = range(first + size - 1, first + self.shared_tokens, size)
            case TokenRuns():
                tokens += request.output_tokens
                names = last_ids(prefix, size) if self.numbered else prefix.block_keys(size, tokens)
        return RequestExtents(names, min(tokens // size, len(names)))


def _behind(ids: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    """``ids`` and ``more`` as one; arrays stay arrays, whose numbers are made when they are looked at."""
    if isinstance(ids, array) and isinstance(more, array):
        return ids + more
    return [*ids, *more]


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
    session when all that it waits for are answered and thought about.

    ``naming``: how what they share is named (None: nothing is shared). ``count`` is how many came.
    ``linked``: rows of a trace that name their sessions wait for each other; without it they come when they
    were recorded. ``part``: only what comes to that part of a fleet.
    """

    def __init__(
        self,
        source: Iterable[Request],
        naming: Naming | None,
        *,
        linked: bool = True,
        part: Part | None = None,
    ) -> None:
        self.naming = naming
        self.count = 0
        self._part = part
        self._turn = -1
        self._source = source
        self._sessions: Iterator[Session] = iter(())
        self._graphs = linked and getattr(source, "has_sessions", False)
        self._links = linked and not self._graphs and getattr(source, "names_sessions", False)
        self._live: OrderedDict[int | str, SessionOrder[LinkedRow]] = OrderedDict()
        self._named: OrderedDict[str, LinkedRow] = OrderedDict()
        self._made = isinstance(source, Synthetic | SessionPool)
        self._users = 0
        self._chains = False
        if isinstance(source, Synthetic):
            if not (source.prefix.tokens or source.chains):
                self.naming = None  # nothing is said twice
            self._sessions = source.sessions()
            self._users = source.arrivals.users if source.arrivals.kind == "closed" else 0
            self._chains = self._users > 0 or source.chains
        elif isinstance(source, SessionPool):
            self._sessions = iter(source.sessions())
            self._users = source.users
            self._chains = True

    @property
    def waits(self) -> bool:
        """Whether arrival times are only known while the simulation runs."""
        return self._graphs or self._links or self._made

    @property
    def follows(self) -> bool:
        """Whether requests may come because others are answered."""
        return self._graphs or self._links or self._chains

    @property
    def forks(self) -> bool:
        """Whether several requests of one session may wait for no other."""
        return self._graphs or self._links

    @property
    def closed(self) -> bool:
        """Whether a new session starts because another one has ended."""
        return self._users > 0

    def _elsewhere(self, session: int | str | None) -> bool:
        """Whether the next request that waits for none comes to another part."""
        part = self._part
        if part is None:
            return False
        self._turn += 1
        return not part.takes(self._turn, session, follows=self.follows)

    def __iter__(self) -> Iterator[ServedRequest]:
        if self._graphs:
            yield from self._started(self._source.sessions())  # type: ignore[attr-defined]
        elif self._made:
            first = islice(self._sessions, self._users) if self._users else self._sessions
            yield from self._begun(first)
        elif self._links:
            yield from self._linked(self._ordered())
        else:
            for row in self._ordered():
                if self._elsewhere(row.session):
                    self.count += 1
                else:
                    yield self._served(row, row.arrival_ps)

    def _ordered(self) -> Iterator[Request]:
        """The rows by arrival; what comes too late is skipped where the trace's bad lines are."""
        source = self._source
        if getattr(source, "has_sessions", False):
            return by_arrival(source.sessions())  # type: ignore[attr-defined]
        late = source.skip_late if isinstance(source, Trace) and source.skip_bad_lines else None
        return in_order(source, late=late)

    def _begun(self, sessions: Iterable[Session]) -> Iterator[ServedRequest]:
        """The first requests of made-up sessions, by arrival: open ones come in order, those of a closed
        loop all at the start, or in the midst of their sessions."""
        if not getattr(self._source, "midway", False):
            for session in sessions:
                if self._part is not None and self._elsewhere(next(iter(session)).session):
                    self.count += 1
                else:
                    yield from self._firsts(session, 0)
            return
        coming: list[ServedRequest] = []
        for session in sessions:
            coming += self._firsts(session, 0)
        coming.sort(key=lambda request: request.arrival)
        yield from coming

    def _linked(self, rows: Iterable[Request]) -> Iterator[ServedRequest]:
        """The rows that wait for none, by arrival; every other one is left with those of its session that it
        waits for. Rows are read ahead, so that they are there before those are answered."""
        coming: list[tuple[int, int, LinkedRow]] = []
        number = reached = 0

        def earliest() -> Iterator[ServedRequest]:
            nonlocal reached
            arrival, _, row = heappop(coming)
            reached = max(reached, arrival)
            assert row.row is not None
            if not self._elsewhere(row.row.session):
                yield self._of_row(row, reached)

        for number, row in enumerate(rows, 1):
            linked = self._link(row)
            if not linked.left:
                heappush(coming, (linked.earliest_ps(row.arrival_ps), number, linked))
            while len(coming) > HELD_SESSIONS:
                yield from earliest()
        while coming:
            yield from earliest()

    def _link(self, row: Request) -> LinkedRow:
        """``row`` with those of its session that it waits for."""
        linked = LinkedRow(row)
        if row.session is None:
            return linked
        order = self._live.pop(row.session, None) or SessionOrder()
        self._live[row.session] = order
        if row.after is None:
            waits, linked.think_ps, linked.since_ps = order.add(linked, row)
        else:
            waits = [self._named[name] for name in row.after if name in self._named]
            linked.think_ps, linked.since_ps = row.think_ps, row.since_ps
        if row.request_id is not None:
            self._named[row.request_id] = linked
            if len(self._named) > LIVE_SESSIONS:
                self._named.popitem(last=False)
        linked.follows = bool(waits)
        for earlier in waits:
            if earlier.over_ps < 0:
                earlier.followers.append(linked)
                linked.left += 1
            else:
                linked.heard(earlier.over_ps, earlier.sent_ps)
        if len(self._live) > LIVE_SESSIONS:
            self._live.popitem(last=False)
        return linked

    def _of_row(self, row: LinkedRow, arrival_ps: int) -> ServedRequest:
        assert row.row is not None
        request = self._served(row.row, arrival_ps)
        row.sent_ps = arrival_ps
        if row.row.session is not None:
            request.session = row
        row.row = None  # its session remembers that it was, not what it held
        return request

    def _started(self, sessions: Iterable[RequestGraph]) -> Iterator[ServedRequest]:
        """The requests of ``sessions`` that wait for none, by arrival, counted from the first."""
        coming: list[tuple[int, int, int, SessionProgress]] = []
        origin: int | None = None
        reached = 0

        def earliest() -> Iterator[ServedRequest]:
            nonlocal origin, reached
            arrival, _, place, progress = heappop(coming)
            origin = arrival if origin is None else origin
            if arrival < reached:
                fix = "Sort the trace by when its sessions begin."
                what = f"begins more than {HELD_SESSIONS:,} sessions too late in the file"
                raise KvroomError("trace", f"session {number:,} or before", what, fix)
            reached = arrival
            if not self._elsewhere(progress.requests[place].session):
                yield self._of_session(progress, place, arrival - origin)

        number = 0
        for number, graph in enumerate(sessions, 1):
            progress = SessionProgress(graph)
            for place in progress.roots():
                heappush(coming, (graph.requests[place].arrival_ps, number, place, progress))
            if len(coming) > HELD_SESSIONS:
                yield from earliest()
        while coming:
            yield from earliest()

    def follow(self, request: ServedRequest, now: int) -> Iterator[ServedRequest]:
        """Who comes because ``request`` is done or dropped: those of its session that waited for it last, and
        the first of the next session of a closed loop where this one is over. Of a session nothing comes that
        waits for one that is dropped."""
        progress, answered = request.session, request.first_token_ps >= 0
        if isinstance(progress, LinkedRow):
            progress.over_ps = now
            waiting, progress.followers = progress.followers, []
            for linked in waiting if answered else ():
                linked.heard(now, progress.sent_ps)
                linked.left -= 1
                if not linked.left:
                    yield self._after(request, self._of_row(linked, linked.earliest_ps(now)))
            return
        if progress is not None:
            for place in progress.answered(request.session_place) if answered else ():
                row = progress.requests[place]
                at = max(now + row.think_ps, request.arrival + row.since_ps)
                yield self._after(request, self._of_session(progress, place, at))
            progress.out -= 1
        if self._users and (progress is None or not progress.out):
            session = next(self._sessions, None)
            if session is not None:
                begin = session.begin_ps if isinstance(session, RequestGraph) else 0
                for first in self._firsts(session, now - begin):
                    yield self._after(request, first)

    def _after(self, request: ServedRequest, follower: ServedRequest) -> ServedRequest:
        follower.replica = request.replica
        return follower

    def _firsts(self, session: Session, offset_ps: int) -> Iterator[ServedRequest]:
        """The requests of ``session`` that wait for none, ``offset_ps`` later than it says."""
        if len(session) == 1:
            (only,) = session
            yield self._served(only, only.arrival_ps + offset_ps)
            return
        graph = as_graph(session)
        progress = SessionProgress(graph)
        for place in progress.roots():
            yield self._of_session(progress, place, graph.requests[place].arrival_ps + offset_ps)

    def _of_session(self, progress: SessionProgress, place: int, arrival_ps: int) -> ServedRequest:
        request = self._served(progress.requests[place], arrival_ps)
        request.session, request.session_place = progress, place
        progress.out += 1
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
