"""Offload tiers as a question, and what a simulation and a plan tell of them."""

import pytest

from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve, simulate
from kvroom.planner.tiers import plan_json
from kvroom.scenario.offload import OffloadTier, line, parse_tiers
from kvroom.scenario.scenario import Scenario
from kvroom.ui.terminal.times import times
from kvroom.workloads.synthetic import parse

SPEC = (
    "arrivals=poisson:4/s,input=lognormal:mean=1500:sigma=0.5:max=6000,output=60,"
    "prefix=shared:40x3000,requests=300,seed=5"
)
MODEL = {
    "model": "llama-3-8b",
    "gpu": "H100-SXM",
    "context_tokens": 8192,
    "engine_version": "0.33.0",
    "engine_args": {"num_gpu_blocks_override": 3000},
}


def scenario(*tiers, **keys):
    return Scenario.from_dict({**MODEL, **keys, "tiers": list(tiers) or None})


def answer(*tiers, **keys):
    return simulate(scenario(*tiers, **keys), parse(SPEC)).to_dict()


def test_a_line_says_what_an_object_does():
    assert line("nvme:4TB:write=back:policy=lru-tail") == {
        "kind": "nvme",
        "bytes": "4TB",
        "write": "back",
        "policy": "lru-tail",
    }
    (tier,) = parse_tiers(
        "tiers", [line("host:512GiB:inclusive=no:write=write-back:latency_s=1e-6")]
    )
    assert tier == OffloadTier(
        kind="host", bytes=512 * 2**30, write="back", inclusive=False, latency_s=1e-6
    )


def test_tiers_are_taken_from_near_to_far():
    kinds = [t.kind for t in parse_tiers("tiers", ["network", "nvme:1TB", "host:1GB"])]
    assert kinds == ["host", "nvme", "network"]


def test_a_scenario_keeps_its_tiers_through_a_link():
    one = scenario("host:1GiB", {"kind": "network", "bytes_per_s": "50GB/s"})
    again = Scenario.from_link(one.link())
    assert again.tiers == one.tiers
    assert again.tiers[1].bytes_per_s == 50_000_000_000


@pytest.mark.parametrize(
    ("given", "field", "part"),
    [
        ("hosst:1GB", "tiers[0].kind", "Did you mean host"),
        ("host:1GB:polcy=lru", "tiers[0]", "Did you mean policy"),
        ("host:1GB:2GB", "tiers[0]", "KEY=VALUE"),
        ("host:1G", "tiers[0].bytes", "ambiguous"),
        ("host:-5GiB", "tiers[0].bytes", "'-5GiB' is not a size"),
        ("host:1GB:bytes_per_s=0", "tiers[0].bytes_per_s", "carries nothing"),
        ("host:1GB:pinned_bytes=0", "tiers[0].pinned_bytes", "pinned memory"),
        ("nvme:1GB:pinned_bytes=1GB", "tiers[0].pinned_bytes", "host memory only"),
        ("host:1GB:inclusive=false", "tiers[0].inclusive", "two places"),
        ("network:inclusive=false:write=back", "tiers[0].inclusive", "two places"),
        ("host:1GB:write=sideways", "tiers[0].write", "through"),
        ("host:1GB:layerwise=perhaps", "tiers[0].layerwise", "true or false"),
        ("host:1GB:latency_s=-1", "tiers[0].latency_s", "outside"),
        (7, "tiers[0]", "not an object"),
    ],
)
def test_bad_tiers_are_refused_by_name(given, field, part):
    with pytest.raises(KvroomError, match=r"tiers") as caught:
        scenario(given)
    assert caught.value.field == field
    assert part in str(caught.value)


def test_a_tier_is_named_once():
    with pytest.raises(KvroomError, match="named twice"):
        scenario("host:1GB", "host:2GB")


def test_what_is_not_simulated_with_tiers_is_refused():
    slots = Scenario.from_dict(
        {"model": "llama-3.1-8b", "gpu": "L40S", "engine": "llama.cpp", "context_tokens": "8K",
         "tiers": ["host:10GB"]}
    )  # fmt: skip
    with pytest.raises(KvroomError, match="one full-attention cache"):
        simulate(slots, parse("arrivals=poisson:1/s,input=100,output=5,requests=2"))


