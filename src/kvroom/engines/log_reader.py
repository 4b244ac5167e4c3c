"""Reading what an engine prints at its start: its shapes of lines, and what they say together.

Figures have common names (``weights_bytes``, ``kv_tokens`` …), so that a log is held against a plan
without asking whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from kvroom.engines.log_shapes import Figures, Record, Shape
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass

NARROW = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "compressed-tensors": None, "modelopt": "fp8",
    "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "awq": "int4", "awq_marlin": "int4",
    "gptq": "gptq_int4_g128", "gptq_marlin": "gptq_int4_g128", "bitsandbytes": "int4",
}  # fmt: skip
"""Words of engines that load checkpoints of the hub for how weights are stored → kvroom's; None where the
word leaves it open."""


class PrintedStart(NamedTuple):
    """One start and one account of it: the version (None where it is not printed), the figures, the bytes
    that were predicted and printed, the flags and the model."""

    version: str | None
    figures: Mapping[str, Any]
    predicted_bytes: int
    printed_bytes: int
    args: Mapping[str, Any]
    model: ModelSpec


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What would let an engine start that refused: in words, the engine's flags for it, and keys of the
    Scenario."""

    refusal: str
    text: str
    args: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class LogReader:
    """One engine's log. ``lasting`` are settings that hold for the starts that follow in a file.

    ``buffers``: the cache follows from the context, and is printed as buffers. ``cache_flag`` sets its
    bytes; ``scales``: without such a flag its tokens follow from the bytes printed. ``whole_share``: its
    share is one of the card's whole memory. ``ways_out``: flags with values worth trying where a stage of
    its start had no room, by the stage; ``length_flags`` those that say how long requests are.
    """

    engine: str
    shapes: tuple[Shape, ...] = ()
    lasting: tuple[str, ...] = ()
    buffers: bool = False
    cache_flag: str = ""
    scales: bool = False
    whole_share: bool = False
    ways_out: Mapping[str, Sequence[tuple[str, Sequence[Any]]]] = field(default_factory=dict)
    length_flags: tuple[str, ...] = ()

    def figures(self, record: Record) -> Figures:
        """The figures under their common names."""
        raise NotImplementedError(self.engine)

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        raise NotImplementedError(self.engine)

    def quantization(self, record: Record) -> str | None:
        """How the log says that the weights are stored, in the engine's word."""
        return None

    def devices(self, record: Record) -> tuple[Figures, ...]:
        """What each GPU holds, where it is printed by device."""
        return ()

    def weight_dtype(self, word: str) -> str | None:
        """kvroom's word for how the engine says that weights are stored."""
        return NARROW.get(word.lower())

    def known_bytes(self, printed: Mapping[str, Any]) -> dict[str, int]:
        """Accounts of one GPU that follow from several figures."""
        return {}

    def cache_bytes(self, printed: Mapping[str, Any]) -> int | None:
        """The bytes that keys and values were given."""
        size: int | None = printed.get("kv_available_bytes")
        return size

    def remedy(self, refusal: str, printed: Mapping[str, Any]) -> Remedy | None:
        """What would do against a refusal of the log; None where that is not known."""
        return None

    def reasons(self, account: str, start: PrintedStart) -> list[str]:
        """Why this engine prints another figure for an account than was predicted."""
        return []
