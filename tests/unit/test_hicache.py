"""Host memory below SGLang's radix tree (HiCache), and tiers below ranks that step together."""

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.offload import from_flags

LOAD = {
    "agents": 6, "prefix": "shared:512", "first": "lognormal:median=4000:sigma=0.5:max=9000", "turns": 3,
    "agent": 4, "input": 200, "result": 300, "output": 30, "think": "20s", "tool": "4s", "requests": 60,
    "compact": "12K:0.3",
}  # fmt: skip
KEYS = {"context_tokens": "16K", "host_memory_bytes": "512GiB"}
POOL = {"max_total_tokens": 30_000, "page_size": 16}


def served(engine="sglang", load=LOAD, args=POOL, model="llama-3.1-8b", **more):
    found = api.simulate(
        model, "L40S", workload=load, engine=engine, engine_args=args, **(KEYS | more)
    )
    assert found.figures["requests"]["completed"] == load["requests"]
    return found


def hits(found):
    return {row["tier"]: row["hit_ratio"] for row in found.figures["tiers"]}


@pytest.fixture(scope="module")
def plain():
    return served().figures


def test_what_the_tree_evicts_is_found_below_it(plain):
    found = served(tiers=["hicache"])
    told = hits(found)
    assert sum(told.values()) == pytest.approx(found.figures["prefix_hit_ratio"])
    assert told["host"] > 0.05
    assert found.figures["prefix_hit_ratio"] > plain["prefix_hit_ratio"]
    assert found.figures["ttft_s"]["mean"] < plain["ttft_s"]["mean"]
    host = found.figures["tiers"][1]
    assert host["bytes"] is None  # twice the pool of the GPU
    assert host["room_tokens"] == pytest.approx(60_000, rel=0.001)
    assert 0 < host["held_tokens"] <= host["room_tokens"]


def test_the_engines_flags_are_the_tier():
    by_flags = served(args=POOL | {"enable_hierarchical_cache": True})
    assert by_flags.figures == served(tiers=["hicache"]).figures
    short = served(args=POOL | {"enable_hicache": True, "hicache_ratio": 1.5})
    assert short.figures["tiers"][1]["room_tokens"] == pytest.approx(45_000, rel=0.001)


def test_a_tier_of_no_room_is_none(plain):
    none = served(tiers=["hicache:0GB"]).figures
    for key in ("ttft_s", "tpot_s", "prefix_hit_ratio", "duration_s", "preemptions"):
        assert none[key] == plain[key]


def test_more_host_memory_finds_more():
    ratios = [hits(served(tiers=[f"hicache:{gb}GB"]))["host"] for gb in (1, 64)]
    assert ratios == sorted(ratios)


def test_selective_writes_what_is_used_again():
    through = served(tiers=["hicache:64GB"]).figures["tiers"][1]
    again = served(tiers=["hicache:64GB:write=selective"]).figures["tiers"][1]
    back = served(tiers=["hicache:64GB:write=back"]).figures["tiers"][1]
    assert again["written_bytes"] < through["written_bytes"]
    assert back["written_bytes"] < through["written_bytes"]
    assert back["hit_ratio"] == pytest.approx(through["hit_ratio"], abs=0.02)


def test_a_batch_waits_for_its_layers():
    """What is loaded takes a batch longer, never its place: a slow link shows in first tokens."""
    fast, slow = (
        served(tiers=[f"hicache:64GB:bytes_per_s={rate}"]).figures for rate in ("1e12", "2e9")
    )
    assert slow["ttft_s"]["mean"] > fast["ttft_s"]["mean"]
    assert slow["tiers"][1]["reads"] > 0  # it is loaded though computing may be quicker


def test_recurrent_state_is_loaded_with_its_prefix():
    load = LOAD | {"requests": 30}
    found = served(model="qwen3-next-80b-a3b", load=load, weight_dtype="int4", gpu_count=2,
                   args={"max_total_tokens": 60_000, "page_size": 64}, tiers=["hicache"])  # fmt: skip
    assert hits(found)["host"] >= 0


def test_ranks_that_step_together_have_tiers_of_their_own():
    more = {"gpu_count": 2, "dp": 2, "fleet": {"lockstep": True}, "tiers": ["hicache"]}
    small = {"max_total_tokens": 17_000, "page_size": 16}
    for engine, args in (("sglang", small), ("vllm", {"num_gpu_blocks_override": 1064})):
        found = served(engine, args=args, **more)
        told = hits(found)
        assert told["host"] > 0
        assert sum(told.values()) == pytest.approx(found.figures["prefix_hit_ratio"])


def test_flags_of_releases():
    assert from_flags({"enable_hicache": True}, 1)[0]["times_gpu"] == 2.0
    (host,) = from_flags({"enable_hierarchical_cache": True, "hicache_size": 30}, 2)
    assert host["bytes"] == 60 * 10**9
    (kept,) = from_flags(
        {"enable_hierarchical_cache": True, "hicache_write_policy": "write_back"}, 1
    )
    assert kept["write"] == "back"


def test_a_model_without_growing_cache_has_nothing_to_keep():
    with pytest.raises(KvroomError, match="nothing that grows"):
        api.simulate("mamba-2.8b", "L40S", workload=LOAD, engine="sglang", tiers=["host"])
