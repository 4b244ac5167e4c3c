"""A trace as a search's load: what its simulations play, what it asks for, and the made-up workload in its
likeness that the closed form takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from math import ceil
from statistics import median
from typing import Any

from kvroom.errors import KvroomError
from kvroom.planner.sessions import fitted
from kvroom.records import dataclass
from kvroom.simulator.routing.views import leading
from kvroom.workloads.requests import PS_PER_S, HashIds, Request, RequestGraph
from kvroom.workloads.sessions import SessionPool, grouped, held_sessions, ids_of
from kvroom.workloads.traces.pool import pool_of
from kvroom.workloads.traces.sample import HeldTrace, held_trace

PARTS = 16
"""Values of a histogram, of equally many requests each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTrace:
    """What is played: ``source``, whose rows wait for each other where they are ``linked``; ``summary`` says
    what it asks for and ``load`` the workload in its likeness, as plain JSON values."""

    source: SessionPool | HeldTrace
    linked: bool
    summary: dict[str, Any]
    load: dict[str, Any]


def played_trace(
    trace: Iterable[Request],
    *,
    name: str,
    sessions: int | None,
    recorded_times: bool,
    seed: int,
    limit_tokens: int | None,
) -> PlayedTrace:
    """The load of ``trace``: ``sessions`` of it at a time, or as it came. Of sessions at a time, what follows
    a prompt of ``limit_tokens`` is left out, as the simulation does it."""
    source: SessionPool | HeldTrace
    if sessions is not None:
        pool = pool_of(trace, sessions, seed=seed)
        notes = pool.notes
        if limit_tokens is not None:
            fitted_pool, more = fitted(pool, limit_tokens)
            assert isinstance(fitted_pool, SessionPool)
            pool, notes = fitted_pool, [*notes, *more]
        source, graphs = pool, list(pool.graphs)
        notes = [
            *notes,
            f"{pool.requests:,} requests are played, {sessions:,} sessions at a time out of the trace's "
            f"{len(graphs):,}",
        ]
    else:
        source = held_trace(trace, seed=seed)
        notes = list(source.notes)
        graphs = held_sessions(source.graphs or grouped(source.rows).graphs)
    rows = list(chain.from_iterable(graph.requests for graph in graphs))
    rate = None if sessions is not None else _rate(rows)
    shared, found = _found(graphs)
    summary = {
        "name": name,
        "digest": _digest(source, rows, linked=not recorded_times),
        "sessions_at_a_time": sessions,
        "recorded_times": recorded_times,
        "requests": source.requests if isinstance(source, SessionPool) else len(rows),
        "sessions": len(graphs),
        "requests_per_s": rate,
        "input_tokens": ceil(sum(r.input_tokens for r in rows) / len(rows)),
        "output_tokens": max(1, round(sum(r.output_tokens for r in rows) / len(rows))),
        "longest_tokens": max(r.input_tokens + r.output_tokens for r in rows),
        "reuses": found > 0,
        "notes": notes,
    }
    load = likeness(graphs, shared)
    if rate is None:
        load |= {"arrivals": f"closed:{sessions}", "start": "spread"}
    else:
        load["arrivals"] = f"poisson:{rate * len(graphs) / len(rows):.9g}/s"
    return PlayedTrace(source=source, linked=not recorded_times, summary=summary, load=load)


def _rate(rows: Sequence[Request]) -> float:
    """Requests a second over the time in which they came."""
    times = [row.arrival_ps for row in rows]
    span = max(times) - min(times)
    if not span:
        fix = "Say --sessions N: so many of its sessions at a time."
        raise KvroomError("trace", None, "does not say when requests came", fix)
    return (len(rows) - 1) * PS_PER_S / span


def _digest(source: SessionPool | HeldTrace, rows: Sequence[Request], *, linked: bool) -> str:
    """The same for the same requests, played in the same way."""
    digest = hashlib.blake2b(digest_size=12)
    how = (linked, getattr(source, "users", 0), getattr(source, "requests", 0), source.hash_tokens)
    digest.update(repr(how).encode())
    for row in rows:
        digest.update(repr((row[:3], row.session, row.think_ps, row.since_ps)).encode())
        if isinstance(row.prefix, HashIds):
            digest.update(bytes(memoryview(row.prefix.ids)) if ids_of(row) else b"")  # type: ignore[arg-type]
    return digest.hexdigest()


def _found(graphs: Iterable[RequestGraph]) -> tuple[int, int]:
    """(tokens that sessions begin with in common, in the middle; tokens of all prompts that caches without
    limit would find)."""
    seen: set[int] = set()
    common: list[int] = []
    every = 0
    for graph in graphs:
        for place, request in enumerate(graph.requests):
            prefix = request.prefix
            if not isinstance(prefix, HashIds):
                continue
            known = leading(prefix.ids, seen)
            seen.update(prefix.ids[known:])
            every += known * prefix.tokens
            if not place:
                common.append(min(known * prefix.tokens, request.input_tokens - 1))
    return int(sum(common) / len(common)) if common else 0, every


def likeness(graphs: Sequence[RequestGraph], shared_tokens: int = 0) -> dict[str, Any]:
    """The keys of a made-up workload like these sessions: how many requests they have, what they begin with,
    what is added to a context, how long answers and pauses are. A request waits for the latest answer before
    it."""
    turns = [len(graph.requests) for graph in graphs]
    first, added, answers, pauses, shrinks = [], [], [], [], []
    longest = 1
    for graph in graphs:
        for request, waits in zip(graph.requests, graph.after, strict=True):
            answers.append(max(1, request.output_tokens))
            longest = max(longest, request.input_tokens)
            if not waits:
                first.append(max(1, request.input_tokens - shared_tokens))
                continue
            pauses.append(max(request.think_ps, request.since_ps) / PS_PER_S)
            before = max((graph.requests[w] for w in waits), key=lambda r: r.input_tokens)
            more = request.input_tokens - before.input_tokens - before.output_tokens
            if more > 0:
                added.append(more)
            elif request.input_tokens < before.input_tokens:
                shrinks.append(request.input_tokens / before.input_tokens)
    load: dict[str, Any] = {"input": _tokens(first), "output": _tokens(answers)}
    if shared_tokens:
        load["prefix"] = f"shared:{shared_tokens}"
    if max(turns) > 1:
        share = min(0.9, median(shrinks)) if shrinks else 0.5
        load |= {
            "first": load["input"],
            "input": _tokens(added or [1]),
            "turns": _tokens(turns),
            "think": _seconds(pauses),
            "compact": f"{max(longest, 2 * shared_tokens)}:{share:.3f}",
        }
    return load


def _means(values: Iterable[float]) -> list[tuple[float, int]]:
    """(mean, how many) of equal parts of the values, the smallest first."""
    ordered = sorted(values)
    size = max(1, ceil(len(ordered) / PARTS))
    parts = (ordered[start : start + size] for start in range(0, len(ordered), size))
    return [(sum(part) / len(part), len(part)) for part in parts]


def _tokens(values: Iterable[int]) -> str:
    words = (f"{max(1, round(mean))}={count}" for mean, count in _means(values))
    return "histogram:" + ":".join(words)


def _seconds(values: Iterable[float]) -> str:
    return "histogram:" + ":".join(f"{mean:.3f}s={count}" for mean, count in _means(values))
