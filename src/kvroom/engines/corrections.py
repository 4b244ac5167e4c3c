"""Calibration files: measured corrections that later plans use, as ``--calibration FILE``.

``{"kvroom_calibration": 1, "memory": {"entries": […]}, "times": {…}}``; either part may be left out.
This module reads the memory part: entries of the plan's engine and card, whose measured accounts over
predicted ones scale the plan's own estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

from kvroom.engines.base import EngineAnswer
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError, check_spelling
from kvroom.sharding.deployment import Deployment
from kvroom.units import MAX_BYTES, check_int

FORMAT = 1
RATIOS = ("weights", "activations", "runtime", "graphs")
"""The accounts that a measured one corrects; weights those of the same model only."""
KEYS = ("kvroom_calibration", "memory", "times")
ENTRY_KEYS = (
    "engine", "engine_version", "gpu", "gpus", "accounts", "source", "model", "visible_bytes",
)  # fmt: skip
"""What a file and its entries say; a key that is no slip of one of them is another tool's."""
LEAST, MOST = 0.05, 20.0
"""A ratio outside these says that something else was measured."""
_FIX = "Give a file that kvroom reconcile --calibrate or kvroom calibrate wrote."


def check(value: Any, field: str = "calibration") -> Mapping[str, Any]:
    """``value`` as a calibration file's content; KvroomError otherwise."""
    if not isinstance(value, Mapping) or "kvroom_calibration" not in value:
        raise KvroomError(field, value, "is no calibration", _FIX)
    if value["kvroom_calibration"] != FORMAT:
        version = value["kvroom_calibration"]
        raise KvroomError(field, version, f"is a format other than {FORMAT}", _FIX)
    check_spelling(field, value, KEYS)
    if not value.keys() & {"memory", "times"}:
        raise KvroomError(field, list(value), "holds neither memory nor times", _FIX)
    memory = value.get("memory", {})
    entries = memory.get("entries", []) if isinstance(memory, Mapping) else None
    if not isinstance(entries, list | tuple):
        raise KvroomError(f"{field}.memory", memory, "holds no list of entries", _FIX)
    check_spelling(f"{field}.memory", memory, ("entries",))
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("accounts", {}), Mapping):
            raise KvroomError(f"{field}.memory", entry, "is not an entry with accounts", _FIX)
        check_spelling(f"{field}.memory.entries", entry, ENTRY_KEYS)
        check_spelling(f"{field}.memory.entries.accounts", entry.get("accounts", {}), RATIOS)
    return value


def memory_entries(value: Any, engine: str, gpu: str) -> list[Mapping[str, Any]]:
    """The entries that hold for ``engine`` on ``gpu``."""
    if value is None:
        return []
    entries = check(value).get("memory", {}).get("entries", [])
    return [entry for entry in entries if entry.get("engine") == engine and entry.get("gpu") == gpu]


def visible_bytes(entries: Sequence[Mapping[str, Any]]) -> int | None:
    """The card's bytes as the engine saw them, the least of the entries."""
    sizes = [
        check_int("calibration.memory.visible_bytes", entry["visible_bytes"], low=1, high=MAX_BYTES)
        for entry in entries
        if entry.get("visible_bytes") is not None
    ]
    return min(sizes, default=None)


def ratio(entries: Sequence[Mapping[str, Any]], account: str) -> float | None:
    """Measured over predicted bytes of ``account``, the geometric mean of the entries."""
    logs = []
    for entry in entries:
        measured = entry.get("accounts", {}).get(account)
        if not isinstance(measured, Mapping):
            continue
        sizes = [
            check_int(
                f"calibration.memory.accounts.{account}.{k}", measured.get(k), low=0, high=MAX_BYTES
            )
            for k in ("measured_bytes", "predicted_bytes")
        ]
        if all(sizes):
            logs.append(log(min(max(sizes[0] / sizes[1], LEAST), MOST)))
    return exp(sum(logs) / len(logs)) if logs else None


def corrected(
    one_deployment: Deployment, answer: EngineAnswer, calibration: Any, model: Any
) -> tuple[Deployment, EngineAnswer, tuple[str, ...]]:
    """The deployment and answer with what ``calibration`` measured in place of estimates, and a note.

    ``model`` is the Scenario's. What ``known_bytes`` states already is left as it is.
    """
    entries = memory_entries(calibration, one_deployment.engine, one_deployment.device.name)
    if not entries:
        return one_deployment, answer, ()
    known: dict[str, int] = {}
    visible = visible_bytes(entries)
    if visible is not None:
        known["visible"] = visible
    for account in answer.accounts:
        if account.name in RATIOS:
            fitting = [
                entry
                for entry in entries
                if account.name != "weights" or entry.get("model") == model
            ]
            factor = ratio(fitting, account.name)
            if factor is not None:
                known[account.name] = round(account.bytes * factor)
    known |= one_deployment.known_bytes
    deployment = replace(one_deployment, known_bytes=known)
    names = ", ".join(n for n in known if n not in one_deployment.known_bytes)
    note = (
        f"corrected by {len(entries)} measured start of {one_deployment.engine} on "
        f"{one_deployment.device.name}: {names}"
    )
    return deployment, engine_of(deployment.engine).answer(deployment), (note,) if names else ()
