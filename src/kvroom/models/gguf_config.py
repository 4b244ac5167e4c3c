"""llama.cpp's metadata keys → the ``config.json`` that the same model has on the hub.

So that one reader an architecture serves both. Sources: llama.cpp's ``convert_hf_to_gguf.py`` (which
writes these keys from that config) and ``gguf-py/gguf/constants.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvroom.errors import KvroomError

Shapes = Mapping[str, tuple[int, ...]]


class Keys:
    """The metadata of one file, seen from its architecture."""

    def __init__(self, metadata: Mapping[str, Any], shapes: Shapes, name: str) -> None:
        self.metadata = metadata
        self.shapes = shapes
        self.name = name
        self.arch = str(metadata.get("general.architecture", ""))

    def get(self, key: str) -> Any:
        """``arch.key``, or None."""
        return self.metadata.get(f"{self.arch}.{key}")

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number; KvroomError naming the key if it is missing or something else."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or value < 0:
            what = "is missing" if value is None else f"is {str(value)[:40]}, not a whole number"
            problem = f"is a GGUF whose key {self.arch}.{key} {what}"
            raise KvroomError("model", self.name, problem, "Give a file that llama.cpp loads.")
        return value

    def each(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """A number for each layer: an array, or one number for all."""
        value = self.get(key)
        if isinstance(value, list) and len(value) >= layers and all(type(v) is int for v in value):
            return value[:layers]
        return (
            [self.number(key, default)] * layers if not isinstance(value, list) else self._bad(key)
        )

    def _bad(self, key: str) -> list[int]:
        problem = f"is a GGUF whose key {self.arch}.{key} is no list of a number for each layer"
        raise KvroomError("model", self.name, problem, "Give a file that llama.cpp loads.")

    def has(self, tensor: str) -> bool:
        """Whether the file (or the part that was read) has a tensor of that name."""
        return tensor in self.shapes


def config_of(metadata: Mapping[str, Any], shapes: Shapes, name: str) -> dict[str, Any]:
    """A ``config.json`` for the model; KvroomError on an architecture that is not known."""
    keys = Keys(metadata, shapes, name)
    if not keys.arch:
        problem = "is a GGUF without general.architecture"
        raise KvroomError("model", name, problem, "Give a language model's file.")
    kind, more = ARCHITECTURES.get(keys.arch, (keys.arch, None))
    config = {"model_type": kind, **_common(keys)}
    if more is not None:
        config.update(more(keys, config))
    # A latent attention without a query rank says so with null; every other null is an absent key.
    return {
        key: value for key, value in config.items() if value is not None or key == "q_lora_rank"
    }


def known(metadata: Mapping[str, Any]) -> bool:
    """Whether the file's architecture is one that a hub's config describes."""
    return metadata.get("general.architecture") in ARCHITECTURES


def _common(keys: Keys) -> dict[str, Any]:
    layers = keys.number("block_count") - keys.number("nextn_predict_layers", 0)
    if not 0 < layers <= 10_000:
        raise KvroomError(
            "model", keys.name, f"is a GGUF of {layers:,} layers", "Give a language model's file."
        )
    hidden = keys.number("embedding_length")
    if not hidden:
        problem = f"is a GGUF whose key {keys.arch}.embedding_length is 0"
        raise KvroomError("model", keys.name, problem, "Give a file that llama.cpp loads.")
    heads = keys.each("attention.head_count", layers, 0)
    kv_heads = keys.each("attention.head_count_kv", layers, max(heads))
    forward = keys.each("feed_forward_length", layers, 0)
    table = keys.shapes.get("token_embd.weight", ())
    tokens = getattr(keys.metadata.get("tokenizer.ggml.tokens"), "length", None)
    vocab = table[1] if len(table) == 2 else keys.get("vocab_size") or tokens
    inner = max(forward) or keys.number("expert_feed_forward_length", 0)
    experts = keys.number("expert_count", 0)
    bias = keys.has("blk.0.attn_q.bias") or keys.has("blk.0.attn_qkv.bias")
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "vocab_size": vocab,
        "num_attention_heads": max(heads) or None,
        "num_key_value_heads": max(kv_heads) or None,
        "head_dim": keys.get("attention.key_length"),
        "intermediate_size": inner or None,
        "max_position_embeddings": keys.get("context_length"),
        "n_positions": keys.get("context_length"),
        "sliding_window": keys.get("attention.sliding_window") or None,
        "tie_word_embeddings": not keys.has("output.weight") and keys.has("token_embd.weight"),
        "attention_bias": bias,
        "bias": bias,
        "lm_head_bias": keys.has("output.bias"),
        "mlp_bias": keys.has("blk.0.ffn_up.bias"),
        "num_experts": experts or None,
        "num_local_experts": experts or None,
        "n_routed_experts": experts or None,
        "num_experts_per_tok": keys.number("expert_used_count", 0) or None,
        "moe_intermediate_size": keys.get("expert_feed_forward_length"),
        "torch_dtype": "float16",
    }


More = Callable[[Keys, dict[str, Any]], dict[str, Any]]


def _llama(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    """Mixtral has no architecture of its own."""
    return {"model_type": "mixtral", "sliding_window": None} if c["num_experts"] else {}


def _llama4(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        "intermediate_size_mlp": c["intermediate_size"],
        "intermediate_size": keys.number("expert_feed_forward_length"),
        "interleave_moe_layer_step": keys.number("interleave_moe_layer_step", 1),
        "attention_chunk_size": keys.number("attention.chunk_size", 8192),
        "no_rope_layer_interval": 4,
    }


def _qwen2(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False, "sliding_window": None}


def _no_window(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp switches Phi's windows off as it loads, and says so."""
    return {"sliding_window": None}


