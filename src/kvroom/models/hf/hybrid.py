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
from kvroom.models.hf.common import INNER, Sizes, around, grouped, sizes, stored
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
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Part


def jamba(config: Config) -> ModelSpec:
    """Jamba: attention each ``attn_layer_period``, experts each ``expert_layer_period``, Mamba else."""
    config = filled(
        config,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_d_state=16,
        mamba_d_conv=4,
    )
    dims = sizes(config)
    inner = config.integer(*INNER)
    count = config.integer("num_experts", "num_local_experts", default=16, high=100_000)
    mixers = {
        "full": attention(dims),
        "state": mamba1(
            dims.hidden,
            inner=expanded(config, dims.hidden, "mamba_expand"),
            state=config.integer("mamba_d_state", high=100_000),
            rank=dt_rank(config, "mamba_dt_rank", dims.hidden),
            kernel=config.integer("mamba_d_conv", high=1000),
            name="mamba",
            conv_bias=config.flag("mamba_conv_bias", default=True),
            proj_bias=config.flag("mamba_proj_bias"),
            norms=True,
            dtype=state_dtype(config),
        ),
    }
    dense = parts.mlp(dims.hidden, inner, name="feed_forward")
    sparse = dense
    if count > 1:
        active = config.integer("num_experts_per_tok", default=2, high=count)
        sparse = (
            *parts.router(dims.hidden, count, name="feed_forward.router"),
            *parts.experts(dims.hidden, inner, count, active, name="feed_forward.experts"),
        )

    def layer(mixer: Mixer, forward: Tensors) -> Layer:
        return block(dims.hidden, mixer, forward, ("input_layernorm", "pre_ff_layernorm"))

    layer_of = {
        (kind, moe): layer(mixer, sparse if moe else dense)
        for kind, mixer in mixers.items()
        for moe in (False, True)
    }
    full = _periodic(config, "attn_layer", 8, 4)
    moe = _periodic(config, "expert_layer", 2, 1)
    each = [
        layer_of["full" if full(index) else "state", moe(index)] for index in range(dims.layers)
    ]
    return _finish(config, dims, each, "final_layernorm")


def bamba(config: Config) -> ModelSpec:
    """Bamba: Mamba-2 but for the layers of ``attn_layer_indices``; a plain feed-forward block."""
    config = filled(
        config,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        mamba_chunk_size=256,
    )
    dims = sizes(config)
    full = set(config.integers("attn_layer_indices", default=[], high=dims.layers - 1))
    forward = parts.mlp(
        dims.hidden, config.integer(*INNER), bias=config.flag("mlp_bias"), name="feed_forward"
    )
    names = ("input_layernorm", "pre_ff_layernorm")
    layer_of = {
        True: block(
            dims.hidden, attention(dims, bias=config.flag("attention_bias")), forward, names
        ),
        False: block(dims.hidden, _mamba2(config, dims), forward, names),
    }
    return _finish(
        config, dims, [layer_of[index in full] for index in range(dims.layers)], "final_layernorm"
    )


def granite(config: Config) -> ModelSpec:
    """Granite 4: attention or Mamba-2 by ``layer_types``; routed experts beside a shared block.

    Without ``num_local_experts`` (0) only the shared block is left, a plain feed-forward one. The
    checkpoint keeps gate and up in one matrix (``input_linear``).
    """
    config = filled(
        config,
        intermediate_size=11008,
        shared_intermediate_size=1024,
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        mamba_chunk_size=256,
    )
    dims = sizes(config)
    count = config.integer("num_local_experts", default=8, low=0, high=100_000)
    shared = config.integer("shared_intermediate_size")
    part: Part = "shared_expert" if count else "mlp"
    fused = ("input_linear", "input_linear", "output_linear")
    forward = parts.mlp(dims.hidden, shared, name="shared_mlp", part=part, names=fused)
    if count:
        active = config.integer("num_experts_per_tok", default=2, high=count)
        inner = config.integer(*INNER)
        forward += parts.router(dims.hidden, count, name="block_sparse_moe.router.layer")
        forward += parts.experts(
            dims.hidden, inner, count, active, name="block_sparse_moe", names=fused
        )
    types = layer_types(
        config,
        "layer_types",
        "layers_block_type",
        length=dims.layers,
        allowed=("state", "full"),
        default=["state"] * dims.layers,
    )
    names = ("input_layernorm", "post_attention_layernorm")
    layer_of = {
        "full": block(
            dims.hidden, attention(dims, bias=config.flag("attention_bias")), forward, names
        )
    }
    if "state" in types:
        layer_of["state"] = block(dims.hidden, _mamba2(config, dims), forward, names)
    return _finish(config, dims, [layer_of[kind] for kind in types], "norm")


