"""SGLang's rules one by one: versions, flags, kernels and pages, the static share, pools, refusals.

Expected figures follow from the rules as the releases' own code states them, with the arithmetic in
the test; whole answers are in test_sglang_capacity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvroom.answer import EngineCapacity, Plan
from kvroom.errors import KvroomError
from kvroom.machines.spec import Device
from kvroom.memory.engines.releases import nearest_release
from kvroom.memory.engines.sglang.entries import entries_of, state_bytes
from kvroom.memory.engines.sglang.flag_names import OTHERS
from kvroom.memory.engines.sglang.flags import read_flags
from kvroom.memory.engines.sglang.platform import platform_of
from kvroom.memory.engines.sglang.pools import stage_sizes
from kvroom.memory.engines.sglang.settings import Settings, settings_of
from kvroom.memory.engines.sglang.share import (
    image_reserve_mib,
    prefill_graph_sizes,
    static_share,
    vision_factor,
)
from kvroom.memory.engines.sglang.versions import CHANGES, NEWEST, OLDEST, Rules, rules_of
from kvroom.memory.layout import Layout
from kvroom.models.spec import Vision
from kvroom.planning import deploy, plan
from kvroom.scenario import Scenario
from kvroom.units import GIB

Release = tuple[int, int, int]


def scenario(
    model: str, gpu: str = "H100-SXM", version: str = "0.5.23", *, tp: int = 1, **more: Any
) -> Scenario:
    given = {"model": model, "gpu": gpu, "tp": tp, "engine": "sglang", "engine_version": version}
    return Scenario.from_dict({**given, **more})


def settled(
    model: str, gpu: str = "H100-SXM", version: str = "0.5.23", *, tp: int = 1, **args: Any
) -> Settings:
    d, _ = deploy(scenario(model, gpu, version, tp=tp, engine_args=args), paths=False)
    release, _ = nearest_release("SGLang", version, OLDEST, NEWEST)
    return settings_of(d, rules_of(release))


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


# Versions


@pytest.mark.parametrize(
    ("text", "release", "warns"),
    [
        ("0.5.23", (0, 5, 23), False),
        ("0.4.10.post2", (0, 4, 10), False),
        ("v0.5.9rc1", (0, 5, 9), False),
        (None, NEWEST, True),
        ("main", NEWEST, True),
        ("0.4.6", OLDEST, True),
        ("0.6.0", NEWEST, True),
    ],
)
def test_a_version_is_read_or_warned_about(text: str | None, release: Release, warns: bool) -> None:
    found, note = nearest_release("SGLang", text, OLDEST, NEWEST)
    assert found == release
    assert bool(note) is warns


def test_every_change_names_a_rule_and_changes_it() -> None:
    assert [r for r, _ in CHANGES] == sorted({r for r, _ in CHANGES})
    rules = Rules()
    for release, changed in CHANGES:
        assert all(getattr(rules, name) != value for name, value in changed.items()), release
        rules = replace(rules, release=release, **changed)
    assert rules == rules_of(NEWEST)


def test_an_unknown_version_warns_in_the_plan() -> None:
    found = plan(scenario("qwen3-8b", version="nightly"), paths=False).warnings
    assert any("nightly" in w for w in found)


# Flags


@pytest.mark.parametrize(
    ("flag", "value", "nearest"),
    [
        ("mem_fraction_statik", 0.8, "mem_fraction_static"),
        ("max_num_seqs", 8, "max_"),
        ("gpu_memory_utilization", 0.9, ""),
    ],
)
def test_an_unknown_flag_names_the_nearest(flag: str, value: Any, nearest: str) -> None:
    with pytest.raises(KvroomError) as e:
        settled("qwen3-8b", **{flag: value})
    assert e.value.field == f"engine_args.{flag}"
    assert nearest in e.value.fix


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("mem_fraction_static", 1.5),
        ("mem_fraction_static", 0),
        ("page_size", 0),
        ("max_running_requests", "many"),
        ("mamba_ssm_dtype", "fp8"),
        ("disable_radix_cache", "perhaps"),
        ("cuda_graph_config", "{"),
        ("cuda_graph_bs", []),
        ("tp_size", 4),
        ("dp_size", 3),
        ("chunked_prefill_size", 1.5),
    ],
)
def test_a_value_that_cannot_be_is_refused(flag: str, value: Any) -> None:
    with pytest.raises(KvroomError) as e:
        settled("qwen3-8b", **{flag: value})
    assert e.value.field == f"engine_args.{flag}"


def test_flags_are_read_as_typed() -> None:
    found = read_flags(
        {"--page-size": "64", "disable-radix-cache": True, "speculative_algorithm": "nextn"},
        Layout(),
    )
    assert (found.page, found.radix, found.speculation) == (64, False, "EAGLE")


def test_flags_without_bearing_are_passed_over() -> None:
    assert read_flags(dict.fromkeys(sorted(OTHERS), "x"), Layout()) == read_flags({}, Layout())


def test_data_parallel_attention_groups_tensor_ranks() -> None:
    both = {"dp_size": 4, "enable_dp_attention": True}
    assert read_flags(both, Layout(tp=8)).attention_dp == 4
    assert read_flags({"attn_dp_size": 2}, Layout(tp=8)).attention_dp == 2
    assert read_flags({"dp_size": 2}, Layout(tp=8, dp=2)).attention_dp == 1


@pytest.mark.parametrize(
    ("args", "size"),
    [
        ({}, 256),
        ({"cuda_graph_max_bs": 64}, 64),
        ({"cuda_graph_bs": [1, 2, 32]}, 32),
        ({"cuda_graph_config": {"decode": {"max_bs": 16}}}, 16),
        ({"max_running_requests": 40}, 40),
    ],
)
def test_decode_graphs_are_as_large_as_asked(args: dict[str, Any], size: int) -> None:
    assert settled("qwen3-8b", **args).graph_size == size


# Kernels and pages


@pytest.mark.parametrize(
    ("model", "gpu", "version", "args", "page"),
    [
        ("qwen3-8b", "H100-SXM", "0.5.23", {}, 1),
        ("qwen3-8b", "B200-SXM", "0.5.23", {}, 64),
        ("qwen3-8b", "B200-SXM", "0.5.3", {}, 1),
        ("qwen3-8b", "RTX-5090", "0.5.23", {}, 1),
        ("qwen3-8b", "B200-SXM", "0.5.23", {"page_size": 32}, 32),
        ("qwen3-8b", "B200-SXM", "0.5.9", {"page_size": 128}, 64),
        ("qwen3-8b", "B200-SXM", "0.5.23", {"page_size": 128}, 128),
        ("qwen3-8b", "B200-SXM", "0.5.23", {"attention_backend": "fa4"}, 128),
        ("qwen3-8b", "H100-SXM", "0.5.23", {"attention_backend": "fa4"}, 1),
        ("deepseek-v3", "H200-SXM", "0.5.23", {}, 1),
        ("deepseek-v3", "H200-SXM", "0.5.23", {"attention_backend": "flashmla"}, 64),
        ("deepseek-v3", "H200-SXM", "0.4.10", {"decode_attention_backend": "cutlass_mla"}, 128),
        ("deepseek-v3", "B200-SXM", "0.5.9", {}, 64),
        ("deepseek-v3.2", "H200-SXM", "0.5.23", {}, 64),
        ("deepseek-v4-flash", "H200-SXM", "0.5.23", {}, 256),
        ("gpt-oss-120b", "B200-SXM", "0.5.23", {}, 64),
        ("gemma-4-26b-a4b", "B200-SXM", "0.5.23", {}, 64),
        ("mimo-v2-flash", "B200-SXM", "0.5.23", {}, 128),
        ("qwen3-next-80b-a3b", "B200-SXM", "0.5.23", {}, 64),
        ("qwen3-next-80b-a3b", "B200-SXM", "0.5.23", {"disable_overlap_schedule": True}, 1),
        ("lfm2-1.2b", "B200-SXM", "0.5.23", {}, 1),
        ("nemotron-nano-9b-v2", "B200-SXM", "0.5.23", {}, 64),
        ("nemotron-nano-9b-v2", "B200-SXM", "0.5.9", {}, 1),
        ("falcon-h1-34b", "B200-SXM", "0.5.23", {}, 1),
    ],
)
def test_pages_follow_the_attention_kernel(
    model: str, gpu: str, version: str, args: dict[str, Any], page: int
) -> None:
    assert settled(model, gpu, version, **args).page == page


@pytest.mark.parametrize(
    ("model", "gpu", "version", "args", "width"),
    [
        ("qwen3-8b", "H100-SXM", "0.5.23", {}, 16),
        ("qwen3-8b", "H100-SXM", "0.5.23", {"kv_cache_dtype": "fp8_e4m3"}, 8),
        ("deepseek-v3.2", "H200-SXM", "0.5.23", {}, 16),
        ("deepseek-v3.2", "B200-SXM", "0.5.23", {}, 8),
        ("deepseek-v3.2", "B200-SXM", "0.5.23", {"kv_cache_dtype": "bfloat16"}, 16),
        ("deepseek-v4-flash", "H200-SXM", "0.5.23", {}, 8),
    ],
)
def test_the_cache_width_that_auto_means(
    model: str, gpu: str, version: str, args: dict[str, Any], width: int
) -> None:
    assert settled(model, gpu, version, **args).kv.bits == width


def test_a_device_without_a_generation_counts_as_hopper() -> None:
    card = Device(name="card", sold_bytes=80 * 10**9, memory_bytes_per_s=1e12)
    assert platform_of(card).hopper
    assert not platform_of(replace(card, vendor="amd")).hopper


# The static share


@pytest.mark.parametrize(
    ("gpu", "tp", "model", "share"),
    [
        ("H100-SXM", 1, "llama-3.1-8b", 0.830),
        ("H100-SXM", 4, "llama-3.1-8b", 0.819),
        ("H100-SXM", 8, "llama-3.1-8b", 0.812),
        ("H200-SXM", 8, "llama-3.1-8b", 0.893),
        ("H200-SXM", 8, "deepseek-v3", 0.886),
        ("B200-SXM", 1, "llama-3.1-8b", 0.854),
        ("L40S", 1, "llama-3.1-8b", 0.843),
        ("RTX-4090", 1, "llama-3.1-8b", 0.704),
        ("RTX-5090", 1, "llama-3.1-8b", 0.777),
        ("L4", 1, "llama-3.1-8b", 0.684),
        ("A100-SXM-40", 1, "llama-3.1-8b", 0.823),
        ("A100-SXM-40", 1, "deepseek-v3", 0.795),
    ],
)
def test_the_static_share_of_0_5_23(gpu: str, tp: int, model: str, share: float) -> None:
    """SGLang 0.5.23's own resolution on each card."""
    assert static_share(settled(model, gpu, tp=tp)).fraction == share


