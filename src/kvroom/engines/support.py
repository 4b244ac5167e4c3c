"""Which engine takes a narrower cache or narrower weights, since when, on which chips.

A row says what an engine needs; ``None`` is a figure nobody states. Compute capability is CUDA's: 8.0
Ampere, 8.9 Ada, 9.0 Hopper, 10.0 Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvroom.engines.releases import Release, nearest_release, shown
from kvroom.hardware.device import Device

FAR: Release = (9999, 9999, 9999)
NAMES = {
    "arithmetic": "any engine",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one engine needs for one dtype.

    ``capability`` is the least CUDA compute capability and ``chips`` its name; ``amd``: the generations
    of AMD chips that do as well. ``flag``: one flag of the engine turns it on; otherwise ``checkpoint``
    says what has to be made first.
    """

    source: str
    since: Release | None = None
    capability: float | None = None
    chips: str = ""
    amd: tuple[str, ...] = ()
    flag: bool = True
    checkpoint: str = ""


_VLLM_KV = "vLLM documentation, Quantized KV Cache; engine arguments of 0.4.2"
_VLLM_HW = "vLLM documentation, Quantization, Supported Hardware (0.14)"
_VLLM_FP8 = "vLLM documentation, FP8 W8A8 (0.32)"
_SGLANG = "SGLang documentation, Quantized KV Cache"
_TRT = "TensorRT-LLM documentation, Quantization (1.3)"
_TRT_MATRIX = "TensorRT-LLM documentation, Support Matrix (0.18)"
_TE = "Transformer Engine documentation, support matrix of data types"
_LMDEPLOY = "LMDeploy documentation, KV Cache Quantization"
_LLAMA = "llama.cpp, --cache-type-k and --cache-type-v"
_CDNA = ("cdna3", "cdna4")
_ADA, _BLACKWELL = "Ada or later", "Blackwell"

CACHE: Mapping[str, Mapping[str, Need]] = {
    "arithmetic": {
        "fp8": Need(source=_VLLM_KV),
        "int8": Need(source=_LMDEPLOY),
        "int4": Need(source=_LMDEPLOY),
        "nvfp4": Need(
            source=_TRT,
            capability=10.0,
            chips=_BLACKWELL,
            flag=False,
            checkpoint="scales made offline (Model Optimizer)",
        ),
    },
    "vllm": {
        "fp8": Need(
            source=f"{_VLLM_KV}; pull request 2279",
            since=(0, 4, 2),
            capability=7.0,
            chips="Volta or later",
            amd=_CDNA,
        ),
        "int8_per_token_head": Need(
            source="vLLM pull request 38378", capability=8.0, chips="Ampere or later"
        ),
    },
    "sglang": {
        "fp8": Need(source=_SGLANG, capability=8.0, chips="Ampere or later", amd=_CDNA),
        "nvfp4": Need(source=_SGLANG, capability=10.0, chips=_BLACKWELL),
    },
    "tensorrt-llm": {
        "fp8": Need(source=_TRT, capability=8.9, chips=_ADA),
        "nvfp4": Need(
            source=_TRT,
            since=(1, 3, 0),
            capability=10.0,
            chips=_BLACKWELL,
            flag=False,
            checkpoint="scales made offline (Model Optimizer)",
        ),
    },
    "lmdeploy": {
        "int8": Need(source=_LMDEPLOY, since=(0, 4, 0), capability=7.0, chips="Volta or later"),
        "int4": Need(source=_LMDEPLOY, since=(0, 4, 0), capability=7.0, chips="Volta or later"),
    },
    **{
        name: {"q8_0": Need(source=_LLAMA), "q4_0": Need(source=_LLAMA)}
        for name in ("llama.cpp", "ik_llama.cpp", "ollama")
    },
}
"""Engine → cache dtype → what it needs."""

_W8 = "a checkpoint in INT8 (W8A8)"
_W4 = "a checkpoint in 4 bits (AWQ or GPTQ)"
_W4F = "a checkpoint in NVFP4"
_FP8 = Need(
    source=_VLLM_FP8,
    capability=7.5,
    chips="Turing or later; Ada or later computes in it",
    amd=_CDNA,
)

CONTEXT_RANKS = ("arithmetic", "vllm")
"""Engines whose decode-context ranks kvroom reckons with."""

