"""One request: when it comes, how long it is, and what its prompt has in common with others.

Time is an integer count of picoseconds, so that sums are exact on every platform. What a prompt holds
is known in one of three ways, and each names the blocks of any size that a cache would keep: hash ids
(one for so many tokens, each standing for all that comes before it), token ids, or runs of consecutive
token ids. A prompt of which nothing is known shares nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.units import ceil_div

PS_PER_S = 10**12
REORDER_WINDOW = 65_536
"""How many requests are held back to put a stream in order of arrival."""
MOST_IDS = 2**24
"""Of their hash ids, tokens or runs: some 128 MiB."""
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class HashIds:
    """One id for every ``tokens`` tokens of a prompt; an id is never shared without its predecessors.

    There may be an id for the partial end of the prompt, or none. ``answer`` are those behind the prompt's
    whole ones that its answer fills, as far as a later prompt shows them.
    """

    ids: Sequence[int]
    tokens: int
    answer: Sequence[int] = ()

    def block_keys(self, block_tokens: int, tokens: int) -> Sequence[int]:
        """Names of the blocks that the first ``tokens`` tokens fill or begin.

        A block is named by the id that covers its last token. A name that also depends on tokens
        behind the block can miss a shared block, never invent one. The list ends where ids do.
        """
        if block_tokens == self.tokens:
            return self.ids[: ceil_div(tokens, block_tokens)]
        keys: list[int] = []
        for index in range(ceil_div(tokens, block_tokens)):
            last = min((index + 1) * block_tokens, tokens) - 1
            covering = last // self.tokens
            if covering >= len(self.ids):
                break
            keys.append(self.ids[covering] << 40 | index)
        return keys


@dataclass(frozen=True, slots=True)
class TokenIds:
    """The token ids (0 … 2^32 − 1) of a prompt and, where they were recorded, of its answer."""

    prompt: array[int]
    answer: array[int] | None = None

    def block_keys(self, block_tokens: int, tokens: int) -> Sequence[int]:
        """Names of the blocks that the first ``tokens`` tokens fill or begin: chained digests."""
        ids = self.prompt + self.answer if self.answer else self.prompt
        from hashlib import blake2b  # where a trace has token ids

        ids = ids[:tokens]
        keys: list[int] = []
        digest = b""
        for start in range(0, len(ids), block_tokens):
            text = digest + ids[start : start + block_tokens].tobytes()
            digest = blake2b(text, digest_size=8).digest()
            keys.append(int.from_bytes(digest, "little"))
        return keys


@dataclass(frozen=True, slots=True)
class TokenRuns:
    """Token ids as runs (first, count) of consecutive ones, of a prompt and of its answer."""

    prompt: tuple[tuple[int, int], ...]
    answer: tuple[tuple[int, int], ...] = ()

    def block_keys(self, block_tokens: int, tokens: int) -> Sequence[int]:
        """Names of the blocks that the first ``tokens`` tokens fill or begin: chained 64-bit mixes."""
        keys: list[int] = []
        key, room = 0, block_tokens
        left = tokens
        for first, count in joined(chain(self.prompt, self.answer)):
            end = first + min(count, left)
            left -= end - first
            while first < end:
                taken = min(room, end - first)
                key = _mixed(_mixed(key ^ first) ^ taken)
                first += taken  # noqa: PLW2901
                room -= taken
                if not room:
                    keys.append(key)
                    room = block_tokens
        if room < block_tokens:
            keys.append(key)
        return keys


def joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ids in as few runs as possible: equal ids give equal runs."""
    out: list[tuple[int, int]] = []
    for first, count in runs:
        if not count:
            continue
        if out and sum(out[-1]) == first:
            out[-1] = (out[-1][0], out[-1][1] + count)
        else:
            out.append((first, count))
    return out


