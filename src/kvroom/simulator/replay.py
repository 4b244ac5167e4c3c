"""Drive an engine's rules step by step, clocked in steps: the plain loop, and the oracle of fast ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from kvroom.engines.scheduler import EngineScheduler, SchedulerOutput
from kvroom.errors import KvroomError
from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.script_results import RequestRecord, ScriptResult

MAX_STEPS = 5_000_000
"""A run of more steps is refused: step by step it would take hours."""

OnScheduled = Callable[[SchedulerOutput, EngineScheduler], None]
OnDelivered = Callable[[SchedulerOutput, list[ServedRequest], EngineScheduler], None]


def play(
    rules: EngineScheduler,
    requests: Iterable[ServedRequest],
    *,
    max_steps: int = MAX_STEPS,
    on_scheduled: OnScheduled | None = None,
    on_delivered: OnDelivered | None = None,
) -> ScriptResult:
    """Serve ``requests`` (numbered 0, 1, … by their ``index``) until all are done or dropped.

    A step is a step that schedules at least one token. Requests that have arrived by a step are
    queued before it, by arrival and then number; where nothing is to be done the clock jumps to the
    next arrival. A request that can never be served is dropped and counted. The watchers see each
    step when it is scheduled, and when its output is delivered, with the requests that it finished.
    KvroomError past ``max_steps`` steps.
    """
    coming = deque(sorted(requests, key=lambda request: (request.arrival, request.index)))
    result = ScriptResult([RequestRecord() for _ in coming])
    in_flight: deque[SchedulerOutput] = deque()
    step = idle = 0
    while True:
        while coming and coming[0].arrival <= step:
            request = coming.popleft()
            if not rules.add_request(request):
                result.drop(request.index)
        if not rules.running_count and not rules.waiting_count and not in_flight:
            if not coming:
                return result
            step = coming[0].arrival
            continue
        output = rules.schedule()
        output.step = step
        result.scheduled(output, rules)
        idle = 0 if output.scheduled else idle + 1
        if output.scheduled:
            if result.total_steps > max_steps:
                raise _too_long(max_steps)
            step += 1
            in_flight.append(output)
            if on_scheduled:
                on_scheduled(output, rules)
        elif rules.queues_idle and idle <= rules.steps_in_flight:
            in_flight.append(output)
            if len(in_flight) < rules.steps_in_flight:
                continue
        if len(in_flight) == rules.steps_in_flight or (in_flight and not output.scheduled):
            done = in_flight.popleft()
            if not done.scheduled:
                continue
            finished = rules.update_from_output(done)
            result.delivered(done, [request.index for request in finished])
            if on_delivered:
                on_delivered(done, finished, rules)
        elif not output.scheduled and not output.preempted and not output.dropped:
            stuck = rules.drop_stuck()
            if stuck is not None:
                result.drop(stuck.index)


def _too_long(max_steps: int) -> KvroomError:
    fix = "Play fewer or shorter requests: every output token takes a step."
    return KvroomError("script", max_steps, "steps are not enough to serve it", fix)