def test_a_tier_of_zero_bytes_is_no_tier():
    plain = answer()
    assert answer("host:0", "nvme:0:write=back") == plain
    assert "tiers" not in plain


def test_hits_by_tier_add_up_and_take_time():
    plain, tiered = answer(), answer("host:2GB", "nvme:100GB:write=back")
    rows = {row["tier"]: row for row in tiered["tiers"]}
    assert list(rows) == ["gpu", "host", "nvme"]
    assert sum(row["hit_ratio"] for row in rows.values()) == pytest.approx(
        tiered["prefix_hit_ratio"]
    )
    assert tiered["prefix_hit_ratio"] > plain["prefix_hit_ratio"] + 0.2
    assert tiered["ttft_s"]["mean"] < plain["ttft_s"]["mean"]
    for row in (rows["host"], rows["nvme"]):
        assert row["hit_tokens"] > 0
        assert row["read_bytes"] == row["hit_tokens"] * 131_072  # of bf16 Llama 3 8B, a token
        assert 0 < row["read_s"]["mean"] <= row["read_s"]["p99"]
        assert 0 < row["busy"] < 1
        assert row["held_tokens"] <= row["room_tokens"]


@pytest.mark.slow
def test_links_without_limits_are_an_upper_bound():
    fast = [{"kind": k, "bytes": 10**11, "bytes_per_s": 10**18, "latency_s": 0} for k in ("host",)]
    best = answer(*fast)
    for rate in ("1GB", "5GB", "50GB"):
        real = answer(f"host:100GB:bytes_per_s={rate}")
        assert real["prefix_hit_ratio"] <= best["prefix_hit_ratio"]
        assert real["ttft_s"]["mean"] >= best["ttft_s"]["mean"]


def test_a_slow_tier_a_small_one_and_a_pinned_one_are_warned_of():
    told = answer("host:1GB:bytes_per_s=10MB")
    assert any("slower than computing anew" in w and "10 MB/s" in w for w in told["warnings"])
    assert told["tiers"][1]["reads"] == 0
    told = answer("host:4GiB:pinned_bytes=1GiB", "nvme:1000B")
    assert any("only 1 GiB of 4 GiB can be pinned" in w for w in told["warnings"])
    assert any("nvme: not one page of 16 tokens (2 MiB) fits" in w for w in told["warnings"])
    assert told["tiers"][1]["room_tokens"] == 2**30 // 131_072
    told = answer("host:100TB")
    assert any("the machine has 2 TiB" in w for w in told["warnings"])


def test_writes_that_a_link_cannot_carry_are_told():
    told = answer("nvme:10TB:bytes_per_s=150MB")
    assert any("nvme: its writes end up to" in w for w in told["warnings"])
    assert told["tiers"][1]["busy"] == 1.0  # a share of the time, however much is still queued


def test_replicas_share_a_store():
    own = answer("host:200GB", replicas=4)
    shared = answer("network", replicas=4)
    assert shared["prefix_hit_ratio"] > own["prefix_hit_ratio"] + 0.1
    assert shared["requests"]["completed"] == 300
    assert shared == answer("network", replicas=4)


def test_without_prefix_caching_tiers_keep_nothing():
    told = answer("host:1GB", engine_args={"enable_prefix_caching": False})
    assert "tiers keep nothing: prefix caching is off" in told["warnings"]
    assert "tiers" not in told


def test_a_plan_tells_what_tiers_hold():
    made = work(scenario("host:64GiB", "network"))
    host, network = plan_json(made)["tiers"]["holds"]
    assert (host["tokens"], host["requests"]) == (64 * 2**30 // 131_072, 64)
    assert network["tokens"] is None
    text = "\n".join(times(made))
    assert "64 requests of the longest context" in text
    assert "no limit" in text


def test_data_parallel_engines_share_out_a_machines_memory():
    one = serve(work(scenario("host:8GB", gpu_count=2, dp=2)), parse(SPEC)).plants[0]
    assert [t.levels[0].store.room for t in one.made] == [4 * 10**9 // (16 * 131_072)] * 2
