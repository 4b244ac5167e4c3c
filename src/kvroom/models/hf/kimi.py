"""Kimi Delta Attention between layers of latent attention: Kimi-Linear, Kimi-K3, Ling 3.

A KDA layer keeps a matrix of head_dim × head_dim for each head, in fp32, and short convolutions over
queries, keys and values. ``linear_attn_config`` counts its layers from 1. Kimi-K3 adds full-rank gates, an
output gate on latent attention, experts that work in a narrower latent space, and attention residuals
(each half of a layer attends over the outputs of earlier blocks of layers). Sources: arXiv:2510.26692,
transformers' ``kimi_linear`` and ``bailing_hybrid``; for K3 arXiv:2607.24653 and the
tensors of the published checkpoint.
"""

from __future__ import annotations

from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.dtypes import FP32, Dtype
from kvroom.models.hf.common import INNER, LAYERS, model
from kvroom.models.hf.experts import by_kind, filled, prediction, sparse_layers
from kvroom.models.hf.hybrid import block
from kvroom.models.hf.latent import LatentSizes, latent_sizes
from kvroom.models.hf.moonvit import moonvit3d
from kvroom.models.hf.recurrent import Mixer, conv1d, grouped_vector, layer_types, state_dtype
from kvroom.models.hf.vision import composite
from kvroom.models.kinds import ConvState, RecurrentState
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

MOE = "block_sparse_moe"


