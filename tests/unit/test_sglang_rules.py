"""SGLang's rules one by one: versions, flags, kernels and pages, the static share, bytes.

Expected figures follow from the rules as the releases' own code states them, with the arithmetic in
the test; whole answers are in test_sglang_capacity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvroom.engines.releases import nearest_release
from kvroom.engines.sglang.entries import entries_of, state_bytes
from kvroom.engines.sglang.flags import NAMES, read_flags
from kvroom.engines.sglang.platform import platform_of
from kvroom.engines.sglang.pools import stage_sizes
from kvroom.engines.sglang.resolved_args import SglangArgs, settings_of
from kvroom.engines.sglang.share import (
    image_reserve_mib,
    prefill_graph_sizes,
    static_share,
    vision_factor,
)
from kvroom.engines.sglang.versions import CHANGES, NEWEST, OLDEST, SglangRules, rules_of
from kvroom.errors import KvroomError
from kvroom.hardware.device import Device
from kvroom.models.spec import Vision
from kvroom.planner.place import deploy
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import Layout

Release = tuple[int, int, int]


def scenario(
    model: str, gpu: str = "H100-SXM", version: str = "0.5.23", *, tp: int = 1, **more: Any
) -> Scenario:
    given = {"model": model, "gpu": gpu, "tp": tp, "engine": "sglang", "engine_version": version}
    return Scenario.from_dict({**given, **more})


def settled(
    model: str, gpu: str = "H100-SXM", version: str = "0.5.23", *, tp: int = 1, **args: Any
) -> SglangArgs:
    d, _ = deploy(scenario(model, gpu, version, tp=tp, engine_args=args), paths=False)
    release, _ = nearest_release("SGLang", version, OLDEST, NEWEST)
    return settings_of(d, rules_of(release))


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
    rules = SglangRules()
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
    assert read_flags(dict.fromkeys(sorted(NAMES.others), "x"), Layout()) == read_flags(
        {}, Layout()
    )


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
