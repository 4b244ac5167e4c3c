"""Decoders published with code of their own, under keys and module names of their own.

Structure from the published modelling code of each (named in its reader), sizes from its config.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf.common import INNER, Sizes, check_groups, head_dim, model, sizes
from kvroom.models.hf.dense import decoder, kind_of, llama_tensors
from kvroom.models.kinds import HeadedAttention
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.units import ceil_div


def _tower_warning(c: Config, *keys: str) -> tuple[str, ...]:
    if not c.has(*keys):
        return ()
    return (f"{c.field(*keys)}: the vision tower of this model is not counted among its weights.",)


def baichuan(c: Config) -> ModelSpec:
    """Baichuan 1 and 2: Llama with one fused W_pack; the 13B models use ALiBi (``modeling_baichuan``)."""
    s = sizes(c)
    names = ("W_pack", "W_pack", "W_pack", "o_proj")
    return decoder(c, s, llama_tensors(c, s, names=names))


def internlm(c: Config) -> ModelSpec:
    """InternLM 1: Llama with biases in attention where ``bias`` says so (``modeling_internlm``)."""
    c = c.of_class(bias=True)
    s = sizes(c)
    return decoder(c, s, llama_tensors(c, s, qkv_bias=c.flag("bias"), o_bias=c.flag("bias")))


def internlm2(c: Config) -> ModelSpec:
    """InternLM 2 and 2.5: Llama with a fused wqkv (``modeling_internlm2``)."""
    c = c.of_class(bias=True)
    s = sizes(c)
    bias = c.flag("bias")
    tensors = (
        *parts.norm("attention_norm", s.hidden),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attention",
            names=("wqkv", "wqkv", "wqkv", "wo"),
        ),
        *parts.norm("ffn_norm", s.hidden),
        *parts.mlp(s.hidden, c.integer(*INNER), name="feed_forward", names=("w1", "w3", "w2")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, s.hidden, "tok_embeddings"),
        lm_head=parts.lm_head(s.vocab, s.hidden, name="output"),
    )


def qwen(c: Config) -> ModelSpec:
    """Qwen 1: MHA with biases on query, key and value; w1 and w2 hold half of ``intermediate_size``.

    Structure: ``modeling_qwen``. Heads are ``kv_channels`` wide.
    """
    s = sizes(c)
    s = replace(s, kv_heads=s.heads, head_dim=c.integer("kv_channels", default=s.head_dim))
    bias = not c.flag("no_bias", default=True)
    tensors = (
        *parts.norm("ln_1", s.hidden),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=True,
            o_bias=bias,
            name="attn",
            names=("c_attn", "c_attn", "c_attn", "c_proj"),
        ),
        *parts.norm("ln_2", s.hidden),
        *parts.mlp(s.hidden, c.integer(*INNER) // 2, bias=bias, names=("w1", "w2", "c_proj")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, s.hidden, "wte"),
        final=parts.norm("ln_f", s.hidden),
        layer_names="transformer.h",
        warnings=_tower_warning(c, "visual"),
    )


def chatglm(c: Config) -> ModelSpec:
    """ChatGLM 2 and 3, GLM-4 9B: multi-query groups, fused projections, keys of Megatron.

    Structure: ``modeling_chatglm``. KV heads are ``multi_query_group_num`` with
    ``multi_query_attention``, else as many as heads; the vocabulary is ``padded_vocab_size``.
    """
    heads = c.integer("num_attention_heads", high=100_000)
    hidden = c.integer("hidden_size")
    kv = heads
    if c.flag("multi_query_attention"):
        kv = c.integer("multi_query_group_num", default=1, high=100_000)
        check_groups(c, heads, kv, "multi_query_group_num")
    s = Sizes(
        layers=c.integer("num_layers", "num_hidden_layers", high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv,
        head_dim=c.maybe_integer("kv_channels") or head_dim(c, hidden, heads),
        vocab=c.integer("padded_vocab_size", "vocab_size"),
    )
    everywhere = c.flag("add_bias_linear")
    shift = not c.flag("rmsnorm", default=True)
    tensors = (
        *parts.norm("input_layernorm", hidden, bias=shift),
        *parts.attention(
            hidden,
            heads,
            kv,
            s.head_dim,
            qkv_bias=everywhere or c.flag("add_qkv_bias"),
            o_bias=everywhere,
            name="self_attention",
            names=("query_key_value", "query_key_value", "query_key_value", "dense"),
        ),
        *parts.norm("post_attention_layernorm", hidden, bias=shift),
        *parts.mlp(
            hidden,
            c.integer("ffn_hidden_size"),
            bias=everywhere,
            names=("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
        ),
    )
    after = c.flag("post_layer_norm", default=True)
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, hidden, "embedding.word_embeddings"),
        final=parts.norm("final_layernorm", hidden, bias=shift) if after else (),
        lm_head=parts.lm_head(s.vocab, hidden, name="output_layer"),
        layer_names="transformer.encoder.layers",
        warnings=_tower_warning(c, "vision_config"),
    )


def exaone(c: Config) -> ModelSpec:
    """EXAONE 3 and 3.5: Llama under GPT-2's names (``modeling_exaone``)."""
    s = sizes(c)
    tensors = (
        *parts.norm("ln_1", s.hidden),
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            name="attn.attention",
            names=("q_proj", "k_proj", "v_proj", "out_proj"),
        ),
        *parts.norm("ln_2", s.hidden),
        *parts.mlp(s.hidden, c.integer(*INNER), names=("c_fc_0", "c_fc_1", "c_proj")),
    )
    return decoder(
        c,
        s,
        tensors,
        embedding=parts.embedding(s.vocab, s.hidden, "wte"),
        final=parts.norm("ln_f", s.hidden),
        layer_names="transformer.h",
    )


