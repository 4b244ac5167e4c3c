"""Sessions out of rows that name theirs, and sessions so many at a time.

A row of a log says when a request came, of which session it is and, at best, how long its answer took.
What it waited for follows from that: all that had ended when it came and that none of those waited for. So a
chat is a chain, and sub-agents that run beside each other fork and join. Where nobody says how long answers
took, a request waits for the one before it and keeps its recorded distance from that.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.workloads.draws import Draws
from kvroom.workloads.requests import HashIds, Request, RequestGraph, TokenRuns, joined, placed

Item = TypeVar("Item")
MOST_POOLED = 200_000
MOST_POOLED_IDS = 2**25
"""Of a trace so much is held to be played so many sessions at a time: requests, and hash ids."""
MOST_HELD = 4096
"""Sessions that are held back to put their requests in order."""
BLOCK_TOKENS = 16
MOST_CONTEXTS = 100_000
"""Sessions whose context is remembered."""
FIRST_MADE_ID = 2**62
"""Ids that are made up are above all that a trace is likely to have."""
ODD = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
WORD = 8
"""Bytes of an id."""


class _Step(Generic[Item]):
    """A request of a session that others may wait for: it ended at ``end_ps``, and whoever comes after
    ``covered_ps`` waits for one that waited for it."""

    __slots__ = ("covered_ps", "end_ps", "item", "start_ps", "timed")

    def __init__(self, item: Item, request: Request) -> None:
        self.item = item
        self.start_ps = request.arrival_ps
        self.end_ps = request.arrival_ps + request.took_ps
        self.covered_ps: int | None = None
        self.timed = request.took_ps > 0


class SessionOrder(Generic[Item]):
    """What the next request of one session waits for; requests are added in order of arrival."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[_Step[Item]] = []

    def add(self, item: Item, request: Request) -> tuple[list[Item], int, int]:
        """The items of those that ``request`` waits for, how long after the last answer it comes, and how
        long after that one came at least; ``item`` stands for it from now on."""
        start = request.arrival_ps
        live = [s for s in self._open if s.covered_ps is None or s.covered_ps > start]
        waits = [step for step in live if step.end_ps <= start]
        new_step = _Step(item, request)
        for step in waits:
            if step.covered_ps is None or new_step.end_ps < step.covered_ps:
                step.covered_ps = new_step.end_ps
        self._open = [*live, new_step]
        if not waits:
            return [], 0, 0
        last = max(waits, key=lambda step: step.end_ps)
        think = start - last.end_ps if last.timed else 0
        since = 0 if last.timed else start - last.start_ps
        return [step.item for step in waits], think, since


class LinkedRow:
    """A row of a log whose session is played: what it still waits for (``left``), who waits for it, when it
    was sent and was over (−1: not yet)."""

    __slots__ = (
        "_heard_ps",
        "_last_sent_ps",
        "followers",
        "follows",
        "left",
        "over_ps",
        "row",
        "sent_ps",
        "since_ps",
        "think_ps",
    )

    def __init__(self, row: Request) -> None:
        self.row: Request | None = row
        self.left = 0
        self.follows = False
        self.followers: list[LinkedRow] = []
        self.sent_ps = self.over_ps = -1
        self.think_ps = self.since_ps = 0
        self._heard_ps = self._last_sent_ps = 0

    def heard(self, over_ps: int, sent_ps: int) -> None:
        """One that it waits for, sent at ``sent_ps``, is over."""
        if over_ps >= self._heard_ps:
            self._heard_ps, self._last_sent_ps = over_ps, sent_ps

    def earliest_ps(self, otherwise: int) -> int:
        """When it comes: ``otherwise`` where it waits for none."""
        if not self.follows:
            return otherwise
        return max(self._heard_ps + self.think_ps, self._last_sent_ps + self.since_ps)


