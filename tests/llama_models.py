"""Small configs with the published shapes of models whose start-up logs are quoted."""

from __future__ import annotations

from typing import Any

from kvroom.planner.layout import laid_out
from kvroom.planner.place import deploy
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

HUGE = {"name": "any", "memory_bytes": 10**14, "memory_bytes_per_s": 10**12}


def llama(**more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    } | more


LLAMA_8B = llama()
LLAMA2_13B = llama(
    hidden_size=5120,
    intermediate_size=13824,
    num_attention_heads=40,
    num_hidden_layers=40,
    num_key_value_heads=40,
    vocab_size=32000,
)
QWEN3_32B = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_hidden_layers": 36,
    "vocab_size": 201088,
}
GEMMA2_2B = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
GEMMA3_270M = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_attention_heads": 4,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "vocab_size": 262144,
}
GEMMA4_E4B = {
    "model_type": "gemma4_text",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_attention_heads": 8,
    "num_hidden_layers": 42,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "num_kv_shared_layers": 18,
    "vocab_size": 262144,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "vocab_size": 129280,
}
CODER_V2_LITE = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 2,
    "vocab_size": 102400,
}
DEEPSEEK_V4_FLASH = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "head_dim": 512,
    "num_attention_heads": 64,
    "num_hidden_layers": 43,
    "sliding_window": 128,
    "compress_ratios": [0, 0] + [4, 128] * 20 + [4] + [0],
    "index_head_dim": 128,
    "index_n_heads": 64,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "vocab_size": 129280,
}


def qwen35(
    layers: int, hidden: int, kv_heads: int, value_heads: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "qwen3_5_text",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_attention_heads": 16,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": 128,
        "vocab_size": 248320,
    } | more


QWEN35_9B = qwen35(32, 4096, 4, 32)
QWEN35_27B = qwen35(64, 5120, 4, 48, num_attention_heads=24)
MINIMAX_M25 = {
    "model_type": "minimax_m2",
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "num_attention_heads": 48,
    "num_hidden_layers": 62,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "vocab_size": 200064,
    "max_position_embeddings": 196608,
}


def asked(config: dict[str, Any], engine: str = "llama.cpp", **more: Any) -> Scenario:
    """A question; flags are ``args``, the device is without end unless told."""
    given = {
        "model": {"config": config},
        "gpu": more.pop("gpu", HUGE),
        "engine": engine,
        "engine_args": more.pop("args", {}),
    }
    return Scenario.from_dict(given | more)


def deployed(config: dict[str, Any], engine: str = "llama.cpp", **more: Any) -> Deployment:
    return deploy(laid_out(asked(config, engine, **more))[0])[0]
