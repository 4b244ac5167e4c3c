"""Every term of a step's time, at coefficients of one: bytes and FLOPs over rates, calls counted."""

import math
from dataclasses import fields, replace
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.latency.calibration import schedules_ahead
from kvroom.latency.clock import step_clock
from kvroom.latency.drafting import expected_tokens
from kvroom.latency.step_time import Clock, Coefficients, Rates, beyond, none
from kvroom.latency.work import Attention
from kvroom.planner.place import deploy
from kvroom.scenario.scenario import Scenario
from support import asked

SHARES = {f.name: 1.0 for f in fields(Coefficients) if f.name.endswith(("_eta", "_mu"))}
PLAIN = Coefficients(
    **{f.name: 0.0 for f in fields(Coefficients)} | SHARES | {"scale": 1.0, "routing": 1.0}
)
"""Reads and computes at the peaks, launches in no time."""
RATES = Rates(
    memory_bytes_per_s=1e12,
    wide_flops_per_s=2e14,
    narrow_flops_per_s=5e14,
    link_bytes_per_s=1e11,
)
LAYER = 4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 4096 * 14336
"""Weights in the matrices of a layer of Llama-3-8B: queries and output, keys and values, MLP."""
HEAD = 128_256 * 4096
VECTOR = 4096 * 2
"""Bytes of one token's hidden state."""


def clock(model="llama-3-8b", k=PLAIN, gpu="B300", **keys):
    made = asked(model, gpu, engine="vllm", **keys).timing.clock
    return Clock(work=made.work, rates=RATES, k=k, drafting=made.drafting)


def step(c, requests=0.0, tokens=0.0, prompts=1.0):
    return c.step(requests, none(c.work), tokens=tokens, prompts=prompts)


def test_a_step_reads_every_weight_but_the_looked_up_table():
    norms = 2 * 4096
    read = 2 * (32 * (LAYER + norms) + HEAD)
    assert step(clock(), 1).weights_s == pytest.approx(read / 1e12, rel=1e-4)
    slow = replace(PLAIN, wide_eta=0.5, scale=3.0)
    assert step(clock(k=slow), 1).weights_s == pytest.approx(6 * read / 1e12, rel=1e-4)


def test_weights_of_eight_bits_are_read_and_multiplied_at_their_own_rates():
    wide, narrow = clock(), clock(weight_dtype="fp8")
    half = replace(PLAIN, narrow_eta=0.5, narrow_mu=0.25)
    (stage,) = narrow.work.stages
    rows = 4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096
    read = 32 * (LAYER + 4 * rows)  # a scale of 4 bytes for each row
    assert stage.narrow_bytes == read
    assert step(narrow, 1).weights_s == pytest.approx((read + 2 * HEAD) / 1e12, rel=1e-4)
    more = step(replace(narrow, k=half), 1)
    assert more.weights_s - step(narrow, 1).weights_s == pytest.approx(read / 1e12)
    products = [(step(wide, 1), 2 * (32 * LAYER + HEAD) / 2e14)]
    products.append((more, 2 * 32 * LAYER / (0.25 * 5e14) + 2 * HEAD / 2e14))
    for made, computed_s in products:
        whole = math.hypot(made.weights_s, computed_s)
        assert made.weights_s + made.compute_s == pytest.approx(whole)


def test_a_product_reads_while_it_computes():
    """NVIDIA's GEMMs on an A100 with many tokens, over their time with one (aiconfigurator-core 0.12.0)."""
    one, many = step(clock(), 1).weights_s, step(clock(), 2**14)
    rate = (many.weights_s + many.compute_s) / one / 2**14
    for tokens, measured in ((64, 1.06), (128, 1.19), (256, 1.69), (512, 3.04)):
        alike = tokens * (10.948 / 2048) / rate  # as many tokens as take that share of reading here
        made = step(clock(), alike)
        assert (made.weights_s + made.compute_s) / one == pytest.approx(measured, rel=0.06)


def test_only_sampled_tokens_meet_the_head():
    made = step(clock(), requests=3, tokens=100, prompts=2)
    computed_s = 2 * (103 * 32 * LAYER + (3 + 2) * HEAD) / 2e14
    assert made.weights_s + made.compute_s == pytest.approx(math.hypot(made.weights_s, computed_s))


def test_attention_reads_at_the_caches_rate_and_computes_at_its_own():
    k = replace(PLAIN, cache_eta=0.5, attention_mu=0.25)
    a = Attention(cache_bytes=3e9, state_bytes=1e9, flops=5e12)
    c = clock(k=k)
    idle, busy = c.step(1, none(c.work)), c.step(1, [a])
    assert busy.cache_s == pytest.approx(4e9 / 0.5e12)
    assert busy.compute_s - idle.compute_s == pytest.approx(5e12 / (0.25 * 2e14))


