"""Tiers as engines set them up: presets, the width and copies of a store, flags of engines."""

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.offload import from_flags, line, parse_tiers

LOAD = {"arrivals": "poisson:2/s", "input": 4000, "output": 60, "turns": 3, "think": "20s",
        "requests": 120}  # fmt: skip


def tier_rows(model, tier, **keys):
    found = api.simulate(
        model, "H100-SXM", workload=LOAD, tiers=[line(tier)], engine_version="0.33.0",
        context_tokens="32K", **keys,
    )  # fmt: skip
    return found.figures["tiers"][1]


def test_a_narrower_store_holds_more_tokens_of_fewer_bytes():
    own = tier_rows("llama-3.1-8b", "host:100GiB")
    fp8 = tier_rows("llama-3.1-8b", "host:100GiB:kv_dtype=fp8")
    assert fp8["room_tokens"] == pytest.approx(2 * own["room_tokens"], rel=1e-3)
    assert fp8["written_bytes"] * 2 == own["written_bytes"]


def test_a_latent_is_kept_once_for_each_rank_where_ranks_write():
    """DeepSeek's latent is the same on all ranks: vLLM's own offloading keeps it eight times."""
    keys = {"gpu_count": 8, "tp": 8, "allow_overcommit": True, "weight_dtype": "int4"}
    once = tier_rows("deepseek-v2", "host:100GiB", **keys)
    native = tier_rows("deepseek-v2", "native:100GiB", **keys)
    assert once["room_tokens"] == pytest.approx(8 * native["room_tokens"], rel=1e-3)


def test_presets_stand_for_what_stores_do():
    (lmcache,) = parse_tiers("tiers", ["lmcache:64GB"])
    assert (lmcache.kind, lmcache.chunk_tokens, lmcache.bytes) == ("host", 256, 64 * 10**9)
    (hicache,) = parse_tiers("tiers", ["hicache"])
    assert (hicache.times_gpu, hicache.layerwise) == (2.0, True)
    (store,) = parse_tiers("tiers", ["mooncake:20TB:write=selective"])
    assert (store.kind, store.shared, store.per_rank, store.write) == (
        "network",
        True,
        True,
        "selective",
    )
    row = tier_rows("llama-3.1-8b", "hicache")
    found = api.plan("llama-3.1-8b", "H100-SXM", engine_version="0.33.0", context_tokens="32K")
    assert row["room_tokens"] == 2 * (found.capacity.engine.num_blocks - 1) * 16


def test_engines_own_flags_set_tiers_up():
    (tier,) = from_flags({"enable_hierarchical_cache": True, "hicache_ratio": 3}, 8)
    assert tier["times_gpu"] == 3.0
    assert "write" not in tier  # as the release does
    flags = {"enable_hierarchical_cache": True, "hicache_size": 100,
             "hicache_write_policy": "write_through_selective"}  # fmt: skip
    (tier,) = from_flags(flags, 8)
    assert (tier["bytes"], tier["write"]) == (800 * 10**9, "selective")
    config = {"kv_connector": "OffloadingConnector",
              "kv_connector_extra_config": {"cpu_bytes_to_use": 10**11, "store_threshold": 2}}  # fmt: skip
    (tier,) = from_flags({"kv_transfer_config": config}, 4)
    assert (tier["per_rank"], tier["write"]) == (True, "selective")
    (tier,) = from_flags({"enable_lmcache": True, "lmcache_chunk_size": 512}, 2)
    assert (tier["chunk_tokens"], tier["bytes"]) == (512, 10 * 10**9)


@pytest.mark.parametrize(
    ("tier", "why"),
    [
        ("host:kv_dtype=fp9", "kv_dtype"),
        ("host:chunk_tokens=256:write=back", "written when they are whole"),
        ("host:times_gpu=0", "times_gpu"),
        ("lmcache:5GB:kind=nvme", "is no KEY=VALUE"),
        ("hichache", "is no such thing"),
    ],
)
def test_what_no_store_is(tier, why):
    with pytest.raises(KvroomError, match=why):
        parse_tiers("tiers", [tier])


def test_a_chunk_is_whole_pages():
    with pytest.raises(KvroomError, match="is no number of whole pages"):
        tier_rows("llama-3.1-8b", "host:10GB:chunk_tokens=100")
