"""Attention between short convolutions: RecurrentGemma (Griffin) and LFM2.

RecurrentGemma repeats two recurrent layers (a convolution and a real-gated linear recurrent unit) and one
of windowed attention; LFM2's other layers are gated convolutions only, which keep nothing but their last
inputs. Sources: Griffin arXiv:2402.19427, transformers' ``recurrent_gemma``, ``lfm2`` and ``lfm2_moe``.
"""

from __future__ import annotations

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.dtypes import FP32
from kvroom.models.hf.common import HIDDEN, INNER, Sizes, around, grouped, sizes, stored
from kvroom.models.hf.experts import filled
from kvroom.models.hf.hybrid import block
from kvroom.models.hf.recurrent import Mixer, conv1d, grouped_vector, layer_types, state_dtype
from kvroom.models.kinds import ConvState, RecurrentState, SlidingWindow
from kvroom.models.parts import Tensors
from kvroom.models.spec import ModelSpec
from kvroom.units import ceil_div

W_MODULES = ("w1", "w3", "w2")


def recurrent_gemma(config: Config) -> ModelSpec:
    """RecurrentGemma: ``block_types`` over and over; the feed-forward is half ``intermediate_size``."""
    config = filled(
        config,
        intermediate_size=7680,
        attention_window_size=2048,
        conv1d_width=4,
        block_types=["recurrent", "recurrent", "attention"],
        tie_word_embeddings=True,
    )
    dims = sizes(config)
    cycle = layer_types(
        config,
        "block_types",
        length=max(1, len(config.items("block_types"))),
        allowed=("state", "window"),
        known={"recurrent": "state", "attention": "window"},
    )
    window = SlidingWindow(
        kv_heads=dims.kv_heads,
        k_dim=dims.head_dim,
        v_dim=dims.head_dim,
        q_heads=dims.heads,
        window=config.integer("attention_window_size", "sliding_window", high=10**9),
    )
    attends = Mixer(
        stores=(window,),
        tensors=grouped(
            dims, qkv_bias=config.flag("attention_bias"), o_bias=True, name="temporal_block"
        ),
    )
    forward = parts.mlp(
        dims.hidden, max(1, config.integer(*INNER) // 2), bias=True, name="mlp_block"
    )
    norms = ("temporal_pre_norm", "channel_pre_norm")
    layer_of = {
        "window": block(dims.hidden, attends, forward, norms),
        "state": block(dims.hidden, _rg_lru(config, dims), forward, norms),
    }
    return around(
        config,
        dims,
        [layer_of[cycle[index % len(cycle)]] for index in range(dims.layers)],
        final=parts.norm("final_norm", dims.hidden),
    )


def _rg_lru(config: Config, dims: Sizes) -> Mixer:
    """The recurrent block: two branches, a convolution, gates that are block-diagonal by head."""
    width = config.integer("lru_width", default=dims.hidden)
    if width % dims.heads:
        raise KvroomError(
            config.field("lru_width"),
            width,
            f"is not a multiple of {dims.heads} attention heads",
            f"Give a multiple of {dims.heads}.",
        )
    each = width // dims.heads
    kernel = config.integer("conv1d_width", high=1000)
    name = "temporal_block"
    gates = (f"{name}.rg_lru.input_gate", f"{name}.rg_lru.recurrent_gate")
    return Mixer(
        stores=(
            RecurrentState(
                heads=dims.heads, head_elements=each, form="rglru", dtype=state_dtype(config, FP32)
            ),
            ConvState(channels=((dims.heads, each),), columns=kernel - 1),
        ),
        tensors=(
            *(
                t
                for branch in ("linear_y", "linear_x")
                for t in parts.linear(
                    f"{name}.{branch}",
                    width,
                    dims.hidden,
                    part="state",
                    split="column",
                    bias=True,
                    units=dims.heads,
                )
            ),
            *conv1d(f"{name}.conv_1d", [(dims.heads, each)], kernel, bias=True),
            *grouped_vector(f"{name}.rg_lru.recurrent_param", width, dims.heads),
            *(
                t
                for gate in gates
                for t in (
                    *grouped_vector(f"{gate}_weight", width * each, dims.heads),
                    *grouped_vector(f"{gate}_bias", width, dims.heads),
                )
            ),
            *parts.linear(
                f"{name}.linear_out",
                dims.hidden,
                width,
                part="state",
                split="row",
                bias=True,
                units=dims.heads,
            ),
        ),
    )


def lfm2(config: Config) -> ModelSpec:
    """LFM2. Its feed-forward width is two thirds of what it says, unless told otherwise.

    ``block_ff_dim`` wins over ``intermediate_size``; with ``block_auto_adjust_ff_dim`` (the default)
    two thirds of it, times ``block_ffn_dim_multiplier``, rounded up to ``block_multiple_of``.
    """
    config = filled(config, num_key_value_heads=8, intermediate_size=12288)
    s = _lfm2_sizes(config)
    inner = config.integer("block_ff_dim", *INNER)
    if config.flag("block_auto_adjust_ff_dim", default=True):
        inner = int(2 * inner / 3)
        if config.raw.get("block_ffn_dim_multiplier", 1.0) is not None:
            inner = int(config.number("block_ffn_dim_multiplier", default=1.0, high=1000.0) * inner)
            step = config.integer("block_multiple_of", default=256)
            inner = step * ceil_div(inner, step)
    forward = parts.mlp(s.hidden, max(1, inner), name="feed_forward", names=W_MODULES)
    return _lfm2(config, s, dense=forward, sparse=forward, first=s.layers)


def lfm2_moe(config: Config) -> ModelSpec:
    """LFM2 with experts in all layers but the first ``num_dense_layers``."""
    config = filled(
        config,
        num_key_value_heads=8,
        intermediate_size=7168,
        moe_intermediate_size=1792,
        num_experts=32,
        num_experts_per_tok=4,
        num_dense_layers=2,
    )
    s = _lfm2_sizes(config)
    count = config.integer("num_experts", "num_local_experts", high=100_000)
    sparse = (
        *parts.router(s.hidden, count, name="feed_forward.gate"),
        *parts.experts(
            s.hidden,
            config.integer("moe_intermediate_size"),
            count,
            config.integer("num_experts_per_tok", high=count),
            name="feed_forward.experts",
            names=W_MODULES,
        ),
    )
    dense = parts.mlp(s.hidden, config.integer(*INNER), name="feed_forward", names=W_MODULES)
    first = config.integer("num_dense_layers", low=0, high=100_000)
    return _lfm2(config, s, dense=dense, sparse=sparse, first=first)


def _lfm2_sizes(config: Config) -> Sizes:
    return sizes(
        config if config.has(*HIDDEN) else config.with_defaults(hidden_size=config.get("block_dim"))
    )


def _lfm2(config: Config, dims: Sizes, *, dense: Tensors, sparse: Tensors, first: int) -> ModelSpec:
    """Layers of either kind before ``first`` with the ``dense`` block, after it the ``sparse`` one."""
    types = layer_types(
        config,
        "layer_types",
        length=dims.layers,
        allowed=("conv", "full"),
        default=_full_at(config, dims.layers),
    )
    attends = Mixer(
        stores=(stored(dims),),
        tensors=(
            *grouped(dims, names=("q_proj", "k_proj", "v_proj", "out_proj")),
            *parts.norm("self_attn.q_layernorm", dims.head_dim),
            *parts.norm("self_attn.k_layernorm", dims.head_dim),
        ),
    )
    mixers = {"full": attends, "conv": _short_conv(config, dims)}
    norms = ("operator_norm", "ffn_norm")
    layer_of = {
        (kind, early): block(dims.hidden, mixer, dense if early else sparse, norms)
        for kind, mixer in mixers.items()
        for early in (True, False)
    }
    tied = config.flag("tie_embedding", "tie_word_embeddings", default=True)
    return around(
        config,
        dims,
        [layer_of[kind, index < first] for index, kind in enumerate(types)],
        final=parts.norm("embedding_norm", dims.hidden),
        tied=tied,
    )


def _full_at(config: Config, layers: int) -> list[str]:
    if not config.has("full_attn_idxs"):
        return ["full"] * layers
    full = set(config.integers("full_attn_idxs", high=layers - 1))
    return ["full" if index in full else "conv" for index in range(layers)]


def _short_conv(config: Config, dims: Sizes) -> Mixer:
    """A convolution between two gates, over the hidden width itself."""
    kernel = config.integer("conv_L_cache", default=3, high=1000)
    bias = config.flag("conv_bias")
    return Mixer(
        stores=(ConvState(channels=((dims.hidden, 1),), columns=kernel - 1),),
        tensors=(
            *parts.linear(
                "conv.in_proj",
                3 * dims.hidden,
                dims.hidden,
                part="state",
                split="column",
                bias=bias,
            ),
            *conv1d("conv.conv", [(dims.hidden, 1)], kernel, bias=bias),
            *parts.linear(
                "conv.out_proj", dims.hidden, dims.hidden, part="state", split="row", bias=bias
            ),
        ),
    )
