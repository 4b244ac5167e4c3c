"""Sessions of a trace that names none: told by prompts that go on where another's ended.

A prompt that begins with all whole blocks of an earlier prompt, and is longer, continues that one's session;
of several the longest. Where many go on from one prompt and not from each other, it is what they have in
common, such as a system prompt, and no turn of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvroom.workloads.requests import HashIds, Request

MOST_BRANCHES = 8
"""Requests that go on from one: more have a beginning in common."""


def whole_ids(request: Request) -> Sequence[int]:
    """The ids of a prompt's whole blocks."""
    prefix = request.prefix
    if not isinstance(prefix, HashIds):
        return ()
    return prefix.ids[: request.input_tokens // prefix.tokens]


def with_sessions(rows: Iterable[Request]) -> tuple[list[Request], int]:
    """``rows`` (in order of arrival, known by hash ids) with the sessions that their prompts tell, and how
    many of them have more than one request; as they are where any names its session."""
    requests = list(rows)
    if any(request.session is not None or request.after is not None for request in requests):
        return requests, 0
    before = _before(requests)
    followers: dict[int, int] = {}
    for earlier in before:
        if earlier >= 0:
            followers[earlier] = followers.get(earlier, 0) + 1
    named: list[int] = []
    size: dict[int, int] = {}
    for place, earlier in enumerate(before):
        goes_on = earlier >= 0 and followers[earlier] <= MOST_BRANCHES
        session = named[earlier] if goes_on else place
        named.append(session)
        size[session] = size.get(session, 0) + 1
    told = [
        request._replace(session=session) if size[session] > 1 else request
        for request, session in zip(requests, named, strict=True)
    ]
    return told, sum(count > 1 for count in size.values())


def _before(requests: Sequence[Request]) -> list[int]:
    """The place of the request that each goes on from, −1 for none."""
    ends: dict[
        int, int
    ] = {}  # by the last whole id of a prompt, the latest request that ended with it
    before: list[int] = []
    for place, request in enumerate(requests):
        ids = whole_ids(request)
        found = -1
        for upto in range(len(ids), 0, -1):
            earlier = ends.get(ids[upto - 1], -1)
            if earlier >= 0 and requests[earlier].input_tokens < request.input_tokens:
                found = earlier
                break
        before.append(found)
        if ids:
            ends[ids[-1]] = place
    return before
