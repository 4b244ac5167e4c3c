"""What came of a simulation: times by request, gaps between tokens by run, counts and a time line."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvroom.simulation.server import Live, Server


class Gaps:
    """Gaps between tokens, kept as runs of steps.

    A run is ``steps`` gaps of ``first``, ``first + slope``, … picoseconds, each had by ``weight`` requests.
    """

    __slots__ = ("count", "first", "slope", "steps", "total_ps", "weight")

    def __init__(self) -> None:
        self.first = array("q")
        self.slope = array("q")
        self.steps = array("q")
        self.weight = array("q")
        self.count = 0
        self.total_ps = 0

    def add(self, first: int, slope: int, steps: int, weight: int, spent: int) -> None:
        """A run that lasts ``spent``."""
        self.first.append(first)
        self.slope.append(slope)
        self.steps.append(steps)
        self.weight.append(weight)
        self.count += steps * weight
        self.total_ps += spent * weight


class Outcome:
    """What a server reports while it runs."""

    def __init__(self) -> None:
        self.gaps = Gaps()
        self.ttft_ps = array("q")
        self.e2e_ps = array("q")
        self.tpot_ps = array("d")
        self.preempted = 0
        self.dropped = 0
        self.admissions = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.peak_blocks = 0

    def peak(self, blocks: int) -> None:
        """So many blocks are held."""
        if blocks > self.peak_blocks:
            self.peak_blocks = blocks

    def admitted(self, live: Live, cached_tokens: int) -> None:
        """A request's first tokens are scheduled, so many of its prompt found cached."""
        if not live.preemptions:
            self.admissions += 1
            self.prompt_tokens += live.prompt
            self.cached_tokens += cached_tokens

    def first(self, live: Live) -> None:
        """A request got its first token."""
        self.ttft_ps.append(live.first_ps - live.arrival_ps)

    def done(self, live: Live, end: int) -> None:
        """A request got its last token at ``end``."""
        self.e2e_ps.append(end - live.arrival_ps)
        tokens = live.total - live.prompt
        self.output_tokens += tokens
        if tokens > 1:
            self.tpot_ps.append((end - live.first_ps) / (tokens - 1))

    def drop(self, live: Live) -> None:
        """A request can never be served."""
        self.dropped += 1

    def sample(self, server: Server) -> None:
        """Note how things stand."""
