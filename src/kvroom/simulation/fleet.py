"""Several engines that share the requests, each on its own clock, and how things stood over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kvroom.simulation.feed import Feed
from kvroom.simulation.live import FOREVER, Live
from kvroom.simulation.outcome import Outcome

TOGETHER = 64
"""Requests that are handed out before the engines go on."""
EVENTS = 64
"""Events of one engine between two looks at how things stand."""
LONGEST_LINE = 4096
"""Moments of a time line: with more, every other one is left out."""


class Engine(Protocol):
    """What serves: ``server.Server`` or ``stepper.Stepper``."""

    decide: int

    def push(self, live: Live) -> None:
        """A request that comes."""
        ...

    def advance(self, until: int, events: int) -> bool:
        """Take the decisions that fall before ``until``; False where ``events`` were not enough."""
        ...

    @property
    def peak_blocks(self) -> int:
        """The most blocks that were held at once."""
        ...

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        ...

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests."""
        ...


class Moment(NamedTuple):
    """How things stand at one time, all engines together; tokens are those so far."""

    time_ps: int
    running: int
    waiting: int
    blocks: int
    prompt_tokens: int
    cached_tokens: int
    ttft_ps: int
    done: int


Route = Callable[[Live, Sequence[Engine]], int]
"""(request, engines) → which of them takes it."""
Watch = Callable[[Moment], bool]
"""Told how things stand from time to time; True ends the simulation there."""


def round_robin(live: Live, engines: Sequence[Engine]) -> int:
    """One after the other."""
    return live.index % len(engines)


ROUTES: dict[str, Route] = {"round-robin": round_robin}
"""By name; the first is what is done unless another is asked for."""


class Fleet:
    """``engines`` that report to one ``outcome``, and the ``line`` of moments they went through."""

    def __init__(
        self,
        engines: Sequence[Engine],
        outcome: Outcome,
        *,
        route: Route = round_robin,
        watch: Watch | None = None,
    ) -> None:
        self.engines = engines
        self.outcome = outcome
        self.route = route
        self.watch = watch
        self.line: list[Moment] = []
        self.stopped = False
        self._every = self._skip = 1
        self._seen = 0

    def serve(self, feed: Feed) -> None:
        """All requests of ``feed``, to the end or until ``watch`` stops it (``stopped``)."""
        engines, route = self.engines, self.route
        alone = engines[0] if len(engines) == 1 else None
        for count, live in enumerate(feed, 1):
            (alone or engines[route(live, engines)]).push(live)
            if count % TOGETHER == 0 and not self._advance(live.arrival_ps):
                return
        self._advance(FOREVER)

    def _advance(self, until: int) -> bool:
        """Let all go on to ``until``; False where it was stopped."""
        late = list(self.engines)
        while late:
            late = [engine for engine in late if not engine.advance(until, EVENTS)]
            if self._stops():
                self.stopped = True
                return False
        return True

    def _stops(self) -> bool:
        """Note how things stand; whether the watcher has had enough."""
        self._skip -= 1
        if self._skip:
            return False
        self._skip = self._every
        engines, outcome = self.engines, self.outcome
        fresh = outcome.ttft_ps[self._seen :]
        self._seen = len(outcome.ttft_ps)
        moment = Moment(
            max(e.decide for e in engines),
            sum(e.running_count for e in engines),
            sum(e.waiting_count for e in engines),
            sum(e.blocks_in_use for e in engines),
            outcome.prompt_tokens,
            outcome.cached_tokens,
            sum(fresh) // len(fresh) if fresh else 0,
            len(outcome.e2e_ps),
        )
        self.line.append(moment)
        if len(self.line) >= LONGEST_LINE:
            del self.line[::2]
            self._every *= 2
        return self.watch is not None and self.watch(moment)