@pytest.mark.parametrize(
    ("version", "tp", "args", "reserve"),
    [
        ("0.4.10", 1, {}, 9.5 * 1024 + 512),
        ("0.4.10", 8, {"speculative_algorithm": "EAGLE"}, (9.5 + 4 + 2) * 1024),
        ("0.5.2", 1, {"speculative_algorithm": "STANDALONE"}, (9.5 + 0.5 + 6) * 1024),
        ("0.5.9", 1, {}, 512 + 8192 * 1.5 + 128 + 512),
        ("0.5.9", 1, {"speculative_algorithm": "EAGLE"}, 512 + 8192 * 1.5 + 128 + 512 + 2048),
        ("0.5.9", 1, {"speculative_algorithm": "NGRAM"}, 512 + 8192 * 1.5 + 128 + 512),
        ("0.5.12", 1, {"speculative_algorithm": "EAGLE"}, 13440 + 58 * 8 + 4096),
        ("0.5.9", 1, {"chunked_prefill_size": 2048}, 10240),
        ("0.5.9", 1, {"chunked_prefill_size": -1}, 512 + 16384 * 1.5 + 128 + 512),
        ("0.5.9", 1, {"disable_cuda_graph": True}, 13440),
        ("0.5.23", 1, {"disable_cuda_graph": True}, 13440 - 512),
        ("0.5.23", 1, {"disable_prefill_cuda_graph": True}, 13440),
        ("0.5.23", 1, {"cuda_graph_bs_prefill": [16, 32]}, 13440 + 16),
        ("0.5.23", 4, {"enable_dp_attention": True, "dp_size": 4}, 14336 + 464 + 9216),
        ("0.5.23", 1, {"max_total_tokens": 1024}, 13440 + 38 * 8),
        ("0.5.23", 1, {"moe_a2a_backend": "deepep"}, 13440 + 464 + 1024 + 2048),
    ],
)
def test_what_the_static_share_leaves(
    version: str, tp: int, args: dict[str, Any], reserve: float
) -> None:
    """MiB of an H100's 81,559: 1.5 a token of the prefill chunk, 2 a request of the graphs …"""
    expected = round((81559 - reserve) / 81559, 3)
    assert (
        static_share(settled("llama-3.1-8b", version=version, tp=tp, **args)).fraction == expected
    )


