"""A calibration file from a reconciled log: what one start measured, for later plans on the cluster.

The file is JSON: ``{"kvroom_calibration": 1, "memory": {"entries": […]}}`` and, from other evidence,
``times``. A memory entry says for which engine and card it holds, the card's bytes as the engine sees
them, and each account's measured bytes with what had been predicted, so that a plan of another model
on the same cards can be corrected by their ratio.
"""

from __future__ import annotations

from typing import Any

from kvroom.engines.corrections import FORMAT, RATIOS
from kvroom.errors import KvroomError
from kvroom.observe.reconcile import Reconciliation
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.units import MIB

OPEN = ("activations", "runtime")
"""The accounts that the printed cache tells of where the log does not print them."""
STEPS = 6
MOST_LEFT = 256 * MIB
"""More than this between printed accounts and the printed cache is something else than their rounding."""


def profile_of(reconciliation: Reconciliation, source: str) -> dict[str, Any]:
    """The calibration file's content; KvroomError where the log prints no account to learn from."""
    measured = {
        account.name: {
            "measured_bytes": account.printed_bytes,
            "predicted_bytes": account.predicted_bytes,
        }
        for account in reconciliation.accounts
        if account.name in RATIOS and account.printed_bytes is not None and account.predicted_bytes
    }
    visible = reconciliation.printed.get("total_gpu_bytes")
    if reconciliation.scenario is None or not (measured or visible):
        missing = ", ".join(reconciliation.missing) or "accounts of memory"
        raise KvroomError(
            "--calibrate", source, "has too little to learn from", f"It lacks: {missing}."
        )
    scenario = reconciliation.scenario
    entry: dict[str, Any] = {
        "engine": reconciliation.engine,
        "engine_version": reconciliation.engine_version,
        "gpu": scenario["gpu"] if isinstance(scenario["gpu"], str) else scenario["gpu"].get("name"),
        "gpus": scenario.get("tp", 1) * scenario.get("pp", 1),
        "accounts": measured,
        "source": f"start-up log {source}",
        "model": scenario["model"] if isinstance(scenario["model"], str) else "given by value",
    }
    if visible:
        entry["visible_bytes"] = visible
    content = {"kvroom_calibration": FORMAT, "memory": {"entries": [entry]}}
    return _settled(content, reconciliation)


def _settled(content: dict[str, Any], reconciliation: Reconciliation) -> dict[str, Any]:
    """The file with activations and runtime such that the same question gives the printed cache.

    What the share leaves beside weights and cache is their sum, whether they are printed or not; those
    that are not take what is left in proportion to the prediction. Where no such sizes exist (another
    process in the baseline, an engine whose cache does not follow from them) the file stays as it is.
    """
    entry = content["memory"]["entries"][0]
    before = dict(entry["accounts"])
    predicted = {
        account.name: account.predicted_bytes
        for account in reconciliation.accounts
        if account.predicted_bytes
    }
    left = [n for n in OPEN if n in predicted and n not in before]
    free = left or [n for n in OPEN[:1] if n in before]
    goal = reconciliation.printed.get("kv_tokens")
    if not goal or not free:
        return content
    question = {
        key: value
        for key, value in (reconciliation.scenario or {}).items()
        if key not in ("known_bytes", "calibration")
    }
    sizes = {n: before[n]["measured_bytes"] if n in before else predicted[n] for n in free}
    for _ in range(STEPS):
        now = {
            **content,
            "memory": {"entries": [{**entry, "accounts": {**before, **_pairs(sizes, predicted)}}]},
        }
        plan = work(Scenario.from_dict({**question, "calibration": now})).plan
        engine = plan.capacity.engine
        tokens = engine.kv_tokens if engine else None
        if tokens == goal:
            return now
        if not tokens or (block := engine.block_tokens if engine else None) is None:
            return content
        # A whole number of blocks keeps what is left over of the last one; half of one ends a see-saw.
        tokens_off = tokens - goal if abs(tokens - goal) > block else (tokens - goal) / 2
        over = round(tokens_off * plan.memory.kv_bytes / tokens)
        whole = sum(sizes.values())
        sizes = {key: round(value * (1 + over / whole)) for key, value in sizes.items()}
        if min(sizes.values()) <= 0 or (
            not left and abs(sum(sizes.values()) - before[free[0]]["measured_bytes"]) > MOST_LEFT
        ):
            return content
    return content


def _pairs(sizes: dict[str, int], predicted: dict[str, int]) -> dict[str, dict[str, int]]:
    return {
        key: {"measured_bytes": value, "predicted_bytes": predicted[key]}
        for key, value in sizes.items()
    }
