"""Kubernetes' HorizontalPodAutoscaler, and KEDA on top of it.

Source: kubernetes.io, "Horizontal Pod Autoscaling", and pkg/controller/podautoscaler (replica_calculator.go,
horizontal.go). Of each metric::

    desired = ceil(replicas × average / target)      unless average / target is 1 ± tolerance

where replicas that are not ready yet count as 0 when more are wanted, and nothing changes where that turns
the answer round. The largest of several metrics counts. Then the recommendations of the last ``down_window``
seconds hold a smaller one back (those of ``up_window`` a larger one), and no more than the larger of
``up_percent`` and ``up_pods`` come within ``up_period``, no more than ``down_percent`` go within
``down_period``.

KEDA (keda.sh, "Scaling Deployments"): metrics are sums, of which each replica should have ``target``. Every
``polling`` seconds: from none to one where a sum exceeds ``activation``; to none where none has for
``cooldown`` seconds and the least is 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor

from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.autoscaling.gauges import PoolGauges, RateWindow, ScalingRule


def of_each(
    current: int, values: Sequence[float], unready: int, target: float, tolerance: float
) -> int:
    """Replicas wanted by a metric of each that is ready, of ``current`` in all."""
    if not values:
        return current
    ratio = sum(values) / len(values) / target
    if not (unready and ratio > 1):
        return current if _within(ratio, tolerance) else ceil(ratio * len(values))
    all_in = sum(values) / (len(values) + unready) / target
    if _within(all_in, tolerance) or all_in < 1:
        return current
    wanted = ceil(all_in * (len(values) + unready))
    return max(wanted, current)


def of_sum(current: int, total: float, target: float, tolerance: float) -> int:
    """Replicas wanted by a sum of which each should have ``target``."""
    ratio = total / (target * current)
    return current if _within(ratio, tolerance) else ceil(total / target)


def _within(ratio: float, tolerance: float) -> bool:
    return 1.0 - tolerance <= ratio <= 1.0 + tolerance


class ScalingPace:
    """How a recommendation becomes a change: windows of older recommendations, and changes of the last
    periods."""

    def __init__(self, setting: Callable[[str], float]) -> None:
        self.up_window_ps = round(setting("up_window") * PS_PER_S)
        self.down_window_ps = round(setting("down_window") * PS_PER_S)
        self.up_percent, self.up_pods = setting("up_percent"), int(setting("up_pods"))
        self.up_period_ps = round(setting("up_period") * PS_PER_S)
        self.down_percent = setting("down_percent")
        self.down_period_ps = round(setting("down_period") * PS_PER_S)
        self._asked: deque[tuple[int, int]] = deque()
        self._changes: deque[tuple[int, int]] = deque()

    def paced(self, now: int, current: int, wanted: int) -> int:
        """What is done of ``wanted``, where there are ``current``."""
        asked = self._asked
        asked.append((now, wanted))
        while asked[0][0] < now - max(self.up_window_ps, self.down_window_ps):
            asked.popleft()
        least = min(w for t, w in asked if t >= now - self.up_window_ps)
        most = max(w for t, w in asked if t >= now - self.down_window_ps)
        stable = min(max(current, least), most)
        if stable > current:
            before = current - self._recent(now, self.up_period_ps, up=True)
            limit = max(ceil(before * (1 + self.up_percent / 100)), before + self.up_pods)
            stable = max(current, min(stable, limit))
        elif stable < current:
            before = current + self._recent(now, self.down_period_ps, up=False)
            stable = min(current, max(stable, floor(before * (1 - self.down_percent / 100))))
        if stable != current:
            self._changes.append((now, stable - current))
        return stable

    def _recent(self, now: int, period: int, *, up: bool) -> int:
        """Replicas that came (or went) within the last ``period``."""
        longest = max(self.up_period_ps, self.down_period_ps)
        while self._changes and self._changes[0][0] <= now - longest:
            self._changes.popleft()
        recent = (change for t, change in self._changes if t > now - period)
        return sum(max(0, change) if up else max(0, -change) for change in recent)


class PodMetrics(ScalingRule):
    """``hpa``: ``targets`` by metric, of each replica on average."""

    def __init__(
        self, targets: Mapping[str, float], setting: Callable[[str], float], least: int, most: int
    ) -> None:
        self.targets = targets
        self.least, self.most = least, most
        self.tolerance = setting("tolerance")
        self.every_ps = round(setting("sync") * PS_PER_S)
        self.pace = ScalingPace(setting)
        self.rates = RateWindow(setting("rate_window"))

    def wanted(self, gauges: PoolGauges) -> int:
        """The largest that any metric asks for, before it is paced."""
        rate = self.rates.rate(gauges.now_ps, gauges.came)
        return max(
            self._by(metric, target, rate, gauges) for metric, target in self.targets.items()
        )

    def _by(self, metric: str, target: float, rate: float, gauges: PoolGauges) -> int:
        if metric == "rate":
            return of_sum(gauges.there, rate, target, self.tolerance)
        values = gauges.values(metric)
        return of_each(gauges.there, values, gauges.starting, target, self.tolerance)

    def target(self, gauges: PoolGauges) -> int:
        """At least one is there."""
        if not gauges.there:
            return self.least
        wanted = min(max(self.wanted(gauges), self.least, 1), self.most)
        return self.pace.paced(gauges.now_ps, gauges.there, wanted)


class SummedMetrics(PodMetrics):
    """``keda``: ``targets`` by metric, of whose sums each replica should have so much."""

    def __init__(
        self, targets: Mapping[str, float], setting: Callable[[str], float], least: int, most: int
    ) -> None:
        super().__init__(targets, setting, least, most)
        self.polling_ps = round(setting("polling") * PS_PER_S)
        self.cooldown_ps = round(setting("cooldown") * PS_PER_S)
        self.activation = setting("activation")
        self.polled_ps = -self.polling_ps
        self.active_ps = 0

    @property
    def patience_ps(self) -> int:
        """Until it has polled."""
        return 2 * (self.polling_ps + self.every_ps)

    def _by(self, metric: str, target: float, rate: float, gauges: PoolGauges) -> int:
        return of_sum(gauges.there, self._sum(metric, rate, gauges), target, self.tolerance)

    @staticmethod
    def _sum(metric: str, rate: float, gauges: PoolGauges) -> float:
        return rate if metric == "rate" else gauges.total(metric)

    def target(self, gauges: PoolGauges) -> int:
        """None to one and one to none when it polls, else as the pods' autoscaler says."""
        now = gauges.now_ps
        if now >= self.polled_ps + self.polling_ps:
            self.polled_ps = now
            rate = self.rates.rate(now, gauges.came)
            if any(self._sum(metric, rate, gauges) > self.activation for metric in self.targets):
                self.active_ps = now
                if not gauges.there:
                    return max(1, self.least)
            elif not self.least and gauges.there and now >= self.active_ps + self.cooldown_ps:
                return 0
        return super().target(gauges) if gauges.there else 0
