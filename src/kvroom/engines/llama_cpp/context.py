"""The context: rows of cells, for all slots together or each its own."""

from __future__ import annotations

from kvroom.engines.llama_cpp.versions import BuildRules
from kvroom.records import dataclass
from kvroom.units import ceil_div


def padded(tokens: int, to: int = 256) -> int:
    """``tokens`` rounded up to a multiple of ``to``."""
    return ceil_div(tokens, to) * to


@dataclass(frozen=True, slots=True)
class Context:
    """``streams`` rows of ``cells`` cells for ``slots`` slots, of which one request may use ``limit``."""

    slots: int
    streams: int
    cells: int
    limit: int

    @property
    def tokens(self) -> int:
        """Tokens of all slots together (what is printed as n_ctx)."""
        return self.cells * self.streams

    @property
    def slots_a_stream(self) -> int:
        """Slots that share a row of cells."""
        return self.slots // self.streams


def context_of(rules: BuildRules, slots: int, total: int, unified: bool) -> Context:
    """The cells of ``slots`` slots that share ``total`` tokens (-c)."""
    total = padded(total, rules.padding)
    if rules.streams and not unified:
        cells = padded(max(1, total // slots), rules.padding)
        return Context(slots, slots, cells, cells)
    return Context(slots, 1, total, total if unified else max(1, total // slots))