def test_launches_count_layers_of_each_kind_and_grow_with_the_width():
    k = replace(PLAIN, layer_s=1e-5, expert_layer_s=2e-5, latent_layer_s=4e-5, layer_width=0.5)
    # DeepSeek-V3's config.json: 61 layers, the first 3 dense, hidden size 7168.
    made = step(clock("deepseek-v3", k=k, tp=8), 1)
    each = 61 * 1e-5 + 58 * 2e-5 + 61 * 4e-5
    assert made.layers_s == pytest.approx((7168 / 4096) ** 0.5 * each)


def test_requests_prompt_tokens_and_steps_have_costs_of_their_own():
    k = replace(PLAIN, request_s=1e-5, token_s=1e-7, step_s=1e-3)
    made = clock(k=k).prefill(1000.0, none(clock().work), chunks=4)
    assert (made.requests_s, made.step_s) == pytest.approx((1000 * 1e-7, 4 * 1e-3))
    assert step(clock(k=k), 7).requests_s == pytest.approx(7e-5)


@given(st.floats(1e-9, 1.0), st.floats(1e-9, 1.0))
def test_the_host_hides_behind_the_card_and_never_helps_it(host, card):
    assert 0 <= beyond(host, card) <= host
    assert max(host, card) <= card + beyond(host, card) * (1 + 1e-9) + 1e-12


def test_where_steps_are_scheduled_ahead_the_hosts_work_hides():
    k = replace(PLAIN, request_s=1e-5, step_s=1e-3, layer_s=1e-5)
    waits = clock(k=k)
    ahead = replace(waits, rates=replace(waits.rates, schedules_ahead=True))
    for requests in (1, 40, 4000):
        slow, quick = step(waits, requests), step(ahead, requests)
        card = quick.weights_s + quick.layers_s + quick.step_s + quick.compute_s
        whole = (card**1.5 + slow.requests_s**1.5) ** (2 / 3)
        assert card + quick.requests_s == pytest.approx(whole)
        steps = step_clock(ahead)
        assert steps.mixed_ps(requests, 0, 0) / 1e12 == pytest.approx(quick.seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("engine", "version", "args", "ahead"),
    [
        ("vllm", None, {}, True),
        ("vllm", "0.11.0", {}, False),
        ("vllm", "0.11.0", {"async_scheduling": True}, True),
        ("vllm", "0.19.0", {"no_async_scheduling": True}, False),
        ("sglang", "0.5.9", {}, True),
        ("sglang", "0.5.9", {"disable_overlap_schedule": True}, False),
        ("tensorrt-llm", "0.17.0", {}, False),
        ("tensorrt-llm", "1.1.0", {}, True),
        ("llama.cpp", None, {}, False),
    ],
)
def test_which_engines_schedule_ahead(engine, version, args, ahead):
    question = {"model": "llama-3-8b", "gpu": "H100-SXM", "engine": engine, "engine_args": args}
    if version:
        question["engine_version"] = version
    deployment, _ = deploy(Scenario.from_dict(question))
    assert schedules_ahead(deployment) is ahead


def test_a_prompt_alone_has_the_experts_of_all_replicas():
    made = clock("mixtral-8x7b", dp=4, ep=4, weight_dtype="bf16")
    mine, all_of_them = (c.prefill(2000.0, none(c.work)) for c in (made.lone, made))
    shared = made.shared_s(2000.0)
    assert all_of_them.compute_s - mine.compute_s == pytest.approx(shared * 3 / 4)
    assert mine.links_s == all_of_them.links_s  # its own tokens cross whoever else is there
    assert clock("mixtral-8x7b", tp=4).shared_s(2000.0) == 0


def test_a_ring_sends_what_other_ranks_miss_twice():
    k = replace(PLAIN, link_eta=0.5, reduce_s=1e-5)
    for tp in (2, 4, 8):
        sent = 2 * 32 * 2 * (tp - 1) / tp * VECTOR * 10
        made = step(clock(k=k, tp=tp), 10)
        assert made.links_s == pytest.approx(sent / 0.5e11 + 2 * 32 * 1e-5)


def test_stages_hand_over_one_vector_a_token():
    k = replace(PLAIN, stage_s=1e-4)
    made = step(clock(k=k, pp=4), 10)
    assert made.links_s == pytest.approx(3 * VECTOR * 10 / 1e11 + 3 * 1e-4)


def test_expert_ranks_exchange_a_copy_for_each_expert():
    # Qwen3-30B-A3B's config.json: 48 layers, hidden size 2048, 8 of 128 experts a token.
    k = replace(PLAIN, exchange_s=1e-4)
    made = step(clock("qwen3-30b-a3b", k=k, tp=1, dp=4, ep=4), 10)
    sent = 2 * 48 * 4 * 3 / 4 * 2048 * 2 * 10  # no more copies than ranks
    assert made.links_s == pytest.approx(sent / 1e11 + 2 * 48 * 1e-4)


