"""Several engines that share the requests, each on its own clock, and how things stood over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from kvroom.simulation.live import FOREVER, Live
from kvroom.simulation.outcome import NUMBERS, Outcome

TOGETHER = 64
"""Requests that are handed out before the engines go on."""
EVENTS = 64
"""Events of one engine between two looks at how things stand."""
LONGEST_LINE = 4096
"""Moments of a time line: with more, every other one is left out."""


class Engine(Protocol):
    """What serves: ``server.Server`` or ``stepper.Stepper``."""

    decide: int
    end: int
    next_ps: int
    strict: bool
    """Whether nothing is decided beyond ``until``, though it does not matter to the engine itself."""

    def push(self, live: Live) -> None:
        """A request that comes."""
        ...

    @property
    def wakes_ps(self) -> int:
        """When it next decides anything; FOREVER where it has nothing to do."""
        ...

    def come(self, live: Live, time_ps: int) -> None:
        """A request that comes at ``time_ps``, whenever it first arrived."""
        ...

    def gather(self, now: int) -> None:
        """Queue all who have come by ``now``."""
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


Watch = Callable[[Moment], bool]
"""Told how things stand from time to time; True ends the simulation there."""


class Line:
    """How things stood over time: looks at ``engines`` every so often."""

    def __init__(self, outcome: Outcome, watch: Watch | None) -> None:
        self.outcome = outcome
        self.watch = watch
        self.moments: list[Moment] = []
        self._every = self._skip = 1
        self._seen = 0

    def stops(self, engines: Sequence[Engine]) -> bool:
        """Note how things stand; whether the watcher has had enough."""
        self.outcome.gaps.settle(NUMBERS)
        self._skip -= 1
        if self._skip:
            return False
        self._skip = self._every
        outcome = self.outcome
        fresh = outcome.ttft_ps[self._seen :]
        self._seen = len(outcome.ttft_ps)
        moment = Moment(
            max((e.decide for e in engines), default=0),
            sum(e.running_count for e in engines),
            sum(e.waiting_count for e in engines),
            sum(e.blocks_in_use for e in engines),
            outcome.prompt_tokens,
            outcome.cached_tokens,
            sum(fresh) // len(fresh) if fresh else 0,
            len(outcome.e2e_ps),
        )
        self.moments.append(moment)
        if len(self.moments) >= LONGEST_LINE:
            del self.moments[::2]
            self._every *= 2
        return self.watch is not None and self.watch(moment)


class Fleet:
    """``engines`` that take requests in turn, share nothing and report to one ``outcome``: each runs
    ahead by itself."""

    def __init__(
        self, engines: Sequence[Engine], outcome: Outcome, *, watch: Watch | None = None
    ) -> None:
        self.engines = engines
        self.outcome = outcome
        self.line = Line(outcome, watch)
        self.stopped = False

    def serve(self, feed: Iterable[Live]) -> None:
        """All requests of ``feed``, to the end or until ``watch`` stops it (``stopped``)."""
        engines, many = self.engines, len(self.engines)
        for count, live in enumerate(feed, 1):
            engines[live.index % many].push(live)
            if count % TOGETHER == 0 and not self.advance(live.arrival_ps):
                return
        self.advance(FOREVER)

    def advance(self, until: int) -> bool:
        """Let all go on to ``until``; False where it was stopped."""
        late = list(self.engines)
        while late:
            late = [engine for engine in late if not engine.advance(until, EVENTS)]
            if self.line.stops(self.engines):
                self.stopped = True
                return False
        return True

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        return sum(e.running_count for e in self.engines)

    @property
    def waiting_count(self) -> int:
        """Requests that have come and hold none."""
        return sum(e.waiting_count for e in self.engines)

    @property
    def peak_blocks(self) -> int:
        """The most blocks held at once, each engine's own most together."""
        return sum(e.peak_blocks for e in self.engines)

    @property
    def last_ps(self) -> int:
        """How far it got."""
        return max((e.decide for e in self.engines), default=0)
