"""Laws of jumps over layer groups: windows, chunks and recurrent states, from event to event and step by
step, give the same to the tick and the block."""

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvroom.kvcache.block_pool import BlockPool
from kvroom.kvcache.counted_pool import CountedPool
from serving import counted_groups, same_in_groups, some_case, some_chats

SEEDS = st.integers(0, 2**32)


def grouped(case, dice, *, shares, states, caching=None):
    """``case`` over several groups of its block size; without names where nobody ``shares``."""
    engine = case.engine
    groups = counted_groups(dice, engine.groups[0].block_size, states=states)
    caching = dice.random() < 0.7 if caching is None else caching
    # Who may start from a state of an answer hangs on its step where all of them are kept.
    interval = 0 if shares and states else dice.choice([0, 0, None])
    case.engine = replace(
        engine,
        groups=groups,
        enable_prefix_caching=caching,
        prefix_cache_retention_interval=interval,
        num_gpu_blocks=engine.num_gpu_blocks * dice.choice([1, 1, len(groups)]),
    )
    if not shares:
        case.requests = [(at, i, o, [], 0, rank) for at, i, o, _, _, rank in case.requests]
    assert case.engine.counts(named=shares)
    return case


@settings(max_examples=200)
@given(SEEDS, st.booleans())
@example(179, False)
def test_jumps_over_groups_are_steps(seed, states):
    dice = random.Random(seed)
    same_in_groups(grouped(some_case(dice), dice, shares=False, states=states), dice)


@settings(max_examples=150)
@given(SEEDS, st.booleans())
def test_jumps_over_groups_are_steps_where_prompts_share(seed, states):
    dice = random.Random(seed)
    same_in_groups(grouped(some_case(dice), dice, shares=True, states=states, caching=True), dice)


@settings(max_examples=150)
@given(SEEDS, st.booleans())
@example(
    350, False
)  # found by a prompt's blocks, its window by those of the answer that is generated
def test_jumps_over_groups_are_steps_in_chats(seed, states):
    dice = random.Random(seed)
    same_in_groups(grouped(some_chats(dice), dice, shares=True, states=states, caching=True), dice)


@pytest.mark.parametrize("named", [False, True])
def test_what_is_stepped(named):
    """Several sizes of block, windows of one token, an interval, and kinds that do not stand together."""
    dice = random.Random(1)
    engine = grouped(some_case(dice), dice, shares=False, states=False, caching=True).engine
    full, window = engine.groups[0], counted_groups(random.Random(3), 4, states=False)[0]
    window = replace(window, type="sliding_window", reach=9, block_size=full.block_size)
    full = replace(full, type="full", reach=0)
    good = replace(engine, groups=(window, full), prefix_cache_retention_interval=0)
    assert good.counts(named)
    wide = replace(full, block_size=2 * full.block_size)
    assert not replace(good, groups=(window, wide)).counts(named)
    assert not replace(good, groups=(window, full, window)).counts(named)
    assert not replace(good, groups=(replace(window, reach=1), full)).counts(named)
    assert not replace(good, prefix_cache_retention_interval=64).counts(named)
    state = replace(full, type="mamba")
    kept = replace(good, groups=(state, full), prefix_cache_retention_interval=None)
    assert kept.counts(named=False) and not kept.counts(named=True)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 5), max_size=60), SEEDS)
def test_counted_blocks_go_in_the_order_of_numbered_ones(moves, seed):
    """A BlockPool and a CountedPool under the same calls find the same keys and have as much room."""
    dice = random.Random(seed)
    total = dice.randint(4, 30)
    pools = BlockPool(total), CountedPool(total)
    held: list[tuple[list[int], list[int]]] = []
    fresh = 0
    for move in moves:
        if move <= 2:
            count = dice.randint(0, pools[0].free)
            both = pools[0].get_new_blocks(count), pools[1].get_new_blocks(count)
            held.append(both)
            for one, other in zip(*both, strict=True):
                if dice.random() < 0.7:
                    fresh += 1
                    pools[0].cache_block(one, fresh, 1)
                    pools[1].cache_block(other, fresh, 1)
        elif move <= 4 and held:
            for pool, blocks in zip(pools, held.pop(dice.randrange(len(held))), strict=True):
                pool.free_blocks(blocks)
        else:
            for key in range(1, fresh + 1):
                found = [pool.get_cached_block(key) for pool in pools]
                if all(found) and dice.random() < 0.1:
                    for pool, block in zip(pools, found, strict=True):
                        pool.touch(block)
                    held.append(([found[0]], [found[1]]))
        assert pools[0].free == pools[1].free
        assert pools[0].in_use == pools[1].in_use
        for key in range(1, fresh + 1):
            assert bool(pools[0].get_cached_block(key)) == bool(pools[1].get_cached_block(key))