def test_context_ranks_call_three_times_a_layer():
    k = replace(PLAIN, reduce_s=1e-5)
    alone, shared = (clock("deepseek-v3", k=k, tp=8, dcp=n) for n in (1, 8))
    more = step(shared, 10).links_s - step(alone, 10).links_s
    # Its 16 heads' queries, outputs and normalisers (two numbers' width) to each of seven others.
    numbers = 61 * 7 * 16 * (512 + 64 + 512 + 2)
    assert more == pytest.approx(numbers * 2 * 10 / 1e11 + 3 * 61 * 1e-5)


def test_evenly_routed_tokens_leave_as_many_experts_unread_as_chance_says():
    c = clock("qwen3-30b-a3b")
    (stage,) = c.work.stages
    (e,) = stage.experts
    assert e.bytes == 48 * 128 * 3 * 2048 * 768 * 2
    assert exp(-c.expert_decay(e)) == pytest.approx(1 - 8 / 128)
    dense = (stage.wide_bytes + stage.narrow_bytes) / 1e12
    for n in (1, 16, 200):
        touched = 1 - (1 - 8 / 128) ** n
        assert step(c, n).weights_s == pytest.approx(dense + e.bytes * touched / 1e12)


def test_narrow_shares_of_an_expert_run_slower():
    k = replace(PLAIN, expert_width=768.0, expert_eta=0.5, expert_mu=0.25)
    plain, narrow = clock("qwen3-30b-a3b"), clock("qwen3-30b-a3b", k=k)
    (e,) = plain.work.stages[0].experts
    assert e.width == 768
    assert narrow.expert_read_s(e) == pytest.approx(2 / 0.5 * plain.expert_read_s(e))
    used = 2 * 48 * 8 * 3 * 2048 * 768 * 10 / 2e14
    more = step(narrow, 10).compute_s - step(plain, 10).compute_s
    assert more == pytest.approx((2 / 0.25 - 1) * used)


def test_shares_near_the_peaks_and_never_pass_them():
    eager = replace(
        PLAIN, wide_eta=1.5, narrow_eta=0.4, wide_mu=4.0, attention_mu=0.3, cache_eta=1.3
    )
    k = clock(k=eager).within_peaks(cache=True).k
    assert 0.95 < k.wide_eta < k.wide_mu < 1.0
    assert (k.narrow_eta, k.attention_mu) == pytest.approx((0.4, 0.3), rel=1e-3)
    assert k.cache_eta == 1.0
    assert clock(k=eager).within_peaks(cache=False).k.cache_eta == 1.3
    # what a whole step is scaled by counts as well, and experts have their share of the others' rate
    experts = replace(eager, scale=0.5, expert_mu=3.0, expert_eta=2.0)
    scaled = clock(k=experts).within_peaks(cache=True).k
    assert scaled.wide_mu < 0.5
    assert scaled.expert_mu * max(scaled.wide_mu, scaled.narrow_mu) < 0.5
    assert scaled.expert_eta * max(scaled.wide_eta, scaled.narrow_eta) < 0.5


def test_a_draft_passes_once_for_each_token_that_it_drafts():
    keys = {
        "tp": 2,
        "speculation": {"method": "draft", "model": "llama-3-8b", "num_speculative_tokens": 4},
    }
    k = replace(PLAIN, link_eta=1e9)
    c = clock("llama-3-70b", k=k, **keys)
    plain = Clock(work=c.drafting.work, rates=RATES, k=k)
    once, later = (step(plain, 5, n).seconds for n in (0, 0))
    assert step(c, 5).draft_s == pytest.approx(once + 3 * later)
    assert step(c, 5, 100, 1).draft_s > step(c, 5).draft_s
    # All five tokens of each request are verified in one step.
    assert step(c, 5).compute_s == pytest.approx(step(c.plain, 25).compute_s)
    assert step(c, 5).weights_s == step(c.plain, 25).weights_s


def test_tokens_gained_are_leviathans():
    """arXiv 2211.17192, equation 1: (1 − α^(k+1)) / (1 − α)."""
    for k, alpha in ((1, 0.8), (3, 0.6), (7, 0.9)):
        assert expected_tokens(k, alpha) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))
    assert expected_tokens(4, 1.0) == 5


def test_an_assumed_chance_leaves_half_the_distance_of_its_ends_open():
    keys = {"speculation": {"method": "ngram", "num_speculative_tokens": 3}}
    drafting = asked("llama-3-8b", "H100-SXM", engine="vllm", **keys).timing.clock.drafting
    assert drafting.assumed
    least, most = (expected_tokens(3, drafting.kept[0] + by) for by in (-0.15, 0.15))
    assert drafting.spread == pytest.approx(log(most / least) / 2)
