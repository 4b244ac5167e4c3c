"""``dynamo-load`` and ``dynamo-throughput``: the two scaling modes of Dynamo's planner, replicas that do both
prompts and answers (its aggregated mode).

Source: Dynamo documentation, "Planner Guide" and "Planner Design". Load-based, every ``interval``: each
replica's time to first token is estimated from the prompt tokens that it has still to compute and a prompt of
the mean length, in steps as long as its batch of tokens; its time between tokens from the requests that it
runs and their mean length. One more where all are above ``ttft``, or all above ``itl``; one fewer where all
are below ``sensitivity`` percent of both; nothing while a change is under way. The planner learns how long
steps take by regression over those it has seen; here they are those of the simulation's own clock.

Throughput-based: the requests a second of the last interval are expected again (the constant predictor),
over what one replica serves within its objectives, ``rps``, which its profiler measures.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from kvroom.latency.clock import PS_PER_S, StepClock
from kvroom.simulator.autoscaling.gauges import PoolGauges, RateWindow, ReplicaGauge, ScalingRule


class ByLatency(ScalingRule):
    """``dynamo-load``; steps have at most ``batch_tokens``."""

    def __init__(
        self, setting: Callable[[str], float], clock: StepClock, batch_tokens: int
    ) -> None:
        self.every_ps = round(setting("interval") * PS_PER_S)
        self.ttft_ps, self.itl_ps = setting("ttft") * PS_PER_S, setting("itl") * PS_PER_S
        self.share = setting("sensitivity") / 100
        self.clock, self.batch_tokens = clock, batch_tokens

    def times(self, one: ReplicaGauge, prompt_tokens: int) -> tuple[float, float]:
        """The estimated time to first token and between tokens of a request that comes to ``one``."""
        tokens = one.owed_tokens + prompt_tokens
        steps, left = divmod(tokens, self.batch_tokens)
        ttft = steps * self.clock.mixed_ps(one.running, self.batch_tokens, 1)
        ttft += self.clock.mixed_ps(one.running, left, 1) if left else 0
        served = one.running + one.waiting
        length = one.tokens // served if served else prompt_tokens
        running = one.running + 1
        return ttft, self.clock.decode_ps(running) + running * self.clock.context_ps(length)

    def target(self, gauges: PoolGauges) -> int:
        """One more, one fewer or as many."""
        if gauges.starting or gauges.draining or not gauges.ready:
            return gauges.there
        prompt = gauges.came_tokens // gauges.came if gauges.came else 1
        times = [self.times(each, prompt) for each in gauges.ready]
        if all(ttft > self.ttft_ps for ttft, _ in times):
            return gauges.there + 1
        if all(itl > self.itl_ps for _, itl in times):
            return gauges.there + 1
        calm = all(
            ttft < self.share * self.ttft_ps and itl < self.share * self.itl_ps
            for ttft, itl in times
        )
        return gauges.there - calm


class ByThroughput(ScalingRule):
    """``dynamo-throughput``."""

    def __init__(self, setting: Callable[[str], float]) -> None:
        self.every_ps = round(setting("interval") * PS_PER_S)
        self.rps = setting("rps")
        self.rates = RateWindow(setting("interval"))

    def target(self, gauges: PoolGauges) -> int:
        """As many as the last interval's requests need."""
        return max(1, ceil(self.rates.rate(gauges.now_ps, gauges.came) / self.rps))