def kimi_linear(config: Config, **outer: Any) -> ModelSpec:
    """Kimi-Linear, and the decoder of Kimi-K3."""
    config = filled(
        config,
        vocab_size=163840,
        hidden_size=2304,
        num_hidden_layers=27,
        num_attention_heads=32,
        intermediate_size=9216,
        moe_intermediate_size=1024,
        num_local_experts=256,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    latent = latent_sizes(config)
    gate = latent.heads * latent.v if config.flag("mla_use_output_gate") else 0
    mixers = {"full": _latent(config, latent, gate), "state": _kda(config, latent.hidden)}
    return _decoder(config, latent, mixers, MOE, **outer)


def kimi_k3(config: Config) -> ModelSpec:
    """Kimi-K3: the decoder in ``text_config``, a MoonViT3D tower in ``vision_config``."""
    return composite(config, kimi_linear, moonvit3d, layer_names="language_model.model.layers")


def bailing_hybrid(config: Config) -> ModelSpec:
    """Ling 2.5 and 3: latent attention every ``layer_group_size`` layers, a linear one between.

    Which one the class that the config names tells: Ling 2.5 (``BailingMoeV2_5ForCausalLM``) has
    lightning attention, Ling 3 KDA with full-rank gates. KDA's width is ``linear_head_dim``, in the
    published Ling 3 ``head_dim``; its latent attention's gate is one number a head.
    """
    config = filled(
        config,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_local_experts=512,
        first_k_dense_replace=2,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    latent = latent_sizes(config)
    every = config.integer("layer_group_size", default=6, high=MAX_LAYERS)
    heads = config.integer("linear_num_heads", default=latent.heads, high=100_000)
    width = config.integer("linear_head_dim", "head_dim", default=128, high=100_000)
    if "V2_5" in str(config.get("architectures", default="")):
        state = _lightning(latent.hidden, heads, width)
        full = _latent(config, latent, 0)
    else:
        state = kda(
            latent.hidden,
            heads=heads,
            width=width,
            kernel=config.integer(
                "linear_conv_kernel_dim", "short_conv_kernel_size", default=4, high=1000
            ),
            low_rank_decay=False,
            low_rank_gate=False,
            dtype=state_dtype(config, FP32),
        )
        full = _latent(config, latent, latent.heads)
    mixers = {"full": full, "state": state}
    return _decoder(config, latent, mixers, "mlp", every=every)


def _lightning(hidden: int, heads: int, width: int) -> Mixer:
    """Ling's lightning attention: one matrix for query, key and value, normed by head, gated output."""
    wide = heads * width

    def project(name: str, rows: int) -> Tensors:
        return parts.linear(
            f"attention.{name}", rows, hidden, part="state", split="column", units=heads
        )

    return Mixer(
        stores=(
            RecurrentState(heads=heads, head_elements=width * width, form="lightning", dtype=FP32),
        ),
        tensors=(
            *project("query_key_value", 3 * wide),
            *project("g_proj", wide),
            *parts.norm("attention.query_layernorm", width),
            *parts.norm("attention.key_layernorm", width),
            *grouped_vector("attention.g_norm", wide, heads),
            *parts.linear("attention.dense", hidden, wide, part="state", split="row", units=heads),
        ),
    )


def _decoder(
    config: Config,
    latent: LatentSizes,
    mixers: dict[str, Mixer],
    moe: str,
    *,
    every: int = 0,
    **outer: Any,
) -> ModelSpec:
    """The decoder of either ``mixers``; full attention ``every`` so many layers (0: Kimi's lists)."""
    layers = config.integer(*LAYERS, high=MAX_LAYERS)
    hidden = latent.hidden
    residual = config.has("attn_res_block_size")

    def build(kind: tuple[str, bool]) -> Layer:
        forward = (
            _experts(config, hidden, moe) if kind[1] else parts.mlp(hidden, config.integer(*INNER))
        )
        norms = ("input_layernorm", "post_attention_layernorm")
        layer = block(hidden, mixers[kind[0]], forward, norms)
        if not residual:
            return layer
        looks = (*_residual("self_attention_res", hidden), *_residual("mlp_res", hidden))
        return Layer(stores=layer.stores, tensors=layer.tensors + looks)

    sparse = sparse_layers(config, layers, first_dense=1)
    return model(
        config,
        by_kind(zip(_types(config, layers, every), sparse, strict=True), build),
        hidden=hidden,
        vocab=config.integer("vocab_size"),
        q_heads=latent.heads,
        kv_heads=1,  # the latent: one for all heads
        final=(
            *parts.norm("norm", hidden),
            *(_residual("output_attn_res", hidden) if residual else ()),
        ),
        mtp=prediction(config, build(("full", sparse[-1])), hidden),
        **outer,
    )


def _types(config: Config, layers: int, every: int) -> list[str]:
    """Which layers are latent attention (``full``) and which KDA (``state``)."""
    if config.has("layer_types"):
        return layer_types(config, "layer_types", length=layers, allowed=("state", "full"))
    if every:
        return ["state" if index % every else "full" for index in range(1, layers + 1)]
    linear = config.sub("linear_attn_config")
    if not linear.has("full_attn_layers") and not linear.has("kda_layers"):
        return ["full" if index and index % 4 == 0 else "state" for index in range(layers)]
    whole = set(range(1, layers + 1))
    lists = {
        name: set(linear.integers(name, low=1, high=layers))
        for name in ("full_attn_layers", "kda_layers")
        if linear.has(name)
    }
    full = lists.get("full_attn_layers", whole - lists.get("kda_layers", set()))
    state = lists.get("kda_layers", whole - full)
    odd = sorted((whole - full - state) | (full & state))
    if odd:
        raise KvroomError(
            linear.field("kda_layers"),
            sorted(state),
            f"and full_attn_layers do not share out layer {odd[0]} of 1 to {layers}",
            "Put each layer, counted from 1, in exactly one of the two.",
        )
    return ["full" if index in full else "state" for index in range(1, layers + 1)]


def _kda(config: Config, hidden: int) -> Mixer:
    linear = config.sub("linear_attn_config")
    heads = config.integer("linear_num_heads", default=32, high=100_000)
    width = config.integer("linear_head_dim", default=128, high=100_000)
    kernel = config.integer("linear_conv_kernel_dim", default=4, high=1000)
    return kda(
        hidden,
        heads=linear.integer("num_heads", default=heads, high=100_000),
        width=linear.integer("head_dim", default=width, high=100_000),
        kernel=linear.integer("short_conv_kernel_size", default=kernel, high=1000),
        low_rank_gate=not linear.flag("use_full_rank_gate"),
        dtype=state_dtype(config, FP32),
    )


def kda(
    hidden: int,
    *,
    heads: int,
    width: int,
    kernel: int,
    dtype: Dtype,
    low_rank_decay: bool = True,
    low_rank_gate: bool = True,
) -> Mixer:
    """Kimi Delta Attention: decay (f) and output gate (g) for each channel, of low rank or full."""
    wide = heads * width

    def project(name: str, rows: int, columns: int = hidden) -> Tensors:
        return parts.linear(
            f"self_attn.{name}", rows, columns, part="state", split="column", units=heads
        )

    def gate(letter: str, low_rank: bool) -> Tensors:
        if not low_rank:
            return project(f"{letter}_proj", wide)
        down = parts.linear(f"self_attn.{letter}_a_proj", width, hidden, part="state")
        return (*down, *project(f"{letter}_b_proj", wide, width))

    return Mixer(
        stores=(
            RecurrentState(heads=heads, head_elements=width * width, form="kda", dtype=dtype),
            ConvState(channels=((heads, width),) * 3, columns=kernel - 1),
        ),
        tensors=(
            *(t for name in ("q_proj", "k_proj", "v_proj") for t in project(name, wide)),
            *(
                t
                for name in ("q_conv1d", "k_conv1d", "v_conv1d")
                for t in conv1d(f"self_attn.{name}", [(heads, width)], kernel, bias=False)
            ),
            *grouped_vector("self_attn.A_log", heads, heads),
            *grouped_vector("self_attn.dt_bias", wide, heads),
            *gate("f", low_rank_decay),
            *project("b_proj", heads),
            *gate("g", low_rank_gate),
            *parts.norm("self_attn.o_norm", width),
            *parts.linear("self_attn.o_proj", hidden, wide, part="state", split="row", units=heads),
        ),
    )


def _latent(config: Config, latent: LatentSizes, gate: int) -> Mixer:
    """Latent attention (Kimi's without rotary positions, whose part is kept all the same), gated."""
    tensors = latent.tensors(bias=config.flag("attention_bias"))
    if gate:
        tensors += parts.linear(
            "self_attn.g_proj",
            gate,
            latent.hidden,
            part="attention",
            split="column",
            units=latent.heads,
        )
    return Mixer(stores=(latent.kept(),), tensors=tensors)


def _experts(config: Config, hidden: int, moe: str) -> Tensors:
    """Routed experts (in a latent space where ``routed_expert_hidden_size`` says so), shared ones."""
    count = config.integer("num_experts", "num_local_experts", high=100_000)
    active = config.integer(
        "num_experts_per_token", "num_experts_per_tok", default=min(8, count), high=count
    )
    inner = config.integer("moe_intermediate_size")
    shared = config.integer("num_shared_experts", "n_shared_experts", default=1, low=0, high=10_000)
    latent = config.maybe_integer("routed_expert_hidden_size")
    tensors = (
        *parts.router(hidden, count, name=f"{moe}.gate"),
        *parts.experts(
            latent or hidden,
            inner,
            count,
            active,
            name=f"{moe}.experts",
            names=("w1", "w3", "w2") if moe == MOE else None,
        ),
    )
    if latent:
        tensors += (
            *parts.linear(f"{moe}.routed_expert_down_proj", latent, hidden, part="mlp"),
            *parts.linear(f"{moe}.routed_expert_up_proj", hidden, latent, part="mlp"),
            *(
                parts.norm(f"{moe}.routed_expert_norm", latent)
                if config.flag("latent_moe_use_norm")
                else ()
            ),
        )
    if shared:
        tensors += parts.mlp(
            hidden, shared * inner, name=f"{moe}.shared_experts", part="shared_expert"
        )
    return tensors


def _residual(name: str, hidden: int) -> Tensors:
    """An attention residual: a norm of what it looks at and one learned query."""
    return (*parts.norm(f"{name}_norm", hidden), *parts.vector(f"{name}_proj", hidden))
