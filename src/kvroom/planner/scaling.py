"""The autoscaler that a Scenario asks for, on the simulator's clock."""

from __future__ import annotations

from kvroom.latency.clock import StepClock
from kvroom.planner.pools import Scaling
from kvroom.simulator.autoscaling.concurrency import AtATime
from kvroom.simulator.autoscaling.gauges import ScalingRule
from kvroom.simulator.autoscaling.hpa import PodMetrics, SummedMetrics
from kvroom.simulator.autoscaling.planner import ByLatency, ByThroughput
from kvroom.simulator.autoscaling.saturation import SpareCapacity
from kvroom.simulator.autoscaling.thresholds import Autoscale
from kvroom.simulator.replicas import seconds_ps


def scaling_rule(scaling: Scaling, clock: StepClock, batch_tokens: int) -> ScalingRule:
    """The rule of ``scaling`` for replicas whose step times come from ``clock`` and which take at most
    ``batch_tokens`` a step."""
    rule, least, most = scaling.rule, scaling.least, scaling.most
    rule.check_targets("autoscale")
    targets = rule.metrics or {}
    match rule.policy:
        case "hpa":
            return PodMetrics(targets, rule.setting, least, most)
        case "keda":
            return SummedMetrics(targets, rule.setting, least, most)
        case "knative":
            return AtATime(rule.setting, least, most)
        case "llm-d":
            return SpareCapacity(rule.setting)
        case "dynamo-load":
            return ByLatency(rule.setting, clock, batch_tokens)
        case "dynamo-throughput":
            return ByThroughput(rule.setting)
    return Autoscale(
        least=least,
        most=most,
        every_ps=seconds_ps(rule.every_s),
        cool_down_ps=seconds_ps(rule.cool_down_s),
        queue=rule.queue,
        high=rule.high,
        low=rule.low,
    )
