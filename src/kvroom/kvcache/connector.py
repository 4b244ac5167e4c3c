"""The seam through which a request gets part of its cache from elsewhere, as vLLM's KV connectors.

Offload tiers, remote stores and hand-over between prefill and decode engines are connectors. One is
asked when a request is about to be admitted, after the engine's own prefix cache was looked up and
before blocks are given. What it has ready later than now makes the request wait in ``loading``: it holds
its blocks and its place, computes nothing and is not preempted (vLLM's WAITING_FOR_REMOTE_KVS), and from
the first decision at or after that time it runs, behind those that run already, as if those tokens had
been found cached.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.request import ServedRequest


class RemoteHit(NamedTuple):
    """So many leading ``tokens`` of a request, what its engine had of them included, are there at
    ``ready_ps``; ``note`` is the connector's own."""

    tokens: int
    ready_ps: int
    note: object = None


class KVConnector(Protocol):
    """Brings cache to one engine."""

    def lookup(
        self, request: ServedRequest, now: int, cached_tokens: int, limit_tokens: int
    ) -> RemoteHit | None:
        """What it can bring at ``now`` to a request of which the engine has ``cached_tokens``.

        At most ``limit_tokens`` are of use: whole blocks, short of the last known token. A connector that
        hands a computed prompt over may bring up to all known tokens but the last. Nothing is moved yet,
        and asking changes nothing. None: there is nothing to bring, or computing it is quicker.
        """
        ...

    def allocated(
        self, request: ServedRequest, now: int, cached_tokens: int, hit: RemoteHit | None
    ) -> None:
        """The request has its place, and what was found begins to move. Called of every request that
        is admitted, before blocks are taken for it."""
        ...


@runtime_checkable
class FetchingConnector(KVConnector, Protocol):
    """One that brings cache nearer while its request waits in the queue (SGLang: storage to host memory)."""

    def queued(self, request: ServedRequest, now: int, cached_tokens: int) -> None:
        """The request waits from ``now`` on; the engine has ``cached_tokens`` of it."""
        ...

    def fetched(self, request: ServedRequest, now: int) -> int | None:
        """Its turn has come: None where it may start, else when to look again."""
        ...


def report_stored(events: KVEvents, request: ServedRequest, blocks: int, unit: int) -> None:
    """Tell of the pages (``unit`` blocks each) among the first ``blocks`` of ``request`` that were not
    told of yet."""
    extents = request.extents
    if extents is None:
        return
    pages = min(blocks, extents.named) // unit
    if pages > request.reported_pages:
        first = request.reported_pages
        events.stored(extents.names[first:pages], 0, first)
        request.reported_pages = pages


def report_left(events: KVEvents, request: ServedRequest, blocks: int, unit: int) -> None:
    """Tell of what ``request``, which is done, leaves in the cache: its first ``blocks`` blocks."""
    report_stored(events, request, blocks, unit)
    named = request.extents.named if request.extents is not None else 0
    if blocks > named:
        events.stored((), blocks - named)
