"""How things stand on engines that serve, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.metrics import NUMBERS, Outcome

EVENTS = 64
"""Events of one engine between two looks at how things stand."""
GLANCE = 32
"""Events of an engine that is alone between two counts of who runs."""
GLANCES = 8
"""Counts that make an average."""
LONGEST_LINE = 4096
"""Moments of a time line: with more, every other one is left out."""


class ServingEngine(Protocol):
    """What serves: an ``EventEngine`` or a ``StepEngine``."""

    decide: int
    end: int
    next_ps: int
    strict: bool
    """Whether nothing is decided beyond ``until``, though it does not matter to the engine itself."""

    def push(self, request: ServedRequest) -> None:
        """A request that comes."""
        ...

    @property
    def wakes_ps(self) -> int:
        """When it next decides anything; FOREVER where it has nothing to do."""
        ...

    def come(self, request: ServedRequest, time_ps: int) -> None:
        """A request that comes at ``time_ps``, whenever it first arrived."""
        ...

    def gather(self, now: int) -> None:
        """Queue all who have come by ``now``."""
        ...

    def advance(self, until: int, events: int) -> bool:
        """Take the decisions that fall before ``until``; False where ``events`` were not enough."""
        ...

    def evacuate(self) -> list[ServedRequest]:
        """All that it serves or was to get, to start elsewhere; it is of no use afterwards."""
        ...

    @property
    def has_prefills(self) -> bool:
        """Whether its next step may compute a prompt that others can read from a store."""
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


class Timeline:
    """How things stood over time: looks at ``engines`` every so often."""

    def __init__(self, outcome: Outcome, watch: Watch | None) -> None:
        self.outcome = outcome
        self.watch = watch
        self.moments: list[Moment] = []
        self._every = self._skip = 1
        self._seen = 0
        self._glances = 0
        self._last = (0, 0, False)  # time, running, whether any wait
        self._spent_ps = self._running_ps = self._spent_full_ps = self._running_full_ps = 0

    def go(self, engines: Sequence[ServingEngine], until: int) -> bool:
        """Let all go on to ``until``, each by itself; False where the watcher has had enough."""
        # Of several the turns decide which of two requests that follow on others is made first.
        turn = GLANCE if len(engines) == 1 else EVENTS
        late, events = engines, 0
        while late:
            late = [engine for engine in late if not engine.advance(until, turn)]
            events += turn
            self.glance(engines)
            if (not late or events % EVENTS == 0) and self.stops(engines):
                return False
        return True

    def glance(self, engines: Sequence[ServingEngine]) -> None:
        """Count who runs since the last time, halfway between then and now."""
        now = running = waiting = 0
        for engine in engines:
            if engine.decide > now:  # noqa: PLR1730 (a call costs more)
                now = engine.decide
            running += engine.running_count
            waiting += engine.waiting_count
        before, ran, waited = self._last
        full = waiting > 0
        if self._glances and now > before:
            running_ps = (now - before) * (ran + running)
            self._spent_ps += now - before
            self._running_ps += running_ps
            if full and waited:
                self._spent_full_ps += now - before
                self._running_full_ps += running_ps
        self._glances += 1
        self._last = (max(now, before), running, full)

    @property
    def at_once(self) -> dict[str, float | None]:
        """Requests that hold blocks, all engines together: ``mean`` over time, and ``while_waiting`` over
        the time between counts that both found others waiting. None where nothing was counted, or fewer
        than ``GLANCES`` times."""
        enough = self._glances >= GLANCES
        full = enough and self._spent_full_ps
        return {
            "mean": self._running_ps / (2 * self._spent_ps) if enough and self._spent_ps else None,
            "while_waiting": self._running_full_ps / (2 * self._spent_full_ps) if full else None,
        }

    def stops(self, engines: Sequence[ServingEngine]) -> bool:
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
            max((engine.decide for engine in engines), default=0),
            sum(engine.running_count for engine in engines),
            sum(engine.waiting_count for engine in engines),
            sum(engine.blocks_in_use for engine in engines),
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
