"""What engines call their metrics, by version: one table an engine (``Engine.metrics``).

A figure has several names where versions differ; all that are there are read, and of gauges the largest
counts: they are either the same figure under an old and a new name or pools of which the fullest breaks
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.records import dataclass

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class MetricNames:
    """One engine's names (without ``prefix``) by our figure; ``fix`` turns its metrics on."""

    engine: str
    prefix: str
    gauges: Names
    counters: Names
    histograms: Names
    info: tuple[str, ...]
    """Gauges whose labels describe the cache."""
    fix: str

    def flags(self, info: Mapping[str, str]) -> dict[str, Any]:
        """The flags that those labels tell."""
        return {}

    def samples(self) -> dict[str, tuple[str, str]]:
        """Whole sample name → (kind, figure)."""
        found: dict[str, tuple[str, str]] = {}
        for kind, names in (("gauge", self.gauges), ("counter", self.counters)):
            found |= {self.prefix + n: (kind, figure) for figure, ns in names.items() for n in ns}
        for figure, names_of in self.histograms.items():
            for name in names_of:
                for part in ("bucket", "sum", "count"):
                    found[f"{self.prefix}{name}_{part}"] = (part, figure)
        return found | {self.prefix + n: ("info", n) for n in self.info}


SAME_FIGURE_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of ranks that tell the same figure each; of ranks of other labels the figures add up."""
OF_THE_PROCESS = ("python_", "process_", "http_", "go_", "promhttp_")
"""Beginnings of names that are the server's, not the engine's."""
START = "process_start_time_seconds"
