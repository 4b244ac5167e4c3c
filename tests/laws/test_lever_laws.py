"""Laws of decisions: a gain's shares sum to it; more cards never lower what can be reached."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.optimize.levers.rank import levers
from kvroom.optimize.levers.waterfall import shapley
from kvroom.scenario.scenario import Scenario

players = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1, max_size=5)


@st.composite
def games(draw):
    names = draw(players)
    values = draw(
        st.lists(st.integers(0, 1000), min_size=2 ** len(names), max_size=2 ** len(names))
    )

    def value(pulled):
        return values[sum(2**i for i, name in enumerate(names) if name in pulled)]

    return names, value


@given(games())
def test_shares_sum_to_the_gain_and_are_the_mean_over_all_orders(game):
    names, value = game
    shares = shapley(names, value)
    gain = value(frozenset(names)) - value(frozenset())
    assert abs(sum(shares.values()) - gain) < 1e-6
    orders = list(permutations(names))
    for name in names:
        total = Fraction(0)
        for order in orders:
            before = frozenset(order[: order.index(name)])
            total += value(before | {name}) - value(before)
        assert abs(shares[name] - total / len(orders)) < 1e-6


models = st.sampled_from(["llama-3-8b", "llama-3-70b", "qwen3-32b", "mixtral-8x7b", "gpt-oss-120b"])
cards = st.sampled_from(["80GB", "H100-SXM", "A100-SXM-80", "L40S"])


@settings(max_examples=12, deadline=None)
@given(models, cards, st.sampled_from([1, 2, 4]), st.sampled_from(["arithmetic", "vllm"]))
def test_more_cards_never_lower_what_can_be_reached(model, card, count, engine):
    def reached(cards):
        asked = {"model": model, "gpu": card, "gpu_count": cards, "engine": engine}
        found = levers(Scenario.from_dict({**asked, "context_tokens": 8192}))
        best = [t.after.requests for t in found.together]
        return max([found.before.requests, *best])

    assert reached(count) <= reached(2 * count)


@settings(max_examples=15, deadline=None)
@given(models, cards, st.sampled_from([2048, 8192, 32768]), st.sampled_from(["arithmetic", "vllm"]))
def test_the_waterfall_leads_from_before_to_the_best_set(model, card, context, engine):
    asked = {"model": model, "gpu": card, "gpu_count": 4, "engine": engine}
    found = levers(Scenario.from_dict({**asked, "context_tokens": context}))
    if found.together:
        gain = found.together[0].after.requests - found.before.requests
        assert abs(sum(share for _, share in found.waterfall) - gain) < 1e-6
        alone = [p.after.requests for p in found.levers if p.lever.id in found.together[0].ids]
        assert found.together[0].after.requests >= max(alone)
