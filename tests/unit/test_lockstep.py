"""Ranks that step together: the slowest sets the pace, one alone is an engine like any."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleets import queue
from kvroom.latency.clock import ExpertReads, Reach, StepClock
from kvroom.simulator.cluster import Cluster
from kvroom.simulator.step_engine import StepEngine, StepLoop
from serving import Noted, some_case, some_chats, stepped


def ranks_of(case, count, *, clock=None, runs=True):
    out, loop = Noted(), StepLoop()
    ranks = [
        StepEngine(case.engine.scheduler(), clock or case.clock, out, unit=case.unit, loop=loop)
        for _ in range(count)
    ]
    for rank in ranks:
        if not runs:
            rank.decode_runs = False
            rank.scheduler.cache.quiet = False
    return ranks, out


def together(case, count, **more):
    ranks, out = ranks_of(case, count, **more)
    Cluster(ranks, out).serve(case.lives())
    return ranks, out


def sharing(clock, count):
    """The clock of ``count`` ranks that read and compute the same experts."""
    experts = (ExpertReads(all_ps=5 * clock.step_ps + 7, decay=0.11),)
    return replace(clock, ranks=count, shared_ps=clock.token_ps // 2, experts=experts)


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


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("make", [some_case, some_chats])
@pytest.mark.parametrize("count", [2, 3])
def test_runs_of_decode_steps_are_those_steps(seed, make, count):
    case = make(random.Random(seed))
    clock = sharing(case.clock, count)
    plain, slow = together(case, count, clock=clock, runs=False)
    ranks, fast = together(case, count, clock=clock)
    assert (fast.first_ps, fast.done_ps, fast.gone, fast.found, fast.preempted) == (
        slow.first_ps,
        slow.done_ps,
        slow.gone,
        slow.found,
        slow.preempted,
    )
    assert fast.samples() == slow.samples()
    assert [rank.peak_blocks for rank in ranks] == [rank.peak_blocks for rank in plain]
    assert {rank.decide for rank in ranks} == {rank.decide for rank in plain}


Work = st.lists(st.tuples(st.integers(0, 4000), st.sampled_from([1, 1, 1, 7, 300])), max_size=9)


@given(st.lists(Work, min_size=2, max_size=4).filter(any), st.integers(0, 50))
def test_a_joint_step_is_as_long_as_the_busiest_rank_wants_it(works, token_ps):
    reach = Reach(context_ps=1, pairs_ps=0)
    own = StepClock(step_ps=1000, request_ps=9, token_ps=token_ps, prompt_ps=5, reaches=(reach,))
    clock = sharing(own, len(works))
    joint = clock.joint_ps([(clock, work) for work in works])
    busiest = max(own.ps(work) for work in works if work)
    tokens = max(sum(many for _, many in work) or 1 for work in works)
    assert busiest - token_ps * tokens <= joint <= busiest + clock.meeting_ps(0, tokens) + 1
    alike = works[0] or [(0, 1)]
    assert clock.joint_ps([(clock, alike)] * 3) == clock.ps(alike)
    # Each with experts of its own: the slowest sets the time.
    busy = [own.ps(work) for work in works if work]
    assert own.joint_ps([(own, work) for work in works]) == max(busy, default=0)


def test_a_prompt_alone_finds_the_experts_of_both_ranks_free():
    """A token costs 4 at the experts where both ranks bring one, so 2 where one does."""
    clock = StepClock(
        step_ps=100, request_ps=0, token_ps=5, prompt_ps=0, ranks=2, shared_ps=4,
        reaches=(Reach(context_ps=0, pairs_ps=0),),
    )  # fmt: skip
    prompt = [(0, 50)]
    assert clock.ps(prompt) == 350
    assert clock.joint_ps([(clock, prompt), (clock, prompt)]) == 350
    assert clock.joint_ps([(clock, prompt), (clock, [])]) == 150 + 102  # and a dummy token
