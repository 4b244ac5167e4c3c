"""What runs on llama.cpp and what is built on it."""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.support import Requirement, Support, drafting

_CACHE = "llama.cpp, --cache-type-k and --cache-type-v"

BUILT_ON = Support(
    cache={dtype: Requirement(source=_CACHE) for dtype in ("q8_0", "q4_0")},
    weights={
        dtype: Requirement(
            source="llama.cpp, llama-quantize", flag=False, checkpoint=f"a GGUF file in {dtype}"
        )
        for dtype in ("q8_0", "q4_k_m")
    },
)
"""Ollama and ik_llama.cpp: the same kernels."""
SUPPORT = replace(BUILT_ON, drafting=drafting("llama.cpp, --spec-type", "mtp", "eagle3"))
