"""Offload tiers under an engine: waits to the picosecond, and the faults that other simulators had."""

from dataclasses import replace
from random import Random

import pytest

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import GroupSpec, SchedulerSetup
from kvroom.latency.clock import PAIRS, PS_PER_S, Reach, StepClock
from kvroom.simulator.offload import OffloadConnector, OffloadLevel
from kvroom.simulator.tier_store import Store
from kvroom.simulator.transfer_queue import READ, WRITE, TransferQueue
from serving import Case, jumped

CLOCK = StepClock(
    step_ps=1000,
    request_ps=10,
    token_ps=100,
    prompt_ps=50,
    reaches=(Reach(context_ps=1, pairs_ps=PAIRS),),
)
SIZE = 4
LATER = 10**7


def engine(blocks, *, batch=1000):
    settings = SchedulerConfig(max_num_batched_tokens=batch, max_num_seqs=8, max_model_len=1000)
    return SchedulerSetup(
        num_gpu_blocks=blocks + 1,
        groups=(GroupSpec(type="full", block_size=SIZE),),
        enable_prefix_caching=True,
        prefix_cache_retention_interval=0,
        config=settings,
    )


def level(rate=None, room=None, **keys):
    """A tier that moves a block of 100 bytes at ``rate``."""
    return OffloadLevel(
        name="host", store=Store(room), links=(TransferQueue(rate, 100, duplex=True),), **keys
    )


def served(requests, levels, *, blocks=30, batch=1000, layers=1):
    """The Noted outcome and the OffloadConnector of ``(arrival, names, prompt, output)`` requests."""
    rows = [(at, prompt, out, names, len(names), 0) for at, names, prompt, out in requests]
    case = Case(engine(blocks, batch=batch), CLOCK, 1, rows)
    tiers = OffloadConnector(
        levels, CLOCK, block_tokens=SIZE, unit=1, batch_tokens=batch, layers=layers
    )
    _, out = jumped(case, None, tiers)
    return out, tiers


FIRST = list(range(1, 21))
"""Names of a prompt of 20 blocks."""
OTHER = list(range(101, 126))
"""Those of one of 25, which pushes the first out of 30 blocks."""


def again(levels, **keys):
    """A prompt, another that pushes it out, and the first once more with one token more."""
    asked = [(0, FIRST, 80, 1), (LATER, OTHER, 100, 1), (2 * LATER, FIRST, 81, 1)]
    return served(asked, levels, **keys)


def test_what_is_found_below_takes_its_time_to_come():
    """Offload that changes hits but not latency: here the first token waits for every byte."""
    waits = []
    for rate in (None, 10**12, 2 * 10**11):
        out, tiers = again([level(rate, latency_ps=7)])
        on_gpu, below = tiers.gpu_tokens, tiers.levels[0].hit_tokens
        assert on_gpu + below == out.found[2][0] == 80
        assert below > 0
        moved = below // SIZE * 100 * PS_PER_S // rate if rate else 0
        computed = CLOCK.ps([(80, 1)])
        assert out.first_ps[2] - 2 * LATER == moved + 7 + computed
        waits.append(moved)
    assert waits[0] < waits[1] < waits[2]


def test_a_busy_link_makes_a_reader_wait():
    """Two prompts are read at once: the second one's bytes come after the first one's."""
    second, third = list(range(201, 221)), list(range(301, 344))
    before = [(0, FIRST, 80, 1), (LATER, second, 80, 1), (2 * LATER, third, 172, 1)]
    both = level(10**12)
    asked = [*before, (3 * LATER, FIRST, 81, 1), (3 * LATER, second, 81, 1)]
    out, _ = served(asked, [both], blocks=44)
    assert both.hit_tokens == 160
    assert list(both.waits_ps) == [2000, 4000]
    assert out.first_ps[3] - 3 * LATER == 2000 + CLOCK.ps([(80, 1)])
    assert out.first_ps[4] - 3 * LATER == 4000 + CLOCK.ps([(80, 1)])


def test_a_prefix_is_found_whole_however_few_tokens_a_step_takes():
    """Prefixes matched on the first chunk only."""
    out, tiers = again([level()], batch=7)
    assert out.found[2] == [80]
    assert tiers.gpu_tokens + tiers.levels[0].hit_tokens == 80


