"""The first open decoders: GPT-2 and its kin, before Llama's plan became everyone's.

LayerNorms with shift, feed-forward blocks of two matrices, mostly one KV head for each query head, and
learned positions, ALiBi or early rotary positions. Shapes, module names and class defaults as in the
published checkpoints and their transformers classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, check_groups, sizes
from kvroom.models.hf.dense import ModuleNames, plain_decoder
from kvroom.models.parts import Tensors
from kvroom.models.spec import ModelSpec

GPT2 = ModuleNames(
    layers="transformer.h",
    norms="ln_1 ln_2",
    attention="attn c_attn c_attn c_attn c_proj",
    mlp="mlp c_fc c_proj",
    embedding="wte",
    final="ln_f",
)
GPTJ = ModuleNames(
    layers="transformer.h",
    norms="ln_1",
    attention="attn q_proj k_proj v_proj out_proj",
    mlp="mlp fc_in fc_out",
    embedding="wte",
    final="ln_f",
)
NEOX = ModuleNames(
    layers="gpt_neox.layers",
    attention="attention query_key_value query_key_value query_key_value dense",
    mlp="mlp dense_h_to_4h dense_4h_to_h",
    embedding="embed_in",
    final="final_layer_norm",
    head="embed_out",
)
BLOOM = ModuleNames(
    layers="transformer.h",
    attention="self_attention query_key_value query_key_value query_key_value dense",
    mlp="mlp dense_h_to_4h dense_4h_to_h",
    embedding="word_embeddings",
    final="ln_f",
)
OPT = ModuleNames(
    layers="model.decoder.layers",
    norms="self_attn_layer_norm final_layer_norm",
    attention="self_attn q_proj k_proj v_proj out_proj",
    mlp="- fc1 fc2",
    final="final_layer_norm",
)
MPT = ModuleNames(
    layers="transformer.blocks",
    norms="norm_1 norm_2",
    attention="attn Wqkv Wqkv Wqkv out_proj",
    mlp="ffn up_proj down_proj",
    embedding="wte",
    final="norm_f",
)
PHI = ModuleNames(
    norms="input_layernorm",
    attention="self_attn q_proj k_proj v_proj dense",
    mlp="mlp fc1 fc2",
    final="final_layernorm",
)
PHI_MSFT = ModuleNames(
    layers="transformer.h",
    norms="ln",
    attention="mixer Wqkv Wqkv Wqkv out_proj",
    mlp="mlp fc1 fc2",
    final="lm_head.ln",
    head="lm_head.linear",
)


def _rows(config: Config) -> int:
    """Positions that a learned table has."""
    return config.integer("n_positions", "max_position_embeddings", "n_ctx")


def _shifted(config: Config, dims: Sizes, names: ModuleNames, **more: Any) -> ModelSpec:
    """A decoder of LayerNorms, four times as wide inside unless its config says otherwise."""
    inner = more.pop("inner", None) or config.integer(*INNER, default=4 * dims.hidden)
    return plain_decoder(config, dims, names, inner=inner, norm_bias=True, **more)


def gpt2(config: Config) -> ModelSpec:
    """GPT-2: learned positions, tied embeddings, one fused projection, biases everywhere."""
    config = config.of_class(tie_word_embeddings=True, n_positions=1024)
    return _shifted(config, sizes(config), GPT2, bias=True, positions=_rows(config))


def gpt_bigcode(config: Config) -> ModelSpec:
    """StarCoder and SantaCoder: GPT-2 with one KV head for all (``multi_query``)."""
    config = config.of_class(tie_word_embeddings=True, n_positions=1024, multi_query=True)
    dims = _one_for_all(config, sizes(config))
    return _shifted(config, dims, GPT2, bias=True, positions=_rows(config))


def _one_for_all(config: Config, dims: Sizes) -> Sizes:
    """With ``multi_query`` one KV head for all query heads, else one for each."""
    return replace(dims, kv_heads=1 if config.flag("multi_query") else dims.heads)


def gptj(config: Config) -> ModelSpec:
    """GPT-J: parallel halves under one norm, no biases in attention, a biased head of its own."""
    config = config.of_class(n_positions=2048)
    return _shifted(config, sizes(config), GPTJ, mlp_bias=True, head_bias=True)


def codegen(config: Config) -> ModelSpec:
    """CodeGen: GPT-J with a fused projection."""
    config = config.of_class(n_positions=2048)
    names = replace(GPTJ, attention="attn qkv_proj qkv_proj qkv_proj out_proj")
    return _shifted(config, sizes(config), names, mlp_bias=True, head_bias=True)


def gpt_neo(config: Config) -> ModelSpec:
    """GPT-Neo: GPT-2 with separate projections; every second layer looks back ``window_size`` only."""
    config = config.of_class(
        tie_word_embeddings=True, window_size=256, max_position_embeddings=2048
    )
    dims = sizes(config)
    return _shifted(
        config,
        dims,
        replace(GPT2, attention="attn.attention q_proj k_proj v_proj out_proj"),
        o_bias=True,
        mlp_bias=True,
        positions=_rows(config),
        window=config.integer("window_size", high=10**9),
        sliding=_local(config, dims.layers),
    )


def _local(config: Config, layers: int) -> list[bool]:
    """``attention_types`` is [[["global", "local"], 12], …]: a pattern and how often it repeats."""
    if config.has("attention_layers") and not config.has("attention_types"):
        return [kind == "local" for kind in config.items("attention_layers", length=layers)]
    kinds: list[Any] = []
    default = [[["global", "local"], (layers + 1) // 2]]
    for group in config.items("attention_types", default=default):
        try:
            pattern, times = group
            kinds += list(pattern) * min(int(times), layers)
        except (TypeError, ValueError):
            raise KvroomError(
                config.field("attention_types"),
                group,
                "is not a pattern with its number of repeats",
                'Write [["global", "local"], 12].',
            ) from None
    if len(kinds) < layers:
        raise KvroomError(
            config.field("attention_types"),
            config.get("attention_types"),
            f"describes {len(kinds)} of {layers} layers",
            "Give one entry for each layer.",
        )
    return [kind == "local" for kind in kinds[:layers]]


def gpt_neox(config: Config) -> ModelSpec:
    """GPT-NeoX, Pythia, RedPajama-INCITE: rotary positions, two norms, an untied head."""
    config = config.of_class(attention_bias=True, max_position_embeddings=2048)
    bias = config.flag("attention_bias")
    return _shifted(config, sizes(config), NEOX, bias=bias, mlp_bias=True)


def opt(config: Config) -> ModelSpec:
    """OPT: learned positions with two rows to spare, tied embeddings.

    The 350M model embeds in ``word_embed_proj_dim`` numbers and projects in and out, and norms after
    each half (``do_layer_norm_before`` false), so that it has no final norm.
    """
    config = config.of_class(
        tie_word_embeddings=True,
        do_layer_norm_before=True,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
        max_position_embeddings=2048,
    )
    dims = sizes(config)
    narrow = config.integer("word_embed_proj_dim", default=dims.hidden)
    affine = config.flag("layer_norm_elementwise_affine")
    before = config.flag("do_layer_norm_before") and not config.flag("_remove_final_layer_norm")
    embedding = (
        *parts.embedding(dims.vocab, narrow),
        *parts.positions(_rows(config) + 2, dims.hidden),
    )
    final: Tensors = ()
    if before and affine:
        final = parts.norm("final_layer_norm", dims.hidden, bias=True)
    if narrow != dims.hidden:
        embedding += parts.linear("project_in", dims.hidden, narrow, part="mlp")
        final += parts.linear("project_out", narrow, dims.hidden, part="mlp")
    return _shifted(
        config,
        dims,
        OPT if affine else replace(OPT, norms=""),
        inner=config.integer(*INNER),
        bias=config.flag("enable_bias"),
        embedding=embedding,
        final=final,
        lm_head=parts.lm_head(dims.vocab, narrow),
    )


def bloom(config: Config) -> ModelSpec:
    """BLOOM: ALiBi instead of positions, a norm after the embedding, tied."""
    config = config.of_class(tie_word_embeddings=True)
    dims = sizes(config)
    embedding = (
        *parts.embedding(dims.vocab, dims.hidden, BLOOM.embedding),
        *parts.norm("word_embeddings_layernorm", dims.hidden, bias=True),
    )
    return _shifted(config, dims, BLOOM, inner=4 * dims.hidden, bias=True, embedding=embedding)


def mpt(config: Config) -> ModelSpec:
    """MPT: tied embeddings, no biases unless ``no_bias`` is false, ALiBi or learned positions.

    ``attn_config`` may give fewer KV heads (``kv_n_heads``, or one with ``multiquery_attention``), norm
    queries and keys (``qk_ln``) and switch ALiBi off (MosaicML's llm-foundry).
    """
    config = config.of_class(tie_word_embeddings=True, no_bias=True, learned_pos_emb=True)
    dims = sizes(config)
    attn = config.sub("attn_config", alibi=True)
    one = attn.text("attn_type") == "multiquery_attention"
    dims = replace(dims, kv_heads=attn.integer("kv_n_heads", default=1 if one else dims.heads))
    check_groups(attn, dims.heads, dims.kv_heads, "kv_n_heads")
    bias = not config.flag("no_bias")
    widths = (("attn.q_ln", dims.heads), ("attn.k_ln", dims.kv_heads)) if attn.flag("qk_ln") else ()
    positions = 0
    if config.flag("learned_pos_emb") and not attn.flag("alibi") and not attn.flag("rope"):
        positions = config.integer("max_seq_len", default=2048, high=10**9)
    return plain_decoder(
        config,
        dims,
        MPT,
        inner=int(config.number("expansion_ratio", default=4, low=0.01, high=1000) * dims.hidden),
        bias=bias,
        norm_bias=bias,
        extra=tuple(
            t for name, n in widths for t in parts.norm(name, n * dims.head_dim, bias=bias)
        ),
        positions=positions,
    )


def falcon(config: Config) -> ModelSpec:
    """Falcon, in its three layouts.

    ``new_decoder_architecture`` (40B, 180B, 11B): ``num_kv_heads`` and two norms before parallel halves,
    or one (``num_ln_in_parallel_attn``). ``multi_query`` (7B): one KV head, one norm. Neither (RW): as
    many KV heads as query heads. Without ``parallel_attn`` the second half has its own norm.
    """
    return _falcon(config, config.flag("new_decoder_architecture"))


def refined_web(config: Config) -> ModelSpec:
    """Falcon 40B under its first name, which implied the new layout."""
    return _falcon(config, config.flag("new_decoder_architecture", default=True))


def _falcon(config: Config, new: bool) -> ModelSpec:
    config = config.of_class(
        tie_word_embeddings=True,
        multi_query=True,
        parallel_attn=True,
        max_position_embeddings=2048,
    )
    dims = sizes(config)
    if new:
        kv_heads = config.integer("num_kv_heads", "n_head_kv", default=dims.heads)
        dims = replace(dims, kv_heads=kv_heads)
        check_groups(config, dims.heads, dims.kv_heads, "num_kv_heads", "n_head_kv")
    else:
        dims = _one_for_all(config, dims)
    norms = "input_layernorm"
    if not config.flag("parallel_attn"):
        norms = "input_layernorm post_attention_layernorm"
    elif config.integer("num_ln_in_parallel_attn", default=2 if new else 1) == 2:
        norms = "ln_attn ln_mlp"
    return _shifted(config, dims, replace(BLOOM, norms=norms), bias=config.flag("bias"))


def phi(config: Config) -> ModelSpec:
    """Phi-1 to Phi-2: parallel halves under one norm, biases everywhere, a biased head."""
    config = config.of_class(max_position_embeddings=2048)
    dims = sizes(config)
    normed = ("q_layernorm", "k_layernorm") if config.flag("qk_layernorm") else ()
    own = tuple(t for n in normed for t in parts.norm(f"self_attn.{n}", dims.head_dim, bias=True))
    return _shifted(config, dims, PHI, bias=True, head_bias=True, extra=own)


def phi_msft(config: Config) -> ModelSpec:
    """Phi-2 in Microsoft's first form (remote code ``modeling_phi``): GPT-2's keys, one fused Wqkv."""
    dims = sizes(config)
    dims = replace(dims, kv_heads=config.integer("n_head_kv", default=dims.heads))
    check_groups(config, dims.heads, dims.kv_heads, "n_head_kv")
    return _shifted(config, dims, PHI_MSFT, bias=True, head_bias=True)
