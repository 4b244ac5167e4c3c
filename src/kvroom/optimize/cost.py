"""The figures that decisions are made by, and which of two answers is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.planner.plan import Workings
from kvroom.records import dataclass

STAIRS = ("held", "expected", "shared")
"""Which requests a figure counts: whole ones, as the verdict does; at the workload's lengths, paged; the
same with the shared prefix stored once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Requests at once (whole deployment, replicas in); seconds of a decode step, of it for each token
    that it gives a request (several where tokens are drafted), and to the first token; dollars for a
    million output tokens. None is not known or not asked."""

    requests: float | None = None
    step_s: float | None = None
    token_s: float | None = None
    ttft_s: float | None = None
    usd_per_million_output_tokens: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON values."""
        return asdict(self)


ORDERS: Mapping[str, Callable[[Figures], float]] = {
    "requests": lambda f: -inf if f.requests is None else f.requests,
    "step": lambda f: -(f.token_s or inf),
    "ttft": lambda f: -(f.ttft_s or inf),
    "cost": lambda f: -(f.usd_per_million_output_tokens or inf),
}
"""What levers can be ranked by; more is better."""


def figures_of(workings: Workings, stair: str = "held") -> Figures:
    """The figures of a Plan; requests are those of that ``stair``."""
    plan = workings.plan
    return Figures(
        requests=_requests(workings, stair),
        step_s=plan.step.seconds,
        token_s=plan.step.seconds / plan.step.tokens_per_request if plan.step.seconds else None,
        ttft_s=plan.serving.ttft_s,
        usd_per_million_output_tokens=plan.cost.usd_per_million_output_tokens,
    )


def _requests(workings: Workings, stair: str) -> float | None:
    plan = workings.plan
    replicas = plan.scenario.replicas
    if stair != "held":
        room = getattr(plan.capacity, stair).requests
        return None if room is None else room * replicas
    if not workings.deployment.model.generates:
        return None
    held = workings.held
    return (held or 0) * replicas


def binding_figure(plan: Plan, account: str) -> Any:
    """The size in ``plan`` of the ``account`` that binds, which a lever must change to help."""
    match account:
        case "kv_memory" | "state":
            each = plan.kv.bytes_per_request_per_gpu
            return (plan.memory.kv_bytes / each if each else 0) * plan.scenario.dp
        case "weights":
            return next(
                (account.bytes for account in plan.memory.accounts if account.name == "weights"), 0
            )
        case "max_num_seqs":
            return plan.capacity.engine and plan.capacity.engine.max_running_requests
        case "context":
            return plan.scenario.context_tokens
        case "bandwidth" | "compute":
            return plan.step.seconds
    return None
