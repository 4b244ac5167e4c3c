"""Laws of search: a wider choice never costs more; a looser objective never does; order does not matter."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.optimize.search.search import search
from kvroom.optimize.search.space import Space
from kvroom.scenario.scenario import Scenario

cards = st.lists(
    st.sampled_from(["L4", "L40S", "A100-SXM-80", "H100-SXM", "H200-SXM"]),
    unique=True,
    min_size=1,
    max_size=3,
)
counts = st.sets(st.sampled_from([1, 2, 4]), min_size=1)


def price(gpus, number, slo, users=16):
    load = {"input_tokens": 800, "output_tokens": 150, "concurrency": users}
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "workload": load})
    space = Space(gpus=tuple(gpus), counts=tuple(number))
    found = search(asked, slo, space=space, simulate=0)
    return found.answers[0].row["usd_per_hour"] if found.answers else float("inf")


@settings(max_examples=15, deadline=None)
@given(cards, cards, counts, st.integers(10, 200))
def test_more_hardware_to_choose_from_never_costs_more(some, others, number, limit_ms):
    slo = f"tpot_p95={limit_ms}ms"
    both = [*some, *(c for c in others if c not in some)]
    assert price(both, number, slo) <= price(some, number, slo)
    assert price(some, {*number, 1, 2}, slo) <= price(some, number, slo)


@settings(max_examples=15, deadline=None)
@given(cards, st.integers(5, 100), st.integers(0, 100), st.integers(1, 200), st.integers(0, 200))
def test_looser_objectives_and_fewer_users_never_cost_more(gpus, limit, slack, users, more):
    tight, loose = f"tpot_p95={limit}ms", f"tpot_p95={limit + slack}ms"
    assert price(gpus, [1], loose) <= price(gpus, [1], tight)
    assert price(gpus, [1], tight, users) <= price(gpus, [1], tight, users + more)


@settings(max_examples=5, deadline=None)
@given(st.permutations(["L4", "L40S", "H100-SXM"]))
def test_the_order_of_the_space_changes_nothing(order):
    assert price(order, [2, 1], "tpot_p95=40ms") == price(sorted(order), [1, 2], "tpot_p95=40ms")
