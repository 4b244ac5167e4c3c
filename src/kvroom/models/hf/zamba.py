"""Zamba: Mamba layers with one or two attention blocks that many of them share.

A *hybrid* layer runs a shared transformer block on the layer's input beside the embeddings (twice the
hidden width), brings it back through its own ``linear``, then its own Mamba. The shared block weighs
once; every place where it is used keeps its own keys and values. Sources: Zamba arXiv:2405.16712,
Zamba2 arXiv:2411.15242, transformers' classes of the same names.
"""

from __future__ import annotations

from dataclasses import replace

from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf.common import HEADS, HIDDEN, INNER, LAYERS, check_groups, model
from kvroom.models.hf.experts import filled
from kvroom.models.hf.recurrent import (
    Mixer,
    dt_rank,
    expanded,
    grouped_vector,
    layer_types,
    mamba1,
    mamba2,
    mamba_heads,
    state_dtype,
)
from kvroom.models.kinds import FullAttention
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Part

SHARED_WARNING = (
    "a shared attention block is counted once, in the first layer that uses it; pipeline stages that "
    "use it later hold a copy"
)


def zamba(config: Config) -> ModelSpec:
    """Zamba: one shared block, Mamba in ``n_mamba_heads`` heads with their own x and dt projections."""
    config = filled(
        config,
        intermediate_size=14848,
        num_key_value_heads=16,
        n_mamba_heads=2,
        mamba_d_state=16,
        mamba_d_conv=4,
        tie_word_embeddings=True,
    )
    hidden = config.integer(*HIDDEN)
    layers = config.integer(*LAYERS, high=MAX_LAYERS)
    inner = expanded(config, hidden, "mamba_expand")
    heads, _ = mamba_heads(config, inner, ("n_mamba_heads",), ())
    rank = dt_rank(config, "mamba_dt_rank", hidden)
    state = config.integer("mamba_d_state", high=100_000)
    mixer = mamba1(
        hidden,
        inner=inner,
        state=state,
        rank=rank,
        kernel=config.integer("mamba_d_conv", high=1000),
        name="mamba",
        conv_bias=config.flag("mamba_conv_bias", default=True),
        proj_bias=config.flag("mamba_proj_bias"),
        dtype=state_dtype(config),
    )
    own = {
        # as stored: one matrix a head, (heads, …) in all
        "mamba.x_proj": grouped_vector("mamba.x_proj_weight", (rank + 2 * state) * inner, heads),
        "mamba.dt_proj": grouped_vector("mamba.dt_proj_weight", inner * rank, heads),
    }
    mixer = replace(
        mixer, tensors=tuple(u for tensor in mixer.tensors for u in own.get(tensor.name, (tensor,)))
    )
    period = config.integer("attn_layer_period", default=6, high=MAX_LAYERS)
    offset = config.integer("attn_layer_offset", default=4, low=0, high=MAX_LAYERS)
    pattern = ["state", "state", "hybrid"] + [
        "hybrid" if index % period == offset else "state" for index in range(max(0, layers - 3))
    ]
    forward = parts.mlp(hidden, config.integer(*INNER), name="shared_transf.feed_forward")
    return _zamba(
        config,
        hidden,
        mixer,
        forward,
        layers=layers,
        pattern=pattern,
        blocks=1,
        name="shared_transf",
    )