def _mixed(key: int) -> int:
    """A 64-bit finaliser (two multiply and shift rounds): equal in, equal out, else all bits differ."""
    key = (key + 0x9E3779B97F4A7C15) & _MASK
    key = ((key ^ key >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    key = ((key ^ key >> 27) * 0x94D049BB133111EB) & _MASK
    return key ^ key >> 31


Prefix = HashIds | TokenIds | TokenRuns


class Request(NamedTuple):
    """One request.

    ``arrival_ps`` counts from the first request. Requests of one ``session`` follow each other: each comes
    ``think_ps`` after what it waits for is answered, and no sooner than ``since_ps`` after that came; in a
    made-up workload its ``arrival_ps`` is the earliest that can be. ``took_ps`` is how long its answer took
    where that was recorded. ``after`` are the ids (``request_id``) of what it waits for, where the trace says
    so. ``output_tokens`` may be 0: nothing but the prompt is processed. ``priority`` is the engine's: lower
    goes first.
    """

    arrival_ps: int
    input_tokens: int
    output_tokens: int
    prefix: Prefix | None = None
    session: int | str | None = None
    priority: int = 0
    think_ps: int = 0
    since_ps: int = 0
    took_ps: int = 0
    request_id: str | None = None
    after: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestGraph:
    """The requests of one session, and which of them each waits for (``after``, by place, earlier ones).

    A request without any is sent when it arrives; every other ``think_ps`` after the last that it waits
    for is answered.
    """

    requests: tuple[Request, ...]
    after: tuple[tuple[int, ...], ...]

    @classmethod
    def chain(cls, requests: Iterable[Request]) -> RequestGraph:
        """Each request waits for the one before it."""
        row = tuple(requests)
        return cls(row, tuple((index - 1,) if index else () for index in range(len(row))))

    def __iter__(self) -> Iterator[Request]:
        """The requests by arrival."""
        return iter(sorted(self.requests, key=itemgetter(0)))

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def begin_ps(self) -> int:
        """When its first request comes."""
        return min(request.arrival_ps for request in self.requests)

    @property
    def end_ps(self) -> int:
        """When its last answer is there, as far as it was recorded how long answers took."""
        return max(request.arrival_ps + request.took_ps for request in self.requests)


class SessionProgress:
    """How far a session is: what each of its requests still waits for."""

    __slots__ = ("_followers", "_left", "out", "requests")

    def __init__(self, graph: RequestGraph) -> None:
        self.requests = graph.requests
        self.out = 0
        """Of its requests so many are sent and not over."""
        self._left = [len(waits) for waits in graph.after]
        self._followers: list[list[int]] = [[] for _ in graph.after]
        for place, waits in enumerate(graph.after):
            for earlier in waits:
                self._followers[earlier].append(place)

    def roots(self) -> list[int]:
        """The places of those that wait for none."""
        return [place for place, left in enumerate(self._left) if not left]

    def answered(self, place: int) -> Iterator[int]:
        """The places of those that waited for this one last."""
        for later in self._followers[place]:
            self._left[later] -= 1
            if not self._left[later]:
                yield later


def in_order(
    requests: Iterable[Request],
    window: int = REORDER_WINDOW,
    late: Callable[[KvroomError], None] | None = None,
) -> Iterator[Request]:
    """The same requests by arrival, counted from the first; equal arrivals keep their order.

    Only some ``window`` requests, and MOST_IDS hash ids, are held back: KvroomError where one is more than
    that out of place, or ``late`` is told and it is left out.
    """
    arrival = itemgetter(0)
    source = iter(requests)
    rows = _some(source, window)
    rows.sort(key=arrival)
    origin = rows[0].arrival_ps if rows else 0
    reached, number = origin, len(rows)
    while rows:
        # As many again, and the earlier half of them all: nothing to come is expected before it.
        first = len(rows)
        more = _some(source, window)
        if more:
            rows += more
            rows.sort(key=arrival)
        number += len(more)
        ready = rows[:first] if more else rows
        rows = rows[first:] if more else []
        if ready[0].arrival_ps < reached:
            fix = "Sort the trace by arrival."
            what = f"comes more than {first:,} requests too late in the file"
            error = KvroomError("trace", f"request {number:,} or before", what, fix)
            if late is None:
                raise error
            timely = [request for request in ready if request.arrival_ps >= reached]
            for _ in range(len(ready) - len(timely)):
                late(error)
            ready = timely
            if not ready:
                continue
        reached = ready[-1].arrival_ps
        if origin:
            yield from (placed(request, request.arrival_ps - origin) for request in ready)
        else:
            yield from ready


def _some(source: Iterator[Request], most: int) -> list[Request]:
    """Up to ``most`` further requests, fewer where their prompts hold many ids."""
    taken: list[Request] = []
    left = MOST_IDS
    for request in islice(source, most):
        taken.append(request)
        prefix = request.prefix
        if prefix is not None:
            left -= len(prefix.ids if isinstance(prefix, HashIds) else prefix.prompt)
            if left <= 0:
                break
    return taken


def placed(request: Request, arrival_ps: int) -> Request:
    """``request`` at another time."""
    return Request._make((arrival_ps, *request[1:]))
