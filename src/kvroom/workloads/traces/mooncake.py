"""Mooncake JSONL (the published traces of Kimi), and what kvroom itself writes."""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import check_int
from kvroom.workloads.requests import HashIds, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import (
    PS_PER_MS,
    at,
    hash_ids,
    lengths,
    objects,
    priority,
    session,
    span_ps,
    time_ps,
)


def mooncake(options: RowOptions) -> Row:
    """``timestamp`` in ms, lengths, optional ``hash_ids``, ``session`` and ``priority``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "input_length", "output_length")
        return Request(
            time_ps(values, "timestamp", PS_PER_MS),
            prompt,
            answer,
            hash_ids(values, prompt, options.hash_tokens),
            session(values, "session"),
            priority(values),
        )

    return row


PLAIN_BYTES = 100
"""A plain row is no longer."""
_PLAIN = re.compile(
    rb'\{"timestamp": (\d{1,12}), "input_length": ([1-9]\d{0,8}), "output_length": (\d{1,9})\}\s*'
)


def plain_mooncake(line: bytes) -> Request | None:
    """The Request of a row of whole numbers and nothing else, at a fraction of what any row costs."""
    match = _PLAIN.fullmatch(line) if len(line) < PLAIN_BYTES else None
    if match is None:
        return None
    arrival, prompt, answer = match.groups()
    return Request(int(arrival) * PS_PER_MS, int(prompt), int(answer))


FORMAT = Format(
    "Mooncake",
    ("timestamp", "input_length", "output_length"),
    mooncake,
    512,
    plain=plain_mooncake,
    may=("hash_ids", "session", "priority"),
)

GRAPH_KEYS = (
    "session_id", "request_id", "play_id", "wait_for", "dependencies", "delay", "delay_ms", "tool_wait_ms",
)  # fmt: skip
MOST_NAMED = 1_000_000
"""Requests whose arrival is remembered for those that wait for them."""
SCHEMA = "agentic"
DELTAS = "prompts of a session are taken as what is new on top of the one before and its answer"


class _Known:
    """When a request arrives at the earliest, and its session's latest."""

    def __init__(self) -> None:
        self.arrivals: OrderedDict[str, int] = OrderedDict()
        self.latest: OrderedDict[int | str, str] = OrderedDict()
        self.plays: dict[str, int] = {}
        self.block_tokens: int | None = None
        self.local = False
        self.number = 0

    def add(self, name: str, arrival_ps: int, chat: int | str | None) -> None:
        """Remember a request."""
        self.arrivals[name] = arrival_ps
        if chat is not None:
            self.latest[chat] = name
        for known in (self.arrivals, self.latest):
            if len(known) > MOST_NAMED:
                known.popitem(last=False)


def graph(options: RowOptions) -> Row:
    """Mooncake rows with sessions, delays and waits, as NVIDIA Dynamo's replay takes them: a row of a session
    comes ``delay`` after the one before is answered, or at its ``timestamp``; one with ``wait_for`` (or
    ``dependencies``) ``delay`` and ``tool_wait_ms`` after the last of those is answered."""
    known = _Known()

    def row(values: Mapping[str, Any]) -> Request | tuple[()]:
        if "schema" in values:
            size = values.get("block_size")
            if size is not None:
                known.block_tokens = check_int("block_size", size, low=1, high=2**20)
            known.local = values.get("hash_id_scope") == "local"
            return ()
        values = _canonical(values)
        prompt, answer = lengths(values, "input_length", "output_length")
        chat = session(values, "session_id")
        known.number += 1
        name = values.get("request_id")
        name = f"#{known.number}" if name is None else str(name)
        waits, delay = _waits(values, known, chat)
        arrival = _arrival(values, known, waits, delay)
        play = values.get("play_id")
        request = Request(
            arrival,
            prompt,
            answer,
            None,
            chat if play is None else str(play),
            priority(values),
            delay if waits else 0,
            took_ps=span_ps("took", at(values, "recorded_api_time_ms") or 0, PS_PER_MS),
            request_id=name,
            after=waits,
        )
        known.add(name, arrival, chat)
        if options.deltas and chat is not None:
            return _on_top(request, chat, values, options)
        return request._replace(prefix=_ids(values, prompt, known, options))

    return row


