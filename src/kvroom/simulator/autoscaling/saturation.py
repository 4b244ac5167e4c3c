"""``llm-d``: the saturation analysis of llm-d's workload variant autoscaler, of one variant.

Source: llm-d-workload-variant-autoscaler, docs/saturation-analyzer.md. A replica is saturated where the most
of its blocks held, or of its queue, in the last ``peak_window`` reaches ``kv_threshold`` or
``queue_threshold``; what the others have left below that is their spare. Every ``interval``: one more where
the spare is on average less than ``kv_spare`` or ``queue_spare``, or all are saturated; one fewer where at
least two are not and, their load on one fewer, both would still be as much. While one starts none is added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.autoscaling.gauges import PoolGauges, ScalingRule


class SpareCapacity(ScalingRule):
    """``llm-d``."""

    def __init__(self, setting: Callable[[str], float]) -> None:
        self.interval_ps = round(setting("interval") * PS_PER_S)
        self.every_ps = min(self.interval_ps, round(setting("scrape") * PS_PER_S))
        self.window_ps = round(setting("peak_window") * PS_PER_S)
        self.kv, self.queue = setting("kv_threshold"), setting("queue_threshold")
        self.kv_spare, self.queue_spare = setting("kv_spare"), setting("queue_spare")
        self.decided_ps = 0
        self._seen: deque[tuple[int, list[tuple[float, int]]]] = deque()

    def target(self, gauges: PoolGauges) -> int:
        """One more, one fewer or as many, once an interval."""
        now = gauges.now_ps
        self._seen.append((now, [(each.kv, each.waiting) for each in gauges.ready]))
        while self._seen[0][0] <= now - self.window_ps:
            self._seen.popleft()
        if now < self.decided_ps + self.interval_ps:
            return gauges.there
        self.decided_ps = now
        return gauges.there + self.change(self._peaks(), gauges.starting)

    def _peaks(self) -> list[tuple[float, int]]:
        """The most of each replica that is ready, over the window in which as many were."""
        latest = self._seen[-1][1]
        same = [each for _, each in self._seen if len(each) == len(latest)]
        return [
            (max(each[i][0] for each in same), max(each[i][1] for each in same))
            for i in range(len(latest))
        ]

    def change(self, peaks: Sequence[tuple[float, int]], starting: int) -> int:
        """+1, −1 or 0 for these shares of blocks and queues."""
        free = [(kv, queue) for kv, queue in peaks if kv < self.kv and queue < self.queue]
        if not peaks:
            return 0
        if not free:
            return 0 if starting else 1
        count = len(free)
        kv_load, queue_load = sum(kv for kv, _ in free), sum(queue for _, queue in free)
        if (
            self.kv - kv_load / count < self.kv_spare
            or self.queue - queue_load / count < self.queue_spare
        ):
            return 0 if starting else 1
        fits = (
            count >= 2
            and self.kv - kv_load / (count - 1) >= self.kv_spare
            and self.queue - queue_load / (count - 1) >= self.queue_spare
        )
        return -1 if fits else 0
