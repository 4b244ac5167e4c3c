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


def _layer_norm(name: str, s: Sizes) -> Tensors:
    return parts.norm(name, s.hidden, bias=True)


def _inner(c: Config, s: Sizes) -> int:
    return c.integer(*INNER, default=4 * s.hidden)


def _rows(c: Config) -> int:
    """Positions that a learned table has."""
    return c.integer("n_positions", "max_position_embeddings", "n_ctx")


def gpt2(c: Config) -> ModelSpec:
    """GPT-2: learned positions, tied embeddings, one fused projection, biases everywhere."""
    return _gpt2(c.of_class(tie_word_embeddings=True, n_positions=1024), sizes(c))


def gpt_bigcode(c: Config) -> ModelSpec:
    """StarCoder and SantaCoder: GPT-2 with one KV head for all (``multi_query``)."""
    c = c.of_class(tie_word_embeddings=True, n_positions=1024, multi_query=True)
    s = sizes(c)
    return _gpt2(c, replace(s, kv_heads=1 if c.flag("multi_query") else s.heads))


def _gpt2(c: Config, s: Sizes) -> ModelSpec:
    tensors = (
        *_layer_norm("ln_1", s),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=True,
            o_bias=True,
            name="attn",
            names=_fused("c_attn", "c_proj"),
        ),
        *_layer_norm("ln_2", s),
        *parts.mlp(s.hidden, _inner(c, s), bias=True, names=("c_fc", "c_proj")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=(
            *parts.embedding(s.vocab, s.hidden, "wte"),
            *parts.positions(_rows(c), s.hidden, "wpe"),
        ),
        final=_layer_norm("ln_f", s),
        layer_names="transformer.h",
    )


def gptj(c: Config) -> ModelSpec:
    """GPT-J: parallel halves under one norm, no biases in attention, a biased head of its own."""
    return _parallel(c, ("q_proj", "k_proj", "v_proj", "out_proj"))


def codegen(c: Config) -> ModelSpec:
    """CodeGen: GPT-J with a fused projection."""
    return _parallel(c, _fused("qkv_proj", "out_proj"))


def _parallel(c: Config, names: tuple[str, str, str, str]) -> ModelSpec:
    c = c.of_class(n_positions=2048)
    s = sizes(c)
    tensors = (
        *_layer_norm("ln_1", s),
        *parts.attention(s.hidden, s.heads, s.kv_heads, s.head_dim, name="attn", names=names),
        *parts.mlp(s.hidden, _inner(c, s), bias=True, names=("fc_in", "fc_out")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, s.hidden, "wte"),
        final=_layer_norm("ln_f", s),
        lm_head=parts.lm_head(s.vocab, s.hidden, bias=True),
        layer_names="transformer.h",
    )


def gpt_neo(c: Config) -> ModelSpec:
    """GPT-Neo: GPT-2 with separate projections; every second layer looks back ``window_size`` only."""
    c = c.of_class(tie_word_embeddings=True, window_size=256, max_position_embeddings=2048)
    s = sizes(c)
    tensors = (
        *_layer_norm("ln_1", s),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            o_bias=True,
            name="attn.attention",
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
        ),
        *_layer_norm("ln_2", s),
        *parts.mlp(s.hidden, _inner(c, s), bias=True, names=("c_fc", "c_proj")),
    )
    return decoder(
        c,
        s,
        tensors,
        window=c.integer("window_size", high=10**9),
        sliding=_local(c, s.layers),
        embedding=(
            *parts.embedding(s.vocab, s.hidden, "wte"),
            *parts.positions(_rows(c), s.hidden, "wpe"),
        ),
        final=_layer_norm("ln_f", s),
        layer_names="transformer.h",
    )


