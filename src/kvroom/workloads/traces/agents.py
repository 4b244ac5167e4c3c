"""Agent traces as kv-cache-tester publishes them (Weka): a session with its sub-agents, blocks by hash id.

A session is one JSON object: ``requests`` with ``t`` (s), ``in``, ``out``, ``hash_ids`` of ``block_size``
tokens, ``api_time`` (how long the answer took) and ``think_time`` (from the answer before to this request).
A ``subagent`` among them has requests of its own, counted from its start (in the sets of AgentX from the
session's); its own ``t`` is its end, for in the published sessions ``t`` less ``duration_ms`` is when the
request before it is answered.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import check_int
from kvroom.workloads.requests import PS_PER_S, HashIds, Request, RequestGraph
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import PS_PER_MS, cell, hash_ids, lengths, objects, span_ps

MOST_ID = 2**32
"""Ids of one session are below this."""
NO_PROMPT = "requests without a prompt are left out"
MAX_DEPTH = 16
"""Sub-agents of sub-agents."""


def agents(options: RowOptions) -> Row:
    """A session a row."""
    count = 0

    def row(values: Mapping[str, Any]) -> RequestGraph:
        nonlocal count
        size = check_int("block_size", cell(values, "block_size"), low=1, high=2**20)
        own = values.get("hash_id_scope", "local") != "global"
        session = _AgentSession(options, size, count if own else None, count)
        session.thread(objects(values["requests"]), 0, (), 0)
        if not session.requests:
            fix = "A session needs requests with in, out and t."
            raise KvroomError("requests", None, "hold no request", fix)
        count += 1
        return RequestGraph(tuple(session.requests), tuple(session.after))

    return row


class _AgentSession:
    """The requests of one session as they are read, and what each waits for."""

    def __init__(self, options: RowOptions, size: int, scope: int | None, number: int) -> None:
        self.options, self.size, self.scope, self.number = options, size, scope, number
        self.requests: list[Request] = []
        self.after: list[tuple[int, ...]] = []

    def thread(
        self,
        rows: list[Mapping[str, Any]],
        origin: int,
        waits: tuple[int, ...],
        begun: int,
        depth: int = 0,
    ) -> tuple[int, tuple[int, ...]]:
        """The requests of one agent, which waits for ``waits`` that ended at ``begun``: when its last one
        ends, and which that is. Sub-agents start when the request before them is answered; the next request
        waits for all of them that ended before it came."""
        if depth > MAX_DEPTH:
            raise KvroomError("requests", depth, "sub-agents lie too deep", "Give a real trace.")
        last, ended = waits, begun
        subs: list[tuple[int, tuple[int, ...]]] = []
        asked = origin
        for row in rows:
            at = origin + span_ps("t", cell(row, "t"), PS_PER_S)
            if "requests" in row:
                took = span_ps("duration_ms", row.get("duration_ms") or 0, PS_PER_MS)
                start = at - took if at - took >= asked else at
                inner = objects(row["requests"])
                base = 0 if _absolute(inner, start) else start
                subs.append(self.thread(inner, base, last, ended, depth + 1))
                continue
            if not row.get("in"):
                self.options.note(NO_PROMPT)
                continue
            joined = [sub for sub in subs if sub[0] <= at]
            subs = [sub for sub in subs if sub[0] > at]
            ready = max([ended, *(end for end, _ in joined)])
            waits = tuple(
                {name: None for names in (last, *(w for _, w in joined)) for name in names}
            )
            last = (self._add(row, at, at - ready if at > ready else 0, waits),)
            asked = at
            ended = at + span_ps("api_time", row.get("api_time") or 0, PS_PER_S)
        return max([ended, *(end for end, _ in subs)]), tuple(
            {name: None for names in (last, *(w for _, w in subs)) for name in names}
        )

    def _add(
        self, row: Mapping[str, Any], at_ps: int, think_ps: int, waits: tuple[int, ...]
    ) -> int:
        prompt, answer = lengths(row, "in", "out")
        prefix = hash_ids(row, prompt, self.size)
        if prefix is not None and self.scope is not None:
            if not all(0 <= i < MOST_ID for i in prefix.ids):
                why = f"are not all below {MOST_ID:,}"
                raise KvroomError("hash_ids", max(prefix.ids), why, "Number a session's blocks.")
            first = self.scope << 32
            prefix = HashIds(array("Q", [first | i for i in prefix.ids]), self.size)
        if len(waits) == 1 and prefix is not None:
            self._answered(waits[0], prefix)
        took = span_ps("api_time", row.get("api_time") or 0, PS_PER_S)
        self.requests.append(
            Request(at_ps, prompt, answer, prefix, self.number, 0, think_ps, took_ps=took)
        )
        self.after.append(waits)
        return len(self.requests) - 1

    def _answered(self, place: int, after: HashIds) -> None:
        """Give the request at ``place`` the ids of its answer, where the prompt ``after`` it goes on so."""
        request = self.requests[place]
        before = request.prefix
        held, whole = (n // self.size for n in (request.input_tokens, sum(request[1:3])))
        if not isinstance(before, HashIds) or before.answer or len(before.ids) < held:
            return
        if after.ids[:held] == before.ids[:held] and len(after.ids) > held:
            answer = after.ids[held:whole]
            self.requests[place] = request._replace(prefix=HashIds(before.ids, self.size, answer))


def _absolute(rows: list[Mapping[str, Any]], start_ps: int) -> bool:
    """Whether a sub-agent's times count from its session's start, as in the sets of AgentX, not from its
    own: then none is before its start, a second for rounding."""
    times = [span_ps("t", row.get("t") or 0, PS_PER_S) for row in rows]
    return bool(times) and start_ps > PS_PER_S and min(times) >= start_ps - PS_PER_S


def _sessions(values: Mapping[str, Any]) -> bool:
    requests = objects(values["requests"])
    return bool(requests) and "t" in requests[0]


FORMAT = Format("agents", ("requests", "block_size"), agents, 64, sessions=True, known=_sessions)
