"""Ranks that step together: the slowest sets the pace, one alone is an engine like any."""

import random

import pytest

from fleets import queue
from kvroom.latency.clock import Reach, StepClock
from kvroom.simulator.cluster import Cluster
from kvroom.simulator.step_engine import StepEngine, StepLoop
from serving import Noted, some_case, some_chats, stepped


def ranks_of(case, count):
    out, loop = Noted(), StepLoop()
    return [
        StepEngine(case.engine.scheduler(), case.clock, out, unit=case.unit, loop=loop)
        for _ in range(count)
    ], out


def together(case, count):
    ranks, out = ranks_of(case, count)
    Cluster(ranks, out).serve(case.lives())
    return ranks, out


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("make", [some_case, some_chats])
def test_one_rank_is_an_engine(seed, make):
    case = make(random.Random(seed))
    _, alone = stepped(case)
    _, out = together(case, 1)
    assert (out.first_ps, out.done_ps, out.gone, out.found) == (
        alone.first_ps,
        alone.done_ps,
        alone.gone,
        alone.found,
    )
    assert out.samples() == alone.samples()


@pytest.mark.parametrize("seed", range(40))
def test_nobody_is_lost_and_no_rank_is_ahead(seed):
    case = some_case(random.Random(seed))
    ranks, out = together(case, 3)
    assert set(out.done_ps) | out.gone == set(range(len(case.requests)))
    assert len({rank.decide for rank in ranks}) == len({rank.end for rank in ranks}) == 1
    assert not any(rank.requests for rank in ranks)


def test_a_prompt_on_one_rank_holds_up_the_other():
    """A step takes 100 and one a prompt token: the rank that decodes waits for the other's 50 tokens."""
    flat = Reach(context_ps=0, pairs_ps=0)
    clock = StepClock(step_ps=100, request_ps=0, token_ps=1, prompt_ps=0, reaches=(flat,))
    case = queue(8, clock)
    case.requests = [(0, 10, 4, [], 0, 0), (150, 50, 2, [], 0, 0)]
    _, out = together(case, 2)
    assert out.first_ps == {0: 110, 1: 360}  # 110, then 100, then 100 + 50
    assert out.done_ps == {0: 460, 1: 460}
    assert out.samples() == [100, 100, 100, 150]
