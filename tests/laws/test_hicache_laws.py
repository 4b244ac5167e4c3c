"""Laws of host memory below SGLang's tree: hits add up, no page is lost, nobody is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom import api

LOAD = {
    "prefix": "shared:64", "first": 700, "turns": 2, "agent": 3, "input": 100, "result": 150, "output": 20,
    "think": "5s", "tool": "1s", "compact": "3K:0.3",
}  # fmt: skip


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 99), st.sampled_from([4_500, 7_000, 12_000]),
    st.sampled_from(["through", "selective", "back"]), st.sampled_from([0.1, 0.5, 2.0]),
)  # fmt: skip
def test_hits_add_up_and_no_page_is_lost(agents, seed, tokens, write, times):
    load = LOAD | {"agents": agents, "requests": 8 * agents, "seed": seed}
    tier = f"hicache:times_gpu={times}:write={write}"
    found = api.simulate(
        "llama-3.1-8b", "L40S", engine="sglang", workload=load, context_tokens="4K", tiers=[tier],
        engine_args={"max_total_tokens": tokens, "page_size": 16},
    )  # fmt: skip
    figures = found.figures
    assert figures["requests"]["completed"] == 8 * agents
    assert (
        abs(sum(row["hit_ratio"] for row in figures["tiers"]) - figures["prefix_hit_ratio"]) < 1e-9
    )
    for plant in found.run.plants:
        for connector in plant.made:
            (level,) = connector.levels
            store = level.store
            assert store.put == store.evicted + store.taken + len(store)
            assert len(store) <= store.room
    host = figures["tiers"][1]
    assert host["held_tokens"] <= host["room_tokens"] <= times * tokens


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 99), st.sampled_from(["through", "selective", "back"]),
    st.sampled_from(["best_effort", "timeout", "wait_complete"]), st.sampled_from(["2e8", "2e9", "1e11"]),
    st.sampled_from(["0.5.1", "0.5.9", "0.5.23"]),
)  # fmt: skip
def test_what_storage_brings_is_counted_once(agents, seed, write, prefetch, rate, version):
    """Everybody is served, hits add up, storage that forgets nothing holds all that host memory ever had."""
    load = LOAD | {"agents": agents, "requests": 8 * agents, "seed": seed}
    tiers = [f"hicache:times_gpu=0.5:write={write}"]
    tiers.append(f"nvme:10TB:bytes_per_s={rate}:prefetch={prefetch}:prefetch_tokens=64")
    found = api.simulate(
        "llama-3.1-8b", "L40S", engine="sglang", workload=load, context_tokens="4K", tiers=tiers,
        engine_args={"max_total_tokens": 4_500, "page_size": 16}, engine_version=version,
    )  # fmt: skip
    figures = found.figures
    assert figures["requests"]["completed"] == 8 * agents
    ratios = [row["hit_ratio"] for row in figures["tiers"]]
    assert all(ratio >= 0 for ratio in ratios)
    assert abs(sum(ratios) - figures["prefix_hit_ratio"]) < 1e-9
    for plant in found.run.plants:
        for connector in plant.made:
            host, storage = (level.store for level in connector.levels)
            assert storage.evicted == 0
            assert all(storage.ready_ps(name) is not None for name in host.names())
            assert connector.prefetch.asked_tokens == 0
