"""From a trace or a made-up workload to the requests that a simulation serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.workloads.requests import HashIds, Request, TokenIds, TokenRuns, in_order
from kvroom.workloads.synthetic import ONE, Synthetic


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
    made-up session when the one before it is answered and thought about.

    ``naming``: how what they share is named (None: nothing is shared). ``count`` is how many came.
    """

    def __init__(self, source: Iterable[Request], naming: Naming | None) -> None:
        self.naming = naming
        self.count = 0
        self._source = source
        self._sessions: Iterator[tuple[Request, ...]] = iter(())
        self._users = 0
        if isinstance(source, Synthetic):
            if not (source.prefix.tokens or source.turns != ONE or source.agent != ONE):
                self.naming = None  # nothing is said twice
            self._sessions = source.sessions()
            self._users = source.arrivals.users if source.arrivals.kind == "closed" else 0

    @property
    def waits(self) -> bool:
        """Whether the source leaves open when requests come."""
        return isinstance(self._source, Synthetic)

    @property
    def follows(self) -> bool:
        """Whether requests may come because others are answered."""
        source = self._source
        return isinstance(source, Synthetic) and (
            self._users > 0 or source.turns != ONE or source.agent != ONE
        )

    def __iter__(self) -> Iterator[ServedRequest]:
        if not self.waits:
            for row in in_order(self._source):
                yield self._served(row, row.arrival_ps)
            return
        first = islice(self._sessions, self._users) if self._users else self._sessions
        for session in first:
            yield self._first_of(session, session[0].arrival_ps)

    def follow(self, request: ServedRequest, now: int) -> ServedRequest | None:
        """Who comes because ``request`` is done or dropped: the next of its session, or of a closed loop."""
        rest = request.session
        row = None if rest is None or request.first_token_ps < 0 else next(rest, None)
        if row is not None:
            after = self._served(row, now + row.think_ps)
            after.session = rest
        elif self._users:
            session = next(self._sessions, None)
            if session is None:
                return None
            after = self._first_of(session, now)
        else:
            return None
        after.replica = request.replica
        return after

    def _first_of(self, session: tuple[Request, ...], arrival_ps: int) -> ServedRequest:
        request = self._served(session[0], arrival_ps)
        if len(session) > 1:
            request.session = iter(session[1:])
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