def _local(c: Config, layers: int) -> list[bool]:
    """``attention_types`` is [[["global", "local"], 12], …]: a pattern and how often it repeats."""
    if c.has("attention_layers") and not c.has("attention_types"):
        return [kind == "local" for kind in c.items("attention_layers", length=layers)]
    kinds: list[Any] = []
    default = [[["global", "local"], (layers + 1) // 2]]
    for group in c.items("attention_types", default=default):
        try:
            pattern, times = group
            kinds += list(pattern) * min(int(times), layers)
        except (TypeError, ValueError):
            raise KvroomError(
                c.field("attention_types"),
                group,
                "is not a pattern with its number of repeats",
                'Write [["global", "local"], 12].',
            ) from None
    if len(kinds) < layers:
        raise KvroomError(
            c.field("attention_types"),
            c.get("attention_types"),
            f"describes {len(kinds)} of {layers} layers",
            "Give one entry for each layer.",
        )
    return [kind == "local" for kind in kinds[:layers]]


def gpt_neox(c: Config) -> ModelSpec:
    """GPT-NeoX, Pythia, RedPajama-INCITE: rotary positions, two norms, an untied head."""
    c = c.of_class(attention_bias=True, max_position_embeddings=2048)
    s = sizes(c)
    bias = c.flag("attention_bias")
    tensors = (
        *_layer_norm("input_layernorm", s),
        *_layer_norm("post_attention_layernorm", s),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attention",
            names=_fused("query_key_value", "dense"),
        ),
        *parts.mlp(s.hidden, _inner(c, s), bias=True, names=("dense_h_to_4h", "dense_4h_to_h")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, s.hidden, "embed_in"),
        final=_layer_norm("final_layer_norm", s),
        lm_head=parts.lm_head(s.vocab, s.hidden, name="embed_out"),
        layer_names="gpt_neox.layers",
    )


def opt(c: Config) -> ModelSpec:
    """OPT: learned positions with two rows to spare, tied embeddings.

    The 350M model embeds in ``word_embed_proj_dim`` numbers and projects in and out, and norms after
    each half (``do_layer_norm_before`` false), so that it has no final norm.
    """
    c = c.of_class(
        tie_word_embeddings=True,
        do_layer_norm_before=True,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
        max_position_embeddings=2048,
    )
    s = sizes(c)
    narrow = c.integer("word_embed_proj_dim", default=s.hidden)
    bias = c.flag("enable_bias")
    affine = c.flag("layer_norm_elementwise_affine")
    tensors = (
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
        ),
        *(_layer_norm("self_attn_layer_norm", s) if affine else ()),
        *parts.mlp(s.hidden, c.integer(*INNER), bias=bias, name="", names=("fc1", "fc2")),
        *(_layer_norm("final_layer_norm", s) if affine else ()),
    )
    embedding = (
        *parts.embedding(s.vocab, narrow),
        *parts.positions(_rows(c) + 2, s.hidden),
    )
    final: Tensors = ()
    if c.flag("do_layer_norm_before") and not c.flag("_remove_final_layer_norm") and affine:
        final = _layer_norm("final_layer_norm", s)
    if narrow != s.hidden:
        embedding += parts.linear("project_in", s.hidden, narrow, part="mlp")
        final += parts.linear("project_out", narrow, s.hidden, part="mlp")
    return decoder(
        c,
        s,
        tensors,
        embedding=embedding,
        final=final,
        lm_head=parts.lm_head(s.vocab, narrow),
        layer_names="model.decoder.layers",
    )


def bloom(c: Config) -> ModelSpec:
    """BLOOM: ALiBi instead of positions, a norm after the embedding, tied."""
    c = c.of_class(tie_word_embeddings=True)
    s = sizes(c)
    tensors = (
        *_layer_norm("input_layernorm", s),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=True,
            o_bias=True,
            name="self_attention",
            names=_fused("query_key_value", "dense"),
        ),
        *_layer_norm("post_attention_layernorm", s),
        *parts.mlp(s.hidden, 4 * s.hidden, bias=True, names=("dense_h_to_4h", "dense_4h_to_h")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=(
            *parts.embedding(s.vocab, s.hidden, "word_embeddings"),
            *_layer_norm("word_embeddings_layernorm", s),
        ),
        final=_layer_norm("ln_f", s),
        layer_names="transformer.h",
    )


def mpt(c: Config) -> ModelSpec:
    """MPT: tied embeddings, no biases unless ``no_bias`` is false, ALiBi or learned positions.

    ``attn_config`` may give fewer KV heads (``kv_n_heads``, or one with ``multiquery_attention``), norm
    queries and keys (``qk_ln``) and switch ALiBi off (MosaicML's llm-foundry).
    """
    c = c.of_class(tie_word_embeddings=True, no_bias=True, learned_pos_emb=True)
    s = sizes(c)
    attn = c.sub("attn_config", alibi=True)
    one = attn.text("attn_type") == "multiquery_attention"
    s = replace(s, kv_heads=attn.integer("kv_n_heads", default=1 if one else s.heads))
    check_groups(attn, s.heads, s.kv_heads, "kv_n_heads")
    bias = not c.flag("no_bias")
    inner = int(c.number("expansion_ratio", default=4, low=0.01, high=1000) * s.hidden)
    widths = (("attn.q_ln", s.heads), ("attn.k_ln", s.kv_heads)) if attn.flag("qk_ln") else ()
    tensors = (
        *parts.norm("norm_1", s.hidden, bias=bias),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attn",
            names=_fused("Wqkv", "out_proj"),
        ),
        *(t for name, n in widths for t in parts.norm(name, n * s.head_dim, bias=bias)),
        *parts.norm("norm_2", s.hidden, bias=bias),
        *parts.mlp(s.hidden, inner, bias=bias, gated=False, name="ffn"),
    )
    embedding = parts.embedding(s.vocab, s.hidden, "wte")
    if c.flag("learned_pos_emb") and not attn.flag("alibi") and not attn.flag("rope"):
        embedding += parts.positions(
            c.integer("max_seq_len", default=2048, high=10**9), s.hidden, "wpe"
        )
    return decoder(
        c,
        s,
        tensors,
        embedding=embedding,
        final=parts.norm("norm_f", s.hidden, bias=bias),
        layer_names="transformer.blocks",
    )


