"""How many sessions a deployment holds within its objectives: found by simulation, seed by seed."""

from __future__ import annotations

from collections.abc import Callable

from kvroom.optimize.agents.trial import AgentTrial, tried
from kvroom.planner.plan import Workings
from kvroom.planner.sessions import Sessions
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.simulator.timeline import Watch

MOST_USERS = 4096
FIRST = 8
"""Sessions that are tried first unless something is known."""
STEPS = 24
"""A number is found to one part in so many, or to one session."""


@dataclass(frozen=True, slots=True)
class SeedHeld:
    """The most sessions that one seed holds (0: not one), and all that was tried, fewest first."""

    users: int
    trials: tuple[AgentTrial, ...]

    def at(self, users: int) -> AgentTrial | None:
        """The trial of so many sessions, if there was one."""
        return next((trial for trial in self.trials if trial.users == users), None)

    @property
    def best(self) -> AgentTrial | None:
        """The trial of as many as it holds."""
        return self.at(self.users)

    @property
    def broken(self) -> AgentTrial | None:
        """The smallest load that was too much."""
        return next((trial for trial in self.trials if not trial.met), None)


def held(
    workings: Workings,
    sessions: Sessions,
    slo: tuple[Objective, ...],
    *,
    seed: int = 0,
    guess: int = FIRST,
    also: int | None = None,
    most: int = MOST_USERS,
    short: bool = False,
    watch: Watch | None = None,
) -> SeedHeld:
    """The most sessions at a time that meet every objective, searched near ``guess``; ``also`` is tried
    too. ``short``: a trial that can only miss an objective is not played to its end.

    More sessions are taken to be no easier: the number lies between one that holds and one that does
    not.
    """
    trials: dict[int, AgentTrial] = {}

    def meets(users: int) -> bool:
        if users not in trials:
            trials[users] = tried(
                workings, sessions, users, slo, seed=seed, short=short, watch=watch
            )
        return trials[users].met

    low, high = _bracket(meets, min(max(1, guess), most), most)
    while high - low > max(1, low // STEPS):
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    if also is not None:
        meets(also)
    return SeedHeld(low, tuple(trials[users] for users in sorted(trials)))


def _bracket(meets: Callable[[int], bool], guess: int, most: int) -> tuple[int, int]:
    """A number that holds (0 does) and the next tried that does not (``most`` + 1 is not tried)."""
    step = max(1, guess // 8)
    if meets(guess):
        low = guess
        while low < most:
            further = min(most, low + step)
            if not meets(further):
                return low, further
            low, step = further, step * 2
        return low, low + 1
    high = guess
    while high > 1:
        fewer = max(1, high - step)
        if meets(fewer):
            return fewer, high
        high, step = fewer, step * 2
    return 0, 1
