"""Host memory below vLLM's layer groups: windows and recurrent state, as its own connector serves them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom import api
from kvroom.errors import KvroomError

LOAD = {
    "agents": 6, "prefix": "shared:512", "first": "lognormal:median=4000:sigma=0.5:max=9000", "turns": 3,
    "agent": 4, "input": 200, "result": 300, "output": 30, "think": "20s", "tool": "4s", "requests": 60,
    "compact": "12K:0.3",
}  # fmt: skip
WINDOWS = ("gpt-oss-20b", "H100-SXM", {})
ONLY_WINDOWS = ("mistral-7b-v0.1", "H100-SXM", {})
STATE = ("qwen3-next-80b-a3b", "H100-SXM:4", {"weight_dtype": "fp8"})
SMALL = {"gpt-oss-20b": 2500, "mistral-7b-v0.1": 1100, "qwen3-next-80b-a3b": 60}
LARGE = {"gpt-oss-20b": 20_000, "mistral-7b-v0.1": 20_000, "qwen3-next-80b-a3b": 4000}


def served(question, blocks, tiers=(), load=LOAD, **more):
    model, gpu, keys = question
    args = {"num_gpu_blocks_override": blocks, "max_num_seqs": 16}
    found = api.simulate(
        model, gpu, workload=load, engine_version="0.33.0", engine_args=args, context_tokens="16K",
        host_memory_bytes="2TiB", **({"tiers": list(tiers)} if tiers else {}), **(keys | more),
    )  # fmt: skip
    assert found.figures["requests"]["completed"] == load["requests"]
    return found


def hits(found):
    return {row["tier"]: row["hit_ratio"] for row in found.figures["tiers"]}


@pytest.mark.parametrize("question", [WINDOWS, ONLY_WINDOWS, STATE], ids=lambda q: q[0])
def test_what_the_blocks_give_up_is_found_below_them(question):
    name = question[0]
    alone = served(question, SMALL[name]).figures
    found = served(question, SMALL[name], ["host:1TiB"])
    told = hits(found)
    assert sum(told.values()) == pytest.approx(found.figures["prefix_hit_ratio"])
    assert told["host"] > 0.02
    assert found.figures["prefix_hit_ratio"] > alone["prefix_hit_ratio"]
    assert found.figures["ttft_s"]["mean"] < alone["ttft_s"]["mean"]


@pytest.mark.parametrize("question", [WINDOWS, STATE], ids=lambda q: q[0])
def test_memory_below_finds_what_a_large_pool_would_have_kept(question):
    name = question[0]
    large = served(question, LARGE[name]).figures["prefix_hit_ratio"]
    below = served(question, SMALL[name], ["host:1TiB"]).figures["prefix_hit_ratio"]
    assert below == pytest.approx(large, abs=0.03)


def test_no_room_below_changes_nothing():
    plain = served(WINDOWS, 2500).figures
    none = served(WINDOWS, 2500, ["host:0GB"]).figures
    for key in ("ttft_s", "tpot_s", "prefix_hit_ratio", "duration_s", "preemptions"):
        assert none[key] == plain[key]


def test_a_window_loads_its_last_blocks_only():
    """A long prompt found below: full attention loads it all, windows their part."""
    load = {
        "arrivals": "closed:1",
        "input": 100,
        "output": 4,
        "requests": 24,
        "prefix": "shared:6x8992",
    }
    found = served(WINDOWS, 2500, ["host:200GiB"], load)
    plan = api.plan(
        WINDOWS[0], WINDOWS[1], engine_version="0.33.0", context_tokens="16K", tiers=["host:1GiB"]
    )
    host = found.figures["tiers"][1]
    growing = plan.kv.bytes_per_token * host["hit_tokens"]  # of full attention
    assert host["hit_tokens"] > 0
    assert growing < host["read_bytes"] < 1.05 * growing


def test_a_link_that_is_slower_than_computing_reads_nothing():
    host = served(WINDOWS, 2500, ["host:100GiB:bytes_per_s=1e6"]).figures["tiers"][1]
    assert host["hit_tokens"] == 0


@pytest.mark.parametrize(
    ("tiers", "why"),
    [
        (["network:bytes_per_s=25e9"], "layers in groups"),
        (["host:1GiB:write=selective"], "several layer groups"),
        (["host:1GiB:kv_dtype=fp8"], "several layer groups"),
    ],
)
def test_what_groups_are_not_kept_in(tiers, why):
    with pytest.raises(KvroomError, match=why):
        served(STATE, 200, tiers)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.integers(2, 6), st.integers(0, 50), st.sampled_from([2100, 2500, 5000]))
def test_more_memory_finds_no_less_and_every_block_is_accounted_for(agents, seed, blocks):
    load = LOAD | {"agents": agents, "requests": 8 * agents, "seed": seed}
    found = [served(WINDOWS, blocks, [f"host:{gib}GiB"], load) for gib in (1, 64)]
    ratios = [each.figures["prefix_hit_ratio"] for each in found]
    assert ratios[0] <= ratios[1] + 0.02
    for each in found:
        (store,) = [level.store for p in each.run.plants for c in p.made for level in c.levels]
        assert store.put == store.evicted + store.taken + len(store)
        assert len(store) <= store.room
