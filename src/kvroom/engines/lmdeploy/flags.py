"""LMDeploy's flags as a Scenario gives them: checked, and those that bear on memory under one roof.

Names are those of ``lmdeploy serve api_server`` and of ``TurbomindEngineConfig`` and
``PytorchEngineConfig`` (``messages.py``, 0.18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.flag_names import flag_names
from kvroom.records import dataclass
from kvroom.sharding.layout import Layout
from kvroom.units import check_float

SHARE = 0.8
BLOCK_TOKENS = 64
PREFILL_TOKENS = 8192
BACKENDS = ("turbomind", "pytorch")


@dataclass(frozen=True, slots=True, kw_only=True)
class LmdeployFlags:
    """The flags that bear on memory; None where LMDeploy decides. ``blocks``: their number, told outright."""

    share: float = SHARE
    blocks: int | None = None
    block_tokens: int = BLOCK_TOKENS
    sequences: int | None = None
    prefill_tokens: int = PREFILL_TOKENS
    backend: str = BACKENDS[0]

    @property
    def pytorch(self) -> bool:
        """The PyTorch engine, not TurboMind."""
        return self.backend == "pytorch"


def read_flags(args: Mapping[str, Any], layout: Layout) -> LmdeployFlags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    read.check_known("LMDeploy", args, KNOWN_FLAGS)
    given = read.plain_args(args)
    if "tp" in given:
        read.check_agrees("tp", given["tp"], "tp", layout.tp)
    found = read.fields_of(READERS, given)
    if found.get("share", 0) > 1:
        found.setdefault("blocks", int(found.pop("share")))
    if not found.get("blocks", 1):  # 0: from the share
        del found["blocks"]
    return LmdeployFlags(**found)


def _entries(field: str, value: Any) -> float:
    """A share of what is free, or above 1 a number of blocks."""
    number = read.value_of(value) if isinstance(value, str) else value
    return check_float(field, number, low=0.001, high=1e9)


def _blocks(field: str, value: Any) -> int:
    return read.number(field, value, 0, 10**9)


READERS: dict[str, tuple[str, read.Reader]] = {
    "cache_max_entry_count": ("share", _entries),
    "num_gpu_blocks": ("blocks", _blocks),
    "cache_block_seq_len": ("block_tokens", read.count),
    "block_size": ("block_tokens", read.count),
    "max_batch_size": ("sequences", read.count),
    "max_prefill_token_num": ("prefill_tokens", read.count),
    "backend": ("backend", read.one_of(*BACKENDS)),
}
NAMES = flag_names(__package__)
KNOWN_FLAGS = frozenset((*READERS, "tp", "ep", "session_len")) | NAMES.others
"""Every flag that a Scenario may carry."""
