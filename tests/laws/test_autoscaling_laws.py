"""Laws of autoscalers: nobody is lost, never more than the most, who drains loses nothing; and Kubernetes'
formula on any metrics."""

import random
from collections import Counter
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleets import fleet_of, said, some_rule
from kvroom.simulator.autoscaling.hpa import ScalingPace, of_each, of_sum
from serving import some_case

DICE = st.integers(0, 2**32).map(random.Random)


def there_over_time(fleet, begin):
    """How many serve or start, after each line of what happened, and how many drain."""
    there, draining = begin, 0
    yield there, draining
    gone = Counter()
    for event in fleet.history:
        match event.what:
            case "starts":
                there += 1
            case "drains":
                there -= 1
                draining += 1
                gone[event.place] += 1
            case "gone" | "ended" if gone[event.place]:
                draining -= 1
                gone[event.place] -= 1
            case "gone":
                there -= 1  # a start that was called off
        yield there, draining


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(DICE)
def test_nobody_is_lost_and_never_more_than_the_most(dice):
    case = some_case(dice)
    count = dice.randint(1, 5)
    rule, least = some_rule(dice, count, case.clock)
    begin = dice.randint(max(1, least), count)
    fleet, out = fleet_of(
        case, count, begin=begin, scale=rule, least=least, cold_ps=dice.choice([0, 300, 3000])
    )
    fleet.serve(case.lives())
    assert set(out.done_ps) | out.gone == set(range(len(case.requests)))
    assert not set(out.done_ps) & out.gone
    assert len(out.e2e_ps) == len(out.done_ps)
    assert fleet.retries == 0  # who drains finishes what it serves
    for there, draining in there_over_time(fleet, begin):
        assert least <= there <= count
        assert draining >= 0 and there + draining <= count
    assert sum(r.completed for r in fleet.replicas) == len(out.done_ps)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(DICE)
def test_who_is_ended_before_it_is_through_sends_its_requests_elsewhere(dice):
    case = some_case(dice)
    count = dice.randint(2, 4)
    rule, _ = some_rule(dice, count, case.clock)
    fleet, out = fleet_of(case, count, scale=rule, least=1, grace_ps=dice.choice([0, 100, 5000]))
    fleet.serve(case.lives())
    assert set(out.done_ps) | out.gone == set(range(len(case.requests)))
    assert len(out.e2e_ps) == len(out.done_ps)
    assert sum(r.requests for r in fleet.replicas) == len(case.requests) + fleet.retries
    ended = sum(event.what == "ended" for event in fleet.history)
    assert not fleet.retries or ended


VALUES = st.lists(st.integers(0, 1000), min_size=1, max_size=20)
TOLERANCE = Fraction(1, 10)


@given(VALUES, st.integers(1, 1000))
def test_kubernetes_formula(values, target):
    """desiredReplicas = ceil(currentReplicas × currentMetricValue / desiredMetricValue), within a tenth none
    (kubernetes.io, Horizontal Pod Autoscaling, Algorithm details), in whole numbers."""
    current = len(values)
    ratio = Fraction(sum(values), current * target)
    expected = current if abs(ratio - 1) <= TOLERANCE else ceil(current * ratio)
    found = of_each(current, [float(v) for v in values], 0, float(target), 0.1)
    if abs(abs(ratio - 1) - TOLERANCE) > Fraction(1, 10**9):  # floats meet the border either way
        assert found == expected
    if ratio:
        assert of_sum(current, float(sum(values)), float(target), 0.1) in (
            current,
            ceil(Fraction(sum(values), target)),
        )


@given(VALUES, st.integers(1, 1000), st.integers(1, 10))
def test_replicas_that_are_not_ready_never_make_it_more_and_never_turn_it_round(
    values, target, unready
):
    current = len(values) + unready
    calm = of_each(current, values, 0, target, 0.1)
    found = of_each(current, values, unready, target, 0.1)
    if sum(values) > len(values) * target:
        assert current <= found <= max(current, calm)
        assert found in (current, ceil(Fraction(sum(values), target)))
    else:
        assert found == calm


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_a_change_is_held_back_by_its_window_and_its_policies(wanted):
    """Usual settings: down only to the most asked for in 300 s, up at most to twice or four more in 15 s."""
    usual = {"up_window": 0, "down_window": 300, "up_percent": 100, "up_pods": 4, "up_period": 15}
    usual |= {"down_percent": 100, "down_period": 15}
    pace, current = ScalingPace(usual.__getitem__), 5
    for tick, want in enumerate(wanted):
        now = tick * 15 * 10**12
        before = current
        current = pace.paced(now, current, want)
        window = wanted[max(0, tick - 20) : tick + 1]
        if want > before:
            assert current == min(want, max(2 * before, before + 4))
        else:
            assert current == min(before, max(window))


def test_shortened_times_are_shortened():
    assert said("hpa")("sync") == 15e-10 and said("hpa")("tolerance") == 0.1