def test_hits_are_counted_once_however_often_a_prompt_is_cut():
    """Hits counted twice under chunking: found and computed tokens add up to the prompts'."""
    for batch in (5, 16, 1000):
        out, tiers = again([level()], batch=batch)
        assert out.cached_tokens == tiers.gpu_tokens + tiers.levels[0].hit_tokens == 80
        assert out.prompt_tokens == tiers.prompt_tokens == 80 + 100 + 81


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("rooms", [(3, 5), (0, 7), (7, 0), (19, 19), (20, 60)])
def test_a_restore_larger_than_its_tiers_ends(inclusive, rooms):
    """A restore that cycles evictions for ever: each page goes down a level at most once a time."""
    levels = [level(10**12, room, back=True, inclusive=inclusive) for room in rooms]
    asked = [(n * LATER, (FIRST, OTHER)[n % 2], 80, 5) for n in range(20)]
    out, tiers = served(asked, levels, blocks=22)
    assert len(out.done_ps) == 20
    moved = 20 * 25  # pages that a request can fill, each evicted and read once
    for each in tiers.levels:
        assert each.store.put <= 3 * moved


def test_fetching_pays_or_is_left():
    """A link slower than computing anew: nothing is read, and nobody waits."""
    out, tiers = again([level(10**9)])
    assert tiers.levels[0].read_blocks == 0
    plain = again([level(None, room=0)])[0]
    assert out.first_ps == plain.first_ps


def test_as_much_is_fetched_as_pays():
    """The near tier's part of a prefix is read, the far one's is computed."""
    near, far = level(None, room=10), level(10**9)
    out, tiers = again([near, far])
    assert far.read_blocks == 0
    assert out.found[2][0] == tiers.gpu_tokens + near.hit_tokens < 80


