"""What a log says of one start."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from kvroom.engines.log_shapes import Figures
from kvroom.engines.shortage import Shortage
from kvroom.records import dataclass


@dataclass(frozen=True, kw_only=True)
class StartupLog:
    """What a log says of one start.

    ``printed`` are figures under the common names (``weights_bytes``, ``kv_tokens`` …), ``question``
    the keys of a Scenario that it states, ``spread`` figures that differ from rank to rank,
    ``refusals`` sentences with which the engine refused. ``notes`` say what else there was.
    """

    engine: str | None
    printed: Figures = field(default_factory=dict)
    question: dict[str, Any] = field(default_factory=dict)
    quantisation: str | None = None
    spread: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    shortage: Shortage | None = None
    """The allocation for which a GPU had no room, of several the one that missed most."""
    notes: tuple[str, ...] = ()
    cpu: bool = False
    padding: tuple[str, ...] = ()
    devices: tuple[Figures, ...] = ()
    """What each GPU holds, where an engine prints it by device; ``printed`` is of the fullest."""

    def on_device(self, at: int) -> StartupLog:
        """The same with the figures of that GPU, where there are several."""
        if len(self.devices) < 2 or at >= len(self.devices):
            return self
        return replace(self, printed={**self.printed, **self.devices[at]})

    @property
    def version(self) -> str | None:
        """The engine's version as printed."""
        return self.question.get("engine_version")
