"""What runs on vLLM, since when, on which chips.

Sources: ``CacheDType`` of its ``config/cache.py``, its least compute capability, and the pages named.
"""

from __future__ import annotations

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
_CHOICES = "vLLM, CacheDType of config/cache.py, release by release"
_HARDWARE = "vLLM documentation, Quantization, Supported Hardware (0.14)"
_FP8 = "vLLM documentation, FP8 W8A8 (0.32)"
_TRANSFORMER_ENGINE = "Transformer Engine documentation, support matrix of data types"

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
        "bf16": Requirement(source=_CHOICES, since=(0, 11, 0)),
        "fp16": Requirement(source=_CHOICES, since=(0, 18, 0)),
        "fp8_per_token_head": Requirement(source=_CHOICES, since=(0, 20, 0)),
        "int8_per_token_head": Requirement(
            source="vLLM pull request 38378",
            since=(0, 20, 0),
            capability=8.0,
            chips="Ampere or later",
        ),
        "int4_per_token_head": Requirement(source=_CHOICES, since=(0, 21, 0)),
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
