"""llama.cpp's cache as its start-up logs print it, to the MiB, and the rules one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import llama_models as m
from kvroom import api, engines
from kvroom.engines.llama_cpp import CacheSizes, cache_sizes
from kvroom.engines.llama_cpp.versions import CHANGES, NEWEST, parse_build, rules_of
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import MIB
from llama_models import asked, deployed

Q8 = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}


def sizes(config: dict[str, Any], engine: str = "llama.cpp", **args: Any) -> CacheSizes:
    return cache_sizes(deployed(config, engine, args=args))


def mib(size: int) -> float:
    return round(size / MIB, 2)


@pytest.mark.parametrize(
    ("config", "args", "printed"),
    [
        # ik_llama.cpp discussion 562: Llama-3.1-8B on Vulkan
        (m.LLAMA_8B, {"ctx_size": 16384}, 2048.00),
        # "Measured" in a public planner's script: gpt-oss-120b, 4 unified slots, 1,024 window cells
        (m.GPT_OSS_120B, {"ctx_size": 65535, "parallel": -1, "ubatch_size": 512}, 2340.00),
        # a CPU start of Gemma-2-2B: 4 unified slots make the windows as long as the context
        (m.GEMMA2_2B, {"ctx_size": 8192, "parallel": -1}, 832.00),
        # a CUDA start of Gemma-4-E4B: 512 MiB of 4 layers and 40 MiB of 1,024 cells, 18 layers shared
        (m.GEMMA4_E4B, {"ctx_size": 32768, "parallel": 1}, 552.00),
        # unslothai/unsloth#5225: Gemma-3-270m --parallel 4
        (m.GEMMA3_270M, {"ctx_size": 4096, "parallel": 4}, 72.00),
        # a public log of Qwen3.8-27B (llama.cpp's qwen35), 16 of 64 layers attend
        (m.QWEN35_27B, {"ctx_size": 24576, "parallel": 1}, 1536.00),
        (m.QWEN35_27B, {"ctx_size": 8192, "ctk": "q4_0", "ctv": "q4_0"}, 144.00),
        # ggml-org/llama.cpp#21610: MiniMax-M2.5 on Strix Halo, the context that --fit left
        (m.MINIMAX_M25, {"ctx_size": 87296, **Q8}, 11231.69),
    ],
)
def test_cache_is_as_printed(config: dict[str, Any], args: dict[str, Any], printed: float) -> None:
    assert mib(sizes(config, **args).attention) == printed


@pytest.mark.parametrize(
    ("config", "slots", "printed"),
    [
        (m.QWEN35_27B, 1, 149.62),  # "R (f32): 5.62 MiB, S (f32): 144.00 MiB"
        (m.QWEN35_9B, 4, 201.00),  # 50.25 MiB for each of 4 slots
        # Qwen3.5-35B-A3B: 251.25 MiB for 4 slots, 125.62 for 2
        (m.qwen35(40, 2048, 2, 32), 4, 251.25),
        (m.qwen35(40, 2048, 2, 32), 2, 125.62),
    ],
)
def test_state_is_as_printed(config: dict[str, Any], slots: int, printed: float) -> None:
    found = sizes(config, ctx_size=8192, parallel=slots).state
    assert found / MIB == pytest.approx(printed, abs=0.006)


@pytest.mark.parametrize(
    ("config", "args", "printed"),
    [
        (m.QWEN3_32B, {"ctx_size": 8192}, 2048.00),  # discussion 397
        (m.LLAMA2_13B, {"ctx_size": 512}, 400.00),  # pull request 328
        (m.LLAMA_8B, {"ctx_size": 1024, "ctk": "iq4_nl"}, 82.00),  # issue 103: V stays f16
        (m.DEEPSEEK_V3, {"ctx_size": 131072, "mla": 3, **Q8}, 4666.50),  # issue 485
        (m.DEEPSEEK_V3, {"ctx_size": 16384, "mla": 1, "fa": 0}, 2074.00),  # pull request 394
        (m.DEEPSEEK_V3, {"ctx_size": 2048, "mla": 3, **Q8}, 72.91),  # pull request 616 (Kimi-K2)
    ],
)
def test_ik_llama_is_as_printed(
    config: dict[str, Any], args: dict[str, Any], printed: float
) -> None:
    assert mib(sizes(config, "ik_llama.cpp", **args).attention) == printed


def test_streams_and_one_row_take_the_same() -> None:
    """A public log: -c 5120 -np 10 gives 512 cells a stream or 5,120 shared, 1,360 MiB both ways."""
    config = m.llama(num_key_value_heads=32)
    apart = sizes(config, ctx_size=5120, parallel=10, **Q8)
    shared = sizes(config, ctx_size=5120, parallel=10, kv_unified=True, **Q8)
    assert (apart.cells, apart.streams, shared.cells, shared.streams) == (512, 10, 5120, 1)
    assert mib(apart.attention) == mib(shared.attention) == 1360.00


def test_an_old_gguf_caches_whole_heads() -> None:
    """A public log of deepseek-coder-v2:16b: ( 2048 cells, 27 layers, 8/8 seqs), 4,320 MiB."""
    d = deployed(m.CODER_V2_LITE, args={"ctx_size": 16384, "parallel": 8})
    whole = cache_sizes(replace(d, model=replace(d.model, expanded_latents=True)))
    assert (whole.cells, mib(whole.attention)) == (2048, 4320.00)
    assert mib(cache_sizes(d).attention) == 16384 * 27 * 576 * 2 / MIB


def test_compressed_attention_has_cells_of_its_own_for_every_slot() -> None:
    """A public log of DeepSeek-V4-Flash: 4,352 raw cells of 43 layers are 182.75 MiB a slot; #26654:
    unified slots share nothing there."""
    flags = {"ctx_size": 131072, "ubatch_size": 4096}
    one = sizes(m.DEEPSEEK_V4_FLASH, parallel=1, **flags).attention
    compressed = 131072 // 4 * (512 + 128) * 2 * 21 + 131072 // 128 * 512 * 2 * 20
    assert mib(one - compressed) == 182.75
    assert sizes(m.DEEPSEEK_V4_FLASH, parallel=-1, **flags).attention == 4 * one


def test_latents_stored_values_until_january_2026() -> None:
    """#19067 halved it, nearly."""
    args = {"ctx_size": 4096}
    now = cache_sizes(deployed(m.DEEPSEEK_V3, args=args)).attention
    before = cache_sizes(deployed(m.DEEPSEEK_V3, args=args, engine_version="b7000")).attention
    heads = cache_sizes(deployed(m.DEEPSEEK_V3, args=args, engine_version="b5000")).attention
    assert (now, before, heads) == tuple(
        4096 * 61 * 2 * n for n in (576, 576 + 512, 128 * (192 + 128))
    )


