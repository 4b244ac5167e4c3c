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
from dataclasses import dataclass, field
from typing import Any

from kvroom.kvcache.connector import Brought
from kvroom.kvcache.extents import Holding
from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.event_engine import Server
from kvroom.simulator.live import Live
from kvroom.simulator.replicas import Replica


@dataclass(frozen=True, slots=True)
class Source:
    """Where a handed-over request's cache is: the ``sent`` one on an engine of a replica; its prompt was
    computed from ``begun_ps`` to ``end_ps``."""

    replica: Replica
    engine: Server
    sent: Live
    begun_ps: int
    end_ps: int

    @property
    def there(self) -> bool:
        """Whether that engine still lives."""
        return self.replica.engine is self.engine


@dataclass(kw_only=True)
class Wire:
    """What connects two pools: ``bytes_per_s`` of one replica's link, ``latency_s``, whether layers
    (``layers`` of them) cross one by one, how many bytes so many tokens of a request are, and how many
    tokens the receivers take at most."""

    bytes_per_s: float
    latency_s: float
    layerwise: bool
    layers: int
    request_bytes: Callable[[int], int]
    longest_tokens: int
    free_ps: dict[int, int] = field(default_factory=dict)
    """By place: when that replica's link is free again."""
    transfers: int = 0
    moved_bytes: int = 0
    waited_ps: int = 0
    """From a request's place on the receiver to its cache, all transfers together."""

    def left_ps(self, source: Source, sent_bytes: int) -> int:
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


class Receiver:
    """The ``bring.Bringer`` of the replica at ``place``; ``release`` is told when a sender may give up its
    blocks."""

    def __init__(self, wire: Wire, place: int, release: Callable[[Source, int], None]) -> None:
        self.wire = wire
        self.place = place
        self.release = release
        wire.free_ps.setdefault(place, 0)

    def offer(self, live: Live, now: int, found: int, limit: int) -> Brought | None:
        """The whole prompt, from whoever computed it."""
        source = live.source
        if source is None or not source.there:
            return None
        ready, _, _, _ = self._crossing(source, live, now, found)
        return Brought(live.known - 1, ready)

    def admitted(self, live: Live, now: int, found: int, brought: Brought | None) -> None:
        """It has its blocks: the transfer is begun or waits for the links."""
        source, wire = live.source, self.wire
        live.source = None
        if source is None or brought is None:
            return
        over, sent_ps, got_ps, size = self._crossing(source, live, now, found)
        if size:
            wire.free_ps[source.replica.place] = sent_ps
            wire.free_ps[self.place] = got_ps
        wire.transfers += 1
        wire.moved_bytes += size
        wire.waited_ps += over - now
        self.release(source, over)

    def _crossing(
        self, source: Source, live: Live, now: int, found: int
    ) -> tuple[int, int, int, int]:
        """When the cache is there, when the sender's and the receiver's links are free again, how many
        bytes cross."""
        wire = self.wire
        size = wire.request_bytes(live.known - 1) - (wire.request_bytes(found) if found else 0)
        if size <= 0:
            return now, now, now, 0
        left = wire.left_ps(source, size)
        sent = max(now, wire.free_ps.get(source.replica.place, 0)) + left
        got = max(now, wire.free_ps[self.place]) + left
        return max(sent, got) + round(wire.latency_s * PS_PER_S), sent, got, size


def continued(live: Live, source: Source) -> Live:
    """The request as the receiver gets it: ``live`` with its first token, or one more."""
    held = None if live.held is None else Holding(live.held.names, live.held.named)
    after = Live(live.index, live.arrival_ps, live.prompt, live.goal - live.prompt, held)
    after.known = live.known + 1
    after.first_ps, after.token_ps = live.first_ps, source.end_ps
    after.priority, after.session, after.chat = live.priority, live.session, live.chat
    after.cached_tokens, after.preemptions = live.cached_tokens, live.preemptions
    after.retries, after.seen = live.retries, True
    after.source = source
    return after
