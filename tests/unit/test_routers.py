"""Routers as people run them: what each chooses in small cases, worked out by hand from its source."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.scenario.routing import ROUTERS, ROUTING_POLICIES, Routing
from kvroom.simulator.router import RULES, Router
from kvroom.simulator.routing.loads import HeldNames
from kvroom.simulator.routing.views import RecentNames

BLOCK = 16


def router_of(text, replicas=2, blocks=1000):
    return Router(Routing.parse("routing", text), [blocks * BLOCK] * replicas, BLOCK, BLOCK)


def prompt(names, index=0, extra=0, session=None):
    """A prompt of whole blocks of these names, and ``extra`` tokens that fill no block."""
    tokens = len(names) * BLOCK + extra
    live = ServedRequest(index, 0, tokens, 10, extents=RequestExtents(names, len(names)))
    live.session_id = session
    return live


def sent(router, live, up, now=0):
    live.replica = router.route(live, up, now)
    return live.replica


@pytest.mark.parametrize("name", ROUTING_POLICIES)
def test_every_router_of_the_list_has_a_rule_and_usual_settings(name):
    entry = ROUTERS[name]
    assert entry.rule in RULES
    assert all(low <= usual <= high for usual, low, high in entry.settings.values())
    routing = Routing.parse("routing", name)
    assert routing.to_dict() == name
    router = Router(routing, [1000, 1000], 16)
    assert router.route(prompt([1, 2]), [0, 1]) in (0, 1)
    assert router.route(prompt([1, 2], 1), [1]) == 1


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ("dynamo:temperature=0.5", {"policy": "dynamo", "settings": {"temperature": 0.5}}),
        (
            "dynamo:ttl=60s:kv_events=0",
            {"policy": "dynamo", "settings": {"ttl": 60.0, "kv_events": 0.0}},
        ),
        ("sglang:cache_threshold=0.5", {"policy": "sglang", "settings": {"cache_threshold": 0.5}}),
        ("llm-d:stale=0", {"policy": "llm-d", "stale_s": 0.0}),
        ("llm-d:prefix=3", "llm-d"),
    ],
)
def test_settings_are_read_and_said(given_, said):
    routing = Routing.parse("routing", given_)
    assert routing.to_dict() == said
    assert Routing.parse("routing", said) == routing


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ("dynamo:cache_threshold=1", "routing"),
        ("dynamo:temperature=warm", "routing temperature"),
        ("sglang:cache_threshold=2", "routing.cache_threshold"),
        ("llm-d:block_tokens=0", "routing.block_tokens"),
        ("sglangs", "routing"),
    ],
)
def test_settings_that_a_router_has_not_are_refused(given_, field):
    with pytest.raises(KvroomError) as caught:
        Routing.parse("routing", given_)
    assert caught.value.field == field


# Dynamo's cost: its printed figures are in tests/golden/test_dynamo_router.py


def test_a_block_that_two_requests_hold_counts_once():
    router = router_of("dynamo")
    rule = router.rule
    rule.send(prompt([1, 2, 3, 4]), 0, 0, 0)
    # 64 tokens not yet computed there and 64 to come; four blocks held, of which three are shared.
    assert rule.costs(prompt([1, 2, 3, 9], 1), [0, 1], [48, 0]) == [8 - 3 + 4 + 1, 4 + 4]


def test_what_ends_is_no_longer_held():
    router = router_of("dynamo")
    live = prompt([1, 2, 3, 4], extra=5)
    place = sent(router, live, [0, 1])
    router.loads.heard(10, live, over=True)
    router.loads.settle(10)
    assert router.rule.held.tokens == [0, 0] and not router.rule.held.names[place]


def test_its_product_prefers_who_has_nothing_to_compute():
    router = router_of("dynamo:lmetric=1")
    router.rule.held.tokens[1] = 100 * BLOCK
    assert router.rule.costs(prompt([1, 2]), [0, 1], [0, 32]) == [2 * 3, 0]


def test_credit_decays_with_prompts_to_compute_beyond_the_least():
    router = router_of("dynamo:overlap_score_credit_decay=1")
    router.loads.owed[0] = 4 * BLOCK  # one prompt's worth more than the other has
    first, second = router.rule.costs(prompt([1, 2, 3, 4]), [0, 1], [64, 64])
    assert (first, second) == (4 + 4 - 4 / 2 + 4, 4 - 4 + 4)


def test_without_events_what_was_sent_is_cached_until_its_time_is_over():
    router = router_of("dynamo:kv_events=0:ttl=10s", replicas=1)
    sent(router, prompt([1, 2]), [0], 0)
    assert 1 in router.rule._cached(0, 9 * PS_PER_S)
    assert 1 not in router.rule._cached(0, 10 * PS_PER_S)


def test_a_temperature_draws_by_cost():
    router = router_of("dynamo:temperature=1")
    drawn = Counter(router.rule._draw([0.0, 10.0]) for _ in range(20_000))
    assert drawn[0] / 20_000 == pytest.approx(1 / (1 + 2.718281828**-1), abs=0.01)


def test_equal_costs_are_drawn_evenly():
    router = router_of("dynamo", replicas=4)
    drawn = Counter(router.rule._draw([5.0, 1.0, 1.0, 1.0]) for _ in range(9_000))
    assert not drawn[0] and all(abs(drawn[p] - 3000) < 300 for p in (1, 2, 3))


# llm-d's scores


def test_scores_are_weighed():
    router = router_of("llm-d:block_tokens=16", replicas=3, blocks=100)
    rule = router.rule
    rule.recent[1].sent([1, 2, 3])
    router.waiting[:] = [4, 2, 0]
    router.used[:] = [0.5, 0.25, 1.0]
    scores = rule.scores(prompt([1, 2, 3, 4]), [0, 1, 2])
    assert scores == [(0.0, 0.0, 0.5, 0.5), (0.75, 0.5, 0.75, 0.5), (0.0, 1.0, 0.0, 0.5)]
    # 3 × prefix + 2 × queue + 2 × kv + 2 × cold
    assert [sum(w * s for w, s in zip((3, 2, 2, 2), each, strict=True)) for each in scores] == [
        2.0,
        5.75,
        3.0,
    ]
    assert router.route(prompt([1, 2, 3, 4]), [0, 1, 2]) == 1


def test_prompts_known_nowhere_go_round_by_who_got_one_last():
    router = router_of("llm-d", replicas=3)
    places = [sent(router, prompt([10 * n], n), [0, 1, 2]) for n in range(1, 7)]
    assert places == [0, 1, 2, 0, 1, 2]


def test_its_index_counts_in_blocks_of_its_own_up_to_a_limit():
    router = router_of("llm-d:block_tokens=64:max_prefix_tokens=128", replicas=2)
    router.rule.recent[0].sent(list(range(12)))
    assert router.rule.scores(prompt(list(range(12))), [0, 1])[0][0] == 1.0  # 2 of 2 that count
    assert router.rule.scores(prompt(list(range(3))), [0, 1])[0][0] == 0.0  # fills none


def test_its_index_forgets_the_latest_blocks_last():
    router = router_of("llm-d:block_tokens=16:lru_blocks=4", replicas=1)
    for n in range(3):
        sent(router, prompt([10 * n, 10 * n + 1], n), [0])
    assert list(router.rule.recent[0]) == [11, 10, 21, 20]


# SGLang's cache_aware


def test_the_longest_prefix_counts_only_beyond_the_threshold():
    router = router_of("sglang:cache_threshold=0.5")
    sent(router, prompt([1, 2, 3, 4]), [1])
    assert sent(router, prompt([1, 2, 8, 9], 1), [0, 1]) == 0  # half is not more than half
    assert sent(router, prompt([1, 2, 3, 9], 2), [0, 1]) == 1


def test_far_apart_loads_go_before_prefixes():
    router = router_of("sglang:balance_abs_threshold=3:balance_rel_threshold=1.5")
    for n in range(4):
        assert sent(router, prompt([1, 2], n), [1] if n == 0 else [0, 1]) == 1
    assert sent(router, prompt([1, 2], 4), [0, 1]) == 0  # 4 against 0: by more than three
    # It has the prefix too now, and was the last to get it.
    assert sent(router, prompt([1, 2], 5), [0, 1]) == 0


def test_trees_are_cut_now_and_then():
    router = router_of("sglang:max_tree_tokens=32:eviction_interval=10s", replicas=1)
    sent(router, prompt([1, 2, 3, 4]), [0])
    assert len(list(router.rule.sent[0])) == 4
    sent(router, prompt([9], 1), [0], 10 * PS_PER_S)
    assert list(router.rule.sent[0]) == [2, 1, 9]


# The production stack's


def test_prefixaware_never_forgets_and_never_looks_at_loads():
    router = router_of("vllm-prefixaware", replicas=4)
    first = sent(router, prompt([1, 2, 3, 4]), [0, 1, 2, 3])
    assert all(sent(router, prompt([1, 2, 3, n], n), [0, 1, 2, 3]) == first for n in range(5, 50))
    # Less than a chunk in common is nothing in common.
    places = {sent(router, prompt([1, 1000 + n], n), [0, 1, 2, 3]) for n in range(50, 150)}
    assert len(places) == 4


def test_kvaware_asks_what_is_cached_else_the_session_else_who_got_least():
    router = router_of("vllm-kvaware:threshold_tokens=16:window=10s")
    router.views[1].names = {1, 2, 3}
    assert sent(router, prompt([1, 2, 3, 4]), [0, 1]) == 1
    assert sent(router, prompt([1, 2, 7, 8], 1), [0, 1]) == 0  # 32 tokens are not: 0 got none yet
    assert sent(router, prompt([50], 2), [0, 1]) == 0  # as few as the other, the first
    assert sent(router, prompt([60], 3), [0, 1]) == 1
    homes = {sent(router, prompt([n], n, session=7), [0, 1]) for n in range(100, 120)}
    assert len(homes) == 1


# Chance


def test_of_two_the_lighter():
    router = router_of("power-of-two", replicas=8)
    for n in range(800):
        sent(router, prompt([n], n), list(range(8)))
    counts = router.loads.requests
    assert max(counts) - min(counts) <= 6  # two choices: a spread of log log n, not of its root
    blind = router_of("random", replicas=8)
    for n in range(800):
        sent(blind, prompt([n], n), list(range(8)))
    assert max(blind.loads.requests) - min(blind.loads.requests) > 6


@given(st.lists(st.lists(st.integers(0, 8), unique=True, max_size=6), max_size=12), st.randoms())
def test_held_blocks_are_the_union_of_the_prompts(prompts, dice):
    """Whatever comes and goes, in any order."""
    held = HeldNames(1, 16)
    here = []
    for names in prompts:
        rest = dice.randint(0, 15)
        held.hold(0, names, rest)
        here.append((names, rest))
        if dice.random() < 0.4:
            held.let_go(0, *here.pop(dice.randrange(len(here))))
        union = {name for names, _ in here for name in names}
        assert held.tokens[0] == len(union) * 16 + sum(rest for _, rest in here)
        assert set(held.names[0]) == union


@given(
    st.lists(st.lists(st.integers(0, 9), unique=True, max_size=5), max_size=9), st.integers(0, 7)
)
def test_an_index_keeps_the_latest(prompts, most):
    index = RecentNames(most)
    order = []
    for names in prompts:
        index.sent(names)
        for name in reversed(names):
            order = [other for other in order if other != name] + [name]
    assert list(index) == order[max(0, len(order) - most) :]


def test_chance_repeats_itself():
    for name in ("random", "power-of-two", "dynamo:temperature=1", "llm-d", "vllm-prefixaware"):
        runs = []
        for _ in range(2):
            router, dice = router_of(name, replicas=5), random.Random(1)
            runs.append(
                [
                    sent(router, prompt([dice.randrange(5), n + 10], n), list(range(5)))
                    for n in range(60)
                ]
            )
        assert runs[0] == runs[1]