def test_prefill_graph_sizes() -> None:
    counts = {most: len(prefill_graph_sizes(most)) for most in (1024, 2048, 4096, 8192, 16384)}
    assert counts == {1024: 38, 2048: 42, 4096: 50, 8192: 58, 16384: 74}


def test_a_tower_takes_its_part_of_the_static_share() -> None:
    assert vision_factor(Vision(24, 1024)) == 0.95
    assert vision_factor(Vision(None, None)) == 0.95
    assert vision_factor(Vision(48, 4096)) == pytest.approx(0.95 * 0.8)
    assert vision_factor(Vision(2, 256)) == pytest.approx(0.95 * 1.05)


def test_towers_of_text_models_count_when_asked_for() -> None:
    quiet = static_share(settled("gemma-3-27b")).fraction
    assert static_share(settled("gemma-3-27b", enable_multimodal=True)).fraction < quiet


@pytest.mark.parametrize(
    ("model", "gpu", "version", "args", "mib"),
    [
        ("qwen3-8b", "H100-SXM", "0.5.23", {}, 0),
        ("qwen3.5-9b", "H100-SXM", "0.5.23", {}, 100),
        ("qwen3.5-9b", "H100-SXM", "0.5.9", {}, 0),
        ("qwen3-vl-8b", "H100-SXM", "0.5.23", {}, 1024),
        ("qwen3-vl-8b", "H100-SXM", "0.5.23", {"max_running_requests": 400}, 3072),
        ("qwen3-vl-8b", "H100-SXM", "0.5.23", {"mm_feature_transport": "cpu"}, 0),
        ("qwen3-vl-8b", "B200-SXM", "0.5.23", {}, 100),
        ("qwen3-vl-8b", "B200-SXM", "0.5.23", {"mm_feature_transport": "cuda_ipc"}, 1124),
    ],
)
def test_room_kept_for_images(
    model: str, gpu: str, version: str, args: dict[str, Any], mib: int
) -> None:
    assert image_reserve_mib(settled(model, gpu, version, **args)) == mib


