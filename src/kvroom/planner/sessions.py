"""Sessions limited to what a deployment's model can take: none may ask for more tokens than there is
room for."""

from __future__ import annotations

from dataclasses import replace

from kvroom.errors import KvroomError
from kvroom.workloads.requests import Request, RequestGraph
from kvroom.workloads.sessions import SessionPool
from kvroom.workloads.synthetic import Compaction, Synthetic

Sessions = SessionPool | Synthetic
ROOM = 0.95
"""A context is compacted below so much of what the model takes."""


def fitted(sessions: Sessions, limit: int) -> tuple[Sessions, list[str]]:
    """``sessions`` whose prompts the model takes: made-up contexts are compacted before its limit, recorded
    sessions end where theirs pass it. And what is to be said of that."""
    notes: list[str] = []
    if isinstance(sessions, Synthetic):
        compact, most = sessions.compact, int(ROOM * limit)
        if compact is not None and compact.tokens > most:
            sessions = replace(sessions, compact=Compaction(most, compact.share))
            notes.append(f"contexts are compacted at {most:,} tokens, which the model takes")
        return sessions, notes
    if sessions.limit_tokens is not None and sessions.limit_tokens <= limit:
        return sessions, notes
    graphs = [graph for each in sessions.graphs if (graph := within(each, limit)).requests]
    cut = sum(map(len, sessions.graphs)) - sum(map(len, graphs))
    if not graphs:
        fix = "Give a model, or --context, that takes them."
        raise KvroomError(
            "trace", f"{limit:,} tokens", "are fewer than any session begins with", fix
        )
    if cut:
        notes.append(
            f"{cut:,} of {sum(map(len, sessions.graphs)):,} requests are left out: they come in a session "
            f"after a prompt of more than the {limit:,} tokens that the model takes"
        )
    return sessions.of_graphs(graphs, limit), notes


def within(graph: RequestGraph, limit: int) -> RequestGraph:
    """``graph`` without the requests that are too long and those that wait for them."""
    places: list[int] = []
    anew: dict[int, int] = {}
    for place, (request, waits) in enumerate(zip(graph.requests, graph.after, strict=True)):
        if _fits(request, limit) and all(w in anew for w in waits):
            anew[place] = len(places)
            places.append(place)
    if len(places) == len(graph.requests):
        return graph
    after = tuple(tuple(anew[w] for w in graph.after[old]) for old in places)
    return RequestGraph(tuple(graph.requests[old] for old in places), after)


def _fits(request: Request, limit: int) -> bool:
    return request.input_tokens < limit
