"""Drive an engine's rules pass by pass, clocked in passes: the plain loop, and the oracle of fast ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from kvroom.engines.scheduler import Pass, RuleSet
from kvroom.errors import KvroomError
from kvroom.kvcache.request import Sequence
from kvroom.simulator.script_results import Played, RequestRecord

MAX_STEPS = 5_000_000
"""A run of more steps is refused: step by step it would take hours."""

OnScheduled = Callable[[Pass, RuleSet], None]
OnDelivered = Callable[[Pass, list[Sequence], RuleSet], None]


def play(
    rules: RuleSet,
    sequences: Iterable[Sequence],
    *,
    max_steps: int = MAX_STEPS,
    on_scheduled: OnScheduled | None = None,
    on_delivered: OnDelivered | None = None,
) -> Played:
    """Serve ``sequences`` (numbered 0, 1, … by their ``index``) until all are done or dropped.

    A step is a pass that schedules at least one token. Requests that have arrived by a step are
    queued before it, by arrival and then number; where nothing is to be done the clock jumps to the
    next arrival. A request that can never be served is dropped and counted. The watchers see each
    step when it is scheduled, and when its output is delivered, with the requests that it finished.
    KvroomError past ``max_steps`` steps.
    """
    coming = deque(sorted(sequences, key=lambda sequence: (sequence.arrival, sequence.index)))
    played = Played([RequestRecord() for _ in coming])
    flying: deque[Pass] = deque()
    step = 0
    while True:
        while coming and coming[0].arrival <= step:
            sequence = coming.popleft()
            if not rules.add(sequence):
                played.drop(sequence.index)
        if not rules.running_count and not rules.waiting_count and not flying:
            if not coming:
                return played
            step = coming[0].arrival
            continue
        made = rules.schedule()
        made.step = step
        played.scheduled(made, rules)
        if made.work:
            if played.total_steps > max_steps:
                raise _too_long(max_steps)
            step += 1
            flying.append(made)
            if on_scheduled:
                on_scheduled(made, rules)
        if len(flying) == rules.passes_in_flight or (flying and not made.work):
            done = flying.popleft()
            finished = rules.deliver(done)
            played.delivered(done, [sequence.index for sequence in finished])
            if on_delivered:
                on_delivered(done, finished, rules)
        elif not made.work and not made.preempted and not made.dropped:
            stuck = rules.drop_stuck()
            if stuck is not None:
                played.drop(stuck.index)


def _too_long(max_steps: int) -> KvroomError:
    fix = "Play fewer or shorter requests: every output token takes a step."
    return KvroomError("script", max_steps, "steps are not enough to serve it", fix)
