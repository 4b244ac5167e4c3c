"""Handing a request over from the replica that computed its prompt to the one that generates its answer.

The receiving engine gives the request its blocks first, then its cache crosses (vLLM's KV connectors do it
so); what the receiver has of the prompt itself is not sent. A replica has one link, of all its network
adapters together, for one transfer at a time: a transfer waits until both ends are free, in the order of
asking. Until it is over the sender keeps the blocks, so where receivers have no room senders run out of
theirs: that is the back-pressure.

With layer-wise transfer each layer crosses as soon as it is computed. What then remains after the first
token is the last layer, or what the link did not get through while the prompt was computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from kvroom.kvcache.connector import RemoteHit
from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.records import dataclass
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.replicas import Replica


@dataclass(frozen=True, slots=True)
class PrefilledCache:
    """Where a handed-over request's cache is: the ``sent`` one on an engine of a replica; its prompt was
    computed from ``begun_ps`` to ``end_ps``."""

    replica: Replica
    engine: EventEngine
    sent: ServedRequest
    begun_ps: int
    end_ps: int

    @property
    def there(self) -> bool:
        """Whether that engine still lives."""
        return self.replica.engine is self.engine


@dataclass(kw_only=True)
class TransferLinks:
    """What connects two pools: ``bytes_per_s`` of one replica's link, ``latency_s``, whether layers
    (``layers`` of them) cross one by one, how many bytes so many tokens of a request are, and how many
    tokens the receivers take at most."""

    bytes_per_s: float
    latency_s: float
    layerwise: bool
    layers: int
    request_bytes: Callable[[int], int]
    longest_tokens: int
    prefilled: dict[int, PrefilledCache] = field(default_factory=dict)
    """By request: who has its computed prompt, until that begins to cross."""
    free_ps: dict[int, int] = field(default_factory=dict)
    """By place: when that replica's link is free again."""
    transfers: int = 0
    moved_bytes: int = 0
    waited_ps: int = 0
    """From a request's place on the receiver to its cache, all transfers together."""

    def left_ps(self, source: PrefilledCache, sent_bytes: int) -> int:
        """How long ``sent_bytes`` occupy the link after the prompt is computed."""
        whole = round(sent_bytes / self.bytes_per_s * PS_PER_S)
        if not self.layerwise:
            return whole
        computed = source.end_ps - source.begun_ps
        return max(-(-whole // self.layers), whole - computed)

    def dict(self, seconds: float) -> dict[str, Any]:
        """What crossed, as plain values."""
        count, links = self.transfers, max(1, len(self.free_ps))
        busy = 2 * self.moved_bytes / self.bytes_per_s  # each crosses the links of both its ends
        return {
            "count": count,
            "bytes": self.moved_bytes,
            "mean_s": self.waited_ps / count / PS_PER_S if count else 0.0,
            "link_bytes_per_s": self.bytes_per_s,
            "link_busy": busy / links / seconds if seconds else 0.0,
        }


class TransferConnector:
    """The ``KVConnector`` of the replica at ``place``; ``release`` is told when a sender may give up its
    blocks."""

    def __init__(
        self, links: TransferLinks, place: int, release: Callable[[PrefilledCache, int], None]
    ) -> None:
        self.links = links
        self.place = place
        self.release = release
        links.free_ps.setdefault(place, 0)

    def lookup(
        self, request: ServedRequest, now: int, cached_tokens: int, limit_tokens: int
    ) -> RemoteHit | None:
        """The whole prompt, from whoever computed it."""
        source = self.links.prefilled.get(request.index)
        if source is None or not source.there:
            return None
        ready, _, _, _ = self._crossing(source, request, now, cached_tokens)
        return RemoteHit(request.num_tokens - 1, ready)

    def allocated(
        self, request: ServedRequest, now: int, cached_tokens: int, hit: RemoteHit | None
    ) -> None:
        """It has its blocks: the transfer is begun or waits for the links."""
        links = self.links
        source = links.prefilled.pop(request.index, None)
        if source is None or hit is None:
            return
        over, sent_ps, got_ps, size = self._crossing(source, request, now, cached_tokens)
        if size:
            links.free_ps[source.replica.place] = sent_ps
            links.free_ps[self.place] = got_ps
        links.transfers += 1
        links.moved_bytes += size
        links.waited_ps += over - now
        self.release(source, over)

    def _crossing(
        self, source: PrefilledCache, request: ServedRequest, now: int, cached_tokens: int
    ) -> tuple[int, int, int, int]:
        """When the cache is there, when the sender's and the receiver's links are free again, how many
        bytes cross."""
        links = self.links
        size = links.request_bytes(request.num_tokens - 1)
        size -= links.request_bytes(cached_tokens) if cached_tokens else 0
        if size <= 0:
            return now, now, now, 0
        left = links.left_ps(source, size)
        sent = max(now, links.free_ps.get(source.replica.place, 0)) + left
        got = max(now, links.free_ps[self.place]) + left
        return max(sent, got) + round(links.latency_s * PS_PER_S), sent, got, size


def continued(request: ServedRequest, source: PrefilledCache) -> ServedRequest:
    """The request as the receiver gets it: ``request`` with its first token, or one more."""
    extents = request.extents
    after = ServedRequest(
        request.index,
        request.arrival,
        request.num_prompt_tokens,
        request.decode_final_tokens - request.num_prompt_tokens,
        extents=None if extents is None else RequestExtents(extents.names, extents.named),
    )
    after.num_tokens = request.num_tokens + 1
    after.first_token_ps, after.last_token_ps = request.first_token_ps, source.end_ps
    after.priority, after.session = request.priority, request.session
    after.session_id, after.session_place = request.session_id, request.session_place
    after.num_cached_tokens, after.num_preemptions = (
        request.num_cached_tokens,
        request.num_preemptions,
    )
    after.retries, after.seen = request.retries, True
    return after