def deci(c: Config) -> ModelSpec:
    """DeciLM 7B: Llama with a number of KV heads for each layer (``num_key_value_heads_per_layer``)."""
    base = sizes(c)
    default = [base.kv_heads] * base.layers
    heads = c.integers("num_key_value_heads_per_layer", length=base.layers, default=default, low=1)
    for kv in set(heads):
        check_groups(c, base.heads, kv, "num_key_value_heads_per_layer")
    made: dict[int, Layer] = {}
    for kv in sorted(set(heads)):
        s = replace(base, kv_heads=kv)
        made[kv] = Layer(stores=(kind_of(s),), tensors=llama_tensors(c, s))
    return model(
        c,
        [made[kv] for kv in heads],
        hidden=base.hidden,
        vocab=base.vocab,
        q_heads=base.heads,
        kv_heads=max(heads),
    )


def nemotron_nas(c: Config) -> ModelSpec:
    """Llama-Nemotron Super and Ultra: Llama thinned out block by block (Puzzle; ``modeling_decilm``).

    ``block_configs`` gives each layer an attention of heads / ``n_heads_in_group`` KV heads, a linear
    layer in its place, or nothing (``no_op``), and a feed-forward block ``ffn_mult`` wide (two thirds of
    it times the hidden size, up to the next multiple of 256), a linear layer, or nothing. A norm stands
    before each part that is there.
    """
    layers = c.integer("num_hidden_layers", high=MAX_LAYERS)
    base = Sizes(
        layers=layers,
        hidden=c.integer("hidden_size"),
        heads=c.integer("num_attention_heads", high=100_000),
        kv_heads=1,
        head_dim=head_dim(c, c.integer("hidden_size"), c.integer("num_attention_heads")),
        vocab=c.integer("vocab_size"),
    )
    c.items("block_configs", length=layers)
    blocks = [_block(c, base, i) for i in range(layers)]
    made: dict[Any, Layer] = {}
    each = [made.setdefault(layer, layer) for layer in blocks]
    stored = [kind for layer in made for kind in layer.stores]
    kv_heads = max((k.kv_heads for k in stored if isinstance(k, HeadedAttention)), default=0)
    return model(
        c,
        each,
        hidden=base.hidden,
        vocab=base.vocab,
        q_heads=base.heads if kv_heads else 0,
        kv_heads=kv_heads,
    )


def _block(c: Config, s: Sizes, index: int) -> Layer:
    name = f"block_configs[{index}]"
    level = Config({name: c.items("block_configs")[index]}, path=c.path).sub(name)
    attention, ffn = level.sub("attention"), level.sub("ffn")
    stores: tuple[Any, ...] = ()
    tensors: Tensors = ()
    if attention.flag("replace_with_linear"):
        tensors += parts.norm("input_layernorm", s.hidden)
        tensors += parts.linear("self_attn.linear_attn", s.hidden, s.hidden, part="attention")
    elif not attention.flag("no_op"):
        group = attention.integer("n_heads_in_group", default=1, high=100_000)
        check_groups(attention, s.heads, group, "n_heads_in_group")
        s = replace(s, kv_heads=s.heads // group)
        window = attention.maybe_integer("window_length", low=1, high=10**9)
        stores = (kind_of(s, window),)
        bias = c.flag("attention_bias")
        tensors += parts.norm("input_layernorm", s.hidden)
        tensors += parts.attention(
            s.hidden, s.heads, s.kv_heads, s.head_dim, qkv_bias=bias, o_bias=bias
        )
    if ffn.flag("replace_with_linear"):
        tensors += parts.norm("post_attention_layernorm", s.hidden)
        tensors += parts.linear("mlp.linear_mlp", s.hidden, s.hidden, part="mlp")
    elif not ffn.flag("no_op"):
        tensors += parts.norm("post_attention_layernorm", s.hidden)
        tensors += parts.mlp(s.hidden, _ffn_width(ffn, s.hidden), bias=c.flag("mlp_bias"))
    return Layer(stores=stores, tensors=tensors)


def _ffn_width(ffn: Config, hidden: int) -> int:
    if ffn.has("intermediate_size"):
        return ffn.integer("intermediate_size")
    if not ffn.has("ffn_mult"):
        raise KvroomError(
            ffn.field("ffn_mult"), None, "is missing from the model's config", "Add it."
        )
    mult = ffn.number("ffn_mult", default=1.0, low=1e-4, high=1000)
    return ceil_div(int(2 * mult * hidden / 3), 256) * 256


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "baichuan": baichuan,
    "internlm": internlm,
    "internlm2": internlm2,
    "qwen": qwen,
    "chatglm": chatglm,
    "exaone": exaone,
    "deci": deci,
    "nemotron-nas": nemotron_nas,
}
