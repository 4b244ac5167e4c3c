"""What runs on llama.cpp and what is built on it."""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.support import Requirement, Support, drafting
from kvroom.models.quantization.base import PLAIN
from kvroom.models.quantization.ggml import MIXES

_CACHE = "llama.cpp, --cache-type-k and --cache-type-v"

BUILT_ON = Support(
    cache={dtype: Requirement(source=_CACHE) for dtype in ("q8_0", "q4_0")},
    weights={
        dtype: Requirement(
            source="llama.cpp, llama-quantize", flag=False, checkpoint=f"a GGUF file in {dtype}"
        )
        for dtype in ("q8_0", "q4_k_m")
    },
    cache_types=("fp16", "bf16", "fp32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"),
    weight_types=(*PLAIN, *MIXES, "mxfp4", "nvfp4"),
)
"""Ollama and ik_llama.cpp: the same kernels."""
OLLAMA_SUPPORT = replace(BUILT_ON, cache_types=("fp16", "q8_0", "q4_0"))
"""Ollama offers three of them (OLLAMA_KV_CACHE_TYPE)."""
SUPPORT = replace(BUILT_ON, drafting=drafting("llama.cpp, --spec-type", "mtp", "eagle3"))