def test_layers_hide_what_computing_covers():
    """Loading layer by layer waits for the longer of both but for one layer; computing is not hidden."""
    asked = [(0, FIRST, 80, 1), (LATER, OTHER, 100, 1), (2 * LATER, FIRST, 140, 1)]
    rate, layers = 10**12, 10
    whole, tiers = served(asked, [level(rate)], blocks=36)
    hidden, _ = served(asked, [level(rate, layerwise=True)], blocks=36, layers=layers)
    moved = tiers.levels[0].waits_ps[0]
    rest = CLOCK.mixed_ps(0, 60, 1) - CLOCK.mixed_ps(0, 0, 0) + CLOCK.chunk_ps(80, 60)
    wait = max(-(-moved // layers), moved - rest * (layers - 1) // layers)
    assert 0 < wait < moved
    assert whole.first_ps[2] - hidden.first_ps[2] == moved - wait


def test_an_exclusive_tier_gives_up_what_is_read():
    kept, given = level(), level(back=True, inclusive=False)
    again([kept])
    again([given])
    assert kept.store.taken == 0
    assert given.store.taken == given.hit_tokens // SIZE > 0
    assert all(kept.store.ready_ps(name) is not None for name in FIRST)


def test_written_back_only_what_is_evicted():
    through, back = level(), level(back=True)
    asked = [(0, FIRST, 80, 1)]
    served(asked, [through])
    served(asked, [back])
    assert (through.written_pages, back.written_pages) == (20, 0)


def test_what_the_first_tier_evicts_goes_to_the_second():
    near, far = level(room=5, back=True), level(back=True)
    asked = [(0, FIRST, 80, 1), (LATER, OTHER, 100, 1)]
    served(asked, [near, far])
    assert len(near.store) == 5
    assert near.store.evicted == len(far.store) > 0


@pytest.mark.slow
def test_links_are_not_optimistic_near_saturation():
    """Optimism near saturation: transfers of equal size at random wait as in the M/D/1 queue, of mean
    rho / (2 (1 - rho)) transfers (Pollaczek, Khinchine). 400,000 of them come within 6 %."""
    for rho in (0.5, 0.8, 0.9):
        dice, link = Random(7), TransferQueue(10**12, 1000, duplex=True)
        size = link.takes_ps(1)
        now = waited = 0
        count = 400_000
        for _ in range(count):
            now += round(dice.expovariate(rho / size))
            waited += link.carry(READ, now, 1) - now - size
        expected = rho / (2 * (1 - rho)) * size
        assert waited / count == pytest.approx(expected, rel=0.06)


def test_reads_and_writes_share_a_link_unless_it_is_duplex():
    for duplex in (True, False):
        link = TransferQueue(10**12, 100, duplex=duplex)
        link.carry(WRITE, 0, 5)
        assert link.carry(READ, 0, 1) == (100 if duplex else 600)
        assert link.busy_ps == 600


def test_policies_evict_as_they_say():
    names = [1, 2, 3, 4]

    def left(policy):
        store = Store(4, policy)
        store.add(store.ordered(names), 0)
        for _ in range(2):
            store.used([3])
        store.add([9, 8], 0)
        return [name for name in (*names, 9, 8) if store.ready_ps(name) is not None]

    assert left("lru") == [3, 4, 9, 8]
    assert left("lru-tail") == [1, 3, 9, 8]
    # 1 goes for 9, whose priority of 2 is then above that of 2 and 4 (1 each); 2 goes for 8.
    assert left("lfu-da") == [3, 4, 9, 8]


def test_aging_lets_go_of_what_was_once_used_often():
    store = Store(2, "lfu-da")
    store.add([1], 0)
    for _ in range(5):
        store.used([1])
    for name in range(10, 20):
        store.add([name], 0)
    assert store.ready_ps(1) is None


def test_pages_that_nobody_can_ask_for_take_room_too():
    """Answers of which nothing is known are evicted and written like any other page."""
    back = level(back=True)
    served([(0, [], 80, 20), (LATER, OTHER, 100, 1)], [back])
    assert len(back.store) > 0
    assert back.hit_tokens == 0


def test_two_engines_share_what_one_has_computed():
    store = Store(None)
    tiers = [
        OffloadConnector(
            [replace(level(10**12, shared=True), store=store)],
            CLOCK,
            block_tokens=SIZE,
            unit=1,
            batch_tokens=1000,
            engine=n,
            engines=2,
        )
        for n in range(2)
    ]
    case = Case(engine(30), CLOCK, 1, [(0, 80, 20, FIRST, 20, 0)])
    jumped(case, None, tiers[0])
    later = replace(case, requests=[(LATER, 81, 20, FIRST, 20, 0)])
    _, out = jumped(later, None, tiers[1])
    assert out.found[0] == [80]
    assert tiers[1].levels[0].hit_tokens == 80
    assert store.put == len(store) == 20 + 4 + 5  # and what was answered


def test_chunks_are_found_whole_only():
    """Five of 20 blocks stay on the GPU, one is computed: 14 are read, 13 in chunks of three."""
    requests = [(0, FIRST, 80, 1), (LATER, OTHER, 100, 1), (2 * LATER, FIRST, 80, 1)]
    _, plain = served(requests, [level()])
    _, chunks = served(requests, [level(chunk=3)])
    assert plain.levels[0].hit_tokens == 14 * SIZE
    assert chunks.levels[0].hit_tokens == 13 * SIZE
    assert chunks.levels[0].store.put == 6 + 8
    assert chunks.levels[0].written_pages == 18 + 24


def test_a_chunk_begun_on_the_gpu_goes_on_in_the_tier():
    connector = OffloadConnector([level(chunk=4)], CLOCK, block_tokens=SIZE, unit=1, batch_tokens=9)
    names = list(range(1, 11))
    connector.stored(names[:3], 0, 0)
    assert len(connector.levels[0].store) == 0
    connector.stored(names[3:], 0, 3)
    assert [connector.levels[0].store.ready_ps(n) is not None for n in names] == [
        n in (4, 8) for n in names
    ]


def test_selective_writes_wait_for_a_second_use():
    requests = [(0, FIRST, 80, 1), (LATER, FIRST, 80, 1)]
    _, tiers = served(requests, [level(selective=True)])
    assert tiers.levels[0].written_pages == 19
    _, tiers = served(requests[:1], [level(selective=True)])
    assert tiers.levels[0].written_pages == 0


def test_another_width_moves_in_its_own_time():
    requests = [(0, FIRST, 80, 1), (LATER, OTHER, 100, 1), (2 * LATER, FIRST, 80, 1)]
    rate = 100 * PS_PER_S // 20  # a block in 20 ps
    _, plain = served(requests, [level(rate)])
    _, half = served(requests, [level(rate, width=(1, 2))])
    assert [*plain.levels[0].waits_ps] == [14 * 20]
    assert [*half.levels[0].waits_ps] == [14 * 10]