# Bytes of a token and of a slot


@pytest.mark.parametrize(
    ("model", "gpu", "at", "args", "size"),
    [
        ("llama-3.1-70b", "H100-SXM", ("0.5.23", 4), {}, 80 * 2 * 2 * 128 * 2),
        ("llama-3.1-70b", "H100-SXM", ("0.5.23", 16), {}, 80 * 1 * 2 * 128 * 2),
        ("deepseek-v3", "H200-SXM", ("0.5.23", 8), {}, 61 * 576 * 2),
        ("deepseek-v3", "H200-SXM", ("0.5.23", 8), {"kv_cache_dtype": "fp8_e4m3"}, 61 * 576),
        ("deepseek-v3.2", "H200-SXM", ("0.5.23", 8), {}, 61 * (1152 + 132)),
        (
            "deepseek-v3.2",
            "H200-SXM",
            ("0.5.23", 8),
            {"kv_cache_dtype": "fp8_e4m3"},
            61 * (656 + 132),
        ),
        (
            "deepseek-v3.2",
            "H200-SXM",
            ("0.5.9", 8),
            {"kv_cache_dtype": "fp8_e4m3"},
            61 * (576 + 132),
        ),
        ("deepseek-v3.2", "B200-SXM", ("0.5.23", 8), {}, 61 * (576 + 132)),
        ("deepseek-v3.2", "H200-SXM", ("0.4.10", 8), {}, 61 * 1152),
        ("glm-5.2", "H200-SXM", ("0.5.23", 8), {}, 78 * 1152 + 21 * 132),
        ("glm-5.2", "H200-SXM", ("0.5.9", 8), {}, 78 * (1152 + 132)),
        ("gemma-3n-e4b", "L40S", ("0.5.23", 1), {}, 35 * 2 * 2 * 256 * 2),
        ("gemma-2-27b", "H100-SXM", ("0.5.23", 1), {}, 46 * 16 * 2 * 128 * 2),
        ("mimo-v2-flash", "H200-SXM", ("0.5.6", 1), {}, 48 * 4 * 2 * 192 * 2),
        (
            "mimo-v2-flash",
            "H200-SXM",
            ("0.5.23", 1),
            {"disable_hybrid_swa_memory": True},
            48 * 4 * 640,
        ),
    ],
)
def test_bytes_of_a_token(
    model: str, gpu: str, at: tuple[str, int], args: dict[str, Any], size: int
) -> None:
    """``at`` is the release and tp."""
    s = settled(model, gpu, at[0], tp=at[1], **args)
    assert entries_of(s, list(s.d.model.each_layer())).full == size