def zamba2(config: Config) -> ModelSpec:
    """Zamba2: Mamba-2, ``num_mem_blocks`` shared blocks in turn, low-rank adapters for each use.

    The feed-forward adapters are always there, those of query, key and value only with
    ``use_shared_attention_adapter``.
    """
    config = filled(
        config,
        n_mamba_heads=8,
        mamba_ngroups=1,
        mamba_d_state=64,
        mamba_d_conv=4,
        chunk_size=256,
        num_mem_blocks=1,
        adapter_rank=128,
        tie_word_embeddings=True,
    )
    hidden = config.integer(*HIDDEN)
    layers = config.integer(*LAYERS, high=MAX_LAYERS)
    heads, head_dim = mamba_heads(
        config, expanded(config, hidden, "mamba_expand"), ("n_mamba_heads",), ("mamba_headdim",)
    )
    bias = config.flag("add_bias_linear")
    mixer = mamba2(
        hidden,
        heads=heads,
        head_dim=head_dim,
        groups=config.integer("mamba_ngroups", high=100_000),
        state=config.integer("mamba_d_state", high=100_000),
        kernel=config.integer("mamba_d_conv", high=1000),
        name="mamba",
        in_bias=bias,
        out_bias=bias,
        dtype=state_dtype(config),
    )
    inner = config.integer(*INNER, default=4 * hidden)
    rank = config.integer("adapter_rank")
    mlp = "shared_transformer.feed_forward"
    fused = ("gate_up_proj", "gate_up_proj", "down_proj")
    forward = parts.mlp(hidden, inner, bias=bias, name=mlp, names=fused)
    adapters = _adapter(f"{mlp}.gate_up_proj_adapter_list", hidden, rank, 2 * inner, "mlp")
    if config.flag("use_shared_attention_adapter"):
        wide = config.integer("attention_hidden_size", default=2 * hidden)
        for which in "qkv":
            at = f"shared_transformer.self_attn.linear_{which}_adapter_list"
            adapters += _adapter(at, wide, rank, wide, "attention")
    pattern = ["state", *(["state"] * 5 + ["hybrid"]) * 7, *["state"] * 4, "hybrid"]
    pattern += [*["state"] * 3, "hybrid", "state", "state"]
    blocks = config.integer("num_mem_blocks", high=100_000)
    return _zamba(
        config,
        hidden,
        mixer,
        forward,
        layers=layers,
        pattern=pattern,
        blocks=blocks,
        name="shared_transformer",
        adapters=adapters,
    )


def _adapter(name: str, into: int, rank: int, out: int, part: Part) -> Tensors:
    return (
        *parts.linear(f"{name}.0", rank, into, part=part),
        *parts.linear(f"{name}.1", out, rank, part=part, split="column"),
    )


def _zamba(
    config: Config,
    hidden: int,
    mixer: Mixer,
    forward: Tensors,
    *,
    layers: int,
    pattern: list[str],
    blocks: int,
    name: str,
    adapters: Tensors = (),
) -> ModelSpec:
    wide = config.integer("attention_hidden_size", default=2 * hidden)
    heads = config.integer(*HEADS, high=100_000)
    kv_heads = config.integer("num_key_value_heads", default=heads, high=100_000)
    check_groups(config, heads, kv_heads)
    head_dim = config.integer("attention_head_dim", "head_dim", default=max(1, 2 * hidden // heads))
    at = f"{name}.self_attn"
    attention = (
        *parts.linear(
            f"{at}.q_proj", heads * head_dim, wide, part="attention", split="column", units=heads
        ),
        *(
            t
            for which in ("k_proj", "v_proj")
            for t in parts.linear(
                f"{at}.{which}",
                kv_heads * head_dim,
                wide,
                part="attention",
                split="kv",
                units=kv_heads,
            )
        ),
        *parts.linear(
            f"{at}.o_proj", hidden, heads * head_dim, part="attention", split="row", units=heads
        ),
    )
    shared = (
        *parts.norm(f"{name}.input_layernorm", wide),
        *attention,
        *parts.norm(f"{name}.pre_ff_layernorm", hidden),
        *forward,
    )
    own = (*parts.norm("input_layernorm", hidden), *mixer.tensors)
    back = parts.linear("linear", hidden, hidden, part="attention")
    cache = FullAttention(kv_heads=kv_heads, k_dim=head_dim, v_dim=head_dim, q_heads=heads)
    stores = (cache, *mixer.stores)
    first = Layer(stores=stores, tensors=(*shared, *adapters, *back, *own))
    again = Layer(stores=stores, tensors=(*adapters, *back, *own))
    plain = Layer(stores=mixer.stores, tensors=own)
    types = layer_types(
        config,
        "layers_block_type",
        "layer_types",
        length=layers,
        allowed=("state", "hybrid"),
        default=pattern if len(pattern) == layers else None,
    )
    each: list[Layer] = []
    uses = 0
    for kind in types:
        if kind == "state":
            each.append(plain)
            continue
        each.append(first if uses < blocks else again)
        uses += 1
    return model(
        config,
        each,
        hidden=hidden,
        vocab=config.integer("vocab_size"),
        q_heads=heads,
        kv_heads=kv_heads,
        final=parts.norm("final_layernorm", hidden),
        warnings=(SHARED_WARNING,) if uses > blocks else (),
    )
