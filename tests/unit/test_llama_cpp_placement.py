"""Where llama.cpp lays layers, and what --fit does where they do not fit."""

from __future__ import annotations

from typing import Any

import pytest

import llama_models as m
from kvroom.answer.plan import Account, Plan
from kvroom.engines.llama_cpp import cache_sizes
from kvroom.launchers.commands import read_command
from kvroom.planner.plan import plan
from kvroom.units import GIB, MIB
from llama_models import asked, deployed

LLAMA_70B = m.llama(
    hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_hidden_layers=80
)


def of(made: Plan, name: str) -> Account:
    return next(a for a in made.memory.accounts if a.name == name)


def said(made: Plan) -> str:
    return " | ".join(made.warnings)


def planned(config: dict[str, Any], **more: Any) -> Plan:
    return plan(asked(config, **({"gpu": "RTX-4090", "weight_dtype": "q4_k_m"} | more)))


def test_weights_on_the_gpu_are_as_printed() -> None:
    """ik_llama.cpp discussion 562: Llama-3.1-8B Q4_0, "Vulkan0 4155.99 MiB, CPU_Mapped 281.81 MiB"."""
    made = planned(m.LLAMA_8B, weight_dtype="q4_0", args={"ctx_size": 16384})
    assert round(of(made, "weights").bytes / MIB, 2) == 4155.99
    assert "the token table (281.8 MiB)" in said(made)


def test_layers_of_two_gpus_are_as_printed() -> None:
    """ik_llama.cpp pull request 616: Kimi-K2's 61 layers, 37.07 and 35.87 MiB of 72.91."""
    args = {"ctx_size": 2048, "ctk": "q8_0", "ctv": "q8_0", "ngl": 99}
    found = cache_sizes(deployed(m.DEEPSEEK_V3, "ik_llama.cpp", gpu_count=2, args=args)).on_gpus
    assert [x / MIB for x in found] == pytest.approx([37.07, 35.87], abs=0.02)


def test_row_split_keeps_the_cache_on_one_gpu() -> None:
    """ik_llama.cpp discussion 397: -sm row, 2,048 MiB on CUDA0 and none on CUDA1."""
    args = {"ctx_size": 8192, "ngl": 99, "sm": "row"}
    found = cache_sizes(deployed(m.QWEN3_32B, "ik_llama.cpp", gpu_count=2, args=args)).on_gpus
    assert [x / MIB for x in found] == [2048, 0]


@pytest.mark.parametrize(
    ("split", "cards"), [("3,1", 2), ("1/1/2", 3), ("1,0", 1), ("0,1", 2), ("1,1", 2)]
)
def test_a_split_says_how_many_cards_there_are(split: str, cards: int) -> None:
    read = read_command(f"llama-server -m x.gguf -ts {split}")
    assert read.keys["gpu_count"] == cards


def test_tensor_split_shares_layers_out() -> None:
    args = {"ctx_size": 1024, "ngl": 99, "ts": "3,1"}
    found = cache_sizes(deployed(m.LLAMA_8B, gpu_count=2, args=args)).on_gpus
    assert found[0] == 25 * found[1] // 7  # 25 and 7 layers, and the output projection


def test_gpu_layers_are_the_last_ones() -> None:
    """A public log of Qwen3.5-9B: 160 MiB of 256 on the GPU, 96 on the CPU."""
    args = {"ctx_size": 8192, "np": 1, "ngl": 21}
    d = deployed(m.QWEN35_9B, args=args)
    found = cache_sizes(d)
    states = sum(1 for i in range(12, 32) if (i + 1) % 4) * 50.25 / 24
    assert found.on_gpus[0] / MIB == pytest.approx(160 + states)


def test_no_kv_offload_leaves_the_cache_in_host_memory() -> None:
    made = planned(m.LLAMA_8B, args={"ctx_size": 8192, "no_kv_offload": True})
    assert made.memory.kv_bytes == 0
    assert "cache of 1 GiB" in said(made)


def test_experts_in_host_memory() -> None:
    whole = planned(m.QWEN3_30B, args={"ctx_size": 4096})
    none = planned(m.QWEN3_30B, args={"ctx_size": 4096, "cpu_moe": True})
    some = planned(m.QWEN3_30B, args={"ctx_size": 4096, "n_cpu_moe": 10})
    weights = [of(p, "weights").bytes for p in (none, some, whole)]
    assert weights == sorted(weights)
    assert none.memory.kv_bytes == whole.memory.kv_bytes
    assert "experts of 48 layers" in said(none)
    assert "experts of 10 layers" in said(some)