def falcon_h1(config: Config) -> ModelSpec:
    """Falcon-H1: attention and Mamba-2 in parallel in every layer, so each keeps both caches."""
    config = filled(
        config,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        mamba_chunk_size=256,
    )
    dims = sizes(config)
    inner: int | None = None
    if config.raw.get("mamba_d_ssm", 1024) is not None:
        inner = config.integer("mamba_d_ssm", default=1024)
    beside = _mamba2(
        config,
        dims,
        inner=inner,
        out_bias=config.flag("projectors_bias"),
        gated_norm=config.flag("mamba_rms_norm"),
    )
    attends = attention(dims, bias=config.flag("attention_bias"))
    both = Mixer(stores=attends.stores + beside.stores, tensors=beside.tensors + attends.tensors)
    forward = parts.mlp(
        dims.hidden, config.integer(*INNER), bias=config.flag("mlp_bias"), name="feed_forward"
    )
    layer = block(dims.hidden, both, forward, ("input_layernorm", "pre_ff_layernorm"))
    return _finish(config, dims, [layer] * dims.layers, "final_layernorm")


def attention(dims: Sizes, *, bias: bool = False, name: str = "self_attn") -> Mixer:
    """Full attention as a mixer."""
    return Mixer(
        stores=(stored(dims),),
        tensors=grouped(dims, bias=bias, name=name),
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
    config: Config,
    dims: Sizes,
    *,
    inner: int | None = None,
    out_bias: bool | None = None,
    gated_norm: bool = True,
) -> Mixer:
    """The Mamba-2 mixer of Bamba's kin, whose keys all begin with ``mamba_``."""
    if inner is None:
        inner = expanded(config, dims.hidden, "mamba_expand")
    heads, head_dim = mamba_heads(config, inner, ("mamba_n_heads",), ("mamba_d_head",))
    bias = config.flag("mamba_proj_bias")
    return mamba2(
        dims.hidden,
        heads=heads,
        head_dim=head_dim,
        groups=config.integer("mamba_n_groups", high=100_000),
        state=config.integer("mamba_d_state", high=100_000),
        kernel=config.integer("mamba_d_conv", high=1000),
        name="mamba",
        conv_bias=config.flag("mamba_conv_bias", default=True),
        in_bias=bias,
        out_bias=bias if out_bias is None else out_bias,
        gated_norm=gated_norm,
        dtype=state_dtype(config),
    )


def _periodic(config: Config, what: str, period: int, offset: int) -> Callable[[int], bool]:
    every = config.integer(f"{what}_period", default=period, high=100_000)
    first = config.integer(f"{what}_offset", default=min(offset, every - 1), low=0, high=100_000)
    if first >= every:
        raise KvroomError(
            config.field(f"{what}_offset"),
            first,
            f"is not below {what}_period {every}",
            f"Give 0 to {every - 1}.",
        )
    return lambda i: i % every == first


def _finish(config: Config, dims: Sizes, each: list[Layer], final: str) -> ModelSpec:
    return around(config, dims, each, final=parts.norm(final, dims.hidden))
