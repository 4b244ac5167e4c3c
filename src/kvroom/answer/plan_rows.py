"""A Plan as a flat row: what was asked, and the figures that are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kvroom.answer.plan import Plan

FIGURES: Mapping[str, Callable[[Plan], Any]] = {
    "fits": lambda p: p.verdict.fits,
    "requests": lambda p: p.capacity.ceiling.requests if p.capacity.ceiling else None,
    "engine_requests": lambda p: p.capacity.engine.max_concurrency if p.capacity.engine else None,
    "expected_requests": lambda p: p.capacity.expected.requests,
    "shared_requests": lambda p: p.capacity.shared.requests,
    "weights_bytes": lambda p: p.weights.bytes,
    "kv_bytes": lambda p: p.memory.kv_bytes,
    "kv_bytes_per_token": lambda p: p.kv.bytes_per_token,
    "step_s": lambda p: p.step.seconds,
    "ttft_s": lambda p: p.serving.ttft_s,
    "ttft_low_s": lambda p: p.serving.ttft_low_s,
    "ttft_high_s": lambda p: p.serving.ttft_high_s,
    "tpot_s": lambda p: p.serving.tpot_s,
    "tpot_low_s": lambda p: p.serving.tpot_low_s,
    "tpot_high_s": lambda p: p.serving.tpot_high_s,
    "output_tokens_per_s": lambda p: p.serving.output_tokens_per_s,
    "usd_per_hour": lambda p: p.cost.usd_per_hour,
    "usd_per_million_output_tokens": lambda p: p.cost.usd_per_million_output_tokens,
    "joules_per_output_token": lambda p: p.cost.joules_per_output_token,
    "price_source": lambda p: p.cost.price_source,
}
"""The figures of a Plan that are compared, by the names of their columns."""


def plan_row(plan: Plan, keys: Iterable[str]) -> dict[str, Any]:
    """What was asked (its ``keys``), then FIGURES, as plain values."""
    question = plan.scenario.to_dict()
    asked = {key: question[key] if _flat(question[key]) else str(question[key]) for key in keys}
    return asked | {name: figure(plan) for name, figure in FIGURES.items()}


def _flat(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
