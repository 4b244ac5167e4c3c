"""What runs on TensorRT-LLM, since when, on which chips.

Sources: ``KvCacheConfig.dtype`` and the pages named.
"""

from __future__ import annotations

from kvroom.engines.support import OFFLINE_SCALES, W4, W4F, Requirement, Support, drafting

_QUANTIZATION = "TensorRT-LLM documentation, Quantization (1.3)"
_MATRIX = "TensorRT-LLM documentation, Support Matrix (0.18)"
_ADA, _BLACKWELL = "Ada or later", "Blackwell"

SUPPORT = Support(
    cache={
        "fp8": Requirement(source=_QUANTIZATION, capability=8.9, chips=_ADA),
        "nvfp4": Requirement(
            source=_QUANTIZATION,
            since=(1, 3, 0),
            capability=10.0,
            chips=_BLACKWELL,
            flag=False,
            checkpoint=OFFLINE_SCALES,
            refuses=True,
        ),
    },
    weights={
        "fp8": Requirement(
            source=_MATRIX,
            capability=8.9,
            chips=_ADA,
            flag=False,
            checkpoint="a checkpoint in FP8",
            refuses=True,
        ),
        "int4": Requirement(
            source=_MATRIX, capability=8.0, chips="Ampere or later", flag=False, checkpoint=W4
        ),
        "nvfp4": Requirement(
            source=_QUANTIZATION,
            capability=10.0,
            chips=_BLACKWELL,
            flag=False,
            checkpoint=W4F,
            refuses=True,
        ),
    },
    drafting=drafting("TensorRT-LLM documentation, Speculative Decoding", "mtp", "eagle3", "ngram"),
    offload=Requirement(source="TensorRT-LLM documentation, KvCacheConfig.host_cache_size"),
    cache_types=("fp16", "bf16", "fp8", "int8", "nvfp4"),
    weight_types=(
        *("bf16", "fp16", "fp32", "fp8", "fp8_block", "int8", "int4", "gptq_int4_g128"),
        *("awq_int4_g128", "int4_g32", "mxfp4", "mxfp8", "nvfp4"),
    ),
    capability=8.0,
    vendors=("nvidia",),
)
