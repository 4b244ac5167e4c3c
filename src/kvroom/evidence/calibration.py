"""A calibration file from a reconciled log: what one start measured, for later plans on the cluster.

The file is JSON: ``{"kvroom_calibration": 1, "memory": {"entries": […]}}`` and, from other evidence,
``times``. A memory entry says for which engine and card it holds, the card's bytes as the engine sees
them, and each account's measured bytes with what had been predicted, so that a plan of another model
on the same cards can be corrected by their ratio.
"""

from __future__ import annotations

from typing import Any

from kvroom.errors import KvroomError
from kvroom.evidence.reconcile import Reconciliation
from kvroom.memory.calibration import FORMAT, RATIOS


def profile_of(r: Reconciliation, source: str) -> dict[str, Any]:
    """The calibration file's content; KvroomError where the log prints no account to learn from."""
    measured = {
        a.name: {"measured_bytes": a.printed_bytes, "predicted_bytes": a.predicted_bytes}
        for a in r.accounts
        if a.name in RATIOS and a.printed_bytes is not None and a.predicted_bytes
    }
    visible = r.printed.get("total_gpu_bytes")
    if r.scenario is None or not (measured or visible):
        said = ", ".join(r.missing) or "accounts of memory"
        raise KvroomError(
            "--calibrate", source, "has too little to learn from", f"It lacks: {said}."
        )
    s = r.scenario
    entry: dict[str, Any] = {
        "engine": r.engine,
        "engine_version": r.engine_version,
        "gpu": s["gpu"] if isinstance(s["gpu"], str) else s["gpu"].get("name"),
        "gpus": s.get("tp", 1) * s.get("pp", 1),
        "accounts": measured,
        "source": f"start-up log {source}",
        "model": s["model"] if isinstance(s["model"], str) else "given by value",
    }
    if visible:
        entry["visible_bytes"] = visible
    return {"kvroom_calibration": FORMAT, "memory": {"entries": [entry]}}
