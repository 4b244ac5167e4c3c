"""What runs on vLLM, since when, on which chips.

Sources: ``CacheDType`` of its ``config/cache.py``, its least compute capability, and the pages named.
"""

from __future__ import annotations

from kvroom.engines.releases import Release
from kvroom.engines.support import (
    CDNA,
    TENSORS,
    W4,
    W4F,
    W8,
    Requirement,
    Support,
    drafting,
    split,
)

_KV = "vLLM documentation, Quantized KV Cache; engine arguments of 0.4.2"
_HARDWARE = "vLLM documentation, Quantization, Supported Hardware (0.14)"
_FP8 = "vLLM documentation, FP8 W8A8 (0.32)"
_TRANSFORMER_ENGINE = "Transformer Engine documentation, support matrix of data types"

DROPPED: dict[str, Release] = {
    architecture: release
    for release, architectures in {
        (0, 9, 2): ("Phi3SmallForCausalLM"),
        (0, 10, 2): ("DonutForConditionalGeneration MotifForCausalLM Phi4FlashForCausalLM"),
        (0, 22, 0): ("JAISLMHeadModel"),
        (0, 23, 0): (
            "BaiChuanForCausalLM BaichuanForCausalLM BambaForCausalLM "
            "InternLM2VEForCausalLM InternLMForCausalLM MiniMaxM1ForCausalLM "
            "MiniMaxText01ForCausalLM MiniMaxVL01ForConditionalGeneration "
            "QWenLMHeadModel QwenVLForConditionalGeneration "
            "Tarsier2ForConditionalGeneration XverseForCausalLM"
        ),
        (0, 24, 0): (
            "AquilaForCausalLM AquilaModel Grok1ForCausalLM Grok1ModelForCausalLM "
            "MantisForConditionalGeneration TarsierForConditionalGeneration"
        ),
        (0, 25, 0): ("TeleChatForCausalLM"),
        (0, 26, 0): ("OuroForCausalLM Plamo2ForCausalLM"),
        (0, 28, 0): (
            "ArcticForCausalLM Cheers CheersForConditionalGeneration "
            "Fairseq2LlamaForCausalLM FireRedLIDForConditionalGeneration GritLM "
            "HCXVisionForCausalLM MPTForCausalLM MptForCausalLM "
            "PrithviGeoSpatialMAE RWForCausalLM StableLMEpochForCausalLM"
        ),
    }.items()
    for architecture in architectures.split()
}
"""Model classes that are in vLLM no longer → the last release that had them (its registry's own
list, 0.33.0), but for those that transformers' own class takes over as it is."""

SUPPORT = Support(
    cache={
        "fp8": Requirement(
            source=f"{_KV}; pull request 2279",
            since=(0, 4, 2),
            capability=7.0,
            chips="Volta or later",
            amd=CDNA,
            refuses=True,
        ),
        "int8_per_token_head": Requirement(
            source="vLLM pull request 38378", capability=8.0, chips="Ampere or later"
        ),
        "nvfp4": Requirement(
            source="vLLM pull request 40177",
            since=(0, 21, 0),
            capability=10.0,
            chips="Blackwell",
            refuses=True,
        ),
    },
    weights={
        "fp8": Requirement(
            source=_FP8,
            capability=7.5,
            chips="Turing or later; Ada or later computes in it",
            amd=CDNA,
        ),
        "int8": Requirement(
            source=_HARDWARE, capability=7.5, chips="Turing or later", flag=False, checkpoint=W8
        ),
        "int4": Requirement(
            source=_HARDWARE, capability=7.5, chips="Turing or later", flag=False, checkpoint=W4
        ),
        "nvfp4": Requirement(
            source=_TRANSFORMER_ENGINE,
            capability=10.0,
            chips="Blackwell",
            flag=False,
            checkpoint=W4F,
        ),
    },
    drafting=drafting("vLLM documentation, Speculative Decoding", "mtp", "eagle3", "ngram"),
    offload=Requirement(source="vLLM documentation, engine arguments, --kv-offloading-size"),
    split=split("vLLM documentation, NixlConnector Usage Guide", "the NIXL library"),
    context_ranks=True,
    cache_types=(
        "bf16",
        "fp16",
        "fp8",
        "nvfp4",
        "fp8_per_token_head",
        "int8_per_token_head",
        "int4_per_token_head",
    ),
    weight_types=TENSORS,
    capability=7.0,
)