def test_windows_had_no_cache_of_their_own_before_may_2025() -> None:
    args = {"ctx_size": 32768, "parallel": 1}

    def of(build: str) -> int:
        return cache_sizes(deployed(m.GEMMA3_270M, args=args, engine_version=build)).attention

    flat = 32768 * 18 * 1024
    assert of("b5000") == flat
    assert of("b5500") == 32768 * 3 * 1024 + (512 + 2048) * 15 * 1024  # the batch is added
    assert of("b6000") == 32768 * 3 * 1024 + (512 + 512) * 15 * 1024  # the smaller batch
    full = {**args, "swa_full": True}
    assert cache_sizes(deployed(m.GEMMA3_270M, args=full)).attention == flat


def test_models_whose_windows_llama_cpp_does_not_follow() -> None:
    mistral = m.llama(model_type="mistral", sliding_window=4096)
    assert sizes(mistral, ctx_size=32768).attention == 32768 * 32 * 4096


def test_drafting_keeps_states_to_go_back_to() -> None:
    """A public log: 149.62 MiB become 1,047 with 6 drafted tokens."""
    flags = {"spec_type": "draft-mtp", "spec_draft_n_max": 6}
    found = sizes(m.QWEN35_27B, ctx_size=8192, parallel=1, **flags).state
    assert round(found / MIB) == 1047


def test_types_of_keys_and_values_apart_reach_the_plan() -> None:
    made = plan(asked(m.LLAMA_8B, args={"ctk": "q8_0", "ctv": "q4_0", "ctx_size": 1024}))
    assert made.kv.bytes_per_token == 32 * 1024 * (34 + 18) // 32
    assert made.memory.kv_bytes == 1024 * made.kv.bytes_per_token


# Context and slots


@pytest.mark.parametrize(
    ("args", "cells", "streams", "slots", "held"),
    [
        ({"ctx_size": 8000, "parallel": 1}, 8192, 1, 1, 1),
        ({"ctx_size": 8192, "parallel": 4}, 2048, 4, 4, 0.25),
        ({"ctx_size": 8192}, 8192, 1, 4, 1),  # a server's default: 4 slots share
        ({"ctx_size": 32768}, 32768, 1, 4, 4),
        ({"parallel": 3}, 8192, 3, 3, 3),
        ({"parallel": -1}, 8192, 1, 4, 1),
        ({"kv_unified_per_slot": 8192, "parallel": 2, "kvu": True}, 16384, 1, 2, 2),
    ],
)
def test_slots_and_cells(
    args: dict[str, Any], cells: int, streams: int, slots: int, held: float
) -> None:
    d = deployed(m.LLAMA_8B, args=args, context_tokens=8192)
    found = cache_sizes(d)
    capacity = engines.answer(d).capacity
    assert capacity is not None
    assert (found.cells, found.streams) == (cells, streams)
    assert (capacity.max_running_requests, capacity.max_concurrency) == (slots, held)


def test_ctx_size_says_how_long_a_request_may_be() -> None:
    made = plan(asked(m.LLAMA_8B, args={"ctx_size": 8192, "parallel": 4}))
    assert made.scenario.context_tokens == 2048
    assert made.verdict.fits