def test_data_parallel_attention_keeps_whole_heads() -> None:
    s = settled("llama-3.1-70b", tp=8, enable_dp_attention=True, dp_size=8)
    assert entries_of(s, list(s.d.model.each_layer())).full == 80 * 8 * 2 * 128 * 2


def test_a_draft_pays_for_its_layers() -> None:
    """DeepSeek-V3 with EAGLE: 70,272 B a token and a 61st more since 0.5.14."""
    for version, drafts in (("0.5.23", 1152), ("0.5.9", 0)):
        s = settled("deepseek-v3", "H200-SXM", version, tp=8, speculative_algorithm="EAGLE")
        assert entries_of(s, list(s.d.model.each_layer())).drafts == drafts
        assert s.requests == 48


@pytest.mark.parametrize(
    ("model", "args", "size"),
    [
        ("nemotron-3-nano-30b-a3b", {}, 49_082_368),
        ("nemotron-3-nano-30b-a3b", {"mamba_ssm_dtype": "bfloat16"}, 24_965_120),
        ("granite-4.0-h-small", {}, 152_819_712),
        ("nemotron-nano-9b-v2", {}, 143_548_416),
        ("lfm2-1.2b", {}, 81_920),
    ],
)
def test_bytes_of_a_slot_of_state(model: str, args: dict[str, Any], size: int) -> None:
    """As SGLang 0.5.23's own state shapes give them."""
    s = settled(model, **args)
    assert state_bytes(s, list(s.d.model.each_layer())) == size


@pytest.mark.parametrize(
    ("version", "sizes"), [("0.5.23", (15, 15, 16, 16)), ("0.5.5", (15, 15, 15, 17))]
)
def test_odd_layers_go_to_the_last_stages(version: str, sizes: tuple[int, ...]) -> None:
    given = scenario("gemma-3-27b", version=version, pp=4)
    d, _ = deploy(given, paths=False)
    release, _ = nearest_release("SGLang", version, OLDEST, NEWEST)
    assert stage_sizes(settings_of(d, rules_of(release))) == sizes


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
    assert settled("qwen3-next-80b-a3b", version=version, **args).state_slots_each == each


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


def test_a_model_without_attention_is_as_long_as_its_context() -> None:
    found = pools("mamba-codestral-7b")
    assert found.kv_tokens is not None
    assert found.kv_tokens < 2**40


# Refusals and the ledger


def test_weights_that_fill_the_static_part_are_refused() -> None:
    told = answered("qwen3-8b", weights=70 * GIB)
    assert not told.verdict.fits
    assert told.capacity.engine is None
    assert "0.5.23" in told.verdict.sentence
    assert "mem_fraction_static" in told.verdict.sentence


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
