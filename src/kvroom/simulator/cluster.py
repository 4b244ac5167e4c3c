"""Engines that take requests in turn and share nothing, each on its own clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.stream import FOREVER
from kvroom.simulator.timeline import ServingEngine, Timeline, Watch

TOGETHER = 64
"""Requests that are handed out before the engines go on."""


class Cluster:
    """``engines`` that take requests in turn, share nothing and report to one ``outcome``: each runs
    ahead by itself."""

    def __init__(
        self, engines: Sequence[ServingEngine], outcome: Outcome, *, watch: Watch | None = None
    ) -> None:
        self._engines = engines
        self.outcome = outcome
        self.timeline = Timeline(outcome, watch)
        self.stopped = False
        self.elsewhere_blocks = 0
        """The most blocks held at once by engines that another process served."""

    @property
    def engines(self) -> Sequence[ServingEngine]:
        """Those that are there."""
        return self._engines

    def serve(self, feed: Iterable[ServedRequest]) -> None:
        """All requests of ``feed``, to the end or until ``watch`` stops it (``stopped``)."""
        engines, many = self.engines, len(self.engines)
        for count, request in enumerate(feed, 1):
            engines[(count - 1) % many].push(request)
            if count % TOGETHER == 0 and not self.advance(request.arrival):
                return
        self.advance(FOREVER)

    def advance(self, until: int) -> bool:
        """Let all go on to ``until``; False where it was stopped."""
        if not self.timeline.go(self.engines, until):
            self.stopped = True
        return not self.stopped

    # How things stand

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        return sum(engine.running_count for engine in self.engines)

    @property
    def waiting_count(self) -> int:
        """Requests that have come and hold none."""
        return sum(engine.waiting_count for engine in self.engines)

    @property
    def peak_blocks(self) -> int:
        """The most blocks held at once, each engine's own most together."""
        own = sum(engine.peak_blocks for engine in self.engines)
        return own + self.elsewhere_blocks

    @property
    def last_ps(self) -> int:
        """How far it got."""
        return max((engine.decide for engine in self.engines), default=0)