def falcon(c: Config) -> ModelSpec:
    """Falcon, in its three layouts.

    ``new_decoder_architecture`` (40B, 180B, 11B): ``num_kv_heads`` and two norms before parallel halves,
    or one (``num_ln_in_parallel_attn``). ``multi_query`` (7B): one KV head, one norm. Neither (RW): as
    many KV heads as query heads. Without ``parallel_attn`` the second half has its own norm.
    """
    return _falcon(c, c.flag("new_decoder_architecture"))


def refined_web(c: Config) -> ModelSpec:
    """Falcon 40B under its first name, which implied the new layout."""
    return _falcon(c, c.flag("new_decoder_architecture", default=True))


def _falcon(c: Config, new: bool) -> ModelSpec:
    c = c.of_class(
        tie_word_embeddings=True,
        multi_query=True,
        parallel_attn=True,
        max_position_embeddings=2048,
    )
    s = sizes(c)
    if new:
        s = replace(s, kv_heads=c.integer("num_kv_heads", "n_head_kv", default=s.heads))
        check_groups(c, s.heads, s.kv_heads, "num_kv_heads", "n_head_kv")
    else:
        s = replace(s, kv_heads=1 if c.flag("multi_query") else s.heads)
    bias = c.flag("bias")
    names: tuple[str, ...] = ("input_layernorm",)
    if not c.flag("parallel_attn"):
        names = ("input_layernorm", "post_attention_layernorm")
    elif c.integer("num_ln_in_parallel_attn", default=2 if new else 1) == 2:
        names = ("ln_attn", "ln_mlp")
    tensors = (
        *(t for name in names for t in _layer_norm(name, s)),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="self_attention",
            names=_fused("query_key_value", "dense"),
        ),
        *parts.mlp(s.hidden, _inner(c, s), bias=bias, names=("dense_h_to_4h", "dense_4h_to_h")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, s.hidden, "word_embeddings"),
        final=_layer_norm("ln_f", s),
        layer_names="transformer.h",
    )


def phi(c: Config) -> ModelSpec:
    """Phi-1 to Phi-2: parallel halves under one norm, biases everywhere, a biased head."""
    c = c.of_class(max_position_embeddings=2048)
    s = sizes(c)
    own: tuple[Tensor, ...] = ()
    if c.flag("qk_layernorm"):
        own = (
            *parts.norm("self_attn.q_layernorm", s.head_dim, bias=True),
            *parts.norm("self_attn.k_layernorm", s.head_dim, bias=True),
        )
    return _phi(
        c,
        s,
        ("self_attn", ("q_proj", "k_proj", "v_proj", "dense")),
        ("input_layernorm", "final_layernorm", "lm_head", "model.layers"),
        own,
    )


def phi_msft(c: Config) -> ModelSpec:
    """Phi-2 in Microsoft's first form (remote code ``modeling_phi``): GPT-2's keys, one fused Wqkv."""
    s = sizes(c)
    s = replace(s, kv_heads=c.integer("n_head_kv", default=s.heads))
    check_groups(c, s.heads, s.kv_heads, "n_head_kv")
    return _phi(
        c,
        s,
        ("mixer", _fused("Wqkv", "out_proj")),
        ("ln", "lm_head.ln", "lm_head.linear", "transformer.h"),
    )


def _phi(
    c: Config,
    s: Sizes,
    attention: tuple[str, tuple[str, str, str, str]],
    names: tuple[str, str, str, str],
    own: Tensors = (),
) -> ModelSpec:
    norm, final, head, layer_names = names
    tensors = (
        *_layer_norm(norm, s),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=True,
            o_bias=True,
            name=attention[0],
            names=attention[1],
        ),
        *own,
        *parts.mlp(s.hidden, _inner(c, s), bias=True, names=("fc1", "fc2")),
    )
    return decoder(
        c,
        s,
        tensors,
        final=_layer_norm(final, s),
        lm_head=parts.lm_head(s.vocab, s.hidden, bias=True, name=head),
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
