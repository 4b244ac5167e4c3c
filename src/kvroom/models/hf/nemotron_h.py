"""Nemotron-H: one thing a layer. Mamba-2, attention, a feed-forward block or experts, by a pattern.

The pattern is ``hybrid_override_pattern`` (``M`` Mamba-2, ``*`` attention, ``-`` feed-forward, ``E``
experts) or the same in words, ``layers_block_type``; its length is the number of layers. Feed-forward
blocks have no gate. Nemotron 3 runs its experts in a narrower latent space (``moe_latent_size``). The
state is fp32 unless the config says otherwise. Sources: arXiv:2504.03624, transformers' class, NVIDIA's
published configs, and vLLM's ``nemotron_h_mtp`` for the multi-token-prediction layers.
"""

from __future__ import annotations

from collections.abc import Callable

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.dtypes import FP32
from kvroom.models.hf.common import LAYERS, Sizes, around, sizes
from kvroom.models.hf.experts import filled
from kvroom.models.hf.hybrid import attention
from kvroom.models.hf.recurrent import LAYER_TYPES, Mixer, known_types, mamba2, state_dtype
from kvroom.models.spec import Layer, ModelSpec, Run, runs_of

KINDS = ("state", "full", "mlp", "moe")
KNOWN = {"M": "state", "*": "full", "-": "mlp", "E": "moe", **LAYER_TYPES}
PATTERN = ("hybrid_override_pattern", "layers_block_type", "layer_types")
MTP_PATTERN = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")


def nemotron_h(config: Config) -> ModelSpec:
    """Nemotron-H and Nemotron 3; each multi-token-prediction module is its own short pattern."""
    least = config.integer(*LAYERS, default=1, high=MAX_LAYERS)
    types = _pattern(config, PATTERN, "ME*-", least)
    config = config.of_class(num_hidden_layers=len(types))
    config = filled(
        config,
        num_key_value_heads=8,
        head_dim=config.integer("attention_head_dim", default=128, high=100_000),
        intermediate_size=21504,
        n_routed_experts=8,
        moe_intermediate_size=7688,
        moe_shared_expert_intermediate_size=7688,
        ssm_state_size=128,
        mamba_num_heads=128,
        mamba_head_dim=64,
        n_groups=8,
        conv_kernel=4,
        chunk_size=128,
    )
    dims = sizes(config)
    build: dict[str, Callable[[Config, Sizes], Mixer]] = {
        "state": _mamba2,
        "full": _attention,
        "mlp": _forward,
        "moe": _experts,
    }
    depth = config.integer("num_nextn_predict_layers", default=0, low=0, high=100)
    ahead = _pattern(config, MTP_PATTERN, "*E") if depth else []
    made = {kind: build[kind](config, dims) for kind in {*types, *ahead}}
    layers = {
        kind: Layer(stores=value.stores, tensors=(*parts.norm("norm", dims.hidden), *value.tensors))
        for kind, value in made.items()
    }
    return around(
        config,
        dims,
        [layers[kind] for kind in types],
        embedding=parts.embedding(dims.vocab, dims.hidden, "embeddings"),
        final=parts.norm("norm_f", dims.hidden),
        tied=False,  # whatever the config says: the class ties nothing
        mtp=_ahead(dims.hidden, [layers[kind] for kind in ahead]) * depth,
        layer_names="backbone.layers",
    )


def _pattern(config: Config, names: tuple[str, ...], default: str, least: int = 0) -> list[str]:
    """A pattern as layer kinds, at least ``least`` of them; a longer one wins, as in the class."""
    value = config.get(*names, default=default)
    words = list(value) if isinstance(value, str) else config.items(*names)
    if len(words) < least:
        raise KvroomError(
            config.field(*names),
            value,
            f"has {len(words)} entries for {least} layers",
            "Give one each.",
        )
    return known_types(config, names, words, KINDS, KNOWN)


def _ahead(hidden: int, layers: list[Layer]) -> tuple[Run, ...]:
    """One multi-token-prediction module: joins hidden state and embedding, then its layers."""
    if not layers:
        return ()
    joins = (
        *parts.norm("enorm", hidden),
        *parts.norm("hnorm", hidden),
        *parts.linear("eh_proj", hidden, 2 * hidden, part="mlp"),
    )
    layers[0] = Layer(stores=layers[0].stores, tensors=joins + layers[0].tensors)
    last = layers[-1]
    ends = parts.norm("final_layernorm", hidden)
    layers[-1] = Layer(stores=last.stores, tensors=last.tensors + ends)
    return runs_of(layers)


def _mamba2(config: Config, dims: Sizes) -> Mixer:
    return mamba2(
        dims.hidden,
        heads=config.integer("mamba_num_heads", high=100_000),
        head_dim=config.integer("mamba_head_dim", high=100_000),
        groups=config.integer("n_groups", "mamba_n_groups", high=100_000),
        state=config.integer("ssm_state_size", high=100_000),
        kernel=config.integer("conv_kernel", "mamba_d_conv", high=1000),
        conv_bias=config.flag("use_conv_bias", "mamba_conv_bias", default=True),
        in_bias=config.flag("use_bias"),
        out_bias=config.flag("use_bias"),
        dtype=state_dtype(config, FP32),
    )


def _attention(config: Config, dims: Sizes) -> Mixer:
    return attention(dims, bias=config.flag("attention_bias"), name="mixer")


def _forward(config: Config, dims: Sizes) -> Mixer:
    inner = config.integer("intermediate_size")
    bias = config.flag("mlp_bias")
    return Mixer((), parts.mlp(dims.hidden, inner, gated=False, bias=bias, name="mixer"))


def _experts(config: Config, dims: Sizes) -> Mixer:
    count = config.integer("n_routed_experts", "num_local_experts", high=100_000)
    active = config.integer("num_experts_per_tok", default=min(2, count), high=count)
    latent = config.maybe_integer("moe_latent_size")
    inner = config.integer("moe_intermediate_size")
    shared = config.integer("moe_shared_expert_intermediate_size")
    bias = config.flag("mlp_bias")
    wide = latent or dims.hidden
    tensors = (
        *parts.router(dims.hidden, count, name="mixer.gate"),
        *parts.experts(wide, inner, count, active, gated=False, name="mixer.experts"),
        *parts.mlp(
            dims.hidden,
            shared,
            gated=False,
            bias=bias,
            name="mixer.shared_experts",
            part="shared_expert",
        ),
    )
    if latent:
        tensors += (
            *parts.linear("mixer.fc1_latent_proj", latent, dims.hidden, part="mlp", bias=bias),
            *parts.linear("mixer.fc2_latent_proj", dims.hidden, latent, part="mlp", bias=bias),
        )
    return Mixer((), tensors)
