"""Laws of offload tiers: served either way the same, nothing lost, more cache never worse."""

from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.simulator.offload import OffloadConnector, OffloadLevel
from kvroom.simulator.tier_store import POLICIES, Store
from kvroom.simulator.transfer_queue import TransferQueue
from serving import jumped, same, some_case, some_chats

SEEDS = st.integers(0, 2**32)


def some_levels(dice):
    """Two or three tiers of a few pages over links that take their time."""
    bus = TransferQueue(dice.choice([None, 10**13, 10**14]), 100, duplex=True)
    levels = []
    for number in range(dice.randint(1, 3)):
        inclusive = dice.random() < 0.7
        own = TransferQueue(dice.choice([None, 10**12, 10**13]), 100, duplex=dice.random() < 0.5)
        levels.append(
            OffloadLevel(
                name=str(number),
                store=Store(dice.choice([None, 0, 1, 5, 20, 60]), dice.choice(POLICIES)),
                links=(bus, own),
                latency_ps=dice.choice([0, 10, 500]),
                back=not inclusive or dice.random() < 0.5,
                inclusive=inclusive,
                layerwise=dice.random() < 0.3,
            )
        )
    return levels


def some_tiers(case, dice):
    engine = case.engine
    return OffloadConnector(
        some_levels(dice),
        case.clock,
        block_tokens=engine.groups[0].block_size,
        unit=case.unit,
        batch_tokens=engine.config.max_num_batched_tokens,
        layers=dice.choice([1, 4]),
    )


def told(tiers):
    """What is left and what was done, level by level."""
    return [
        (
            list(level.store._ready.items()),
            level.store.put,
            level.store.evicted,
            level.store.taken,
            level.hit_tokens,
            level.read_blocks,
            level.written_pages,
            list(level.waits_ps),
        )
        for level in tiers.levels
    ]


@settings(max_examples=300)
@given(SEEDS)
def test_jumps_are_steps_with_tiers(seed):
    case = some_case(Random(seed))
    fast, slow = (some_tiers(case, Random(seed)) for _ in range(2))
    same(case, Random(seed), (fast, slow))
    assert told(fast) == told(slow)


@settings(max_examples=200)
@given(SEEDS)
def test_pages_in_are_pages_out_or_there(seed):
    case = (some_case if seed % 2 else some_chats)(Random(seed))
    tiers = some_tiers(case, Random(seed))
    _, out = jumped(case, None, tiers)
    for level in tiers.levels:
        store = level.store
        assert store.put == store.evicted + store.taken + len(store)
        assert store.room is None or len(store) <= store.room
        assert not store.taken or not level.inclusive
    hits = tiers.gpu_tokens + sum(level.hit_tokens for level in tiers.levels)
    assert hits == out.cached_tokens
    assert tiers.prompt_tokens == out.prompt_tokens


def alone(case):
    """The same requests, each long after the one before, in an engine with room for the longest of them."""
    limits = replace(
        case.engine.config, max_num_seqs=64, watermark=0.0, policy="fcfs", max_model_len=1000
    )
    size = case.engine.groups[0].block_size
    blocks = 2 + max(-(-(p + o) // size) for _, p, o, *_ in case.requests)
    engine = replace(case.engine, num_gpu_blocks=blocks, config=limits, enable_prefix_caching=True)
    requests = [(10**8 * n, *request[1:]) for n, request in enumerate(case.requests)]
    return replace(case, engine=engine, requests=requests)


def found(case, levels):
    """What each request finds, and when its first token comes, with these levels."""
    engine = case.engine
    tiers = OffloadConnector(
        levels,
        case.clock,
        block_tokens=engine.groups[0].block_size,
        unit=case.unit,
        batch_tokens=engine.config.max_num_batched_tokens,
    )
    _, out = jumped(case, None, tiers)
    return {index: hits[0] for index, hits in out.found.items()}, out.first_ps


def lru(room, rate=None, latency=0, **keys):
    link = TransferQueue(rate, 100, duplex=True)
    return OffloadLevel(name="host", store=Store(room), links=(link,), latency_ps=latency, **keys)


@given(SEEDS)
def test_more_room_in_a_tier_never_lowers_a_hit(seed):
    """LRU is a stack: written through or back, keeping or giving up what is read."""
    dice = Random(seed)
    case = alone(some_case(dice))
    keys = dice.choice([{}, {"back": True}, {"back": True, "inclusive": False}])
    rooms = sorted(dice.randint(0, 40) for _ in range(3))
    hits = [found(case, [lru(room, **keys)])[0] for room in rooms]
    for few, more in pairwise(hits):
        assert all(few[index] <= more[index] for index in few)


@given(SEEDS)
def test_more_room_on_the_gpu_never_lowers_a_hit(seed):
    dice = Random(seed)
    case = alone(some_case(dice))
    room = dice.randint(0, 40)
    blocks = sorted(case.engine.num_gpu_blocks + dice.randint(0, 60) for _ in range(2))
    few, more = (
        found(replace(case, engine=replace(case.engine, num_gpu_blocks=n)), [lru(room)])[0]
        for n in blocks
    )
    assert all(few[index] <= more[index] for index in few)


@given(SEEDS)
def test_no_time_to_move_is_an_upper_bound(seed):
    """Of what is found, and a lower one of the first token's time."""
    dice = Random(seed)
    case = alone(some_case(dice))
    room, rate = dice.randint(0, 40), dice.choice([10**11, 10**12, 10**13, 10**14])
    keys = {"back": dice.random() < 0.5, "layerwise": dice.random() < 0.5}
    best = found(case, [lru(room, **keys)])
    real = found(case, [lru(room, rate, dice.choice([0, 20, 500]), **keys)])
    assert all(real[0][index] <= best[0][index] for index in real[0])
    assert all(real[1][index] >= best[1][index] for index in real[1])


@given(SEEDS)
def test_a_tier_of_no_room_is_none(seed):
    dice = Random(seed)
    case = some_case(dice)
    _, plain = jumped(case)
    tiers = OffloadConnector(
        [lru(0, 10**9, 100, back=dice.random() < 0.5)],
        case.clock,
        block_tokens=case.engine.groups[0].block_size,
        unit=case.unit,
        batch_tokens=100,
    )
    _, tiered = jumped(case, None, tiers)
    assert (plain.first_ps, plain.done_ps, plain.found, plain.samples()) == (
        tiered.first_ps,
        tiered.done_ps,
        tiered.found,
        tiered.samples(),
    )
