"""Tiers: what lies below a card, and when fetching a cache back beats computing it again."""

import pytest

from kvroom.hardware import find
from kvroom.hardware.device import Device, Link, Tier
from kvroom.hardware.node import Machine
from kvroom.latency.transfer import crossings, crossover, ladder, transfer_s
from support import asked

GIB = 2**30


def test_hierarchy_of_an_a100_40():
    """FlashAttention (2205.14135), figure 1: SRAM 20 MB at 19 TB/s, HBM 40 GB at 1.5 TB/s, DRAM over 1 TB
    at 12.8 GB/s."""
    device = Device(
        name="A100-40",
        sold_bytes=40 * 10**9,
        memory_bytes_per_s=1.5e12,
        sram_bytes=20 * 10**6,
        sram_bytes_per_s=19e12,
        host_link=Link(name="PCIe", bytes_per_s=12.8e9),
    )
    sram, hbm, host, *_ = ladder(Machine.standard(device))
    assert (sram.tier.name, hbm.tier.name, host.tier.name) == ("sram", "hbm", "host")
    assert hbm.times_larger == pytest.approx(2000)
    assert hbm.times_slower == pytest.approx(12.7, rel=0.01)
    assert host.times_slower == pytest.approx(117, rel=0.01)


@pytest.mark.parametrize(("flops_per_s", "printed"), [(8 * 312e12, 6), (8 * 989e12, 19)])
def test_least_bandwidth_for_reuse(flops_per_s, printed):
    """Mooncake (2407.00079), 5.2: Llama-3-70B, 8,192 tokens of prefix, on 8 A800 and 8 H800; its count
    of FLOPs, l·(4·n²·d + 22·n·d²), gives the GB/s that it prints."""
    n, d, layers = 8192, 8192, 80
    cache = asked("llama-3-70b", context_tokens=n).plan.kv.bytes_per_request
    flops = layers * (4 * n * n * d + 22 * n * d * d)
    assert round(cache * flops_per_s / flops / 1e9) == printed


def test_least_bandwidth_by_the_exact_count():
    """Our own count of the same prompt (causal attention, every matrix) is within a tenth."""
    w = asked("llama-3-70b", context_tokens=8192)
    own = w.plan.kv.bytes_per_request * 8 * 312e12 / w.traffic.prefill_flops(8192)
    assert own / 1e9 == pytest.approx(5.86, rel=0.1)


def test_cache_of_opt_66b():
    """DistServe (2401.09670), 3.3: 512 tokens of OPT-66B take 1.13 GB (they are 1.125 GiB)."""
    heads = {"num_attention_heads": 72, "num_hidden_layers": 64, "hidden_size": 9216}
    config = {"model_type": "opt", "ffn_dim": 36864, "vocab_size": 50272, **heads}
    plan = asked({"config": config | {"max_position_embeddings": 2048}}, context_tokens=512).plan
    assert plan.kv.bytes_per_request == 1.125 * GIB


def test_weights_come_through_the_slowest_part():
    machine = Machine.standard(find("H100-SXM"), 8)
    weights = 17.6e9
    link = machine.device.host_link
    assert transfer_s(machine, "host", weights) == pytest.approx(
        max(weights / link.bytes_per_s, 8 * weights / 300e9), rel=1e-3
    )
    assert transfer_s(machine, "nvme", weights) == pytest.approx(8 * weights / 7e9, rel=1e-3)
    assert transfer_s(machine, "sky", weights) is None


def test_fetching_wins_from_some_length_on():
    w = asked("llama-3-70b", "H100-SXM", engine="vllm", tp=8, context_tokens=32768)
    machine = Machine.standard(w.deployment.device, 8)
    found = {c.tier.name: c for c in crossings(machine, w.deployment, w.timing, 32768)}
    host = found["host"]
    assert host.crossover_tokens is not None
    assert host.fetch_s < w.timing.prefill_s(32768)
    nvme = found["nvme"]
    assert nvme.crossover_tokens is None or nvme.crossover_tokens >= host.crossover_tokens


def test_crossover_is_the_first_length():
    assert crossover(lambda n: 10.0, float) == 10
    assert crossover(lambda n: n + 1.0, float) is None


def test_unified_memory_has_no_link_to_cross():
    device = Device(name="one", sold_bytes=10**11, memory_bytes_per_s=4e11, unified_memory=True)
    machine = Machine(
        name="one", device=device, tiers=(Tier(name="nvme", bytes=10**12, bytes_per_s=5e9),)
    )
    assert transfer_s(machine, "nvme", 5e9) == pytest.approx(1.0)


def test_memory_is_set_against_sram_and_not_against_its_cache():
    """FlashAttention (arXiv 2205.14135), figure 1: 20 MB at 19 TB/s over 40 GB at 1.5 TB/s."""
    rungs = {r.tier.name: r for r in ladder(Machine.standard(find("A100-SXM-40")))}
    assert list(rungs)[:3] == ["sram", "l2", "hbm"]
    assert rungs["hbm"].times_larger == pytest.approx(2000, rel=0.05)
    assert rungs["hbm"].times_slower == pytest.approx(12.5, rel=0.05)
    assert rungs["l2"].tier.bytes == 40 * 2**20
