"""Attention between short convolutions: RecurrentGemma (Griffin) and LFM2.

RecurrentGemma repeats two recurrent layers (a convolution and a real-gated linear recurrent unit) and one
of windowed attention; LFM2's other layers are gated convolutions only, which keep nothing but their last
inputs. Sources: Griffin arXiv:2402.19427, transformers' ``recurrent_gemma``, ``lfm2`` and ``lfm2_moe``.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.dtypes import FP32
from kvroom.models.hf.common import HIDDEN, INNER, Sizes, model, sizes
from kvroom.models.hf.experts import filled
from kvroom.models.hf.hybrid import block
from kvroom.models.hf.recurrent import Mixer, conv1d, grouped_vector, layer_types, state_dtype
from kvroom.models.kinds import ConvState, FullAttention, RecurrentState, SlidingWindow
from kvroom.models.parts import Tensors
from kvroom.models.spec import ModelSpec
from kvroom.units import ceil_div

W_MODULES = ("w1", "w3", "w2")


def recurrent_gemma(c: Config) -> ModelSpec:
    """RecurrentGemma: ``block_types`` over and over; the feed-forward is half ``intermediate_size``."""
    c = filled(
        c,
        intermediate_size=7680,
        attention_window_size=2048,
        conv1d_width=4,
        block_types=["recurrent", "recurrent", "attention"],
        tie_word_embeddings=True,
    )
    s = sizes(c)
    cycle = layer_types(
        c,
        "block_types",
        length=max(1, len(c.items("block_types"))),
        allowed=("state", "window"),
        known={"recurrent": "state", "attention": "window"},
    )
    window = SlidingWindow(
        kv_heads=s.kv_heads,
        k_dim=s.head_dim,
        v_dim=s.head_dim,
        q_heads=s.heads,
        window=c.integer("attention_window_size", "sliding_window", high=10**9),
    )
    attends = Mixer(
        stores=(window,),
        tensors=parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=c.flag("attention_bias"),
            o_bias=True,
            name="temporal_block",
        ),
    )
    forward = parts.mlp(s.hidden, max(1, c.integer(*INNER) // 2), bias=True, name="mlp_block")
    norms = ("temporal_pre_norm", "channel_pre_norm")
    made = {
        "window": block(s.hidden, attends, forward, norms),
        "state": block(s.hidden, _rg_lru(c, s), forward, norms),
    }
    return model(
        c,
        [made[cycle[i % len(cycle)]] for i in range(s.layers)],
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
        final=parts.norm("final_norm", s.hidden),
    )


def _rg_lru(c: Config, s: Sizes) -> Mixer:
    """The recurrent block: two branches, a convolution, gates that are block-diagonal by head."""
    width = c.integer("lru_width", default=s.hidden)
    if width % s.heads:
        raise KvroomError(
            c.field("lru_width"),
            width,
            f"is not a multiple of {s.heads} attention heads",
            f"Give a multiple of {s.heads}.",
        )
    each = width // s.heads
    kernel = c.integer("conv1d_width", high=1000)
    name = "temporal_block"
    gates = (f"{name}.rg_lru.input_gate", f"{name}.rg_lru.recurrent_gate")
    return Mixer(
        stores=(
            RecurrentState(
                heads=s.heads, head_elements=each, form="rglru", dtype=state_dtype(c, FP32)
            ),
            ConvState(channels=((s.heads, each),), columns=kernel - 1),
        ),
        tensors=(
            *(
                t
                for branch in ("linear_y", "linear_x")
                for t in parts.linear(
                    f"{name}.{branch}",
                    width,
                    s.hidden,
                    part="state",
                    split="column",
                    bias=True,
                    units=s.heads,
                )
            ),
            *conv1d(f"{name}.conv_1d", [(s.heads, each)], kernel, bias=True),
            *grouped_vector(f"{name}.rg_lru.recurrent_param", width, s.heads),
            *(
                t
                for gate in gates
                for t in (
                    *grouped_vector(f"{gate}_weight", width * each, s.heads),
                    *grouped_vector(f"{gate}_bias", width, s.heads),
                )
            ),
            *parts.linear(
                f"{name}.linear_out",
                s.hidden,
                width,
                part="state",
                split="row",
                bias=True,
                units=s.heads,
            ),
        ),
    )


def lfm2(c: Config) -> ModelSpec:
    """LFM2. Its feed-forward width is two thirds of what it says, unless told otherwise.

    ``block_ff_dim`` wins over ``intermediate_size``; with ``block_auto_adjust_ff_dim`` (the default)
    two thirds of it, times ``block_ffn_dim_multiplier``, rounded up to ``block_multiple_of``.
    """
    c = filled(c, num_key_value_heads=8, intermediate_size=12288)
    s = _lfm2_sizes(c)
    inner = c.integer("block_ff_dim", *INNER)
    if c.flag("block_auto_adjust_ff_dim", default=True):
        inner = int(2 * inner / 3)
        if c.raw.get("block_ffn_dim_multiplier", 1.0) is not None:
            inner = int(c.number("block_ffn_dim_multiplier", default=1.0, high=1000.0) * inner)
            step = c.integer("block_multiple_of", default=256)
            inner = step * ceil_div(inner, step)
    forward = parts.mlp(s.hidden, max(1, inner), name="feed_forward", names=W_MODULES)
    return _lfm2(c, s, dense=forward, sparse=forward, first=s.layers)


def lfm2_moe(c: Config) -> ModelSpec:
    """LFM2 with experts in all layers but the first ``num_dense_layers``."""
    c = filled(
        c,
        num_key_value_heads=8,
        intermediate_size=7168,
        moe_intermediate_size=1792,
        num_experts=32,
        num_experts_per_tok=4,
        num_dense_layers=2,
    )
    s = _lfm2_sizes(c)
    count = c.integer("num_experts", "num_local_experts", high=100_000)
    sparse = (
        *parts.router(s.hidden, count, name="feed_forward.gate"),
        *parts.experts(
            s.hidden,
            c.integer("moe_intermediate_size"),
            count,
            c.integer("num_experts_per_tok", high=count),
            name="feed_forward.experts",
            names=W_MODULES,
        ),
    )
    dense = parts.mlp(s.hidden, c.integer(*INNER), name="feed_forward", names=W_MODULES)
    first = c.integer("num_dense_layers", low=0, high=100_000)
    return _lfm2(c, s, dense=dense, sparse=sparse, first=first)


def _lfm2_sizes(c: Config) -> Sizes:
    return sizes(c if c.has(*HIDDEN) else c.with_defaults(hidden_size=c.get("block_dim")))


def _lfm2(c: Config, s: Sizes, *, dense: Tensors, sparse: Tensors, first: int) -> ModelSpec:
    """Layers of either kind before ``first`` with the ``dense`` block, after it the ``sparse`` one."""
    types = layer_types(
        c,
        "layer_types",
        length=s.layers,
        allowed=("conv", "full"),
        default=_full_at(c, s.layers),
    )
    attends = Mixer(
        stores=(
            FullAttention(kv_heads=s.kv_heads, k_dim=s.head_dim, v_dim=s.head_dim, q_heads=s.heads),
        ),
        tensors=(
            *parts.attention(
                s.hidden,
                s.heads,
                s.kv_heads,
                s.head_dim,
                names=("q_proj", "k_proj", "v_proj", "out_proj"),
            ),
            *parts.norm("self_attn.q_layernorm", s.head_dim),
            *parts.norm("self_attn.k_layernorm", s.head_dim),
        ),
    )
    mixers = {"full": attends, "conv": _short_conv(c, s)}
    norms = ("operator_norm", "ffn_norm")
    made = {
        (kind, early): block(s.hidden, mixer, dense if early else sparse, norms)
        for kind, mixer in mixers.items()
        for early in (True, False)
    }
    tied = c.flag("tie_embedding", "tie_word_embeddings", default=True)
    return model(
        c,
        [made[kind, i < first] for i, kind in enumerate(types)],
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
        final=parts.norm("embedding_norm", s.hidden),
        tied=tied,
    )


def _full_at(c: Config, layers: int) -> list[str]:
    if not c.has("full_attn_idxs"):
        return ["full"] * layers
    full = set(c.integers("full_attn_idxs", high=layers - 1))
    return ["full" if i in full else "conv" for i in range(layers)]


def _short_conv(c: Config, s: Sizes) -> Mixer:
    """A convolution between two gates, over the hidden width itself."""
    kernel = c.integer("conv_L_cache", default=3, high=1000)
    bias = c.flag("conv_bias")
    return Mixer(
        stores=(ConvState(channels=((s.hidden, 1),), columns=kernel - 1),),
        tensors=(
            *parts.linear(
                "conv.in_proj", 3 * s.hidden, s.hidden, part="state", split="column", bias=bias
            ),
            *conv1d("conv.conv", [(s.hidden, 1)], kernel, bias=bias),
            *parts.linear(
                "conv.out_proj", s.hidden, s.hidden, part="state", split="row", bias=bias
            ),
        ),
    )


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "recurrent_gemma": recurrent_gemma,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
}
