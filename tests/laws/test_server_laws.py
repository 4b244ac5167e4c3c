"""Laws of the clock: from event to event is step by step, to the tick and the block; nobody is lost."""

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import GroupSpec, SchedulerSetup
from kvroom.latency.clock import PAIRS, Reach, StepClock
from kvroom.simulator.decode_batch import steps_until
from kvroom.simulator.metrics import Gaps
from serving import Case, Fickle, jumped, same, same_in_runs, some_case, some_chats, some_groups

SEEDS = st.integers(0, 2**32)


@settings(max_examples=400)
@given(SEEDS)
def test_jumps_are_steps(seed):
    dice = random.Random(seed)
    same(some_case(dice), dice)


@settings(max_examples=200)
@given(SEEDS)
@example(100233)  # preempted while its only token is on its way
@example(108364)  # a prompt outruns, in the step that preempts it, whoever generates the same
def test_jumps_are_steps_in_chats(seed):
    dice = random.Random(seed)
    same(some_chats(dice), dice)


@settings(max_examples=300)
@given(SEEDS)
def test_runs_of_decode_steps_are_steps(seed):
    """Groups of all kinds: passes in which only some blocks change, against a pass a token."""
    dice = random.Random(seed)
    case = some_chats(dice) if dice.random() < 0.4 else some_case(dice)
    groups = some_groups(dice)
    blocks = case.engine.num_gpu_blocks * len(groups)
    interval = dice.choice([None, 0])
    case.engine = replace(
        case.engine, groups=groups, num_gpu_blocks=blocks, prefix_cache_retention_interval=interval
    )
    names = case.engine.scheduler().cache.hash_tokens if case.engine.enable_prefix_caching else 1
    case.requests = [
        (arrival, prompt, output, held, min(named, (prompt + output) // names), priority)
        for arrival, prompt, output, held, named, priority in case.requests
    ]
    same_in_runs(case)


@settings(max_examples=200)
@given(SEEDS)
def test_jumps_are_steps_where_uncached_blocks_wait_their_turn(seed):
    """As before vLLM 0.24: freed blocks without a key queue behind cached ones."""
    dice = random.Random(seed)
    case = (some_case if seed % 2 else some_chats)(dice)
    config = replace(case.engine.config, in_turn=True)
    case.engine = replace(case.engine, config=config)
    same(case, dice)


def test_who_comes_first_in_a_step_is_found_first():
    """A prompt that holds another's answer, computed three tokens a step while that is generated: both fill
    the same block in one step, and the one that was admitted first has it found."""
    settings = SchedulerConfig(
        max_num_batched_tokens=50,
        max_num_seqs=8,
        max_model_len=50,
        long_prefill_token_threshold=3,
        scheduler_reserve_full_isl=False,
    )
    engine = SchedulerSetup(
        num_gpu_blocks=7,
        groups=(GroupSpec(type="full", block_size=2),),
        enable_prefix_caching=True,
        prefix_cache_retention_interval=0,
        config=settings,
    )
    reaches = (Reach(context_ps=7, pairs_ps=3 * PAIRS),)
    clock = StepClock(step_ps=100, request_ps=3, token_ps=2, prompt_ps=11, reaches=reaches)
    parent, child = [1, 2, 3], [1, 2, 3, 4, 5, 6]
    requests = [(0, 10, 3, child, 6, 0), (0, 3, 4, parent, 3, 0)]
    out = same(Case(engine, clock, 1, requests))
    assert out.preempted > 0


@settings(max_examples=400)
@given(SEEDS)
def test_jumps_are_steps_where_cache_is_brought(seed):
    """The same to the tick and the block, and notices tell of the same pages in the same order.

    But not in chats: an answer that another prompt already begins with is found by both before it is done,
    and the Server enters it only when somebody asks.
    """
    dice = random.Random(seed)
    case = (some_case if seed % 2 else some_chats)(dice)
    size, slowest = case.engine.groups[0].block_size, dice.choice([10, 1000, 30_000])
    fast, slow = (Fickle(size, seed, slowest) for _ in range(2))
    same(case, dice, (fast, slow))
    if seed % 2:
        assert fast.heard == slow.heard


def test_some_wait_for_what_is_brought():
    """The law above is about something: in a good part of its cases somebody waits."""
    late = 0
    for seed in range(1, 60, 2):
        case = some_case(random.Random(seed))
        connector = Fickle(case.engine.groups[0].block_size, seed, 30_000)
        jumped(case, None, connector)
        late += connector.late
    assert late > 20


@given(SEEDS)
def test_nobody_is_lost_and_time_does_not_go_back(seed):
    case = some_case(random.Random(seed))
    _, out = jumped(case)
    arrivals = [request[0] for request in case.requests]
    assert len(out.done_ps) + len(out.gone) == len(arrivals)
    for index, done in out.done_ps.items():
        assert arrivals[index] < out.first_ps[index] <= done


@given(SEEDS)
def test_the_same_requests_give_the_same_run(seed):
    first, again = (jumped(some_case(random.Random(seed)))[1] for _ in range(2))
    assert (first.done_ps, first.found, first.samples()) == (
        again.done_ps,
        again.found,
        again.samples(),
    )


@given(SEEDS)
def test_sharing_costs_no_memory(seed):
    """All at once, room for all: who may share holds no more at the peak than who may not.

    Prompts go whole: cut into pieces, one that finds its head cached is done earlier, and meets others.
    """
    dice = random.Random(seed)
    case = some_case(dice)
    blocks = sum(-(-(p + o) // 1) + 1 for _, p, o, *_ in case.requests) + 1
    peaks = []
    for caching in (True, False):
        limits = replace(
            case.engine.config,
            max_num_seqs=1000,
            watermark=0.0,
            max_num_batched_tokens=10**6,
            long_prefill_token_threshold=0,
        )
        case.engine = replace(
            case.engine, num_gpu_blocks=blocks, enable_prefix_caching=caching, config=limits
        )
        case.requests = [(0, *request[1:]) for request in case.requests]
        peaks.append(jumped(case)[0].peak_blocks)
    assert peaks[0] <= peaks[1]


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(0, 50), st.integers(1, 30), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    ),
    st.data(),
)
def test_gaps_are_ranked_exactly(runs, data):
    gaps = Gaps()
    for first, slope, steps, weight in runs:
        spent = steps * first + slope * steps * (steps - 1) // 2
        gaps.add((first, slope, steps, weight, spent))
    plain = sorted(f + s * i for f, s, n, w in runs for i in range(n) for _ in range(w))
    assert gaps.count == len(plain)
    assert gaps.total_ps == sum(plain)
    rank = data.draw(st.integers(1, len(plain)))
    assert gaps.ranked([rank, len(plain)]) == [plain[rank - 1], plain[-1]]


@given(st.integers(-5, 10**15), st.integers(1, 10**9), st.integers(0, 10**6))
def test_steps_until_is_the_first_that_lasts_so_long(wait, first, slope):
    steps = steps_until(wait, first, slope)
    assert steps * first + slope * steps * (steps - 1) // 2 >= wait
    fewer = steps - 1
    assert not steps or fewer * first + slope * fewer * (fewer - 1) // 2 < wait
