"""``knative``: Knative's pod autoscaler, on requests at a time.

Source: knative.dev, "Autoscaling", and serving/pkg/autoscaler/scaling/autoscaler.go. Every ``tick``, with the
requests that the pool serves and holds averaged over ``window`` and over a panic window of
``panic_window_percent`` of it::

    desired = ceil(average / (target × utilization))
    between floor(ready / down_rate) and ceil(ready × up_rate)

Where the short window wants more than ``panic_threshold_percent`` of those that are ready it panics: for a
whole window the most that the short window has wanted counts, and none go. None are left where the average is
0, ``zero_grace`` seconds after that is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil, floor

from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.autoscaling.gauges import PoolGauges, ScalingRule


class AtATime(ScalingRule):
    """``knative``."""

    def __init__(self, setting: Callable[[str], float], least: int, most: int) -> None:
        self.least, self.most = least, most
        self.each = setting("target") * setting("utilization")
        self.every_ps = round(setting("tick") * PS_PER_S)
        self.window_ps = round(setting("window") * PS_PER_S)
        self.panic_ps = round(self.window_ps * setting("panic_window_percent") / 100)
        self.panics = setting("panic_threshold_percent") / 100
        self.up, self.down = setting("up_rate"), setting("down_rate")
        self.grace_ps = round(setting("zero_grace") * PS_PER_S)
        self.since_ps = -1
        """Since when it panics; −1: it does not."""
        self.panicked = 0
        self.idle_ps = -1
        """Since when nobody came for a whole window."""
        self._seen: deque[tuple[int, float]] = deque()

    def target(self, gauges: PoolGauges) -> int:
        """How many there should be."""
        now, ready = gauges.now_ps, max(1, len(gauges.ready))
        self._seen.append((now, gauges.total("concurrency")))
        while self._seen[0][0] <= now - self.window_ps:
            self._seen.popleft()
        stable, short = self._mean(now, self.window_ps), self._mean(now, self.panic_ps)
        low, high = floor(len(gauges.ready) / self.down), ceil(self.up * ready)
        wanted = min(max(ceil(stable / self.each), low), high)
        panic = min(max(ceil(short / self.each), low), high)
        if panic / ready >= self.panics:
            self.since_ps = now
        elif self.since_ps >= 0 and now > self.since_ps + self.window_ps:
            self.since_ps, self.panicked = -1, 0
        if self.since_ps >= 0:
            self.panicked = max(self.panicked, panic, len(gauges.ready))
            wanted = self.panicked
        return self._or_none(now, wanted, stable)

    def _or_none(self, now: int, wanted: int, stable: float) -> int:
        if stable:
            self.idle_ps = -1
            return max(wanted, 1)
        if self.idle_ps < 0:
            self.idle_ps = now
        return wanted if now >= self.idle_ps + self.grace_ps else max(wanted, 1)

    def _mean(self, now: int, window: int) -> float:
        values = [value for t, value in self._seen if t > now - window]
        return sum(values) / len(values)
