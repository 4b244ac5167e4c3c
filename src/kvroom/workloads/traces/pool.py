"""A trace's sessions, so many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvroom.errors import KvroomError
from kvroom.scenario.workload import calls_of
from kvroom.units import check_float, check_int
from kvroom.workloads.continued import with_sessions
from kvroom.workloads.requests import Request, in_order
from kvroom.workloads.sessions import (
    MOST_POOLED,
    MOST_POOLED_IDS,
    SessionPool,
    as_ids,
    grouped,
    held_sessions,
    ids_of,
)
from kvroom.workloads.traces.reader import Trace

CUT = "the trace holds more than is kept: its sessions up to there are played"


def pool_of(
    source: Iterable[Request],
    users: int,
    *,
    requests: int | None = None,
    seed: int | None = None,
    pauses: float = 1.0,
) -> SessionPool:
    """The sessions of ``source``, ``users`` at a time, until ``requests`` were sent (``calls_of`` them unless
    it is said), their ``pauses`` so many times as long as recorded. KvroomError where there are none."""
    users = check_int("--sessions", users, low=1, high=10**6)
    told = ""
    if getattr(source, "has_sessions", False):
        found = grouped(source.sessions())  # type: ignore[attr-defined]
    else:
        rows, branched = with_sessions(map(as_ids, _kept(in_order(source))))
        found = grouped(rows)
        if branched:
            told = (
                f"the trace names no sessions: {branched:,} of several requests are told by prompts that "
                "go on where another's ended"
            )
        elif all(row.session is None and row.after is None for row in rows):
            told = "the trace names no sessions, and no prompt goes on from another: each request is one"
    graphs = held_sessions(found.graphs)
    if not graphs:
        raise KvroomError("trace", None, "holds no session", "Give a trace with requests in it.")
    sizes = {r.prefix.tokens for g in graphs[:64] for r in g.requests[:4] if r.prefix is not None}  # type: ignore[union-attr]
    hashed = getattr(source, "hash_tokens", None)
    pool = SessionPool(
        graphs,
        users,
        calls_of(users) if requests is None else requests,
        seed=seed or 0,
        hash_tokens=next(iter(sizes)) if len(sizes) == 1 else hashed,
    )
    pool.pauses = check_float("--pauses", pauses, low=0, high=1000)
    if isinstance(source, Trace):
        pool.notes = [*source.counts.notes()]
    if told:
        pool.notes.append(told)
    if not found.whole:
        pool.notes.append(CUT)
    return pool


def _kept(rows: Iterable[Request]) -> Iterator[Request]:
    """As many as are kept, and one more."""
    ids = 0
    for count, row in enumerate(rows, 1):
        yield row
        ids += ids_of(row)
        if count > MOST_POOLED or ids > MOST_POOLED_IDS:
            return
