"""SGLang's and llama.cpp's rules: what their documentation and code say they do, and that nobody is lost."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kvroom.engines.llama_cpp.scheduler import SlotScheduler, SlotSettings
from kvroom.engines.sglang.scheduler import SglangScheduler, SglangSettings
from kvroom.kvcache.radix import RadixTree, TokenText
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes
from kvroom.simulator.replay import play


def request(index, prompt, output, arrival=0):
    """A request of runs of token ids."""
    count = sum(n for _, n in prompt)
    runs = (*prompt, (10**6 * (index + 1), output))
    return ServedRequest(index, arrival, count, output, hashes=BlockHashes(runs, 4))


def sglang(tokens=400, **keys):
    given = {
        "page": 1,
        "max_running_requests": 8,
        "context_tokens": 300,
        "chunked_prefill_size": 64,
    } | keys
    return SglangScheduler(SglangSettings(tokens=tokens, **given))


def slots(count=2, tokens=400, **keys):
    given = {"context_tokens": 200, "batch_tokens": 64, "stretch": 4} | keys
    return SlotScheduler(SlotSettings(slots=count, tokens=tokens, **given))


def passes(rules, sequences):
    """Every pass: (index, tokens) of its work."""
    seen = []
    played = play(
        rules,
        sequences,
        on_scheduled=lambda made, _: seen.append(
            [(w.request.index, w.tokens) for w in made.scheduled]
        ),
    )
    return played, seen


def test_sglang_computes_prompts_before_it_decodes():
    played, seen = passes(
        sglang(), [request(0, [(0, 20)], 3), request(1, [(50, 10)], 2, arrival=1)]
    )
    assert seen == [[(0, 20)], [(1, 10)], [(0, 1), (1, 1)], [(0, 1)]]
    assert played.totals.completed == 2


def test_sglang_cuts_long_prompts_and_goes_on_with_them_first():
    _, seen = passes(sglang(), [request(0, [(0, 150)], 1), request(1, [(500, 20)], 1)])
    assert seen == [[(0, 64)], [(0, 64)], [(0, 22), (1, 20)]]


def test_sglang_finds_what_is_in_the_tree():
    rules = sglang()
    first, second = request(0, [(0, 40)], 1), request(1, [(0, 32), (90, 8)], 1, arrival=5)
    played, _ = passes(rules, [first, second])
    assert played.requests[1].cached_tokens_first == 32


def test_sglang_retracts_who_has_generated_least():
    rules = sglang(
        tokens=104, chunked_prefill_size=200, first_ratio=0.0
    )  # no room is kept for answers
    sequences = [request(0, [(0, 40)], 60), request(1, [(100, 20)], 30, arrival=3)]
    played, _ = passes(rules, sequences)
    assert played.requests[1].preemptions > 0
    assert played.requests[0].preemptions == 0
    assert played.totals.completed == 2


def test_sglang_admits_by_what_answers_may_need():
    careful = sglang(tokens=120)
    sequences = [request(i, [(100 * i, 40)], 60) for i in range(2)]
    _, seen = passes(careful, sequences)
    assert seen[0] == [(0, 40)]  # 40 + 60 more would not leave 0.7 × 60 for the first


def text(*runs):
    return TokenText(runs)


def test_the_least_recently_used_leaf_goes_first():
    tree = RadixTree()
    one, other = text((1, 3)), text((1, 2), (9, 5))
    assert tree.insert(one, 3)[1] == 0
    assert tree.insert(other, 7)[1] == 2  # what both have is there once
    assert tree.size == 8
    tree.match(one, 3)
    assert tree.evict(1) == 5  # a leaf goes whole
    assert tree.match(other, 7)[1] == 2
    assert tree.match(one, 3)[1] == 3
    node, _ = tree.match(one, 2)
    tree.lock(node)
    assert tree.evict(9) == 1  # what is locked stays
    tree.unlock(node)
    assert tree.evict(9) == 2
    assert (tree.size, tree.evictable) == (0, 0)


def test_matches_end_with_whole_pages():
    tree = RadixTree(page=4)
    tree.insert(text((0, 11)), 11)
    assert tree.size == 8
    assert tree.match(text((0, 7), (90, 5)), 12)[1] == 4
    assert tree.match(text((0, 20)), 20)[1] == 8


runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=5)


@given(st.lists(st.tuples(runs, st.booleans()), min_size=1, max_size=12))
def test_a_tree_of_runs_holds_what_a_set_of_prefixes_would(texts):
    tree, known = RadixTree(), set()
    for drawn, inserts in texts:
        made = text(*drawn)
        ids = [first + n for first, count in drawn for n in range(count)]
        prefixes = [tuple(ids[: n + 1]) for n in range(len(ids))]
        longest = sum(prefix in known for prefix in prefixes)
        assert tree.match(made, len(ids))[1] == longest
        if inserts:
            assert tree.insert(made, len(ids))[1] == longest
            known.update(prefixes)
        assert tree.size == tree.evictable == len(known)
    assert tree.evict(10**9) == len(known)


def test_a_slot_is_chosen_for_what_it_holds():
    sequences = [
        request(0, [(0, 40)], 2),
        request(1, [(500, 40)], 2),
        request(2, [(500, 40), (90, 8)], 2, arrival=9),
        request(3, [(0, 40), (70, 8)], 2, arrival=9),
    ]
    played, _ = passes(slots(), sequences)
    assert [r.cached_tokens_first for r in played.requests] == [0, 0, 40, 40]


def test_slots_make_others_wait():
    played, seen = passes(slots(1), [request(i, [(100 * i, 10)], 2) for i in range(2)])
    assert seen == [[(0, 10)], [(0, 1)], [(1, 10)], [(1, 1)]]
    assert played.totals.peak_waiting == 1


def test_generating_slots_come_before_prompts():
    sequences = [request(0, [(0, 10)], 5), request(1, [(100, 100)], 1, arrival=1)]
    _, seen = passes(slots(), sequences)
    assert seen[1] == [(0, 1), (1, 63)]


def test_idle_slots_give_their_cells_up():
    sequences = [request(0, [(0, 60)], 1), request(1, [(100, 60)], 1, arrival=3)]
    played, _ = passes(slots(2, tokens=100), sequences)
    assert played.totals.completed == 2


def workload(dice):
    found = []
    for index in range(dice.randint(1, 12)):
        shared = dice.choice([0, 0, 8, 40])
        own = dice.randint(1, 60)
        prompt = [(0, shared), (1000 * (index + 1), own)] if shared else [(1000 * (index + 1), own)]
        found.append(request(index, prompt, dice.randint(1, 40), dice.randint(0, 60)))
    return found


@given(st.integers(0, 2**32))
def test_nobody_is_lost_by_sglang(seed):
    dice = random.Random(seed)
    rules = sglang(
        tokens=4 * dice.randint(8, 60),
        page=dice.choice([1, 4]),
        max_running_requests=dice.choice([1, 3, 8]),
        chunked_prefill_size=dice.choice([8, 20, 64]),
        caching=dice.random() < 0.8,
    )
    sequences = workload(dice)
    played = play(rules, sequences, max_steps=20_000)
    assert played.totals.completed + played.totals.dropped == len(sequences)
    assert rules.free + rules.cache.size == rules.settings.tokens
    assert rules.cache.evictable == rules.cache.size
    assert rules.blocks_in_use == 0


@given(st.integers(0, 2**32))
def test_nobody_is_lost_by_slots(seed):
    dice = random.Random(seed)
    rules = slots(dice.randint(1, 5), tokens=dice.randint(40, 300))
    sequences = workload(dice)
    played = play(rules, sequences, max_steps=20_000)
    assert played.totals.completed + played.totals.dropped == len(sequences)
    assert sum(slot.held for slot in rules.slots) <= rules.settings.tokens
    assert rules.blocks_in_use == 0
