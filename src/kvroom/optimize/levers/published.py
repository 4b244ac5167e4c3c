"""What others measured: the price of narrower caches and weights in answers, of settings in time.

Every entry names who published it. What nobody published is not here, and a lever without an entry shows
no quality at all rather than a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.records import dataclass

SMALL_LOSS = 0.02
"""A published loss of at most so large a share of the score counts as small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """``effect`` in words, ``source`` where it is published; ``loss_ratio`` is the largest loss in it as a
    share of the score before (0: none, None: not a loss, or told in no figures)."""

    effect: str
    source: str
    loss_ratio: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values: dict[str, Any] = {"effect": self.effect, "source": self.source}
        return values | ({"loss_ratio": self.loss_ratio} if self.loss_ratio is not None else {})

    @property
    def small(self) -> bool:
        """Whether the published loss is small."""
        return self.loss_ratio is not None and self.loss_ratio <= SMALL_LOSS


_SGLANG_CACHE = "SGLang documentation, Quantized KV Cache"
_LMDEPLOY = "LMDeploy documentation, KV Cache Quantization"
_TRT_BLOG = "TensorRT-LLM blog, Speed up inference with SOTA quantization techniques"
_VLLM_FP8 = "vLLM blog, The State of FP8 KV-Cache and Attention Quantization, April 2026"
_VLLM_TUNING = "vLLM documentation, Optimization and Tuning"
_VLLM_MEMORY = "vLLM documentation, Conserving Memory"
_KURTIC = "arXiv 2411.02355, Llama-3.1 family"

CACHE_QUALITY: Mapping[str, Effect] = {
    "fp8": Effect(
        effect="Qwen3-235B: GSM8K 91.7 to 91.8, GPQA 70.1 to 69.0",
        source=_SGLANG_CACHE,
        loss_ratio=(0.7010 - 0.6899) / 0.7010,
    ),
    "int8": Effect(
        effect="InternLM2-7B: MMLU 63.9 to 64.0, GSM8K 70.1 to 69.8",
        source=_LMDEPLOY,
        loss_ratio=(70.13 - 69.75) / 70.13,
    ),
    "int8_per_token_head": Effect(
        effect="Qwen3.5-35B: GSM8K 92.8 to 91.6 (standard error 1.7)",
        source="vLLM pull request 40633",
        loss_ratio=(0.928 - 0.916) / 0.928,
    ),
    "int4": Effect(
        effect="InternLM2-7B: MMLU 63.9 to 62.4, GSM8K 70.1 to 66.9",
        source=_LMDEPLOY,
        loss_ratio=(70.13 - 66.87) / 70.13,
    ),
    "nvfp4": Effect(
        effect="Qwen3-235B: GSM8K 91.7 to 91.9, AIME25 77.3 to 60.0; NVIDIA tells of less than 1 %",
        source=f"{_SGLANG_CACHE}; NVIDIA developer blog, December 2025",
        loss_ratio=(0.7733 - 0.6000) / 0.7733,
    ),
}
"""By cache dtype: keys and values narrowed from 16 bits."""

WEIGHT_QUALITY: Mapping[str, Effect] = {
    "fp8": Effect(
        effect="Llama-2-70B: MMLU 69.1 to 68.5; Llama-3.1: without loss by arXiv 2411.02355",
        source=_TRT_BLOG,
        loss_ratio=0.0087,
    ),
    "int8": Effect(
        effect="1 to 3 % of the score, well tuned",
        source=_KURTIC,
        loss_ratio=0.03,
    ),
    "int4": Effect(
        effect="Llama-2-70B with AWQ: MMLU 69.1 to 68.4",
        source=_TRT_BLOG,
        loss_ratio=0.0101,
    ),
    "q4_k_m": Effect(
        effect="Llama-2-70B: perplexity 3.431 to 3.473",
        source="llama.cpp, examples/perplexity, Llama 2 70B score chart",
        loss_ratio=0.0120,
    ),
}
"""By weight dtype: linear layers narrowed from 16 bits."""

GGUF_PERPLEXITY: Mapping[str, float] = {
    "bf16": 6.233160,
    "fp16": 6.233160,
    "q8_0": 6.234284,
    "q6_k": 6.253382,
    "q5_k_m": 6.288607,
    "q5_k_s": 6.336598,
    "q5_0": 6.363224,
    "q4_k_m": 6.407115,
    "q4_k_s": 6.500529,
    "q4_1": 6.682737,
    "q4_0": 6.700147,
    "iq4_nl": 6.455593,
    "iq4_xs": 6.459705,
    "q3_k_l": 6.787876,
    "q3_k_m": 6.888498,
    "q3_k_s": 7.863786,
    "q2_k": 9.751568,
}
"""Perplexity of Llama 3 8B on wikitext by llama.cpp's mixes (llama.cpp, examples/perplexity, LLaMA 3 8b
Scoreboard; IQ4 with an importance matrix, the others without). Larger models lose less."""


def perplexity_ratio(mix: str) -> float | None:
    """How much larger than in 16 bits a mix's perplexity was, as a ratio less one; None: not published."""
    wide = GGUF_PERPLEXITY["fp16"]
    return GGUF_PERPLEXITY[mix] / wide - 1 if mix in GGUF_PERPLEXITY else None


LATENCY: Mapping[str, Effect] = {
    "kv_dtype=fp8": Effect(
        effect="Llama-3.1-8B: a token more in the cache costs 54 % of what it cost in BF16",
        source=_VLLM_FP8,
    ),
    "tp": Effect(
        effect="More tensor ranks synchronise more, which may outweigh what they save",
        source=_VLLM_TUNING,
    ),
    "pp": Effect(effect="More stages may lengthen each token's way", source=_VLLM_TUNING),
    "max_num_batched_tokens": Effect(
        effect="A smaller budget betters the gap between tokens, a larger one the first token",
        source=_VLLM_TUNING,
    ),
    "speculation": Effect(
        effect="Pays at low and middling rates, while steps wait for memory",
        source="vLLM documentation, Speculative Decoding",
    ),
    "disaggregation": Effect(
        effect="Prompts no longer hold up answers; throughput does not improve",
        source="vLLM documentation, Disaggregated Prefilling",
    ),
    "enforce_eager": Effect(
        effect="CUDA graphs speed inference up; without them steps take longer",
        source=_VLLM_MEMORY,
    ),
}
"""By lever, or by the key that it changes: what it does to time beyond what the model of time says."""
