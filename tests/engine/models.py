"""Small models of random weights: a shape for each way that vLLM keeps a cache.

Each is a config and nothing else (``--load-format dummy``). vLLM's CPU kernels take latents of 512 + 64
only, and gated delta nets with heads of 128.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

BASE: Config = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def of(architecture: str, model_type: str, **keys: Any) -> Config:
    """A config of ``architecture`` in the base shape, ``keys`` changed."""
    return {**BASE, "architectures": [architecture], "model_type": model_type, **keys}


def every(period: int, near: str, far: str, layers: int) -> list[str]:
    """``layers`` layer types: ``far`` at every ``period``-th, ``near`` elsewhere."""
    return [far if (i + 1) % period == 0 else near for i in range(layers)]


LLAMA = of("LlamaForCausalLM", "llama")
QWEN2 = of(
    "Qwen2ForCausalLM",
    "qwen2",
    tie_word_embeddings=True,
    num_key_value_heads=1,
    num_hidden_layers=3,
    use_sliding_window=False,
)
"""Tied, biased projections, an odd number of layers, one KV head."""
MISTRAL = of("MistralForCausalLM", "mistral", sliding_window=512)
"""Every layer a window."""
GEMMA3 = of(
    "Gemma3ForCausalLM",
    "gemma3_text",
    num_hidden_layers=6,
    tie_word_embeddings=True,
    sliding_window=128,
    layer_types=every(6, "sliding_attention", "full_attention", 6),
    query_pre_attn_scalar=32,
    rope_local_base_freq=10000.0,
    hidden_activation="gelu_pytorch_tanh",
)
"""Five windows to one full layer."""
GEMMA3_UNEVEN = {
    **GEMMA3,
    "num_hidden_layers": 14,
    "sliding_window": 300,
    "layer_types": every(6, "sliding_attention", "full_attention", 14),
}
"""Two full layers and twelve windows, whose length is no multiple of a block."""
DEEPSEEK = of(
    "DeepseekV2ForCausalLM",
    "deepseek_v2",
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=None,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    n_routed_experts=4,
    first_k_dense_replace=4,
    moe_intermediate_size=128,
    num_experts_per_tok=2,
    n_group=1,
    topk_group=1,
    n_shared_experts=1,
    routed_scaling_factor=1.0,
    topk_method="greedy",
    norm_topk_prob=False,
    scoring_func="softmax",
)
del DEEPSEEK["head_dim"]
"""Latent attention."""
QWEN3_NEXT = of(
    "Qwen3NextForCausalLM",
    "qwen3_next",
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=128,
    layer_types=every(4, "linear_attention", "full_attention", 4),
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=128,
    shared_expert_intermediate_size=128,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    norm_topk_prob=True,
    partial_rotary_factor=0.25,
    full_attention_interval=4,
)
"""Three gated delta nets to one full layer."""
GRANITE = of(
    "GraniteMoeHybridForCausalLM",
    "granitemoehybrid",
    layers_block_type=["mamba", "mamba", "attention", "mamba"],
    layer_types=["mamba", "mamba", "attention", "mamba"],
    mamba_n_heads=8,
    mamba_d_head=64,
    mamba_d_state=16,
    mamba_d_conv=4,
    mamba_expand=2,
    mamba_n_groups=1,
    mamba_chunk_size=64,
    mamba_conv_bias=True,
    mamba_proj_bias=False,
    num_local_experts=0,
    num_experts_per_tok=0,
    shared_intermediate_size=512,
    position_embedding_type="nope",
    embedding_multiplier=1.0,
    residual_multiplier=1.0,
    attention_multiplier=0.1,
    logits_scaling=1.0,
    attention_bias=False,
)
"""Mamba-2 layers with one of attention among them."""
MAMBA2 = of(
    "Mamba2ForCausalLM",
    "mamba2",
    num_heads=8,
    head_dim=64,
    state_size=16,
    conv_kernel=4,
    expand=2,
    n_groups=1,
    chunk_size=64,
    use_bias=False,
    use_conv_bias=True,
    rms_norm=True,
    layer_norm_epsilon=1e-5,
    residual_in_fp32=True,
    time_step_limit=[0.0, 1e9],
    time_step_rank=16,
    time_step_floor=1e-4,
    time_step_min=1e-3,
    time_step_max=0.1,
)
"""State only."""

DEEPSEEK_V3 = {
    **DEEPSEEK,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 1,
    "q_lora_rank": 96,
}
"""Latent attention, experts, and a prediction layer."""
QWEN3_MOE = of(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=128,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    norm_topk_prob=True,
)
EAGLE3 = of("LlamaForCausalLMEagle3", "llama", num_hidden_layers=1, draft_vocab_size=256)
"""A head that drafts for LLAMA."""
SMALL_LLAMA = {**LLAMA, "num_hidden_layers": 2}
"""A model of its own that drafts for another of its vocabulary."""
