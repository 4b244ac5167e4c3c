"""Laws of fleets: nobody is lost or served twice, whoever dies; one replica is no fleet; same seed, same run."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fleets import fleet_of, some_fleet
from kvroom.simulation.feed import Live
from kvroom.simulation.fleet import Fleet
from kvroom.simulation.replicas import State
from kvroom.simulation.routing import POLICIES
from serving import Noted, jumped, some_case, some_chats
from test_server_laws import SEEDS  # noqa: F401

DICE = st.integers(0, 2**32).map(random.Random)
CASES = st.sampled_from([some_case, some_chats])


def met(out):
    """What every request met."""
    return out.first_ps, out.done_ps, out.gone, out.found, out.preempted, out.samples()


@settings(max_examples=300)
@given(DICE, CASES)
def test_nobody_is_lost_whoever_dies(dice, make):
    case = make(dice)
    fleet, out = some_fleet(dice, case, jumps=dice.random() < 0.7)
    fleet.serve(case.lives())
    asked = {index: request for index, request in enumerate(case.requests)}
    assert set(out.done_ps) | out.gone == set(asked)
    assert len(out.e2e_ps) == len(out.done_ps)  # nobody is answered twice
    assert not set(out.done_ps) & out.gone
    assert len(out.ttft_ps) == len(out.first_ps)
    longest = case.engine.settings.max_model_len
    tokens = 0
    for index, done in out.done_ps.items():
        arrival, prompt, output, *_ = asked[index]
        assert arrival < out.first_ps[index] <= done
        tokens += min(prompt + max(1, output), longest) - prompt
    assert out.output_tokens == tokens
    assert sum(r.completed for r in fleet.replicas) == len(out.done_ps)
    assert sum(r.requests for r in fleet.replicas) == len(asked) + fleet.retries
    assert sum(r.prompt_tokens for r in fleet.replicas) == out.prompt_tokens
    assert sum(r.cached_tokens for r in fleet.replicas) == out.cached_tokens
    assert (fleet.running_count, fleet.waiting_count) == (0, 0)
    # Every token but the first of an answer ends a gap, wherever it was computed.
    assert out.gone or out.gaps.count == tokens - len(out.done_ps)


@settings(max_examples=150)
@given(DICE, CASES)
def test_jumps_are_steps_in_fleets_too(dice, make):
    case = make(dice)
    seed = dice.randrange(2**32)
    # What steppers have cached a router can only guess.
    policies = [p for p in POLICIES if p != "prefix"]
    policy = dice.choice(policies)
    runs = []
    for jumps in (True, False):
        fleet, out = some_fleet(random.Random(seed), case, jumps=jumps, policy=policy)
        fleet.serve(case.lives())
        runs.append((met(out)[:5], fleet.retries, [(r.requests, r.failures) for r in fleet.replicas]))
    assert runs[0] == runs[1]


@settings(max_examples=100)
@given(DICE, CASES, st.sampled_from(POLICIES), st.sampled_from([0.0, 1e-9]))
def test_one_replica_behind_any_router_is_no_fleet(dice, make, policy, stale):
    case = make(dice)
    fleet, out = fleet_of(case, 1, policy=policy, stale_s=stale)
    fleet.serve(case.lives())
    assert met(out) == met(jumped(case)[1])


@settings(max_examples=100)
@given(DICE, CASES, st.integers(2, 4))
def test_in_turn_is_in_turn(dice, make, count):
    case = make(dice)
    fleet, out = fleet_of(case, count)
    fleet.serve(case.lives())
    plain = Noted()
    parts, _ = fleet_of(case, count)
    for r in parts.replicas:
        r.up()
        r.engine.outcome = plain
    Fleet([r.engine for r in parts.replicas], plain).serve(case.lives())
    for engine in parts.engines:
        engine._gap = plain.gaps.add
    assert (out.first_ps, out.done_ps, out.found) == (plain.first_ps, plain.done_ps, plain.found)


@settings(max_examples=60)
@given(DICE, CASES)
def test_the_same_seed_gives_the_same_run(dice, make):
    case = make(dice)
    seed = dice.randrange(2**32)
    runs = []
    for _ in range(2):
        fleet, out = some_fleet(random.Random(seed), case)
        fleet.serve(case.lives())
        runs.append((met(out), fleet.told))
    assert runs[0] == runs[1]


@settings(max_examples=150)
@given(DICE)
def test_a_closed_loop_is_served_in_the_order_of_events(dice):
    """Whoever follows on an answer goes through the router; nobody is lost, and a fast engine is a slow one."""
    case = some_case(dice)
    seed = dice.randrange(2**32)
    think = dice.choice([0, 40, 3000])
    runs = []
    for jumps in (True, False):

        def follow(live, now):
            if live.index >= len(case.requests):
                return None
            index = live.index + len(case.requests)
            return Live(index, now + think, live.prompt, live.total - live.prompt)

        policy = random.Random(seed).choice(["round-robin", "least-loaded", "session"])
        fleet, out = some_fleet(
            random.Random(seed), case, jumps=jumps, policy=policy, follow=follow
        )
        fleet.serve(case.lives())
        assert len(out.done_ps) + len(out.gone) == 2 * len(case.requests)
        runs.append((out.first_ps, out.done_ps, out.gone))
    assert runs[0] == runs[1]


@settings(max_examples=100)
@given(DICE, CASES)
def test_what_drains_takes_no_more_and_loses_nobody(dice, make):
    case = make(dice)
    fleet, out = some_fleet(dice, case, failures=None)
    fleet.serve(case.lives())
    assert fleet.retries == 0
    for r in fleet.replicas:
        assert r.state in (State.UP, State.OFF, State.STARTING, State.DRAINING)
        assert r.completed + sum(1 for _ in ()) <= r.requests
    drains = [t for t in fleet.told if t.what == "drains"]
    gone = [t for t in fleet.told if t.what == "gone"]
    assert len(gone) <= len(drains)
