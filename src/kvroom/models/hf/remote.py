"""Decoders published with code of their own, under keys and module names of their own.

Structure from the published modelling code of each (named in its reader), sizes from its config.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf.common import (
    INNER,
    Sizes,
    check_groups,
    grouped,
    head_dim,
    model,
    sizes,
    stored,
)
from kvroom.models.hf.dense import ModuleNames, decoder, llama_tensors, plain_decoder
from kvroom.models.kinds import HeadedAttention
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.units import ceil_div

INTERNLM2 = ModuleNames(
    norms="attention_norm ffn_norm",
    attention="attention wqkv wqkv wqkv wo",
    mlp="feed_forward w1 w3 w2",
    embedding="tok_embeddings",
    head="output",
)
QWEN = ModuleNames(
    layers="transformer.h",
    norms="ln_1 ln_2",
    attention="attn c_attn c_attn c_attn c_proj",
    mlp="mlp w1 w2 c_proj",
    embedding="wte",
    final="ln_f",
)
CHATGLM = ModuleNames(
    layers="transformer.encoder.layers",
    attention="self_attention query_key_value query_key_value query_key_value dense",
    mlp="mlp dense_h_to_4h dense_h_to_4h dense_4h_to_h",
    embedding="embedding.word_embeddings",
    final="final_layernorm",
    head="output_layer",
)
EXAONE = ModuleNames(
    layers="transformer.h",
    norms="ln_1 ln_2",
    attention="attn.attention q_proj k_proj v_proj out_proj",
    mlp="mlp c_fc_0 c_fc_1 c_proj",
    embedding="wte",
    final="ln_f",
)


def _tower_warning(config: Config, *keys: str) -> tuple[str, ...]:
    if not config.has(*keys):
        return ()
    return (
        f"{config.field(*keys)}: the vision tower of this model is not counted among its weights.",
    )


def baichuan(config: Config) -> ModelSpec:
    """Baichuan 1 and 2: Llama with one fused W_pack; the 13B models use ALiBi (``modeling_baichuan``)."""
    dims = sizes(config)
    names = ("W_pack", "W_pack", "W_pack", "o_proj")
    return decoder(config, dims, llama_tensors(config, dims, names=names))


def internlm(config: Config) -> ModelSpec:
    """InternLM 1: Llama with biases in attention where ``bias`` says so (``modeling_internlm``)."""
    config = config.of_class(bias=True)
    dims = sizes(config)
    return decoder(config, dims, llama_tensors(config, dims, bias=config.flag("bias")))


def internlm2(config: Config) -> ModelSpec:
    """InternLM 2 and 2.5: Llama with a fused wqkv (``modeling_internlm2``)."""
    config = config.of_class(bias=True)
    return plain_decoder(config, sizes(config), INTERNLM2, bias=config.flag("bias"), mlp_bias=False)


def qwen(config: Config) -> ModelSpec:
    """Qwen 1: MHA with biases on query, key and value; w1 and w2 hold half of ``intermediate_size``.

    Structure: ``modeling_qwen``. Heads are ``kv_channels`` wide.
    """
    dims = sizes(config)
    dims = replace(
        dims, kv_heads=dims.heads, head_dim=config.integer("kv_channels", default=dims.head_dim)
    )
    bias = not config.flag("no_bias", default=True)
    return plain_decoder(
        config,
        dims,
        QWEN,
        inner=config.integer(*INNER) // 2,
        bias=True,
        o_bias=bias,
        mlp_bias=bias,
        warnings=_tower_warning(config, "visual"),
    )


def chatglm(config: Config) -> ModelSpec:
    """ChatGLM 2 and 3, GLM-4 9B: multi-query groups, fused projections, keys of Megatron.

    Structure: ``modeling_chatglm``. KV heads are ``multi_query_group_num`` with
    ``multi_query_attention``, else as many as heads; the vocabulary is ``padded_vocab_size``.
    """
    heads = config.integer("num_attention_heads", high=100_000)
    hidden = config.integer("hidden_size")
    kv = heads
    if config.flag("multi_query_attention"):
        kv = config.integer("multi_query_group_num", default=1, high=100_000)
        check_groups(config, heads, kv, "multi_query_group_num")
    dims = Sizes(
        layers=config.integer("num_layers", "num_hidden_layers", high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv,
        head_dim=config.maybe_integer("kv_channels") or head_dim(config, hidden, heads),
        vocab=config.integer("padded_vocab_size", "vocab_size"),
    )
    everywhere = config.flag("add_bias_linear")
    after: dict[str, Any] = {} if config.flag("post_layer_norm", default=True) else {"final": ()}
    return plain_decoder(
        config,
        dims,
        CHATGLM,
        inner=config.integer("ffn_hidden_size"),
        bias=everywhere or config.flag("add_qkv_bias"),
        o_bias=everywhere,
        mlp_bias=everywhere,
        norm_bias=not config.flag("rmsnorm", default=True),
        warnings=_tower_warning(config, "vision_config"),
        **after,
    )


def exaone(config: Config) -> ModelSpec:
    """EXAONE 3 and 3.5: Llama under GPT-2's names (``modeling_exaone``)."""
    return plain_decoder(config, sizes(config), EXAONE)