class SessionContexts:
    """Contexts of sessions of which a log tells lengths only, as hash ids of ``tokens`` tokens each.

    A prompt begins with what was ``cached`` of it, where that is told, else with the prompt and the answer
    before it, unless it is shorter: then its context was compacted or dropped and begins anew. Only whole ids
    are shared.
    """

    def __init__(self, tokens: int = BLOCK_TOKENS) -> None:
        self.tokens = tokens
        self._known: OrderedDict[int | str, tuple[array[int], int]] = OrderedDict()
        self._next = FIRST_MADE_ID

    def held(self, session: int | str) -> int:
        """The tokens of a session's latest prompt and answer; 0 where it is new."""
        return self._known.get(session, ((), 0))[1]

    def prefix(
        self, request: Request, cached: int | None = None, begins: Sequence[int] = ()
    ) -> HashIds:
        """What ``request`` holds; its session remembers it. A new session's first ids are ``begins``."""
        assert request.session is not None
        prompt, size = request.input_tokens, self.tokens
        ids, context = self._known.pop(request.session, (array("Q"), 0))
        if not context and begins:
            ids, context = array("Q", [i & MASK for i in begins]), prompt
        grown = context if prompt >= context else 0
        shared = grown if cached is None else min(cached, context)
        shared_ids = ids[: min(shared, prompt) // size]
        whole = -(-(prompt + request.output_tokens) // size)
        shared_ids.extend(range(self._next, self._next + whole - len(shared_ids)))
        self._next += whole
        self._known[request.session] = shared_ids, prompt + request.output_tokens
        if len(self._known) > MOST_CONTEXTS:
            self._known.popitem(last=False)
        own = prompt // size
        return HashIds(shared_ids[:own], size, shared_ids[own:])


def by_arrival(sessions: Iterable[RequestGraph]) -> Iterator[Request]:
    """The requests of ``sessions`` by arrival, counted from the first, whatever they wait for; equal arrivals
    keep the file's order. As many sessions are held back as MOST_HELD, or MOST_POOLED_IDS hash ids:
    KvroomError where one begins earlier than what has come by then."""
    coming: list[tuple[int, int, int, Request]] = []
    begins: list[int] = []
    ids, origin, reached = 0, None, 0

    def taken(until: int | None) -> Iterator[Request]:
        nonlocal ids, origin, reached
        while coming and (until is None or coming[0][0] <= until):
            arrival, _, _, request = heappop(coming)
            ids -= ids_of(request)
            origin = arrival if origin is None else origin
            reached = arrival
            yield placed(request, arrival - origin)

    for number, graph in enumerate(sessions, 1):
        if graph.begin_ps < reached:
            fix = "Sort the trace by when its sessions begin."
            what = "begins earlier than requests that had to be sent before it was read"
            raise KvroomError("trace", f"session {number:,}", what, fix)
        heappush(begins, graph.begin_ps)
        for place, request in enumerate(graph.requests):
            ids += ids_of(request)
            heappush(coming, (request.arrival_ps, number, place, request))
        while begins and (len(begins) > MOST_HELD or ids > MOST_POOLED_IDS):
            yield from taken(heappop(begins))
    yield from taken(None)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The sessions of a trace, by their beginnings; ``whole`` is false where it held more than is kept."""

    graphs: tuple[RequestGraph, ...]
    whole: bool


def grouped(rows: Iterable[Request | RequestGraph]) -> Grouped:
    """The sessions that ``rows`` (in order of arrival) make up; a row of no session is one of its own."""
    order: dict[object, SessionOrder[int]] = {}
    named: dict[str, int] = {}
    members: dict[object, tuple[list[Request], list[tuple[int, ...]]]] = {}
    count = ids = 0
    whole = True
    for number, row in enumerate(rows):
        if isinstance(row, RequestGraph):
            members[number, "graph"] = list(row.requests), list(row.after)
            count += len(row.requests)
            ids += sum(map(ids_of, row.requests))
        else:
            key: object = (number, None) if row.session is None else row.session
            requests, after = members.setdefault(key, ([], []))
            place = len(requests)
            if row.after is None:
                waits, think, since = order.setdefault(key, SessionOrder()).add(place, row)
                requests.append(row._replace(think_ps=think, since_ps=since))
                after.append(tuple(waits))
            else:
                requests.append(row)
                after.append(tuple(named[name] for name in row.after if name in named))
            if row.request_id is not None:
                named[row.request_id] = place
            count += 1
            ids += ids_of(row)
        if count >= MOST_POOLED or ids >= MOST_POOLED_IDS:
            whole = False
            break
    graphs = (RequestGraph(tuple(requests), tuple(after)) for requests, after in members.values())
    return Grouped(tuple(graphs), whole)


def ids_of(request: Request) -> int:
    """How many ids a prompt is known by."""
    prefix = request.prefix
    if prefix is None:
        return 0
    return len(prefix.ids if isinstance(prefix, HashIds) else prefix.prompt)


class SessionPool:
    """Sessions of ``graphs``, ``users`` at a time: when one is over the next begins, in an order drawn by
    ``seed``, until ``requests`` have been sent.

    Those that are there at first are in their midst, at a time drawn evenly, so that the load is that of any
    moment. A session that comes again has a context of its own but for what several sessions share.
    """

    def __init__(
        self,
        graphs: Sequence[RequestGraph],
        users: int,
        requests: int,
        *,
        seed: int = 0,
        hash_tokens: int | None = None,
        midway: bool = True,
    ) -> None:
        self.graphs = graphs
        self.users = users
        self.requests = requests
        self.seed = seed
        self.hash_tokens = hash_tokens
        self.midway = midway
        self.notes: list[str] = []
        """What was met and assumed when they were read."""
        self.limit_tokens: int | None = None
        """All prompts are known to be shorter (None: not known)."""
        self.pauses = 1.0
        """How long they think and wait for tools, over what was recorded."""
        self._common: frozenset[int] | None = None

    def at_once(self, users: int, requests: int, seed: int) -> SessionPool:
        """The same sessions, so many at a time."""
        pool = SessionPool(
            self.graphs,
            users,
            requests,
            seed=seed,
            hash_tokens=self.hash_tokens,
            midway=self.midway,
        )
        pool._common = self.common
        pool.notes, pool.limit_tokens = self.notes, self.limit_tokens
        pool.pauses = self.pauses
        return pool

    def of_graphs(self, graphs: Sequence[RequestGraph], limit_tokens: int | None) -> SessionPool:
        """The same of some of its sessions, or parts of them, whose prompts are shorter than the limit."""
        pool = SessionPool(
            graphs,
            self.users,
            self.requests,
            seed=self.seed,
            hash_tokens=self.hash_tokens,
            midway=self.midway,
        )
        pool.notes, pool.limit_tokens = self.notes, limit_tokens
        pool.pauses = self.pauses
        return pool

    def at_seed(self, seed: int) -> SessionPool:
        """The same, drawn by another seed."""
        return self.at_once(self.users, self.requests, seed)

    @property
    def common(self) -> frozenset[int]:
        """The ids that more than one session holds."""
        if self._common is None:
            seen: set[int] = set()
            twice: set[int] = set()
            for graph in self.graphs:
                own: set[int] = set()
                for request in graph.requests:
                    if isinstance(request.prefix, HashIds):
                        own.update(request.prefix.ids)
                twice |= own & seen
                seen |= own
            self._common = frozenset(twice)
        return self._common

    def sessions(self) -> Iterator[RequestGraph]:
        """The sessions, one after the other, each counted from its beginning: who takes them sends ``users``
        at a time."""
        draws, left, number = Draws(self.seed, "sessions"), self.requests, 0
        moments = Draws(self.seed, "moments")
        while left > 0:
            for place in shuffled(len(self.graphs), draws):
                graph = renamed(self.graphs[place], number, self.common)
                if number < self.users and self.midway:
                    graph = from_moment(graph, moments.uniform())
                else:
                    graph = from_moment(graph, 0.0)
                if self.pauses != 1:
                    graph = paused(graph, self.pauses)
                if len(graph.requests) > left:
                    graph = until(graph, left)
                number += 1
                left -= len(graph.requests)
                yield graph
                if left <= 0:
                    return

    def __iter__(self) -> Iterator[Request]:
        """All requests, each session begun when one before it is over by its recorded times."""
        lanes = [0] * self.users
        coming: list[tuple[int, int, Request]] = []
        sent = 0
        for graph in self.sessions():
            begun = lanes[0]
            for request in graph:
                at = begun + request.arrival_ps
                sent += 1
                heappush(coming, (at, sent, placed(request, at)))
            heapreplace(lanes, begun + graph.end_ps)
            while coming and coming[0][0] <= lanes[0]:
                yield heappop(coming)[2]
        while coming:
            yield heappop(coming)[2]


def shuffled(count: int, draws: Draws) -> list[int]:
    """0 … count − 1 in an order that ``draws`` gives (Fisher and Yates)."""
    places = list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(draws.uniform() * (last + 1))
        places[last], places[other] = places[other], places[last]
    return places


def paused(graph: RequestGraph, share: float) -> RequestGraph:
    """``graph`` with pauses between an answer and what follows it that last ``share`` of what they did."""
    rows = tuple(
        row._replace(think_ps=int(row.think_ps * share), since_ps=int(row.since_ps * share))
        for row in graph.requests
    )
    return RequestGraph(rows, graph.after)


def renamed(graph: RequestGraph, number: int, common: frozenset[int]) -> RequestGraph:
    """``graph`` as session ``number``: its own ids are no other session's."""
    mask = (number + 1) * ODD & MASK
    rows: list[Request] = []
    before = changed = b""  # of the prompt before: most begin with it
    shared = 0
    for request in graph.requests:
        prefix = request.prefix
        if isinstance(prefix, HashIds):
            ids = prefix.ids
            assert isinstance(ids, array)
            data = ids.tobytes()
            same = _common_bytes(before, data)
            shared = min(shared, same // WORD)
            if common and shared * WORD == same:  # all of it is others' too, and more may be
                while shared < len(ids) and ids[shared] in common:
                    shared += 1
                same, changed = shared * WORD, data
            before, changed = data, changed[:same] + masked(data[same:], mask)
            own = array("Q")
            own.frombytes(changed)
            answer = prefix.answer
            if isinstance(answer, array) and answer:
                answer = array("Q", masked(answer.tobytes(), mask))
            prefix = HashIds(own, prefix.tokens, answer)
        rows.append(request._replace(prefix=prefix, session=number))
    return RequestGraph(tuple(rows), graph.after)


def _common_bytes(before: bytes, after: bytes) -> int:
    """Bytes of the whole ids that ``after`` begins with as ``before`` does: all of ``before``, all but its
    last id, or none, as far as this looks."""
    for end in (len(before), len(before) - WORD):
        if end > 0 and after.startswith(before[:end]):
            return end
    return 0


def masked(data: bytes, mask: int) -> bytes:
    """Ids, each changed by ``mask`` (exclusive or), all at once."""
    masks = int.from_bytes(mask.to_bytes(WORD, sys.byteorder) * (len(data) // WORD), "little")
    return (int.from_bytes(data, "little") ^ masks).to_bytes(len(data), "little")


def from_moment(graph: RequestGraph, share: float) -> RequestGraph:
    """What is left of ``graph`` when ``share`` of its recorded time is over, counted from then: who waited
    for an earlier request only comes at its recorded time."""
    moment = graph.begin_ps + int((graph.end_ps - graph.begin_ps) * share)
    places = [i for i, request in enumerate(graph.requests) if request.arrival_ps >= moment]
    if not places:
        places = [max(range(len(graph.requests)), key=lambda i: graph.requests[i].arrival_ps)]
        moment = graph.requests[places[0]].arrival_ps
    return _part(graph, places, moment)


def until(graph: RequestGraph, most: int) -> RequestGraph:
    """The first ``most`` requests of ``graph``."""
    places = sorted(range(len(graph.requests)), key=lambda i: graph.requests[i].arrival_ps)[:most]
    return _part(graph, sorted(places))


def _part(graph: RequestGraph, places: Sequence[int], origin_ps: int = 0) -> RequestGraph:
    anew = {old: new for new, old in enumerate(places)}
    after = tuple(tuple(anew[w] for w in graph.after[old] if w in anew) for old in places)
    rows = (graph.requests[old] for old in places)
    return RequestGraph(tuple(placed(row, row.arrival_ps - origin_ps) for row in rows), after)


def as_graph(session: Sequence[Request] | RequestGraph) -> RequestGraph:
    """A session as a graph: a chain, unless it is one already."""
    return session if isinstance(session, RequestGraph) else RequestGraph.chain(session)


def shared_tokens(before: Request, after: Request) -> int:
    """Leading tokens of ``after`` that ``before`` left in the cache: its prompt and answer, as runs."""
    first, second = before.prefix, after.prefix
    if not isinstance(first, TokenRuns) or not isinstance(second, TokenRuns):
        return 0
    shared = 0
    for one, other in zip(
        joined((*first.prompt, *first.answer)), joined(second.prompt), strict=False
    ):
        if one[0] != other[0]:
            break
        shared += min(one[1], other[1])
        if one[1] != other[1]:
            break
    return shared


def held_sessions(graphs: Sequence[RequestGraph]) -> list[RequestGraph]:
    """``graphs`` with what is known of prompts as arrays of hash ids, the only form that can be renamed."""
    return [
        RequestGraph(tuple(map(as_ids, graph.requests)), graph.after)
        for graph in graphs
        if graph.requests
    ]


def as_ids(request: Request) -> Request:
    """``request`` with what is known of its prompt as an array of hash ids."""
    prefix = request.prefix
    if prefix is None or (isinstance(prefix, HashIds) and isinstance(prefix.ids, array)):
        return request
    if isinstance(prefix, HashIds):
        ids = array("Q", [i & MASK for i in prefix.ids])
        return request._replace(prefix=HashIds(ids, prefix.tokens))
    keys = array("Q", prefix.block_keys(BLOCK_TOKENS, request.input_tokens))
    return request._replace(prefix=HashIds(keys, BLOCK_TOKENS))
