"""The way from what somebody expected to what an engine printed, step by step in requests.

Each step is what one cause takes from (or gives to) the requests of ``context_tokens`` that a replica
holds: from arithmetic over all memory, over overheads, the share asked for and the engine's own counting,
to what was measured otherwise and what nothing explains.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

from kvroom.engines.flags import plain_args
from kvroom.engines.registry import engine_of
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.planner.plan import Workings
from kvroom.records import dataclass
from kvroom.sharding.ledger import room

MEASURED = (
    ("weights", "weights_bytes", "weights as loaded"),
    ("activations", "activation_peak_bytes", "activations as measured"),
    ("runtime", "non_torch_bytes", "what is not PyTorch's, as measured"),
    ("graphs", "cuda_graph_estimate_bytes", "graphs as the engine estimates them"),
)
FIXES = {
    "overheads": "a smaller max_num_seqs or max_num_batched_tokens lowers the profiling run's peak",
    "share": "a larger share of memory",
    "counting": "the engine counts blocks, windows in flight or state beyond what a request stores",
    "unexplained": "another process on the card, another card of that name, or a flag the log leaves out",
}


@dataclass(frozen=True, kw_only=True)
class WayStep:
    """One cause, and the requests that are left after it."""

    cause: str
    label: str
    requests: float


@dataclass(frozen=True, kw_only=True)
class Way:
    """The steps in order, the largest loss among them, what would do, and the command to run."""

    steps: tuple[WayStep, ...]
    cause: str
    fix: str
    command: str = ""

    def args(self, workings: Workings, expect: float | None) -> dict[str, Any]:
        """The engine's flags that give back what the largest loss took; none where no flag does."""
        limits = engine_of(workings.plan.scenario.engine).limits
        losing = next((step.cause for step in self.steps if step.label == self.cause), "")
        if losing == "share":
            return {limits.share_flag(workings.plan.scenario.engine_args): None}
        if losing in ("overheads", "activations") and expect is not None and limits.sequences:
            return {limits.sequences: max(1, ceil(expect))}
        return {}

    @property
    def line(self) -> str:
        """``16 → overheads 14.5 → your share of 0.55 3.4 → unexplained 2.1``."""
        first, *rest = self.steps
        return " → ".join([f"{first.requests:g}", *(f"{s.label} {s.requests:.1f}" for s in rest)])


def way(expected: float, log: StartupLog, workings: Workings) -> Way | None:
    """The way from ``expected`` requests to the printed ones; None where either end is not known."""
    printed = _printed(log, workings)
    deployment, answer = workings.deployment, workings.answer
    rank, need = answer.rank, deployment.request_bytes(answer.rank)
    whole = room(deployment, rank, answer.gpu_bytes)
    if printed is None or not need or whole is None:
        return None
    accounts = {account.name: account for account in answer.accounts}
    graphs = engine_of(workings.plan.scenario.engine).subtracts_graphs(deployment)
    spent = sum(
        value.bytes
        for key, value in accounts.items()
        if key not in ("kv", "unused", "weights") and (key != "graphs" or graphs)
    )
    steps = [
        WayStep(cause="expected", label="expected", requests=expected),
        WayStep(cause="arithmetic", label="arithmetic", requests=float(whole)),
        WayStep(cause="overheads", label="overheads", requests=float(whole) - spent / need),
        WayStep(cause="share", label=_share_label(workings), requests=answer.kv_bytes / need),
    ]
    capacity = answer.capacity
    counted = capacity.max_concurrency if capacity is not None else None
    if counted is not None:
        steps.append(WayStep(cause="counting", label="the engine's counting", requests=counted))
    per_request = answer.kv_bytes / counted if counted else need
    now = steps[-1].requests
    for name, key, label in MEASURED:
        if key in log.printed and name in accounts and (name != "graphs" or graphs):
            moved = (accounts[name].bytes - log.printed[key]) / per_request
            if abs(moved) >= 0.05:
                now += moved
                steps.append(WayStep(cause=name, label=label, requests=now))
    steps.append(WayStep(cause="unexplained", label="unexplained", requests=printed))
    kept = [steps[0]]
    for step in steps[1:]:
        if step.cause == "unexplained" or abs(step.requests - kept[-1].requests) >= 0.05:
            kept.append(step)
    losses = [(a.requests - b.requests, b) for a, b in pairwise(kept)]
    worst = max(losses, key=lambda x: x[0])[1] if losses else kept[-1]
    return Way(
        steps=tuple(kept),
        cause=worst.label,
        fix=FIXES.get(worst.cause, "measure it again, and give it: --known-bytes"),
    )


def _printed(log: StartupLog, workings: Workings) -> float | None:
    """Requests of the plan's length by the log: its own concurrency, else its tokens."""
    printed, tokens = log.printed, workings.deployment.context_tokens
    if printed.get("max_concurrency") is not None:
        length = printed.get("max_model_len") or tokens
        return float(printed["max_concurrency"]) * length / tokens
    if printed.get("kv_tokens"):
        return float(printed["kv_tokens"]) / tokens
    return None


def _share_label(workings: Workings) -> str:
    args = plain_args(workings.plan.scenario.engine_args)
    share = args.get(engine_of(workings.plan.scenario.engine).limits.share_flag(args))
    return f"your share of {share:g}" if isinstance(share, int | float) else "its share of memory"