def deci(config: Config) -> ModelSpec:
    """DeciLM 7B: Llama with a number of KV heads for each layer (``num_key_value_heads_per_layer``)."""
    base = sizes(config)
    default = [base.kv_heads] * base.layers
    heads = config.integers(
        "num_key_value_heads_per_layer", length=base.layers, default=default, low=1
    )
    for kv in set(heads):
        check_groups(config, base.heads, kv, "num_key_value_heads_per_layer")
    layer_of: dict[int, Layer] = {}
    for kv in sorted(set(heads)):
        s = replace(base, kv_heads=kv)
        layer_of[kv] = Layer(stores=(stored(s),), tensors=llama_tensors(config, s))
    return model(
        config,
        [layer_of[kv] for kv in heads],
        hidden=base.hidden,
        vocab=base.vocab,
        q_heads=base.heads,
        kv_heads=max(heads),
    )


def nemotron_nas(config: Config) -> ModelSpec:
    """Llama-Nemotron Super and Ultra: Llama thinned out block by block (Puzzle; ``modeling_decilm``).

    ``block_configs`` gives each layer an attention of heads / ``n_heads_in_group`` KV heads, a linear
    layer in its place, or nothing (``no_op``), and a feed-forward block ``ffn_mult`` wide (two thirds of
    it times the hidden size, up to the next multiple of 256), a linear layer, or nothing. A norm stands
    before each part that is there.
    """
    layers = config.integer("num_hidden_layers", high=MAX_LAYERS)
    base = Sizes(
        layers=layers,
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_attention_heads", high=100_000),
        kv_heads=1,
        head_dim=head_dim(
            config, config.integer("hidden_size"), config.integer("num_attention_heads")
        ),
        vocab=config.integer("vocab_size"),
    )
    config.items("block_configs", length=layers)
    blocks = [_block(config, base, index) for index in range(layers)]
    layer_of: dict[Any, Layer] = {}
    each = [layer_of.setdefault(layer, layer) for layer in blocks]
    stored = [kind for layer in layer_of for kind in layer.stores]
    kv_heads = max((k.kv_heads for k in stored if isinstance(k, HeadedAttention)), default=0)
    return model(
        config,
        each,
        hidden=base.hidden,
        vocab=base.vocab,
        q_heads=base.heads if kv_heads else 0,
        kv_heads=kv_heads,
    )


def _block(config: Config, dims: Sizes, index: int) -> Layer:
    name = f"block_configs[{index}]"
    level = Config({name: config.items("block_configs")[index]}, path=config.path).sub(name)
    attention, ffn = level.sub("attention"), level.sub("ffn")
    stores: tuple[Any, ...] = ()
    tensors: Tensors = ()
    if attention.flag("replace_with_linear"):
        tensors += parts.norm("input_layernorm", dims.hidden)
        tensors += parts.linear("self_attn.linear_attn", dims.hidden, dims.hidden, part="attention")
    elif not attention.flag("no_op"):
        group = attention.integer("n_heads_in_group", default=1, high=100_000)
        check_groups(attention, dims.heads, group, "n_heads_in_group")
        dims = replace(dims, kv_heads=dims.heads // group)
        window = attention.maybe_integer("window_length", low=1, high=10**9)
        stores = (stored(dims, window),)
        bias = config.flag("attention_bias")
        tensors += parts.norm("input_layernorm", dims.hidden)
        tensors += grouped(dims, bias=bias)
    if ffn.flag("replace_with_linear"):
        tensors += parts.norm("post_attention_layernorm", dims.hidden)
        tensors += parts.linear("mlp.linear_mlp", dims.hidden, dims.hidden, part="mlp")
    elif not ffn.flag("no_op"):
        tensors += parts.norm("post_attention_layernorm", dims.hidden)
        tensors += parts.mlp(
            dims.hidden, _ffn_width(ffn, dims.hidden), bias=config.flag("mlp_bias")
        )
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
