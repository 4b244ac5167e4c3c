"""Hybrids of attention and Mamba with a feed-forward block in every layer.

Jamba, Bamba, Granite 4 hybrid: most layers mix with Mamba, a few with attention. Falcon-H1: each layer
does both side by side. Sources: transformers' classes of the same names; Jamba arXiv:2403.19887,
Falcon-H1 arXiv:2507.22448.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, model, sizes
from kvroom.models.hf.experts import filled
from kvroom.models.hf.recurrent import (
    Mixer,
    dt_rank,
    expanded,
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


def jamba(c: Config) -> ModelSpec:
    """Jamba: attention each ``attn_layer_period``, experts each ``expert_layer_period``, Mamba else."""
    c = filled(
        c,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_d_state=16,
        mamba_d_conv=4,
    )
    s = sizes(c)
    inner = c.integer(*INNER)
    count = c.integer("num_experts", "num_local_experts", default=16, high=100_000)
    mixers = {
        "full": attention(s),
        "state": mamba1(
            s.hidden,
            inner=expanded(c, s.hidden, "mamba_expand"),
            state=c.integer("mamba_d_state", high=100_000),
            rank=dt_rank(c, "mamba_dt_rank", s.hidden),
            kernel=c.integer("mamba_d_conv", high=1000),
            name="mamba",
            conv_bias=c.flag("mamba_conv_bias", default=True),
            proj_bias=c.flag("mamba_proj_bias"),
            norms=True,
            dtype=state_dtype(c),
        ),
    }
    dense = parts.mlp(s.hidden, inner, name="feed_forward")
    sparse = dense
    if count > 1:
        active = c.integer("num_experts_per_tok", default=2, high=count)
        sparse = (
            *parts.router(s.hidden, count, name="feed_forward.router"),
            *parts.experts(s.hidden, inner, count, active, name="feed_forward.experts"),
        )

    def layer(mixer: Mixer, forward: Tensors) -> Layer:
        return block(s.hidden, mixer, forward, ("input_layernorm", "pre_ff_layernorm"))

    made = {
        (kind, moe): layer(mixer, sparse if moe else dense)
        for kind, mixer in mixers.items()
        for moe in (False, True)
    }
    full = _periodic(c, "attn_layer", 8, 4)
    moe = _periodic(c, "expert_layer", 2, 1)
    each = [made["full" if full(i) else "state", moe(i)] for i in range(s.layers)]
    return _finish(c, s, each, "final_layernorm")


def bamba(c: Config) -> ModelSpec:
    """Bamba: Mamba-2 but for the layers of ``attn_layer_indices``; a plain feed-forward block."""
    c = filled(
        c,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        mamba_chunk_size=256,
    )
    s = sizes(c)
    full = set(c.integers("attn_layer_indices", default=[], high=s.layers - 1))
    forward = parts.mlp(s.hidden, c.integer(*INNER), bias=c.flag("mlp_bias"), name="feed_forward")
    names = ("input_layernorm", "pre_ff_layernorm")
    made = {
        True: block(s.hidden, attention(s, bias=c.flag("attention_bias")), forward, names),
        False: block(s.hidden, _mamba2(c, s), forward, names),
    }
    return _finish(c, s, [made[i in full] for i in range(s.layers)], "final_layernorm")


def granite(c: Config) -> ModelSpec:
    """Granite 4: attention or Mamba-2 by ``layer_types``; routed experts beside a shared block.

    Without ``num_local_experts`` (0) only the shared block is left, a plain feed-forward one. The
    checkpoint keeps gate and up in one matrix (``input_linear``).
    """
    c = filled(
        c,
        intermediate_size=11008,
        shared_intermediate_size=1024,
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        mamba_chunk_size=256,
    )
    s = sizes(c)
    count = c.integer("num_local_experts", default=8, low=0, high=100_000)
    shared = c.integer("shared_intermediate_size")
    part: Part = "shared_expert" if count else "mlp"
    fused = ("input_linear", "input_linear", "output_linear")
    forward = parts.mlp(s.hidden, shared, name="shared_mlp", part=part, names=fused)
    if count:
        active = c.integer("num_experts_per_tok", default=2, high=count)
        inner = c.integer(*INNER)
        forward += parts.router(s.hidden, count, name="block_sparse_moe.router.layer")
        forward += parts.experts(
            s.hidden, inner, count, active, name="block_sparse_moe", names=fused
        )
    types = layer_types(
        c,
        "layer_types",
        "layers_block_type",
        length=s.layers,
        allowed=("state", "full"),
        default=["state"] * s.layers,
    )
    names = ("input_layernorm", "post_attention_layernorm")
    made = {"full": block(s.hidden, attention(s, bias=c.flag("attention_bias")), forward, names)}
    if "state" in types:
        made["state"] = block(s.hidden, _mamba2(c, s), forward, names)
    return _finish(c, s, [made[kind] for kind in types], "norm")


def falcon_h1(c: Config) -> ModelSpec:
    """Falcon-H1: attention and Mamba-2 in parallel in every layer, so each keeps both caches."""
    c = filled(
        c,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        mamba_chunk_size=256,
    )
    s = sizes(c)
    inner: int | None = None
    if c.raw.get("mamba_d_ssm", 1024) is not None:
        inner = c.integer("mamba_d_ssm", default=1024)
    beside = _mamba2(
        c,
        s,
        inner=inner,
        out_bias=c.flag("projectors_bias"),
        gated_norm=c.flag("mamba_rms_norm"),
    )
    attends = attention(s, bias=c.flag("attention_bias"))
    both = Mixer(stores=attends.stores + beside.stores, tensors=beside.tensors + attends.tensors)
    forward = parts.mlp(s.hidden, c.integer(*INNER), bias=c.flag("mlp_bias"), name="feed_forward")
    layer = block(s.hidden, both, forward, ("input_layernorm", "pre_ff_layernorm"))
    return _finish(c, s, [layer] * s.layers, "final_layernorm")


def attention(s: Sizes, *, bias: bool = False, name: str = "self_attn") -> Mixer:
    """Full attention as a mixer."""
    return Mixer(
        stores=(
            FullAttention(kv_heads=s.kv_heads, k_dim=s.head_dim, v_dim=s.head_dim, q_heads=s.heads),
        ),
        tensors=parts.attention(
            s.hidden, s.heads, s.kv_heads, s.head_dim, qkv_bias=bias, o_bias=bias, name=name
        ),
    )


def block(hidden: int, mixer: Mixer, forward: Tensors, norms: tuple[str, str]) -> Layer:
    """A layer of a mixer and a feed-forward block, a norm before each."""
    return Layer(
        stores=mixer.stores,
        tensors=(
            *parts.norm(norms[0], hidden),
            *mixer.tensors,
            *parts.norm(norms[1], hidden),
            *forward,
        ),
    )


def _mamba2(
    c: Config,
    s: Sizes,
    *,
    inner: int | None = None,
    out_bias: bool | None = None,
    gated_norm: bool = True,
) -> Mixer:
    """The Mamba-2 mixer of Bamba's kin, whose keys all begin with ``mamba_``."""
    if inner is None:
        inner = expanded(c, s.hidden, "mamba_expand")
    heads, head_dim = mamba_heads(c, inner, ("mamba_n_heads",), ("mamba_d_head",))
    bias = c.flag("mamba_proj_bias")
    return mamba2(
        s.hidden,
        heads=heads,
        head_dim=head_dim,
        groups=c.integer("mamba_n_groups", high=100_000),
        state=c.integer("mamba_d_state", high=100_000),
        kernel=c.integer("mamba_d_conv", high=1000),
        name="mamba",
        conv_bias=c.flag("mamba_conv_bias", default=True),
        in_bias=bias,
        out_bias=bias if out_bias is None else out_bias,
        gated_norm=gated_norm,
        dtype=state_dtype(c),
    )


def _periodic(c: Config, what: str, period: int, offset: int) -> Callable[[int], bool]:
    every = c.integer(f"{what}_period", default=period, high=100_000)
    first = c.integer(f"{what}_offset", default=min(offset, every - 1), low=0, high=100_000)
    if first >= every:
        raise KvroomError(
            c.field(f"{what}_offset"),
            first,
            f"is not below {what}_period {every}",
            f"Give 0 to {every - 1}.",
        )
    return lambda i: i % every == first


def _finish(c: Config, s: Sizes, each: list[Layer], final: str) -> ModelSpec:
    return model(
        c,
        each,
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
        final=parts.norm(final, s.hidden),
    )


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "jamba": jamba,
    "bamba": bamba,
    "granitemoehybrid": granite,
    "falcon_h1": falcon_h1,
}