def test_without_slots_as_many_as_have_room() -> None:
    made = plan(asked(m.LLAMA_8B, gpu="RTX-4090", weight_dtype="q4_k_m", context_tokens=8192))
    engine = made.capacity.engine
    assert engine is not None
    assert engine.max_running_requests == engine.max_concurrency
    slots = int(engine.max_concurrency or 0)
    same = plan(
        asked(
            m.LLAMA_8B,
            gpu="RTX-4090",
            weight_dtype="q4_k_m",
            args={"parallel": slots, "ctx_size": slots * 8192},
        )
    )
    assert same.memory == made.memory
    assert same.capacity.engine is not None
    assert same.capacity.engine.max_concurrency == slots
    assert f"--parallel {slots} --ctx-size {slots * 8192}" in " ".join(made.warnings)


# Questions that cannot be


@pytest.mark.parametrize(
    ("args", "field", "word"),
    [
        ({"ctx_siez": 8192}, "engine_args.ctx_siez", "ctx_size"),
        ({"cache_type_k": "fp8"}, "engine_args.cache_type_k", "q8_0"),
        ({"split_mode": "rows"}, "engine_args.split_mode", "row"),
        ({"parallel": "many"}, "engine_args.parallel", "number"),
        ({"tensor_split": "0,0"}, "engine_args.tensor_split", "3,1"),
    ],
)
def test_wrong_flags_name_what_is_right(args: dict[str, Any], field: str, word: str) -> None:
    with pytest.raises(KvroomError) as caught:
        deployed(m.LLAMA_8B, args=args)
    assert caught.value.field == field
    assert word in caught.value.fix


def test_a_cache_type_that_llama_cpp_lacks() -> None:
    made = plan(asked(m.LLAMA_8B, kv_dtype="fp8", context_tokens=8192))
    assert not made.verdict.fits
    assert "no cache type fp8" in made.verdict.sentence


@pytest.mark.parametrize(
    ("config", "args", "word"),
    [
        (m.LLAMA_8B, {"ctx_size": 512, "fa": "off", **Q8}, "flash attention"),
        (m.DEEPSEEK_V3, {"ctx_size": 512, "ctk": "q8_0"}, "equal"),
        (m.LLAMA_8B, {"ctx_size": 512 * 300, "parallel": 300}, "256"),
    ],
)
def test_starts_that_llama_cpp_refuses(
    config: dict[str, Any], args: dict[str, Any], word: str
) -> None:
    made = plan(asked(config, args=args))
    assert not made.verdict.fits
    assert word in made.verdict.sentence


def test_builds() -> None:
    assert parse_build("b7410") == (7410, "")
    assert parse_build("10488") == (10488, "")
    for text in (None, "", "b10xxx 2026", "0.3.36"):
        build, note = parse_build(text)
        assert build == NEWEST
        assert note
    assert parse_build("b1500")[1]
    assert rules_of(7409).fit < rules_of(7410).fit
    assert [b for b, _ in CHANGES] == sorted(b for b, _ in CHANGES)


def test_recurrent_states_are_counted_as_llama_cpp_keeps_them():
    """A request's bytes on a GPU are its slot's part of the account of the cache."""
    made = api.plan(
        "qwen3-next-80b-a3b", gpu="H100-SXM", engine="llama.cpp", weight_dtype="q4_k_m",
        context_tokens=32_768, concurrency=1, engine_args={"parallel": 2, "ctx_size": 65_536},
    )  # fmt: skip
    account = next(a for a in made.memory.accounts if a.name == "kv")
    assert account.bytes == 2 * made.kv.bytes_per_request_per_gpu
    assert made.kv.state_bytes_per_request == 36 * 4 * (32 * 128 * 128 + 8192 * 3)


# (model, context, ubatch, flash attention, MiB printed), each of a public log with one device
COMPUTE_BUFFERS = [
    # fedora-copr/logdetective#106: Mistral 7B before and after -c 32768
    ("mistral-7b", 2048, 512, False, 164.00),
    ("mistral-7b", 32768, 512, False, 2144.00),
    # ikawrakow/ik_llama.cpp, discussion 397: Qwen3-32B on a T4
    ("qwen3-32b", 8192, 1024, True, 633.50),
]


@pytest.mark.parametrize(("model", "context", "ubatch", "flash", "mib"), COMPUTE_BUFFERS)
def test_the_compute_buffer_is_that_of_the_fullest_moment(
    model: str, context: int, ubatch: int, flash: bool, mib: float
) -> None:
    made = plan(
        Scenario(
            model=model,
            gpu="H200-SXM",
            engine="llama.cpp",
            engine_version="5000",
            context_tokens=context,
            engine_args={
                "ubatch_size": ubatch, "flash_attn": flash, "parallel": 1, "n_gpu_layers": 99,
            },
        )
    )  # fmt: skip
    found = next(account for account in made.memory.accounts if account.name == "activations")
    assert found.bytes == mib * 2**20
    assert found.low_bytes <= mib * 2**20 <= found.high_bytes
