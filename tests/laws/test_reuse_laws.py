"""Laws of caches, held against policies written as plainly as can be."""

from array import array
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from kvroom.simulator.reuse import player, reuse
from kvroom.workloads.requests import HashIds, Request

PROMPTS = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=9), min_size=1, max_size=25)
CHAINS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=25).map(
    # An id stands for all before it, as in real traces.
    lambda paths: [[hash(tuple(path[: i + 1])) % 2**31 for i in range(len(path))] for path in paths]
)
TRACES = PROMPTS | CHAINS
CAPACITIES = st.integers(1, 15)


def refs_of(prompts):
    requests = [Request(0, len(p), 1, HashIds(array("q", p), 1)) for p in prompts]
    return reuse(requests, 1).refs


def accesses(prompts):
    return [number for prompt in prompts for number in prompt]


def plain_lru(prompts, capacity):
    cache, hits = OrderedDict(), 0
    for number in accesses(prompts):
        hits += number in cache
        cache[number] = None
        cache.move_to_end(number)
        if len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def plain_tail_first(prompts, capacity):
    cache, hits = OrderedDict(), 0
    for prompt in prompts:
        for number in prompt:
            if number not in cache:
                break
            hits += 1
        for number in reversed(prompt):
            cache[number] = None
            cache.move_to_end(number)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


def plain_fifo(prompts, capacity):
    cache, hits = [], 0
    for number in accesses(prompts):
        if number in cache:
            hits += 1
        else:
            cache.append(number)
            if len(cache) > capacity:
                cache.pop(0)
    return hits


def plain_lfu(prompts, capacity):
    cache, hits = {}, 0
    for now, number in enumerate(accesses(prompts)):
        hits += number in cache
        cache[number] = (cache.get(number, (0, 0))[0] + 1, now)
        if len(cache) > capacity:
            del cache[min(cache, key=cache.get)]
    return hits


def plain_belady(prompts, capacity):
    order = accesses(prompts)
    cache, hits = set(), 0
    for now, number in enumerate(order):
        if number in cache:
            hits += 1
            continue
        if len(cache) == capacity:
            later = order[now + 1 :]
            never = len(order)
            cache.remove(max(cache, key=lambda n: later.index(n) if n in later else never))
        cache.add(number)
    return hits


PLAIN = {
    "lru": plain_lru,
    "lru-tail": plain_tail_first,
    "fifo": plain_fifo,
    "lfu": plain_lfu,
    "belady": plain_belady,
}


@given(TRACES, CAPACITIES, st.sampled_from(sorted(PLAIN)))
def test_every_policy_hits_what_its_plain_form_hits(prompts, capacity, policy):
    assert player(policy, refs_of(prompts))(capacity) == PLAIN[policy](prompts, capacity)


@given(TRACES, st.sampled_from(["lru", "lru-tail", "belady"]))
def test_a_larger_cache_never_hits_less(prompts, policy):
    hits = player(policy, refs_of(prompts))
    found = [hits(capacity) for capacity in range(1, 20)]
    assert found == sorted(found)


@given(TRACES, CAPACITIES)
def test_belady_is_never_beaten(prompts, capacity):
    refs = refs_of(prompts)
    best = player("belady", refs)
    assert player("lru", refs)(capacity) <= best(capacity)
    assert player("fifo", refs)(capacity) <= best(capacity)
    # A block is taken in before LFU chooses, maybe that very block: for a moment it holds one more.
    assert player("lfu", refs)(capacity) <= best(capacity + 1)


@given(CHAINS)
def test_a_cache_that_holds_everything_hits_all_that_was_seen(prompts):
    refs = refs_of(prompts)
    found = reuse([Request(0, len(p), 1, HashIds(array("q", p), 1)) for p in prompts], 1)
    assert found.infinite.hit_blocks == len(refs.blocks) - refs.unique_blocks
    assert all(player(p, refs)(10**6) == found.infinite.hit_blocks for p in PLAIN)


@given(CHAINS, CAPACITIES)
def test_touching_the_tail_first_never_hits_less_where_ids_are_chains(prompts, capacity):
    refs = refs_of(prompts)
    assert player("lru-tail", refs)(capacity) >= player("lru", refs)(capacity)
