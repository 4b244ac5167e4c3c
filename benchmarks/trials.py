"""What a published log's row comes to: a printed figure and its prediction, or what the row lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


class NotRecordedError(Exception):
    """The log does not say what a prediction needs."""


@dataclass(frozen=True)
class Trial:
    """One printed figure and its prediction. ``half_digit`` is what printing may have rounded away."""

    what: str
    predicted: float
    printed: float
    half_digit: float = 0.0

    @property
    def exact(self) -> bool:
        """As printed, to the last digit."""
        return abs(self.predicted - self.printed) <= self.half_digit * 1.01

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.printed - 1


MODELS: tuple[tuple[str, str | Row], ...] = (
    # what a row's model says → the file of its config, or the figures of the published one
    ("DeepSeek-R1", "deepseek-ai__DeepSeek-R1"),
    ("Qwen3-Reranker-0.6B", "Qwen__Qwen3-0.6B"),
    ("qwen3-30b-a3b", "Qwen__Qwen3-30B-A3B"),
    ("qwen3vl 36L", "Qwen__Qwen3-VL-8B-Instruct"),
    ("Qwen3.5/3.8-27B", "Qwen__Qwen3.5-27B"),
    ("Qwen3.8-27B", "Qwen__Qwen3.5-27B"),  # the same shapes (llama.cpp's qwen35)
    ("Qwen3.5-9B", "Qwen__Qwen3.5-9B"),
    ("Qwen3.5-35B-A3B", "Qwen__Qwen3.5-35B-A3B"),
    ("Qwen3.5-4B/9B", "Qwen__Qwen3.5-9B"),
    ("Qwen2.5-7B", "Qwen__Qwen2.5-7B-Instruct"),
    ("gpt-oss-120b", "openai__gpt-oss-120b"),
    ("command-r-plus", "CohereForAI__c4ai-command-r-plus"),
    ("Llama-2-7b", "meta-llama__Llama-2-7b-hf"),
    ("gemma-2-2b", "google__gemma-2-2b-it"),
    ("MiniMax-M2.5", "MiniMaxAI__MiniMax-M2.5"),
    (
        "gemma-3-270m",
        {
            "model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
            "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1,
            "head_dim": 256, "sliding_window": 512, "vocab_size": 262144,
        },
    ),
    (
        "gemma-4-E4B",
        {
            "model_type": "gemma4_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 42, "num_attention_heads": 8, "num_key_value_heads": 2,
            "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
            "num_kv_shared_layers": 18, "vocab_size": 262144,
        },
    ),
    (
        "Nemotron-Ultra-253B",  # 64 of its 162 blocks attend, as the row says
        {
            "model_type": "nemotron-nas", "hidden_size": 16384, "num_hidden_layers": 162,
            "num_attention_heads": 128, "vocab_size": 128256,
            "block_configs": [
                {
                    "attention": {"n_heads_in_group": 16} if i < 64 else {"no_op": True},
                    "ffn": {"ffn_mult": 2.0},
                }
                for i in range(162)
            ],
        },
    ),
    (
        "DeepSeek-V2.5",
        {
            "model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288,
            "num_hidden_layers": 60, "num_attention_heads": 128, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
            "v_head_dim": 128, "n_routed_experts": 160, "num_experts_per_tok": 6,
            "moe_intermediate_size": 1536, "n_shared_experts": 2, "vocab_size": 102400,
        },
    ),
    (
        "deepseek-coder-v2:16b",
        {
            "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
            "num_hidden_layers": 27, "num_attention_heads": 16, "kv_lora_rank": 512,
            "q_lora_rank": None, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
            "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6,
            "moe_intermediate_size": 1408, "n_shared_experts": 2, "vocab_size": 102400,
        },
    ),
    (
        "GLM-Z1-Rumination-32B",
        {
            "model_type": "glm4", "hidden_size": 6144, "intermediate_size": 23040,
            "num_hidden_layers": 61, "num_attention_heads": 48, "num_key_value_heads": 8,
            "head_dim": 128, "vocab_size": 151552,
        },
    ),
)  # fmt: skip
