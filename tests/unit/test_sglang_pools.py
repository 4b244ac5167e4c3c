"""SGLang's pools: tokens, windows, slots and requests; what it refuses; the ledger around them.

Expected figures follow from the rules as the releases' own code states them, with the arithmetic in
the test; whole answers are in test_sglang_capacity.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.answer.plan import EngineCapacity, Plan
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB


def scenario(
    model: str, gpu: str = "H100-SXM", version: str = "0.5.23", *, tp: int = 1, **more: Any
) -> Scenario:
    given = {"model": model, "gpu": gpu, "tp": tp, "engine": "sglang", "engine_version": version}
    return Scenario.from_dict({**given, **more})


def answered(
    model: str,
    gpu: str = "H100-SXM",
    version: str = "0.5.23",
    *,
    tp: int = 1,
    weights: int = 10 * GIB,
    **args: Any,
) -> Plan:
    known = {"visible": 80 * GIB, "free_before_load": 79 * GIB, "weights": weights}
    return plan(
        scenario(model, gpu, version, tp=tp, engine_args=args, known_bytes=known), paths=False
    )


def pools(model: str, **more: Any) -> EngineCapacity:
    engine = answered(model, **more).capacity.engine
    assert engine is not None
    return engine


# Pools


def test_tokens_are_the_rest_over_the_bytes_of_one() -> None:
    left = (79 - 10) * GIB - 79 * GIB * 0.2
    assert pools("qwen3-8b", mem_fraction_static=0.8).kv_tokens == int(left) // 147456


def test_the_users_limit_is_floored_to_pages() -> None:
    found = pools("qwen3-8b", max_total_tokens=100_000, page_size=64)
    assert (found.kv_tokens, found.num_blocks) == (99_968, 1562)


@pytest.mark.parametrize(
    ("version", "asked", "requests"),
    [("0.5.23", 64, 64), ("0.5.9", 64, 64), ("0.5.12", 5000, 4096), ("0.5.23", 5000, 5000)],
)
def test_the_request_limit(version: str, asked: int, requests: int) -> None:
    assert pools("qwen3-8b", version=version, max_running_requests=asked).max_running_requests == (
        requests
    )


def test_a_tiny_pool_limits_requests_to_half_its_tokens() -> None:
    found = pools("qwen3-8b", max_total_tokens=1000)
    assert found.max_running_requests == 500


def test_window_tokens_are_a_ratio_of_full_ones() -> None:
    found = pools("gpt-oss-20b", swa_full_tokens_ratio=0.5)
    assert found.kv_tokens is not None
    assert found.window_tokens == found.kv_tokens // 2


def test_windows_pay_in_full_where_there_is_no_pool_for_them() -> None:
    told = answered("gemma-3-27b", weights=50 * GIB)
    assert told.capacity.engine is not None
    assert told.capacity.engine.window_tokens is None
    assert any("full length" in w for w in told.warnings)
    assert answered("gpt-oss-20b", version="0.5.7").capacity.engine.window_tokens is None  # type: ignore[union-attr]


def test_a_window_pool_for_just_the_requests_asked_for() -> None:
    """(window 127 + 128 behind + 2 pages) × 64 requests, two chunks in flight, a page."""
    found = pools("gpt-oss-20b", disable_radix_cache=True, max_running_requests=64)
    assert found.window_tokens == (127 + 128 + 2) * 64 + 2 * 8192 + 1
    late = pools("gpt-oss-20b", disable_radix_cache=True, max_running_requests=64, version="0.5.12")
    assert late.kv_tokens is not None
    assert late.window_tokens == int(late.kv_tokens * 0.8)


@pytest.mark.parametrize(
    ("version", "args", "each"),
    [
        ("0.5.23", {}, 5),
        ("0.5.23", {"disable_overlap_schedule": True}, 3),
        ("0.5.23", {"disable_overlap_schedule": True, "page_size": 64}, 4),
        ("0.5.23", {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4),
        ("0.5.23", {"disable_radix_cache": True}, 1),
        ("0.5.9", {}, 3),
        ("0.5.9", {"mamba_scheduler_strategy": "extra_buffer"}, 5),
    ],
)
def test_slots_of_state_that_a_request_takes(version: str, args: dict[str, Any], each: int) -> None:
    found = pools("qwen3-next-80b-a3b", tp=4, max_mamba_cache_size=100, **args, version=version)
    assert found.max_running_requests == 100 // each


def test_slots_as_asked() -> None:
    one = pools("qwen3-next-80b-a3b", tp=4, max_mamba_cache_size=100)
    assert (one.state_slots, one.max_running_requests) == (100, 20)
    groups = pools(
        "qwen3-next-80b-a3b", tp=4, max_mamba_cache_size=100, dp_size=4, enable_dp_attention=True
    )
    assert (groups.state_slots, groups.max_running_requests) == (25, 5)
    off = pools("qwen3-next-80b-a3b", tp=4, disable_radix_cache=True, max_running_requests=64)
    assert (off.state_slots, off.max_running_requests) == (64, 64)


def test_drafts_keep_state_of_their_own() -> None:
    plain = pools("qwen3-next-80b-a3b", tp=4)
    drafted = pools("qwen3-next-80b-a3b", tp=4, speculative_algorithm="NEXTN")
    assert drafted.state_slots is not None and plain.state_slots is not None
    assert drafted.state_slots < plain.state_slots
    assert drafted.max_running_requests == 48


def test_state_alone_bounds_a_model_without_attention() -> None:
    found = pools("mamba-codestral-7b")
    assert found.kv_tokens is not None
    assert found.kv_tokens < 2**40
    assert found.state_slots is not None
    assert found.max_running_requests is not None
    assert found.max_concurrency == found.max_running_requests > 1


# Refusals and the ledger


def test_weights_that_fill_the_static_part_are_refused() -> None:
    told = answered("qwen3-8b", weights=70 * GIB)
    assert not told.verdict.fits
    assert told.capacity.engine is None
    assert "0.5.23" in told.verdict.sentence
    assert "mem_fraction_static" in told.verdict.sentence


def outside(**more: Any) -> tuple[bool, str, str]:
    """(starts, the verdict's sentence, the warnings) of an 8B model on an H100."""
    made = plan(scenario("llama-3-8b", "H100-SXM", context_tokens=8192, **more))
    starts = made.verdict.status in ("fits", "full", "unlikely")
    return starts, made.verdict.sentence, " ".join(made.warnings)


@pytest.mark.parametrize(
    ("args", "starts", "warns"),
    [
        ({}, True, False),
        ({"mem_fraction_static": 0.9}, True, False),
        ({"mem_fraction_static": 0.985}, True, True),
        ({"mem_fraction_static": 0.99}, False, False),
        # without graphs nothing fails before the first prompt
        ({"mem_fraction_static": 0.99, "disable_cuda_graph": True}, True, True),
        # a pool that is bounded anyway leaves room
        ({"mem_fraction_static": 0.99, "max_total_tokens": 100_000}, True, False),
    ],
)
def test_a_static_part_that_leaves_no_room_for_graphs(
    args: dict[str, Any], starts: bool, warns: bool
) -> None:
    """SGLang measures nothing before its pools: graph capture, then prefill, runs out of memory."""
    fits, sentence, warnings = outside(engine_args=args)
    assert fits == starts
    assert ("CUDA graphs alone take about 976 MiB" in sentence) != starts
    assert ("--mem-fraction-static" in sentence) != starts
    assert ("out of memory at graph capture" in warnings) == warns


@pytest.mark.parametrize(
    ("name", "size", "starts"), [("activations", 20, True), ("graphs", 14, False)]
)
def test_measured_bytes_that_the_static_part_leaves_no_room_for(
    name: str, size: int, starts: bool
) -> None:
    fits, sentence, warnings = outside(known_bytes={name: size * GIB})
    assert fits == starts
    assert f"{size} GiB" in (warnings if starts else sentence)


def test_measured_runtime_is_not_free() -> None:
    """What the driver was measured to hold comes off what SGLang finds free."""
    one, three = (
        plan(scenario("llama-3-8b", known_bytes={"runtime": n * GIB}, context_tokens=8192))
        for n in (1, 3)
    )
    assert one.memory.kv_bytes - three.memory.kv_bytes == pytest.approx(2 * GIB * 0.83, rel=1e-3)
    assert sum(a.bytes for a in three.memory.accounts) == three.memory.gpu_bytes


def test_state_that_serves_no_request_is_refused() -> None:
    told = answered("nemotron-nano-9b-v2", weights=129 * GIB // 2)
    assert not told.verdict.fits
    assert "slot" in told.verdict.sentence


def test_a_window_pool_too_small_to_admit_is_refused() -> None:
    told = answered("gpt-oss-20b", max_total_tokens=200, swa_full_tokens_ratio=0.1)
    assert not told.verdict.fits
    assert "window" in told.verdict.sentence


@pytest.mark.parametrize("weights", [10 * GIB, 70 * GIB])
def test_accounts_add_up(weights: int) -> None:
    memory = answered("qwen3-8b", weights=weights).memory
    assert sum(a.bytes for a in memory.accounts) == memory.gpu_bytes == 80 * GIB
    by_name = {a.name: a for a in memory.accounts}
    assert by_name["weights"].source == by_name["runtime"].source == "measured"
    assert by_name["runtime"].bytes == GIB


def test_what_is_known_leaves_no_band() -> None:
    engine = pools("qwen3-8b")
    assert engine.low == engine.max_concurrency == engine.high


def test_what_is_not_known_is_estimated_with_a_band() -> None:
    engine = plan(scenario("qwen3-8b"), paths=False).capacity.engine
    assert engine is not None
    assert engine.low is not None and engine.high is not None and engine.max_concurrency is not None
    assert 0 < engine.low < engine.max_concurrency < engine.high


def test_groups_of_data_parallel_attention_add_up_in_the_verdict() -> None:
    args = {"dp_size": 8, "enable_dp_attention": True, "context_length": 4096}
    told = answered("deepseek-v3", tp=8, weights=40 * GIB, **args)
    assert told.capacity.engine is not None
    each = told.capacity.engine.max_concurrency
    assert each is not None
    assert f"Room for {8 * int(each):,} requests" in told.verdict.sentence