def _qwen_moe(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        **_qwen2(keys, c),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "shared_expert_intermediate_size": keys.get("expert_shared_feed_forward_length"),
    }


def _gated_delta(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    """Qwen3-Next and Qwen3.5: gated delta nets with full attention every few layers."""
    inner, v_heads = keys.number("ssm.inner_size"), keys.number("ssm.time_step_rank")
    return {
        **(_qwen_moe(keys, c) if c["num_experts"] else {}),
        "full_attention_interval": keys.number("full_attention_interval", 4),
        "linear_conv_kernel_dim": keys.number("ssm.conv_kernel"),
        "linear_key_head_dim": keys.number("ssm.state_size"),
        "linear_num_key_heads": keys.number("ssm.group_count"),
        "linear_num_value_heads": v_heads,
        "linear_value_head_dim": inner // max(1, v_heads),
        "mamba_ssm_dtype": "float32" if keys.arch.startswith("qwen35") else None,
    }


def _window_each(n: int) -> More:
    def more(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
        pattern = keys.get("attention.sliding_window_pattern")
        layers = c["num_hidden_layers"]
        if isinstance(pattern, list) and len(pattern) >= layers:
            local = [bool(p) for p in pattern[:layers]]
        else:
            every = pattern if type(pattern) is int and pattern > 0 else n
            local = [bool((index + 1) % every) for index in range(layers)]
        kinds = ["sliding_attention" if near else "full_attention" for near in local]
        return {"layer_types": kinds, "sliding_window_pattern": n}

    return more


def _gpt_oss(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    inner = keys.number("expert_feed_forward_length", c["intermediate_size"] or 0)
    kinds = [
        "full_attention" if index % 2 else "sliding_attention"
        for index in range(c["num_hidden_layers"])
    ]
    return {"intermediate_size": inner, "attention_bias": True, "layer_types": kinds}


def _deepseek2(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    """Latent attention: files made before the latent cache hold the expanded head's lengths."""
    rope = keys.number("rope.dimension_count")
    key = keys.number("attention.key_length_mla", keys.number("attention.key_length", 0))
    value = keys.number("attention.value_length_mla", keys.number("attention.value_length", 0))
    heads = c["num_attention_heads"]
    return {
        "kv_lora_rank": keys.number("attention.kv_lora_rank"),
        "q_lora_rank": keys.get("attention.q_lora_rank") or None,
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": value,
        "head_dim": None,
        "num_key_value_heads": heads,
        "first_k_dense_replace": keys.number("leading_dense_block_count", 0),
        "n_shared_experts": keys.number("expert_shared_count", 0) or None,
        "num_nextn_predict_layers": keys.number("nextn_predict_layers", 0),
        "moe_layer_freq": 1,
    }


def _glm_dsa(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        **_deepseek2(keys, c),
        "index_n_heads": keys.number("attention.indexer.head_count"),
        "index_head_dim": keys.number("attention.indexer.key_length"),
        "index_topk": keys.number("attention.indexer.top_k"),
    }


def _leading_dense(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        "first_k_dense_replace": keys.number("leading_dense_block_count", 0),
        "n_shared_experts": keys.number("expert_shared_count", 0) or None,
        "num_nextn_predict_layers": keys.number("nextn_predict_layers", 0),
        "use_qk_norm": keys.has("blk.0.attn_q_norm.weight"),
    }


def _ernie(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        "moe_num_experts": c["num_experts"],
        "moe_k": c["num_experts_per_tok"],
        "moe_num_shared_experts": keys.number("expert_shared_count", 0),
        "moe_layer_start_index": keys.number("leading_dense_block_count", 0),
        "moe_layer_interval": keys.number("interleave_moe_layer_step", 1) or 1,
        "use_bias": False,
    }


def _falcon(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    new = keys.has("blk.0.attn_norm_2.weight") or (c["num_key_value_heads"] or 1) > 1
    return {
        "new_decoder_architecture": new,
        "num_kv_heads": c["num_key_value_heads"],
        "multi_query": not new,
        "parallel_attn": True,
        "bias": False,
    }


def _starcoder(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {"multi_query": c["num_key_value_heads"] == 1, "n_inner": c["intermediate_size"]}


def _with_biases(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    bias, norms = c["attention_bias"], keys.has("blk.0.attn_q_norm.weight")
    return {"use_bias": bias, "use_qkv_bias": bias, "use_qk_norm": norms, "qk_layernorm": norms}


def _mamba(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        "state_size": keys.number("ssm.state_size"),
        "conv_kernel": keys.number("ssm.conv_kernel"),
        "intermediate_size": keys.number("ssm.inner_size"),
        "time_step_rank": keys.number("ssm.time_step_rank"),
    }


def _mamba2_sizes(keys: Keys) -> tuple[int, int, int]:
    """(heads, head width, inner size) of a mamba2 mixer."""
    inner, heads = keys.number("ssm.inner_size"), keys.number("ssm.time_step_rank")
    return heads, inner // max(1, heads), inner


def _mamba2(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    heads, width, inner = _mamba2_sizes(keys)
    return {
        "num_heads": heads,
        "head_dim": width,
        "expand": inner / c["hidden_size"],
        "n_groups": keys.number("ssm.group_count", 1),
        "state_size": keys.number("ssm.state_size"),
        "conv_kernel": keys.number("ssm.conv_kernel"),
        "intermediate_size": None,
    }


def _with_mamba(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    """The keys of hybrids that share Bamba's names, and which layers attend."""
    heads, width, inner = _mamba2_sizes(keys)
    kv = keys.each("attention.head_count_kv", c["num_hidden_layers"])
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": width,
        "mamba_d_ssm": inner,
        "mamba_expand": inner / c["hidden_size"],
        "mamba_n_groups": keys.number("ssm.group_count", 1),
        "mamba_d_state": keys.number("ssm.state_size"),
        "mamba_d_conv": keys.number("ssm.conv_kernel"),
        "layer_types": ["attention" if n else "mamba" for n in kv],
        "shared_intermediate_size": keys.get("expert_shared_feed_forward_length")
        or c["intermediate_size"],
        "num_local_experts": c["num_experts"] or 0,
    }


def _falcon_h1(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {**_with_mamba(keys, c), "layer_types": None, "num_local_experts": None}


def _jamba(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    layers = c["num_hidden_layers"]
    kv = keys.each("attention.head_count_kv", layers)
    attends = [index for index, n in enumerate(kv) if n] or [0]
    sparse = [index for index in range(layers) if keys.has(f"blk.{index}.ffn_gate_inp.weight")] or [
        0
    ]
    return {
        "attn_layer_offset": attends[0],
        "attn_layer_period": attends[1] - attends[0] if len(attends) > 1 else layers,
        "expert_layer_offset": sparse[0],
        "expert_layer_period": sparse[1] - sparse[0] if len(sparse) > 1 else layers,
        "mamba_d_state": keys.number("ssm.state_size"),
        "mamba_d_conv": keys.number("ssm.conv_kernel"),
        "mamba_dt_rank": keys.number("ssm.time_step_rank"),
        "mamba_expand": keys.number("ssm.inner_size") / c["hidden_size"],
        "num_experts": c["num_experts"] or 1,
    }


def _nemotron_h(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    layers = c["num_hidden_layers"]
    kv = keys.each("attention.head_count_kv", layers)
    forward = keys.each("feed_forward_length", layers)
    heads, width, _ = _mamba2_sizes(keys)
    mlp = "E" if c["num_experts"] else "-"
    pattern = ("*" if a else mlp if f else "M" for a, f in zip(kv, forward, strict=True))
    return {
        "hybrid_override_pattern": "".join(pattern),
        "attention_head_dim": keys.get("attention.key_length"),
        "mamba_num_heads": heads,
        "mamba_head_dim": width,
        "n_groups": keys.number("ssm.group_count", 1),
        "ssm_state_size": keys.number("ssm.state_size"),
        "conv_kernel": keys.number("ssm.conv_kernel"),
        "n_shared_experts": keys.number("expert_shared_count", 0),
        "moe_shared_expert_intermediate_size": keys.get("expert_shared_feed_forward_length"),
        "moe_latent_size": keys.get("moe_latent_size"),
    }


def _lfm2(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    kv = keys.each("attention.head_count_kv", c["num_hidden_layers"])
    return {
        "layer_types": ["full_attention" if n else "conv" for n in kv],
        "conv_L_cache": keys.number("shortconv.l_cache"),
        "block_auto_adjust_ff_dim": False,
        "block_ff_dim": c["intermediate_size"],
        "num_dense_layers": keys.number("leading_dense_block_count", 0),
    }


def _chatglm(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_layers": c["num_hidden_layers"],
        "ffn_hidden_size": c["intermediate_size"],
        "padded_vocab_size": c["vocab_size"],
        "kv_channels": c["head_dim"] or c["hidden_size"] // (c["num_attention_heads"] or 1),
        "multi_query_attention": True,
        "multi_query_group_num": c["num_key_value_heads"],
        "add_qkv_bias": True,
    }


def _olmo2(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    """OLMo 3 goes under OLMo 2's name, and slides a window in three layers of four."""
    return {"model_type": "olmo3", **_window_each(4)(keys, c)} if c["sliding_window"] else {}


def _shared_intermediate(keys: Keys, c: dict[str, Any]) -> dict[str, Any]:
    return {"shared_intermediate_size": keys.get("expert_shared_feed_forward_length")}


ARCHITECTURES: dict[str, tuple[str, More | None]] = {
    "llama": ("llama", _llama),
    "mistral3": ("mistral", None),
    "llama4": ("llama4_text", _llama4),
    "qwen": ("qwen", None),
    "qwen2": ("qwen2", _qwen2),
    "qwen2vl": ("qwen2", _qwen2),
    "qwen2moe": ("qwen2_moe", _qwen_moe),
    "qwen3": ("qwen3", _qwen2),
    "qwen3vl": ("qwen3", _qwen2),
    "qwen3moe": ("qwen3_moe", _qwen_moe),
    "qwen3vlmoe": ("qwen3_moe", _qwen_moe),
    "qwen3next": ("qwen3_next", _gated_delta),
    "qwen35": ("qwen3_5_text", _gated_delta),
    "qwen35moe": ("qwen3_5_moe_text", _gated_delta),
    "gemma": ("gemma", None),
    "gemma2": ("gemma2", None),
    "gemma3": ("gemma3_text", _window_each(6)),
    "gpt-oss": ("gpt_oss", _gpt_oss),
    "deepseek": ("deepseek", _leading_dense),
    "deepseek2": ("deepseek_v3", _deepseek2),
    "glm-dsa": ("glm_moe_dsa", _glm_dsa),
    "glm4": ("glm4", None),
    "glm4moe": ("glm4_moe", _leading_dense),
    "ernie4_5": ("ernie4_5", _ernie),
    "ernie4_5-moe": ("ernie4_5_moe", _ernie),
    "minimax-m2": ("minimax_m2", _leading_dense),
    "olmoe": ("olmoe", None),
    "phi2": ("phi", None),
    "phi3": ("phi3", _no_window),
    "phimoe": ("phimoe", _no_window),
    "falcon": ("falcon", _falcon),
    "starcoder": ("gpt_bigcode", _starcoder),
    "starcoder2": ("starcoder2", _with_biases),
    "command-r": ("cohere", _with_biases),
    "cohere2": ("cohere2", _window_each(4)),
    "olmo": ("olmo", None),
    "olmo2": ("olmo2", _olmo2),
    "stablelm": ("stablelm", _with_biases),
    "internlm2": ("internlm2", None),
    "baichuan": ("baichuan", None),
    "chatglm": ("chatglm", _chatglm),
    "exaone": ("exaone", None),
    "nemotron": ("nemotron", None),
    "granite": ("granite", None),
    "granitemoe": ("granitemoe", _shared_intermediate),
    "seed_oss": ("seed_oss", None),
    "smollm3": ("smollm3", None),
    "gpt2": ("gpt2", None),
    "gptj": ("gptj", None),
    "gptneox": ("gpt_neox", None),
    "bloom": ("bloom", None),
    "mamba": ("mamba", _mamba),
    "mamba2": ("mamba2", _mamba2),
    "jamba": ("jamba", _jamba),
    "nemotron_h": ("nemotron_h", _nemotron_h),
    "nemotron_h_moe": ("nemotron_h", _nemotron_h),
    "granitehybrid": ("granitemoehybrid", _with_mamba),
    "falcon-h1": ("falcon_h1", _falcon_h1),
    "lfm2": ("lfm2", _lfm2),
    "lfm2moe": ("lfm2_moe", _lfm2),
}
"""``general.architecture`` → (``model_type``, what else its config says)."""
