"""The loop that plays passes drives any engine's rules: here one with slots and no blocks."""

import pytest

from kvroom.engines.scheduler import Admitted, EngineScheduler, ScheduledTokens, SchedulerOutput
from kvroom.kvcache.request import RequestStatus, ServedRequest
from kvroom.simulator.replay import play


class Slots:
    """A fixed number of slots; each holds one request from its whole prompt to its last token."""

    def __init__(self, slots, passes_in_flight=1):
        self.slots = slots
        self.steps_in_flight = passes_in_flight
        self.queues_idle = False
        self.running = []
        self.waiting = []

    running_count = property(lambda self: len(self.running))
    waiting_count = property(lambda self: len(self.waiting))
    blocks_in_use = property(lambda self: len(self.running))

    def add_request(self, sequence):
        self.waiting.append(sequence)
        return True

    def schedule(self, now=0):
        made = SchedulerOutput()
        while self.waiting and len(self.running) < self.slots:
            self.running.append(self.waiting.pop(0))
            made.admitted.append(Admitted(self.running[-1], 0, False))
        for sequence in self.running:
            tokens = (
                sequence.num_tokens
                + sequence.num_output_placeholders
                - sequence.num_computed_tokens
            )
            if (
                sequence.num_tokens + sequence.num_output_placeholders
                < sequence.num_prompt_tokens + (sequence.output_tokens)
            ):
                sequence.num_computed_tokens += tokens
                sequence.num_output_placeholders += 1
                made.scheduled.append(ScheduledTokens(sequence, tokens, True))
        return made

    def update_from_output(self, done):
        for sequence, *_ in done.scheduled:
            sequence.num_tokens += 1
            sequence.num_output_placeholders -= 1
        finished = [s for s in self.running if s.finished]
        self.running = [s for s in self.running if not s.finished]
        return finished

    def drop_stuck(self):
        stuck = self.waiting.pop(0) if self.waiting else None
        if stuck:
            stuck.status = RequestStatus.DROPPED
        return stuck


def requests(*arrivals, prompt=5, output=3):
    return [ServedRequest(i, arrival, prompt, output) for i, arrival in enumerate(arrivals)]


def finishes(rules: EngineScheduler, *arrivals):
    return [record.finish_step for record in play(rules, requests(*arrivals)).requests]


def test_another_engines_rules_are_driven_the_same_way():
    assert finishes(Slots(1), 0, 0) == [2, 5]
    assert finishes(Slots(2), 0, 0) == [2, 2]


def test_idle_steps_are_jumped():
    played = play(Slots(1), requests(4, 50))
    assert [r.first_scheduled_step for r in played.requests] == [4, 50]
    assert played.total_steps == 6


@pytest.mark.parametrize(("in_flight", "third"), [(1, 2), (2, 3)])
def test_with_two_passes_in_flight_a_slot_is_free_a_step_later(in_flight, third):
    short, long, waiting = (
        ServedRequest(0, 0, 5, 2),
        ServedRequest(1, 0, 5, 9),
        ServedRequest(2, 0, 5, 2),
    )
    records = play(Slots(2, in_flight), [short, long, waiting]).requests
    assert records[0].finish_step == 1
    assert records[2].first_scheduled_step == third


def test_rules_that_can_serve_nobody_end_the_run():
    played = play(Slots(0), requests(0, 3, 3))
    assert (played.total_steps, played.totals.dropped) == (0, 3)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_totals_add_up(in_flight):
    played = play(Slots(2, in_flight), requests(0, 1, 1, 7))
    assert played.totals.completed == 4
    assert played.totals.scheduled_tokens == 4 * (5 + 3 - 1)
