"""Host memory below SGLang's radix tree (HiCache), and tiers below ranks that step together."""

import itertools

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.offload import from_flags, parse_tiers

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


# Storage below host memory

SMALL = {"max_total_tokens": 20_000, "page_size": 16}
HOST = "hicache:times_gpu=0.5"


def stored(*tiers, args=SMALL, **more):
    return served(args=args, tiers=[HOST, *tiers], **more)


@pytest.fixture(scope="module")
def hosted():
    return stored()


def test_storage_holds_what_host_memory_gave_up(hosted):
    found = stored("nvme:2TB:prefetch=wait_complete")
    told = hits(found)
    assert sum(told.values()) == pytest.approx(found.figures["prefix_hit_ratio"])
    assert told["nvme"] > 0.05
    assert found.figures["prefix_hit_ratio"] > hosted.figures["prefix_hit_ratio"]
    host, disk = found.figures["tiers"][1:]
    assert disk["written_bytes"] > 0
    assert disk["held_tokens"] >= host["held_tokens"]  # all that was ever written stays
    assert disk["reads"] > 0
    assert disk["read_s"]["mean"] > 0


def test_who_waits_for_all_finds_most():
    """A slow disk: with best effort a request starts with what has come, with a timeout after that."""
    slow = "nvme:2TB:bytes_per_s=5e8:prefetch="
    ratios = [
        hits(stored(f"{slow}{word}"))["nvme"]
        for word in (
            "best_effort",
            "timeout:prefetch_wait_s=0.3:prefetch_wait_s_per_1k_tokens=0",
            "wait_complete",
        )
    ]
    assert ratios == sorted(ratios)
    assert ratios[0] < ratios[-1]


def test_a_release_says_when_nobody_waits_any_longer():
    slow = "nvme:2TB:bytes_per_s=5e8"
    for version, word in (("0.5.11", "best_effort"), ("0.5.12", "timeout"), ("0.5.23", "timeout")):
        usual = stored(slow, engine_version=version).figures
        assert usual == stored(f"{slow}:prefetch={word}", engine_version=version).figures


def test_a_release_says_what_is_written():
    old, new = (
        served(tiers=["hicache:64GB"], engine_version=v).figures["tiers"][1]
        for v in ("0.5.1", "0.5.2")
    )
    assert old["written_bytes"] < new["written_bytes"]


def test_less_than_the_threshold_is_not_fetched():
    none = stored("nvme:2TB:prefetch=wait_complete:prefetch_tokens=16K").figures["tiers"][2]
    assert (none["reads"], none["hit_tokens"]) == (0, 0)


def test_storage_follows_host_memory_when_it_is_written_back():
    back = served(args=SMALL, tiers=[f"{HOST}:write=back", "nvme:2TB"]).figures["tiers"]
    through = stored("nvme:2TB").figures["tiers"]
    assert 0 < back[2]["written_bytes"] < through[2]["written_bytes"]


def test_replicas_share_a_store():
    more = {"replicas": 2, "load": LOAD | {"agents": 8}}
    shared, own = (
        hits(stored(f"network:bytes_per_s=25e9:shared={word}:prefetch=wait_complete", **more))
        for word in ("true", "false")
    )
    assert shared["network"] >= own["network"] > 0


def test_flags_say_the_storage():
    flags = SMALL | {
        "enable_hierarchical_cache": True, "hicache_ratio": 0.5, "hicache_storage_backend": "file",
        "hicache_storage_prefetch_policy": "wait_complete",
        "hicache_storage_backend_extra_config": '{"max_size": "2T", "prefetch_threshold": 512}',
    }  # fmt: skip
    told = "nvme:2TB:prefetch=wait_complete:prefetch_tokens=512"
    assert served(args=flags).figures == stored(told).figures
    (_, below) = from_flags(flags | {"hicache_storage_backend": "mooncake"}, 1)
    assert below["kind"] == "network"


@pytest.mark.parametrize(
    ("tiers", "why"),
    [
        (["nvme:1TB"], "read through host memory"),
        ([HOST, "nvme:1TB", "network"], "one storage backend"),
        ([HOST, "nvme:1TB:write=through"], "when host memory is"),
        ([HOST, "nvme:1TB:prefetch=sometimes"], "no such thing"),
        (["hicache:prefetch=timeout"], "below host memory"),
    ],
)
def test_bad_storage(tiers, why):
    with pytest.raises(KvroomError, match=why):
        served(tiers=tiers)


def test_only_sglang_prefetches():
    with pytest.raises(KvroomError, match="SGLang's"):
        served("vllm", args={}, tiers=["host:1GB", "nvme:1TB:prefetch=timeout"])


def test_launch_writes_the_storage_and_the_flags_say_the_same():
    keys = {"engine": "sglang", "engine_version": "0.5.23", "context_tokens": "16K"}
    tiers = ["hicache:write=selective", "nvme:2TB:prefetch=timeout:prefetch_wait_s=2"]
    words = api.launch("llama-3.1-8b", "H100-SXM", tiers=tiers, **keys).argv
    written = dict(itertools.pairwise(words))
    assert written["--hicache-storage-backend"] == "file"
    assert written["--hicache-storage-prefetch-policy"] == "timeout"
    flags = {"enable_hierarchical_cache": True} | {
        word[2:].replace("-", "_"): value for word, value in written.items() if "hicache" in word
    }
    assert parse_tiers("tiers", from_flags(flags, 1)) == parse_tiers("tiers", tiers)
