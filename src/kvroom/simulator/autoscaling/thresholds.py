"""``threshold``: one replica more where they are busy, one fewer where they are not."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from kvroom.records import dataclass
from kvroom.simulator.autoscaling.gauges import PoolGauges, ScalingRule


@dataclass(kw_only=True)
class Autoscale(ScalingRule):
    """When replicas are started and let go, between ``least`` and ``most`` of them.

    Every ``every_ps``, and ``cool_down_ps`` after the last change at the earliest: one more where more
    than ``queue`` requests wait for each replica, or more than ``high`` of the cache's blocks are held;
    one fewer where nobody waits and less than ``low`` of them are. The emptiest goes.
    """

    newest_first: ClassVar[bool] = False

    least: int
    most: int
    every_ps: int
    cool_down_ps: int
    queue: float
    high: float
    low: float
    changed_ps: int = field(default=-1, init=False)

    def changed(self, now_ps: int) -> None:
        """The last change was now."""
        self.changed_ps = now_ps

    def target(self, gauges: PoolGauges) -> int:
        """One more, one fewer or as many."""
        return gauges.there + self._change(gauges)

    def _change(self, gauges: PoolGauges) -> int:
        there, ready = gauges.there, gauges.ready
        if there < self.least:
            return 1
        if self.changed_ps >= 0 and gauges.now_ps < self.changed_ps + self.cool_down_ps:
            return 0
        waiting = sum(each.waiting for each in ready)
        share = sum(each.held_blocks for each in ready) / max(1, sum(each.blocks for each in ready))
        if waiting > self.queue * there or share > self.high:
            return 1 if there < self.most else 0
        calm = not waiting and share < self.low and not gauges.starting and there > self.least
        return -1 if calm else 0
