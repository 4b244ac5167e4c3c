"""What an autoscaler measures of a pool of replicas, and what every rule answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from kvroom.latency.clock import PS_PER_S
from kvroom.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGauge:
    """One replica that serves: requests in its queue and running, its blocks and those that are held,
    prompt tokens whose first token has not come, prompt tokens of all it serves."""

    waiting: int = 0
    running: int = 0
    held_blocks: int = 0
    blocks: int = 1
    owed_tokens: int = 0
    tokens: int = 0

    @property
    def kv(self) -> float:
        """The share of its blocks that is held."""
        return self.held_blocks / self.blocks if self.blocks else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGauges:
    """A pool at ``now_ps``: those that serve, how many are starting and draining, requests for which none is
    up, and how many requests (with how many prompt tokens) have come since the beginning."""

    now_ps: int
    ready: Sequence[ReplicaGauge] = ()
    starting: int = 0
    draining: int = 0
    stranded: int = 0
    came: int = 0
    came_tokens: int = 0

    @property
    def there(self) -> int:
        """Replicas that serve or will."""
        return len(self.ready) + self.starting

    def values(self, metric: str) -> list[float]:
        """One of ``METRICS``, of each replica that serves."""
        if metric == "concurrency":
            return [float(each.waiting + each.running) for each in self.ready]
        return [float(getattr(each, metric)) for each in self.ready]

    def total(self, metric: str) -> float:
        """Its sum, with the requests that wait for any replica to come."""
        stranded = self.stranded if metric in ("waiting", "concurrency") else 0
        return sum(self.values(metric)) + stranded


class ScalingRule:
    """How many replicas there should be, asked every ``every_ps``."""

    every_ps: int
    newest_first: ClassVar[bool] = True
    """Whether the replica that came last goes first (as a ReplicaSet's), else the emptiest."""

    def target(self, gauges: PoolGauges) -> int:
        """How many there should be; who asks keeps it between the least and the most."""
        raise NotImplementedError

    @property
    def patience_ps(self) -> int:
        """For how long it may want none though requests wait, and still start one."""
        return 2 * self.every_ps

    def changed(self, now_ps: int) -> None:
        """Replicas were started or let go because of it."""


class RateWindow:
    """Requests a second over the last ``window_s``, from counts taken now and then."""

    def __init__(self, window_s: float) -> None:
        self.window_ps = round(window_s * PS_PER_S)
        self._counts: deque[tuple[int, int]] = deque([(0, 0)])

    def rate(self, now_ps: int, came: int) -> float:
        """With this count taken: from the last count that is a window old, or the first."""
        counts = self._counts
        counts.append((now_ps, came))
        while len(counts) > 2 and counts[1][0] <= now_ps - self.window_ps:
            counts.popleft()
        then, before = counts[0]
        return (came - before) * PS_PER_S / (now_ps - then) if now_ps > then else 0.0
