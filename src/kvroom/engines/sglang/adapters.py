"""The LoRA adapters that SGLang's flags make room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.adapters import Adapters, enabled, number, targets_of

SLOTS = 8
ASSUMED_RANK = 16
"""It takes the rank from the adapters it is started with, which are not seen here."""


def adapters_of(args: Mapping[str, Any]) -> Adapters | None:
    """The adapters; None without them."""
    flags = read.plain_args(args)
    if not enabled(flags):
        return None
    targets = targets_of(flags)
    return Adapters(
        slots=number(flags, "max_loras_per_batch", SLOTS),
        rank=number(flags, "max_lora_rank", ASSUMED_RANK),
        targets=targets,
        assumed="max_lora_rank" not in flags or targets is None,
    )