WEIGHTS: Mapping[str, Mapping[str, Need]] = {
    "arithmetic": {
        "fp8": Need(source=_VLLM_FP8),
        "int4": Need(source=_VLLM_HW, flag=False, checkpoint=_W4),
    },
    "vllm": {
        "fp8": _FP8,
        "int8": Need(
            source=_VLLM_HW, capability=7.5, chips="Turing or later", flag=False, checkpoint=_W8
        ),
        "int4": Need(
            source=_VLLM_HW, capability=7.5, chips="Turing or later", flag=False, checkpoint=_W4
        ),
        "nvfp4": Need(source=_TE, capability=10.0, chips=_BLACKWELL, flag=False, checkpoint=_W4F),
    },
    "sglang": {
        "fp8": Need(
            source="SGLang documentation, Quantization", capability=8.9, chips=_ADA, amd=_CDNA
        ),
        "int4": Need(
            source="SGLang documentation, Quantization",
            capability=8.0,
            chips="Ampere or later",
            flag=False,
            checkpoint=_W4,
        ),
    },
    "tensorrt-llm": {
        "fp8": Need(
            source=_TRT_MATRIX,
            capability=8.9,
            chips=_ADA,
            flag=False,
            checkpoint="a checkpoint in FP8",
        ),
        "int4": Need(
            source=_TRT_MATRIX, capability=8.0, chips="Ampere or later", flag=False, checkpoint=_W4
        ),
        "nvfp4": Need(source=_TRT, capability=10.0, chips=_BLACKWELL, flag=False, checkpoint=_W4F),
    },
    **{
        name: {
            dtype: Need(
                source="llama.cpp, llama-quantize", flag=False, checkpoint=f"a GGUF file in {dtype}"
            )
            for dtype in ("q8_0", "q4_k_m")
        }
        for name in ("llama.cpp", "ik_llama.cpp", "ollama")
    },
}
"""Engine → weight dtype → what it needs."""


_HEAD = "an EAGLE-3 head trained for this model"
_SPEC_VLLM = "vLLM documentation, Speculative Decoding"
_SPEC_SGLANG = "SGLang documentation, Speculative Decoding"
_SPEC_TRT = "TensorRT-LLM documentation, Speculative Decoding"
_SPEC_LLAMA = "llama.cpp, --spec-type"


def _drafts(source: str, *methods: str) -> Mapping[str, Need]:
    heads = Need(source=source, flag=False, checkpoint=_HEAD)
    return {m: heads if m == "eagle3" else Need(source=source) for m in methods}


DRAFTING: Mapping[str, Mapping[str, Need]] = {
    "arithmetic": _drafts(_SPEC_VLLM, "mtp", "eagle3", "ngram"),
    "vllm": _drafts(_SPEC_VLLM, "mtp", "eagle3", "ngram"),
    "sglang": _drafts(_SPEC_SGLANG, "mtp", "eagle3", "ngram"),
    "tensorrt-llm": _drafts(_SPEC_TRT, "mtp", "eagle3", "ngram"),
    "llama.cpp": _drafts(_SPEC_LLAMA, "mtp", "eagle3"),
}
"""Engine → way of drafting → what it needs."""

OFFLOAD: Mapping[str, Need] = {
    "arithmetic": Need(source="vLLM documentation, engine arguments, --kv-offloading-size"),
    "vllm": Need(source="vLLM documentation, engine arguments, --kv-offloading-size"),
    "sglang": Need(source="SGLang documentation, HiCache Best Practices"),
    "tensorrt-llm": Need(source="TensorRT-LLM documentation, KvCacheConfig.host_cache_size"),
}
"""Engine → what it needs to keep cached prefixes in host memory."""

SPLIT: Mapping[str, Need] = {
    name: Need(source=source, flag=False, checkpoint=f"{library}, and a router before the pools")
    for name, source, library in (
        ("arithmetic", "vLLM documentation, NixlConnector Usage Guide", "a transfer library"),
        ("vllm", "vLLM documentation, NixlConnector Usage Guide", "the NIXL library"),
        ("sglang", "SGLang documentation, PD Disaggregation", "Mooncake or the NIXL library"),
    )
}
"""Engine → what it needs to compute prompts in one place and answers in another."""


def listed(need: Need, engine: str) -> Iterator[str]:
    """``need`` in words, an item each."""
    if need.since is not None:
        yield f"{NAMES.get(engine, engine)} {shown(need.since)} or later"
    if need.chips:
        yield f"{need.chips} (CUDA compute capability {need.capability:g})"
    if need.checkpoint:
        yield need.checkpoint


def refusal(need: Need, engine: str, version: str | None, device: Device) -> str | None:
    """Why ``device`` or ``version`` rules it out; None where nothing known does."""
    if need.since is not None and version:
        release, warning = nearest_release(engine, version, (0, 0, 0), FAR)
        if not warning and release < need.since:
            return f"{NAMES.get(engine, engine)} {version} is older than {shown(need.since)}"
    if need.capability is None or device.vendor == "none":
        return None
    if device.vendor == "nvidia" and device.compute_capability is not None:
        if float(device.compute_capability) < need.capability:
            return f"{device.name} is not {need.chips}"
        return None
    if device.vendor == "amd":
        return None if device.generation in need.amd else f"not known to run on {device.name}"
    return None
