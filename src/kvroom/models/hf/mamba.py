"""Pure state-space decoders: Mamba, Falcon-Mamba, Mamba-2. No attention, nothing that grows.

A layer is a norm and a mixer. Sources: transformers' classes of the same names and the published
configs of state-spaces, tiiuae and mistralai.
"""

from __future__ import annotations

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf.common import HIDDEN, LAYERS, model
from kvroom.models.hf.experts import filled
from kvroom.models.hf.recurrent import Mixer, dt_rank, expanded, mamba1, mamba2, state_dtype
from kvroom.models.spec import Layer, ModelSpec


def mamba(config: Config) -> ModelSpec:
    """Mamba, and Falcon-Mamba, whose extra norms carry no weights."""
    config = filled(config, state_size=16, conv_kernel=4, tie_word_embeddings=True)
    hidden = config.integer(*HIDDEN)
    mixer = mamba1(
        hidden,
        inner=config.integer("intermediate_size", default=expanded(config, hidden, "expand")),
        state=config.integer("state_size", high=100_000),
        rank=dt_rank(config, "time_step_rank", hidden),
        kernel=config.integer("conv_kernel", high=1000),
        conv_bias=config.flag("use_conv_bias", default=True),
        proj_bias=config.flag("use_bias"),
        dtype=state_dtype(config),
    )
    return _stack(config, hidden, mixer)


def mamba2_reader(config: Config) -> ModelSpec:
    """Mamba-2 (Mamba-Codestral): heads and groups of heads, ``expand`` × hidden wide."""
    config = filled(
        config,
        state_size=128,
        conv_kernel=4,
        chunk_size=256,
        n_groups=8,
        num_heads=128,
        head_dim=64,
    )
    hidden = config.integer(*HIDDEN)
    heads = config.integer("num_heads", high=100_000)
    head_dim = config.integer("head_dim", high=100_000)
    inner = expanded(config, hidden, "expand")
    if heads * head_dim != inner:
        raise KvroomError(
            config.field("num_heads"),
            heads,
            f"times head_dim {head_dim} is not expand x hidden_size, {inner}",
            "Correct num_heads, head_dim or expand.",
        )
    mixer = mamba2(
        hidden,
        heads=heads,
        head_dim=head_dim,
        groups=config.integer("n_groups", high=100_000),
        state=config.integer("state_size", high=100_000),
        kernel=config.integer("conv_kernel", high=1000),
        conv_bias=config.flag("use_conv_bias", default=True),
        in_bias=config.flag("use_bias"),
        out_bias=config.flag("use_bias"),
        dtype=state_dtype(config),
    )
    return _stack(config, hidden, mixer)


def _stack(config: Config, hidden: int, mixer: Mixer) -> ModelSpec:
    layer = Layer(stores=mixer.stores, tensors=(*parts.norm("norm", hidden), *mixer.tensors))
    vocab = config.integer("vocab_size")
    return model(
        config,
        [layer] * config.integer(*LAYERS, high=MAX_LAYERS),
        hidden=hidden,
        vocab=vocab,
        q_heads=0,
        kv_heads=0,
        embedding=parts.embedding(vocab, hidden, "embeddings"),
        final=parts.norm("norm_f", hidden),
        layer_names="backbone.layers",
    )
