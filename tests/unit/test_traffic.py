"""What a step moves and computes."""

import pytest

from kvroom.hardware import find
from kvroom.latency.traffic import compute_dtype
from kvroom.models.dtypes import BF16
from kvroom.models.weight_dtypes import named
from kvroom.units import smallest
from support import ask, asked


def step(model="llama-3-8b", batch=1, **keys):
    return ask(model, "H200", concurrency=batch, **{"context_tokens": 4096, **keys}).step


def test_a_dense_step_reads_all_weights_but_the_looked_up_table():
    plan = ask("llama-3-8b", "H200", concurrency=5, context_tokens=4096)
    assert plan.step.bytes.weights == plan.weights.bytes - 128256 * 4096 * 2
    assert plan.step.bytes.kv == 5 * plan.kv.bytes_per_request
    assert plan.step.bytes.state == 0


def test_a_tied_table_is_read_as_the_head():
    plan = ask("llama-3.2-1b", "H200", concurrency=1)
    assert plan.step.bytes.weights == plan.weights.bytes


def test_a_larger_batch_touches_more_experts():
    one, many, all_ = (
        step("qwen3-30b-a3b", n, allow_overcommit=True).bytes.weights for n in (1, 16, 10_000)
    )
    assert one < many < all_
    spec = asked("qwen3-30b-a3b").deployment.model
    experts = sum(r.count * 128 * 3 * 2048 * 768 * 2 for r in spec.layers)
    assert one == pytest.approx(all_ - experts * (1 - 8 / 128), rel=1e-9)
    assert many == pytest.approx(all_ - experts * (1 - 8 / 128) ** 16, rel=1e-9)


def test_replicated_caches_are_read_by_every_rank():
    one, eight = (ask("deepseek-v3", "B300", tp=n, concurrency=1).step for n in (1, 8))
    assert eight.bytes.kv == 8 * one.bytes.kv
    four, sixteen = (step("llama-3-8b", tp=n).bytes.kv for n in (4, 16))
    assert sixteen == 2 * four  # eight KV heads over sixteen ranks


def test_state_is_read_and_written():
    plan = ask("mamba-codestral-7b", "H200", concurrency=3)
    assert plan.step.bytes.state == 3 * 2 * plan.kv.state_bytes_per_request
    assert plan.step.bytes.kv == 0


def test_one_gpu_sends_nothing():
    assert step(tp=1).bytes.links == 0
    tp2, tp4 = (step(tp=n).bytes.links for n in (2, 4))
    assert tp4 == 3 * tp2  # a ring of n sends 2·(n − 1) vectors
    assert tp2 == 32 * 2 * 2 * 4096 * 2


def test_flops_are_two_a_weight_and_four_a_cached_number_of_each_query_head():
    plan = ask("llama-3-8b", "H200", concurrency=1, context_tokens=4096)
    embedding, norms = 128256 * 4096, (32 * 2 + 1) * 4096
    matrices = 2 * (plan.weights.params - embedding - norms)
    assert plan.step.flops == matrices + 32 * 4 * 32 * 128 * 4096


def test_prefill_computes_as_much_as_its_tokens_but_one_head():
    t = asked("llama-3-8b", "H200").traffic
    one_by_one = sum(t.decode_flops(1, n) for n in range(1, 33))
    assert t.prefill_flops(32) == one_by_one - 31 * 2 * 128256 * 4096


@pytest.mark.parametrize("model", ["llama-3-70b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_from_the_crossover_on_cache_outweighs_weights(model):
    t = asked(model, "B300", tp=8).traffic
    batch = t.crossover_batch(8192)
    for n, outweighs in ((batch - 1, False), (batch, True), (2 * batch, True)):
        assert (n * sum(t.request_bytes(8192)) >= t.weight_bytes(n)) is outweighs


def test_smallest():
    assert smallest(lambda n: n >= 37, 1000) == 37
    assert smallest(lambda n: True, 1000) == 1
    assert smallest(lambda n: False, 1000) is None


@pytest.mark.parametrize(
    ("weights", "card", "dtype"),
    [
        ("bf16", "H100-SXM", "bf16"),
        ("fp8", "H100-SXM", "fp8"),
        ("fp8", "A100-SXM-80", "bf16"),
        ("nvfp4", "B200-SXM", "fp4"),
        ("nvfp4", "H100-SXM", "bf16"),
        ("int4", "H100-SXM", "bf16"),
    ],
)
def test_the_width_that_a_step_multiplies_in(weights, card, dtype):
    assert compute_dtype(named(weights).linear, find(card)) == dtype


def test_what_a_step_waits_for():
    assert step(batch=1).bound == "memory"
    assert step(batch=512, context_tokens=16).bound == "compute"
    assert ask("llama-3-8b", "80GB").step.bound is None  # no peak is known for the plain card


def test_traffic_of_a_rank_is_its_share():
    w = asked("llama-3-70b", "H200", tp=8, pp=2, context_tokens=4096)
    cache, _ = w.traffic.request_bytes(4096)
    by_rank = sum(r.request_bytes(4096, BF16) for r in w.deployment.ranks)
    assert cache == 8 * by_rank
