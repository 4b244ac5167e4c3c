"""Kimi Delta Attention with multi-head latent attention at every fourth layer: Kimi-Linear, Kimi-K3.

A KDA layer keeps a matrix of head_dim × head_dim for each head, in fp32, and short convolutions over
queries, keys and values. ``linear_attn_config`` counts its layers from 1. Kimi-K3 adds full-rank gates, an
output gate on latent attention, experts that work in a narrower latent space, and attention residuals
(each half of a layer attends over the outputs of earlier blocks of layers). Sources: arXiv:2510.26692,
transformers' ``kimi_linear``; for K3 arXiv:2607.24653 and the tensors of the published checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.dtypes import FP32
from kvroom.models.hf.common import HEADS, HIDDEN, INNER, LAYERS, check_groups, model
from kvroom.models.hf.config import MAX_LAYERS, Config
from kvroom.models.hf.moonvit import moonvit3d
from kvroom.models.hf.recurrent import (
    Mixer,
    class_defaults,
    conv1d,
    grouped_vector,
    layer_types,
    state_dtype,
)
from kvroom.models.kinds import ConvState, Latent, RecurrentState
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

MOE = "block_sparse_moe"


def kimi_linear(c: Config) -> ModelSpec:
    """Kimi-Linear."""
    return _kimi(c, c)


def kimi_k3(c: Config) -> ModelSpec:
    """Kimi-K3: the decoder in ``text_config``, a MoonViT3D tower in ``vision_config``."""
    if not c.has("text_config"):
        return _kimi(c, c)
    beside = moonvit3d(c.sub("vision_config")) if c.has("vision_config") else ()
    return _kimi(c.sub("text_config"), c, beside=beside, layer_names="language_model.model.layers")


def _kimi(
    c: Config, top: Config, *, beside: Tensors = (), layer_names: str = "model.layers"
) -> ModelSpec:
    c = class_defaults(
        c,
        vocab_size=163840,
        hidden_size=2304,
        num_hidden_layers=27,
        num_attention_heads=32,
        intermediate_size=9216,
        moe_intermediate_size=1024,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    hidden = c.integer(*HIDDEN)
    layers = c.integer(*LAYERS, high=MAX_LAYERS)
    heads = c.integer(*HEADS, high=100_000)
    kv_heads = c.integer("num_key_value_heads", default=heads, high=100_000)
    check_groups(c, heads, kv_heads)
    vocab = c.integer("vocab_size")
    residual = c.has("attn_res_block_size")
    made: dict[tuple[str, bool], Layer] = {}
    each: list[Layer] = []
    for kind, sparse in zip(_types(c, layers), _sparse(c, layers), strict=True):
        if (kind, sparse) not in made:
            mixer = _latent(c, hidden, heads) if kind == "full" else _kda(c, hidden)
            forward = _experts(c, hidden) if sparse else parts.mlp(hidden, c.integer(*INNER))
            made[kind, sparse] = Layer(
                stores=mixer.stores,
                tensors=(
                    *parts.norm("input_layernorm", hidden),
                    *mixer.tensors,
                    *parts.norm("post_attention_layernorm", hidden),
                    *forward,
                    *(_residual("self_attention_res", hidden) if residual else ()),
                    *(_residual("mlp_res", hidden) if residual else ()),
                ),
            )
        each.append(made[kind, sparse])
    return model(
        c,
        each,
        hidden=hidden,
        vocab=vocab,
        q_heads=heads,
        kv_heads=kv_heads,
        final=(
            *parts.norm("norm", hidden),
            *(_residual("output_attn_res", hidden) if residual else ()),
        ),
        beside=beside,
        layer_names=layer_names,
        root=top,
        warnings=_unread(c),
    )


def _unread(c: Config) -> tuple[str, ...]:
    if c.integer("num_nextn_predict_layers", default=0, low=0, high=1000):
        return (
            "num_nextn_predict_layers: Kimi's multi-token-prediction layer is not published, so it "
            "is left out",
        )
    return ()


def _types(c: Config, layers: int) -> list[str]:
    """Which layers are latent attention (``full``) and which KDA (``state``)."""
    if c.has("layer_types"):
        return layer_types(c, "layer_types", length=layers, allowed=("state", "full"))
    linear = c.sub("linear_attn_config")
    if not linear.has("full_attn_layers") and not linear.has("kda_layers"):
        return ["full" if i and i % 4 == 0 else "state" for i in range(layers)]
    every = set(range(1, layers + 1))
    lists = {
        name: set(linear.integers(name, low=1, high=layers))
        for name in ("full_attn_layers", "kda_layers")
        if linear.has(name)
    }
    full = lists.get("full_attn_layers", every - lists.get("kda_layers", set()))
    state = lists.get("kda_layers", every - full)
    odd = sorted((every - full - state) | (full & state))
    if odd:
        raise KvroomError(
            linear.field("kda_layers"),
            sorted(state),
            f"and full_attn_layers do not share out layer {odd[0]} of 1 to {layers}",
            "Put each layer, counted from 1, in exactly one of the two.",
        )
    return ["full" if i in full else "state" for i in range(1, layers + 1)]


def _sparse(c: Config, layers: int) -> list[bool]:
    if c.has("mlp_layer_types"):
        known = {"dense": "mlp", "sparse": "moe"}
        types = layer_types(
            c, "mlp_layer_types", length=layers, allowed=("mlp", "moe"), known=known
        )
        return [kind == "moe" for kind in types]
    first = c.integer("first_k_dense_replace", default=1, low=0, high=100_000)
    every = c.integer("moe_layer_freq", default=1, high=100_000)
    return [i >= first and i % every == 0 for i in range(layers)]


def _kda(c: Config, hidden: int) -> Mixer:
    linear = c.sub("linear_attn_config")
    heads = linear.integer(
        "num_heads", default=c.integer("linear_num_heads", default=32), high=100_000
    )
    width = linear.integer(
        "head_dim", default=c.integer("linear_head_dim", default=128), high=100_000
    )
    kernel = linear.integer(
        "short_conv_kernel_size", default=c.integer("linear_conv_kernel_dim", default=4), high=1000
    )
    wide = heads * width

    def project(name: str, rows: int, columns: int = hidden) -> Tensors:
        return parts.linear(
            f"self_attn.{name}", rows, columns, part="state", split="column", units=heads
        )

    if linear.flag("use_full_rank_gate"):
        gate = project("g_proj", wide)
    else:
        gate = (
            *parts.linear("self_attn.g_a_proj", width, hidden, part="state"),
            *project("g_b_proj", wide, width),
        )
    return Mixer(
        stores=(
            RecurrentState(
                heads=heads, head_elements=width * width, form="kda", dtype=state_dtype(c, FP32)
            ),
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
            *parts.linear("self_attn.f_a_proj", width, hidden, part="state"),
            *project("f_b_proj", wide, width),
            *project("b_proj", heads),
            *gate,
            *parts.norm("self_attn.o_norm", width),
            *parts.linear("self_attn.o_proj", hidden, wide, part="state", split="row", units=heads),
        ),
    )


def _latent(c: Config, hidden: int, heads: int) -> Mixer:
    """Multi-head latent attention without rotary positions (the rotary part is kept all the same)."""
    latent = c.integer("kv_lora_rank")
    rope = c.integer("qk_rope_head_dim", low=0, high=100_000)
    nope = c.integer("qk_nope_head_dim", high=100_000)
    v_dim = c.integer("v_head_dim", high=100_000)
    rank = c.maybe_integer("q_lora_rank")
    bias = c.flag("attention_bias")

    def project(name: str, rows: int, columns: int) -> Tensors:
        return parts.linear(
            f"self_attn.{name}", rows, columns, part="attention", split="column", units=heads
        )

    if rank is None:
        queries = project("q_proj", heads * (nope + rope), hidden)
    else:
        queries = (
            *parts.linear("self_attn.q_a_proj", rank, hidden, part="attention", bias=bias),
            *parts.norm("self_attn.q_a_layernorm", rank),
            *project("q_b_proj", heads * (nope + rope), rank),
        )
    return Mixer(
        stores=(
            Latent(latent_dim=latent, rope_dim=rope, q_heads=heads, k_dim=nope + rope, v_dim=v_dim),
        ),
        tensors=(
            *queries,
            *parts.linear(
                "self_attn.kv_a_proj_with_mqa", latent + rope, hidden, part="attention", bias=bias
            ),
            *parts.norm("self_attn.kv_a_layernorm", latent),
            *project("kv_b_proj", heads * (nope + v_dim), latent),
            *(project("g_proj", heads * v_dim, hidden) if c.flag("mla_use_output_gate") else ()),
            *parts.linear(
                "self_attn.o_proj",
                hidden,
                heads * v_dim,
                part="attention",
                split="row",
                bias=bias,
                units=heads,
            ),
        ),
    )


def _experts(c: Config, hidden: int) -> Tensors:
    """Routed experts (in a latent space where ``routed_expert_hidden_size`` says so), shared ones."""
    count = c.integer("num_experts", "num_local_experts", default=256, high=100_000)
    active = c.integer(
        "num_experts_per_token", "num_experts_per_tok", default=min(8, count), high=count
    )
    inner = c.integer("moe_intermediate_size")
    shared = c.integer("num_shared_experts", "n_shared_experts", default=1, low=0, high=10_000)
    latent = c.maybe_integer("routed_expert_hidden_size")
    tensors = (
        *parts.router(hidden, count, name=f"{MOE}.gate"),
        *parts.experts(
            latent or hidden,
            inner,
            count,
            active,
            name=f"{MOE}.experts",
            names=("w1", "w3", "w2"),
        ),
    )
    if latent:
        tensors += (
            *parts.linear(f"{MOE}.routed_expert_down_proj", latent, hidden, part="mlp"),
            *parts.linear(f"{MOE}.routed_expert_up_proj", hidden, latent, part="mlp"),
            *(
                parts.norm(f"{MOE}.routed_expert_norm", latent)
                if c.flag("latent_moe_use_norm")
                else ()
            ),
        )
    if shared:
        tensors += parts.mlp(
            hidden, shared * inner, name=f"{MOE}.shared_experts", part="shared_expert"
        )
    return tensors


def _residual(name: str, hidden: int) -> Tensors:
    """An attention residual: a norm of what it looks at and one learned query."""
    return (*parts.norm(f"{name}_norm", hidden), *parts.vector(f"{name}_proj", hidden))


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "kimi_linear": kimi_linear,
    "kimi_k3": kimi_k3,
}