def _canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """The row under Mooncake's own names."""
    row = dict(values)
    for name, others in (
        ("input_length", ("input_tokens",)),
        ("output_length", ("output_tokens",)),
        ("timestamp", ("created_time", "not_before_ms")),
        ("delay", ("delay_ms",)),
    ):
        for other in others:
            if row.get(name) is None and row.get(other) is not None:
                row[name] = row[other]
    return row


def _waits(
    values: Mapping[str, Any], known: _Known, chat: int | str | None
) -> tuple[tuple[str, ...] | None, int]:
    """What a row waits for (None: its session's order tells), and how long after that it comes."""
    delay = span_ps("delay", values.get("delay") or 0, PS_PER_MS)
    delay += span_ps("tool_wait_ms", values.get("tool_wait_ms") or 0, PS_PER_MS)
    edges = objects(values.get("dependencies"))
    told = values.get("wait_for") or [edge.get("request_id") for edge in edges]
    if told or values.get("wait_for") is not None:
        names = tuple(str(name) for name in told or ())
        for name in names:
            if name not in known.arrivals:
                why = "is no request before this one: a cycle, or a row that is missing"
                fix = "Give every request behind those that it waits for."
                raise KvroomError("wait_for", name, why, fix)
        spans = (span_ps("delay_ms", edge.get("delay_ms") or 0, PS_PER_MS) for edge in edges)
        return names, max([delay, *spans])
    if values.get("delay") is not None or values.get("timestamp") is None:
        before = None if chat is None else known.latest.get(chat)
        return (() if before is None else (before,)), delay
    return ((), delay) if "dependencies" in values else (None, 0)


def _arrival(
    values: Mapping[str, Any], known: _Known, waits: tuple[str, ...] | None, delay: int
) -> int:
    if waits:
        earliest = max(known.arrivals[name] for name in waits) + delay
        if values.get("timestamp") is None:
            return earliest
        return max(earliest, time_ps(values, "timestamp", PS_PER_MS))
    if values.get("timestamp") is None:
        return delay
    return time_ps(values, "timestamp", PS_PER_MS)


def _ids(
    values: Mapping[str, Any], prompt: int, known: _Known, options: RowOptions
) -> HashIds | None:
    prefix = hash_ids(values, prompt, known.block_tokens or options.hash_tokens)
    play = values.get("play_id")
    if prefix is None or not known.local or play is None:
        return prefix
    scope = known.plays.setdefault(str(play), len(known.plays) + 1) << 32
    return HashIds(array("Q", [(scope ^ i) & (2**64 - 1) for i in prefix.ids]), prefix.tokens)


def _on_top(
    request: Request, chat: int | str, values: Mapping[str, Any], options: RowOptions
) -> Request:
    """A request whose row holds only what is new."""
    options.note(DELTAS)
    contexts = options.context()
    held = contexts.held(chat)
    request = request._replace(input_tokens=request.input_tokens + held, session=chat)
    ids = values.get("hash_ids")
    begins = ids if isinstance(ids, list) and all(type(i) is int for i in ids) else ()
    return request._replace(prefix=contexts.prefix(request, held or None, begins))


def tells_deltas(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no later row of a session begins like the one before it, though it says what it holds."""
    first: dict[Any, Any] = {}
    anew = 0
    for values in rows:
        chat, ids = values.get("session_id"), values.get("hash_ids")
        if chat is None or not isinstance(ids, list) or not ids:
            continue
        if chat in first:
            if ids[0] == first[chat]:
                return False
            anew += 1
        first[chat] = ids[0]
    return anew > 0


def _linked(values: Mapping[str, Any]) -> bool:
    if SCHEMA in str(values.get("schema", "")):
        return True
    row = _canonical(values)
    long = row.get("input_length") is not None and row.get("output_length") is not None
    return long and any(key in values for key in GRAPH_KEYS)


GRAPH = Format(
    "Mooncake sessions",
    (),
    graph,
    512,
    known=_linked,
    tells_deltas=tells_deltas,
    may=(*FORMAT.needs, *FORMAT.may, *GRAPH_KEYS),
)
