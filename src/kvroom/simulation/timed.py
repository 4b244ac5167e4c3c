"""Drive an engine's rules pass by pass on a clock of picoseconds: the plain loop.

It serves any rule set, at the cost of a pass a step; ``server.Server`` jumps from event to event and
gives the same, block for block and tick for tick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from kvroom.simulation.rules import Pass, RuleSet
from kvroom.simulation.sequence import Sequence
from kvroom.timing.ticks import StepClock

OnDone = Callable[[Pass, list[Sequence], int], None]
"""Told of each pass when its output is there: which requests it finished, and when (ps)."""
OnScheduled = Callable[[Pass, int], None]


def stepped(
    rules: RuleSet,
    arrivals: Iterable[tuple[int, Sequence]],
    clock: StepClock,
    *,
    on_done: OnDone,
    on_scheduled: OnScheduled | None = None,
    on_dropped: Callable[[Sequence, int], None] | None = None,
) -> int:
    """Serve ``arrivals`` (ps, request; in order) to the end; gives the time at which all is done.

    What has arrived by the time of a scheduling pass is queued before it. With more passes in flight
    than one the next is scheduled when the one before starts.
    """
    coming: Iterator[tuple[int, Sequence]] = iter(arrivals)
    following = next(coming, None)
    flying: deque[tuple[Pass, int]] = deque()
    now = end = 0

    def dropped(sequence: Sequence) -> None:
        if on_dropped:
            on_dropped(sequence, now)

    while True:
        while following is not None and following[0] <= now:
            if not rules.add(following[1]):
                dropped(following[1])
            following = next(coming, None)
        if not rules.running_count and not rules.waiting_count and not flying:
            if following is None:
                return end
            now = max(now, following[0])
            continue
        made = rules.schedule()
        for sequence in made.dropped:
            dropped(sequence)
        if made.work:
            work = [(w.sequence.computed - w.tokens, w.tokens) for w in made.work]
            end = max(now, end) + clock.step_ps(work)
            flying.append((made, end))
        if on_scheduled and (made.work or made.preempted):
            on_scheduled(made, now)
        if len(flying) == rules.passes_in_flight or (flying and not made.work):
            done, over = flying.popleft()
            now = max(now, over)
            on_done(done, rules.deliver(done), over)
        elif not made.work and not made.preempted and not made.dropped:
            stuck = rules.drop_stuck()
            if stuck is not None:
                dropped(stuck)
