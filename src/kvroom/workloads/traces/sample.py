"""A trace in memory, and of a long one a stretch of whole sessions.

A simulation of it serves what one of the trace itself serves: the same requests, waiting for each other in
the same way. A stretch begins at a session that is drawn and holds all that begin behind it, one after the
other, so that requests come as densely as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.workloads.draws import Draws
from kvroom.workloads.requests import PS_PER_S, Request, RequestGraph, in_order
from kvroom.workloads.sessions import MOST_POOLED, MOST_POOLED_IDS, ids_of
from kvroom.workloads.traces.reader import Trace

MOST_PLAYED = 8_000
"""Requests of a trace that are played where it is played many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTrace:
    """Requests as they came: ``graphs`` of a trace whose rows are sessions, else ``rows`` by arrival, which
    wait for each other where they name their sessions (``names_sessions``). ``notes`` are what was met when
    they were read and which of them these are."""

    graphs: tuple[RequestGraph, ...] = ()
    rows: tuple[Request, ...] = ()
    names_sessions: bool = False
    hash_tokens: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_sessions(self) -> bool:
        """Whether rows are sessions."""
        return bool(self.graphs)

    def sessions(self) -> Iterator[RequestGraph]:
        """The sessions of a trace that has such."""
        yield from self.graphs

    def __iter__(self) -> Iterator[Request]:
        for graph in self.graphs:
            yield from graph
        yield from self.rows


def held_trace(source: Iterable[Request], *, most: int = MOST_PLAYED, seed: int = 0) -> HeldTrace:
    """``source`` in memory, ``most`` requests of it in whole sessions; KvroomError where it holds none."""
    notes: list[str] = []
    hashed = getattr(source, "hash_tokens", None)
    rows: list[Request] = []
    graphs: list[RequestGraph] = []
    named = False
    if isinstance(source, Trace) and source.has_sessions:
        graphs, whole = _taken(source.sessions())
    else:
        named = getattr(source, "names_sessions", False)
        late = source.skip_late if isinstance(source, Trace) and source.skip_bad_lines else None
        rows, whole = _taken(in_order(source, late=late))
    if isinstance(source, Trace):
        notes += source.counts.notes()
    parts: Sequence[Sequence[Request] | RequestGraph] = graphs or _by_session(rows)
    if not parts:
        raise KvroomError("trace", None, "holds no request", "Give a trace with requests in it.")
    chosen = _stretch(parts, most, seed)
    if len(chosen) < len(parts) or not whole:
        notes.append(_which(parts, chosen, whole=whole))
    if graphs:
        graphs = [one for one in chosen if isinstance(one, RequestGraph)]
    else:
        rows = sorted((one for part in chosen for one in part), key=lambda one: one.arrival_ps)
    return HeldTrace(
        graphs=tuple(graphs),
        rows=tuple(rows),
        names_sessions=named,
        hash_tokens=hashed,
        notes=tuple(notes),
    )


def _taken(items: Iterable[Request] | Iterable[RequestGraph]) -> tuple[list, bool]:  # type: ignore[type-arg]  # of either, all of one kind
    """As many as are kept, and whether these are all."""
    sample, count, ids = [], 0, 0
    for item in items:
        sample.append(item)
        count += len(item) if isinstance(item, RequestGraph) else 1
        each = item.requests if isinstance(item, RequestGraph) else (item,)
        ids += sum(map(ids_of, each))
        if count >= MOST_POOLED or ids >= MOST_POOLED_IDS:
            return sample, False
    return sample, True


def _by_session(rows: Iterable[Request]) -> list[list[Request]]:
    """The rows of each session, by when it begins; a row of none is one of its own."""
    members: dict[object, list[Request]] = {}
    for number, row in enumerate(rows):
        key: object = (number, None) if row.session is None else row.session
        members.setdefault(key, []).append(row)
    return list(members.values())


def _begin_ps(part: Sequence[Request] | RequestGraph) -> int:
    return part.begin_ps if isinstance(part, RequestGraph) else part[0].arrival_ps


def _stretch(
    parts: Sequence[Sequence[Request] | RequestGraph], most: int, seed: int
) -> list[Sequence[Request] | RequestGraph]:
    ordered = sorted(parts, key=_begin_ps)
    left, first = most, len(ordered)
    while first and len(ordered[first - 1]) <= left:  # the last place where a stretch may begin
        first -= 1
        left -= len(ordered[first])
    begin = int(Draws(seed, "stretch").uniform() * (first + 1)) if first else 0
    left = most
    chosen: list[Sequence[Request] | RequestGraph] = []
    for part in ordered[begin:]:
        if chosen and len(part) > left:
            break
        chosen.append(part)
        left -= len(part)
    return chosen


def _which(
    parts: Sequence[Sequence[Request] | RequestGraph],
    chosen: Sequence[Sequence[Request] | RequestGraph],
    *,
    whole: bool,
) -> str:
    every, some = sum(map(len, parts)), sum(map(len, chosen))
    origin = min(map(_begin_ps, parts))
    low, high = (
        (at - origin) / PS_PER_S / 3600 for at in (_begin_ps(chosen[0]), _begin_ps(chosen[-1]))
    )
    least = "" if whole else "at least "
    return (
        f"{some:,} of the trace's {least}{every:,} requests are played: {len(chosen):,} of "
        f"{least}{len(parts):,} sessions, those that begin {low:.2f} to {high:.2f} hours after its first"
    )