def test_a_projector_lies_on_the_gpu_where_it_is_given() -> None:
    config = {
        "model_type": "qwen2_vl",
        "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584},
        **{k: v for k, v in m.LLAMA_8B.items() if k != "model_type"},
    }
    args = {"ctx_size": 1024}
    without, beside, host = (
        of(planned(config, args={**args, **more}), "weights").bytes
        for more in ({}, {"mmproj": "x.gguf"}, {"mmproj": "x.gguf", "no_mmproj_offload": True})
    )
    assert without == host < beside


# --fit


def test_context_is_fitted_first() -> None:
    made = planned(m.LLAMA_8B, gpu={**m.HUGE, "memory_bytes": 12 * GIB})
    fitted = made.scenario.context_tokens
    assert fitted is not None
    assert 4096 < fitted < 131072
    assert fitted % 256 == 0
    assert of(made, "unused").bytes >= 1024 * MIB
    assert made.verdict.fits
    assert f"{fitted:,} of 131,072" in said(made)
    longer = planned(
        m.LLAMA_8B,
        gpu={**m.HUGE, "memory_bytes": 12 * GIB},
        args={"ctx_size": fitted + 512, "np": 1},
    )
    assert "layers" in said(longer)


def test_context_fitted_on_strix_halo() -> None:
    """ggml-org/llama.cpp#21610: projected 121,861 MiB against 108,781 free, 196,608 → 87,296 tokens."""
    start = planned(m.MINIMAX_M25, gpu=m.HUGE, args={"ctk": "q8_0", "ctv": "q8_0", "np": 1})
    rest = 121_861 * MIB - start.memory.kv_bytes
    made = planned(
        m.MINIMAX_M25,
        gpu={**m.HUGE, "memory_bytes": 108_781 * MIB},
        known_bytes={"weights": rest, "activations": 0, "runtime": 0},
        args={"ctk": "q8_0", "ctv": "q8_0", "np": 1},
    )
    assert made.scenario.context_tokens == pytest.approx(87_296, rel=0.01)


def test_then_layers_of_a_dense_model() -> None:
    made = planned(LLAMA_70B, context_tokens=8192)
    assert made.verdict.fits
    assert "of 80 layers" in said(made)
    assert of(made, "unused").bytes >= 1024 * MIB
    fixed = planned(LLAMA_70B, context_tokens=8192, args={"n_gpu_layers": "all"})
    assert not fixed.verdict.fits
    assert fixed.verdict.binding == "weights"


def test_experts_of_the_last_layers_go_first() -> None:
    """llama.cpp's own example (tools/fit-params/README.md): Qwen3-30B-A3B F16 on an RTX 4090 comes to
    4,096 tokens, every layer on the GPU, the experts of 34 of 48 layers in host memory."""
    made = planned(m.QWEN3_30B, weight_dtype="fp16")
    assert made.scenario.context_tokens == 4096
    found = next(n for n in range(49) if f"experts of {n} layers" in said(made))
    assert abs(found - 34) <= 4
    assert "of 48 layers (" not in said(made).replace(f"experts of {found} layers", "")


def test_fit_off_or_older_does_not_move_layers() -> None:
    for more in ({"args": {"fit": "off", "ctx_size": 8192}}, {"engine_version": "b7000"}):
        made = planned(LLAMA_70B, **({"context_tokens": 8192} | more))
        assert not made.verdict.fits


def test_old_builds_used_no_gpu_unless_told() -> None:
    made = planned(m.LLAMA_8B, engine_version="b5000", args={"ctx_size": 8192})
    assert of(made, "weights").bytes == 0
    assert "no layer lies on a GPU" in said(made)


# Several GPUs


def test_gpus_take_layers_not_matrices() -> None:
    one = planned(m.LLAMA_8B, args={"ctx_size": 8192})
    three = planned(m.LLAMA_8B, tp=3, args={"ctx_size": 8192})  # 32 heads: no tp 3
    assert "cuts no matrices" in said(three)
    assert of(three, "weights").bytes < of(one, "weights").bytes / 2
    assert three.kv.bytes_per_token == one.kv.bytes_per_token
    assert planned(m.LLAMA_8B, gpu_count=2, dp=2, args={"ctx_size": 8192}).memory == one.memory


def test_a_cpu_holds_everything() -> None:
    cpu = {**m.HUGE, "name": "EPYC CPU", "memory_bytes": 256 * GIB}
    made = planned(m.LLAMA_8B, gpu=cpu, args={"ctx_size": 8192})
    gpu = planned(m.LLAMA_8B, args={"ctx_size": 8192})
    assert of(made, "weights").bytes - of(gpu, "weights").bytes == pytest.approx(
        281.8 * MIB, rel=1e-3
    )
    assert of(made, "runtime").bytes == 0
