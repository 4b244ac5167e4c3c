"""The first open decoders: GPT-2 and its kin, before Llama's plan became everyone's.

LayerNorms with shift, feed-forward blocks of two matrices, mostly one KV head for each query head, and
learned positions, ALiBi or early rotary positions. Shapes, module names and class defaults as in the
published checkpoints and their transformers classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, check_groups, sizes
from kvroom.models.hf.dense import decoder
from kvroom.models.parts import Tensors
from kvroom.models.spec import ModelSpec
from kvroom.models.tensors import Tensor


def _fused(module: str, out: str) -> tuple[str, str, str, str]:
    return (module, module, module, out)


def _layer_norm(name: str, dims: Sizes) -> Tensors:
    return parts.norm(name, dims.hidden, bias=True)


def _inner(config: Config, dims: Sizes) -> int:
    return config.integer(*INNER, default=4 * dims.hidden)


def _rows(config: Config) -> int:
    """Positions that a learned table has."""
    return config.integer("n_positions", "max_position_embeddings", "n_ctx")


def gpt2(config: Config) -> ModelSpec:
    """GPT-2: learned positions, tied embeddings, one fused projection, biases everywhere."""
    return _gpt2(config.of_class(tie_word_embeddings=True, n_positions=1024), sizes(config))


def gpt_bigcode(config: Config) -> ModelSpec:
    """StarCoder and SantaCoder: GPT-2 with one KV head for all (``multi_query``)."""
    config = config.of_class(tie_word_embeddings=True, n_positions=1024, multi_query=True)
    dims = sizes(config)
    return _gpt2(config, replace(dims, kv_heads=1 if config.flag("multi_query") else dims.heads))


def _gpt2(config: Config, dims: Sizes) -> ModelSpec:
    tensors = (
        *_layer_norm("ln_1", dims),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=True,
            o_bias=True,
            name="attn",
            names=_fused("c_attn", "c_proj"),
        ),
        *_layer_norm("ln_2", dims),
        *parts.mlp(dims.hidden, _inner(config, dims), bias=True, names=("c_fc", "c_proj")),
    )
    return decoder(
        config,
        dims,
        tensors,
        embedding=(
            *parts.embedding(dims.vocab, dims.hidden, "wte"),
            *parts.positions(_rows(config), dims.hidden, "wpe"),
        ),
        final=_layer_norm("ln_f", dims),
        layer_names="transformer.h",
    )


def gptj(config: Config) -> ModelSpec:
    """GPT-J: parallel halves under one norm, no biases in attention, a biased head of its own."""
    return _parallel(config, ("q_proj", "k_proj", "v_proj", "out_proj"))


def codegen(config: Config) -> ModelSpec:
    """CodeGen: GPT-J with a fused projection."""
    return _parallel(config, _fused("qkv_proj", "out_proj"))


def _parallel(config: Config, names: tuple[str, str, str, str]) -> ModelSpec:
    config = config.of_class(n_positions=2048)
    dims = sizes(config)
    tensors = (
        *_layer_norm("ln_1", dims),
        *parts.attention(
            dims.hidden, dims.heads, dims.kv_heads, dims.head_dim, name="attn", names=names
        ),
        *parts.mlp(dims.hidden, _inner(config, dims), bias=True, names=("fc_in", "fc_out")),
    )
    return decoder(
        config,
        dims,
        tensors,
        embedding=parts.embedding(dims.vocab, dims.hidden, "wte"),
        final=_layer_norm("ln_f", dims),
        lm_head=parts.lm_head(dims.vocab, dims.hidden, bias=True),
        layer_names="transformer.h",
    )


def gpt_neo(config: Config) -> ModelSpec:
    """GPT-Neo: GPT-2 with separate projections; every second layer looks back ``window_size`` only."""
    config = config.of_class(
        tie_word_embeddings=True, window_size=256, max_position_embeddings=2048
    )
    dims = sizes(config)
    tensors = (
        *_layer_norm("ln_1", dims),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            o_bias=True,
            name="attn.attention",
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
        ),
        *_layer_norm("ln_2", dims),
        *parts.mlp(dims.hidden, _inner(config, dims), bias=True, names=("c_fc", "c_proj")),
    )
    return decoder(
        config,
        dims,
        tensors,
        window=config.integer("window_size", high=10**9),
        sliding=_local(config, dims.layers),
        embedding=(
            *parts.embedding(dims.vocab, dims.hidden, "wte"),
            *parts.positions(_rows(config), dims.hidden, "wpe"),
        ),
        final=_layer_norm("ln_f", dims),
        layer_names="transformer.h",
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
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = (
        *_layer_norm("input_layernorm", dims),
        *_layer_norm("post_attention_layernorm", dims),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attention",
            names=_fused("query_key_value", "dense"),
        ),
        *parts.mlp(
            dims.hidden, _inner(config, dims), bias=True, names=("dense_h_to_4h", "dense_4h_to_h")
        ),
    )
    return decoder(
        config,
        dims,
        tensors,
        embedding=parts.embedding(dims.vocab, dims.hidden, "embed_in"),
        final=_layer_norm("final_layer_norm", dims),
        lm_head=parts.lm_head(dims.vocab, dims.hidden, name="embed_out"),
        layer_names="gpt_neox.layers",
    )


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
    bias = config.flag("enable_bias")
    affine = config.flag("layer_norm_elementwise_affine")
    tensors = (
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
        ),
        *(_layer_norm("self_attn_layer_norm", dims) if affine else ()),
        *parts.mlp(dims.hidden, config.integer(*INNER), bias=bias, name="", names=("fc1", "fc2")),
        *(_layer_norm("final_layer_norm", dims) if affine else ()),
    )
    embedding = (
        *parts.embedding(dims.vocab, narrow),
        *parts.positions(_rows(config) + 2, dims.hidden),
    )
    final: Tensors = ()
    if (
        config.flag("do_layer_norm_before")
        and not config.flag("_remove_final_layer_norm")
        and affine
    ):
        final = _layer_norm("final_layer_norm", dims)
    if narrow != dims.hidden:
        embedding += parts.linear("project_in", dims.hidden, narrow, part="mlp")
        final += parts.linear("project_out", narrow, dims.hidden, part="mlp")
    return decoder(
        config,
        dims,
        tensors,
        embedding=embedding,
        final=final,
        lm_head=parts.lm_head(dims.vocab, narrow),
        layer_names="model.decoder.layers",
    )


def bloom(config: Config) -> ModelSpec:
    """BLOOM: ALiBi instead of positions, a norm after the embedding, tied."""
    config = config.of_class(tie_word_embeddings=True)
    dims = sizes(config)
    tensors = (
        *_layer_norm("input_layernorm", dims),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=True,
            o_bias=True,
            name="self_attention",
            names=_fused("query_key_value", "dense"),
        ),
        *_layer_norm("post_attention_layernorm", dims),
        *parts.mlp(
            dims.hidden, 4 * dims.hidden, bias=True, names=("dense_h_to_4h", "dense_4h_to_h")
        ),
    )
    return decoder(
        config,
        dims,
        tensors,
        embedding=(
            *parts.embedding(dims.vocab, dims.hidden, "word_embeddings"),
            *_layer_norm("word_embeddings_layernorm", dims),
        ),
        final=_layer_norm("ln_f", dims),
        layer_names="transformer.h",
    )


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
    inner = int(config.number("expansion_ratio", default=4, low=0.01, high=1000) * dims.hidden)
    widths = (("attn.q_ln", dims.heads), ("attn.k_ln", dims.kv_heads)) if attn.flag("qk_ln") else ()
    tensors = (
        *parts.norm("norm_1", dims.hidden, bias=bias),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attn",
            names=_fused("Wqkv", "out_proj"),
        ),
        *(t for name, n in widths for t in parts.norm(name, n * dims.head_dim, bias=bias)),
        *parts.norm("norm_2", dims.hidden, bias=bias),
        *parts.mlp(dims.hidden, inner, bias=bias, gated=False, name="ffn"),
    )
    embedding = parts.embedding(dims.vocab, dims.hidden, "wte")
    if config.flag("learned_pos_emb") and not attn.flag("alibi") and not attn.flag("rope"):
        embedding += parts.positions(
            config.integer("max_seq_len", default=2048, high=10**9), dims.hidden, "wpe"
        )
    return decoder(
        config,
        dims,
        tensors,
        embedding=embedding,
        final=parts.norm("norm_f", dims.hidden, bias=bias),
        layer_names="transformer.blocks",
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
        dims = replace(
            dims, kv_heads=config.integer("num_kv_heads", "n_head_kv", default=dims.heads)
        )
        check_groups(config, dims.heads, dims.kv_heads, "num_kv_heads", "n_head_kv")
    else:
        dims = replace(dims, kv_heads=1 if config.flag("multi_query") else dims.heads)
    bias = config.flag("bias")
    names: tuple[str, ...] = ("input_layernorm",)
    if not config.flag("parallel_attn"):
        names = ("input_layernorm", "post_attention_layernorm")
    elif config.integer("num_ln_in_parallel_attn", default=2 if new else 1) == 2:
        names = ("ln_attn", "ln_mlp")
    tensors = (
        *(t for name in names for t in _layer_norm(name, dims)),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="self_attention",
            names=_fused("query_key_value", "dense"),
        ),
        *parts.mlp(
            dims.hidden, _inner(config, dims), bias=bias, names=("dense_h_to_4h", "dense_4h_to_h")
        ),
    )
    return decoder(
        config,
        dims,
        tensors,
        embedding=parts.embedding(dims.vocab, dims.hidden, "word_embeddings"),
        final=_layer_norm("ln_f", dims),
        layer_names="transformer.h",
    )


def phi(config: Config) -> ModelSpec:
    """Phi-1 to Phi-2: parallel halves under one norm, biases everywhere, a biased head."""
    config = config.of_class(max_position_embeddings=2048)
    dims = sizes(config)
    own: tuple[Tensor, ...] = ()
    if config.flag("qk_layernorm"):
        own = (
            *parts.norm("self_attn.q_layernorm", dims.head_dim, bias=True),
            *parts.norm("self_attn.k_layernorm", dims.head_dim, bias=True),
        )
    return _phi(
        config,
        dims,
        ("self_attn", ("q_proj", "k_proj", "v_proj", "dense")),
        ("input_layernorm", "final_layernorm", "lm_head", "model.layers"),
        own,
    )


def phi_msft(config: Config) -> ModelSpec:
    """Phi-2 in Microsoft's first form (remote code ``modeling_phi``): GPT-2's keys, one fused Wqkv."""
    dims = sizes(config)
    dims = replace(dims, kv_heads=config.integer("n_head_kv", default=dims.heads))
    check_groups(config, dims.heads, dims.kv_heads, "n_head_kv")
    return _phi(
        config,
        dims,
        ("mixer", _fused("Wqkv", "out_proj")),
        ("ln", "lm_head.ln", "lm_head.linear", "transformer.h"),
    )


def _phi(
    config: Config,
    dims: Sizes,
    attention: tuple[str, tuple[str, str, str, str]],
    names: tuple[str, str, str, str],
    own: Tensors = (),
) -> ModelSpec:
    norm, final, head, layer_names = names
    tensors = (
        *_layer_norm(norm, dims),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=True,
            o_bias=True,
            name=attention[0],
            names=attention[1],
        ),
        *own,
        *parts.mlp(dims.hidden, _inner(config, dims), bias=True, names=("fc1", "fc2")),
    )
    return decoder(
        config,
        dims,
        tensors,
        final=_layer_norm(final, dims),
        lm_head=parts.lm_head(dims.vocab, dims.hidden, bias=True, name=head),
        layer_names=layer_names,
    )


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gptj": gptj,
    "codegen": codegen,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "opt": opt,
    "bloom": bloom,
    "mpt": mpt,
    "falcon": falcon,
    "RefinedWebModel": falcon,
    "RefinedWeb": refined_web,
    "phi": phi,
    "phi-msft": phi_msft,
}
