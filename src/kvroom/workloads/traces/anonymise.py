"""A log without what was said in it: lengths, times, sessions by number, and salted hashes of blocks.

What leaves are rows of Mooncake sessions (``traces.mooncake``): when a request came (from the first one on),
how long its prompt and answer are, which numbered session it is of, what it waits for and how long after that
it comes. Blocks are named by a keyed BLAKE2b digest of their own names, whose key is drawn anew each time and
written nowhere: equal prefixes stay equal within the file, and nothing can be looked up from outside. Two
files can be compared only where both were made with one key.
"""

from __future__ import annotations

import json
import secrets
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kvroom.workloads.requests import HashIds, Prefix, Request, RequestGraph
from kvroom.workloads.sessions import BLOCK_TOKENS, MASK, as_graph
from kvroom.workloads.synthetic import Synthetic
from kvroom.workloads.traces.fields import PS_PER_MS
from kvroom.workloads.traces.reader import Trace
from kvroom.workloads.traces.writer import whole_file

SCHEMA = "kvroom.agentic_mooncake"
MOST_SESSIONS = 1_000_000
"""Sessions whose number is remembered."""


class Anonymiser:
    """Rows without words or names. ``key``: of the digests. ``counts``: requests and blocks so far."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sessions: OrderedDict[int | str, int] = OrderedDict()
        self._names: OrderedDict[str, str] = OrderedDict()
        self._origin_ps: int | None = None
        self._block_tokens = BLOCK_TOKENS
        self.requests = self.blocks = 0

    def rows(self, source: Iterable[Request | RequestGraph]) -> Iterator[str]:
        """The lines of the requests of ``source``, behind one that says how large blocks are."""
        for item in source:
            if not self.requests:
                self._block_tokens = _block_tokens(item)
                head = {"schema": SCHEMA, "version": 1, "block_size": self._block_tokens}
                yield json.dumps(head) + "\n"
            if isinstance(item, RequestGraph):
                yield from self._graph(item)
            else:
                yield self._line(item, self._name(item), self._waits(item))

    def _graph(self, graph: RequestGraph) -> Iterator[str]:
        names = [str(self.requests + place) for place in range(len(graph.requests))]
        for request, name, waits in zip(graph.requests, names, graph.after, strict=True):
            yield self._line(request, name, [names[place] for place in waits])

    def _name(self, request: Request) -> str:
        name = str(self.requests)
        if request.request_id is not None:
            self._names[request.request_id] = name
            if len(self._names) > MOST_SESSIONS:
                self._names.popitem(last=False)
        return name

    def _waits(self, request: Request) -> list[str] | None:
        if request.after is None:
            return None
        return [self._names[name] for name in request.after if name in self._names]

    def _line(self, request: Request, name: str, waits: list[str] | None) -> str:
        if self._origin_ps is None:
            self._origin_ps = request.arrival_ps
        row: dict[str, Any] = {
            "request_id": name,
            "timestamp": _ms(max(0, request.arrival_ps - self._origin_ps)),
            "input_length": request.input_tokens,
            "output_length": request.output_tokens,
        }
        if request.session is not None:
            row["session_id"] = str(self._number(request.session))
        if request.took_ps:
            row["recorded_api_time_ms"] = _ms(request.took_ps)
        if waits is not None:
            row["wait_for"] = waits
            row["delay"] = _ms(request.think_ps)
        if request.prefix is not None:
            row["hash_ids"] = self._hashed(request.prefix, request.input_tokens)
            self.blocks += len(row["hash_ids"])
        self.requests += 1
        return json.dumps(row) + "\n"

    def _number(self, session: int | str) -> int:
        number = self._sessions.setdefault(session, len(self._sessions))
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return number

    def _hashed(self, prefix: Prefix, tokens: int) -> list[int]:
        """One salted 63-bit name a block."""
        return [self._digest(name) for name in prefix.block_keys(self._block_tokens, tokens)]

    def _digest(self, name: int) -> int:
        data = array("Q", [name & MASK]).tobytes()
        digest = blake2b(data, digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little") >> 1


def _block_tokens(item: Request | RequestGraph) -> int:
    """Tokens of a block: those of the first ids, else BLOCK_TOKENS."""
    rows = item.requests if isinstance(item, RequestGraph) else (item,)
    for request in rows:
        if isinstance(request.prefix, HashIds):
            return request.prefix.tokens
    return BLOCK_TOKENS


def _ms(ps: int) -> float | int:
    whole, rest = divmod(ps, PS_PER_MS)
    return whole + rest / PS_PER_MS if rest else whole


def anonymised(source: Iterable[Request], path: str | Path, key: bytes | None = None) -> Anonymiser:
    """Write ``source`` without what was said in it to ``path`` (gzipped where that ends in .gz), whole or not
    at all; ``key`` is drawn anew unless two files are to be compared."""
    made = Anonymiser(secrets.token_bytes(32) if key is None else key)
    rows: Iterable[Request | RequestGraph] = source
    if isinstance(source, Trace) and source.has_sessions:
        rows = source.sessions()
    elif isinstance(source, Synthetic):
        rows = (as_graph(session) for session in source.sessions())
    with whole_file(Path(path)) as stream:
        for line in made.rows(rows):
            stream.write(line.encode())
    return made
