"""What a recurrence or a short convolution keeps, by whose sizes a config has."""

from __future__ import annotations

from collections.abc import Callable

from kvroom.models.config import Config
from kvroom.models.dtypes import FP32
from kvroom.models.hf.common import HEADS, HIDDEN
from kvroom.models.hf.recurrent import state_dtype
from kvroom.models.kinds import ConvState, HeadedAttention, LayerKind, RecurrentState

Stores = tuple[LayerKind, ...]


def heads_of(config: Config) -> int:
    """Query heads of the decoder, 0 where the config names none."""
    return config.integer(
        "decoder_attention_heads", *HEADS, "attention_heads", default=0, low=0, high=100_000
    )


_RECURRENT = (
    "linear_num_value_heads", "mamba_num_heads", "mamba_n_heads", "mamba_d_state", "ssm_state_size",
    "state_size", "linear_attn_config",
)  # fmt: skip


def recurs(config: Config) -> bool:
    """Whether the config has the sizes of a recurrence."""
    return config.has(*_RECURRENT)


def state(config: Config, *, maybe: bool = False) -> Stores:
    """A recurrence's state and convolution by whose sizes the config has."""
    if config.has("linear_num_value_heads"):
        keys = config.integer(
            "linear_num_key_heads", default=config.integer("linear_num_value_heads")
        )
        k = config.integer("linear_key_head_dim", default=128, high=100_000)
        values = config.integer("linear_num_value_heads", high=100_000)
        v = config.integer("linear_value_head_dim", default=k, high=100_000)
        kernel = config.integer("linear_conv_kernel_dim", default=4, high=1000)
        conv = ConvState(channels=((keys, k), (keys, k), (values, v)), columns=kernel - 1)
        return (
            RecurrentState(
                heads=values, head_elements=k * v, form="gdn", dtype=state_dtype(config)
            ),
            *((conv,) if kernel > 1 else ()),
        )
    kda = config.get("linear_attn_config")
    if isinstance(kda, dict):
        at = config.sub("linear_attn_config")
        heads = at.integer("num_heads", default=heads_of(config) or 1, high=100_000)
        width = at.integer("head_dim", default=128, high=100_000)
        kernel = at.integer("short_conv_kernel_size", default=4, high=1000)
        return (
            RecurrentState(heads=heads, head_elements=width * width, form="kda", dtype=FP32),
            ConvState(channels=((heads, width),) * 3, columns=kernel - 1),
        )
    if config.has("linear_num_heads") and config.has("linear_head_dim"):
        heads = config.integer("linear_num_heads", high=100_000)
        width = config.integer("linear_head_dim", high=100_000)
        kernel = config.integer(
            "linear_conv_kernel_dim", "short_conv_kernel_size", default=4, high=1000
        )
        return (
            RecurrentState(heads=heads, head_elements=width * width, form="kda", dtype=FP32),
            ConvState(channels=((heads, width),) * 3, columns=max(1, kernel - 1)),
        )
    if config.has("mamba_num_heads", "mamba_n_heads"):
        heads = config.integer("mamba_num_heads", "mamba_n_heads", high=100_000)
        width = config.integer("mamba_head_dim", "mamba_d_head", default=64, high=100_000)
        groups = config.integer(
            "n_groups", "mamba_n_groups", "mamba_num_groups", default=1, high=100_000
        )
        columns = config.integer(
            "ssm_state_size", "mamba_d_state", "state_size", default=128, high=100_000
        )
        kernel = config.integer(
            "conv_kernel", "mamba_d_conv", "mamba_conv_kernel", default=4, high=1000
        )
        return (
            RecurrentState(
                heads=heads, head_elements=width * columns, form="mamba2", dtype=state_dtype(config)
            ),
            ConvState(
                channels=((heads, width), (groups, columns), (groups, columns)), columns=kernel - 1
            ),
        )
    if config.has("mamba_d_state", "ssm_state_size", "state_size"):
        columns = config.integer("mamba_d_state", "ssm_state_size", "state_size", high=100_000)
        hidden = config.integer(*HIDDEN)
        inner = int(hidden * config.number("mamba_expand", "expand", default=2.0, high=100))
        kernel = config.integer("mamba_d_conv", "conv_kernel", default=4, high=1000)
        return (
            RecurrentState(
                heads=inner, head_elements=columns, form="mamba1", dtype=state_dtype(config)
            ),
            ConvState(channels=((inner, 1),), columns=kernel - 1),
        )
    if maybe:
        return ()
    heads = heads_of(config) or 1
    width = config.integer(
        "head_dim", default=max(1, config.integer(*HIDDEN) // heads), high=100_000
    )
    return (RecurrentState(heads=heads, head_elements=width * width, form="lightning", dtype=FP32),)


def conv(config: Config) -> ConvState:
    """A layer of nothing but a short convolution (LFM2)."""
    kernel = config.integer("conv_L_cache", "conv_kernel", "conv_kernel_size", default=3, high=1000)
    return ConvState(channels=((config.integer(*HIDDEN), 1),), columns=max(1, kernel - 1))


def _rwkv(config: Config) -> Stores:
    """RWKV-4: five vectors a layer, three of them in FP32 (arXiv 2305.13048, appendix D)."""
    hidden = config.integer("hidden_size")
    inner = config.integer("attention_hidden_size", default=hidden)
    return (
        RecurrentState(heads=inner, head_elements=3, form="rwkv", dtype=FP32),
        ConvState(channels=((hidden, 1),), columns=2),
    )


def _xlstm(config: Config) -> Stores:
    """xLSTM (mLSTM): a matrix of key × value, a normaliser of the key's width and a maximum a head."""
    heads = heads_of(config) or 1
    hidden = config.integer("hidden_size", "embedding_dim")
    v = config.integer("v_head_dim", default=hidden // heads)
    k = config.integer("qk_head_dim", default=max(1, hidden // heads // 2))
    return (RecurrentState(heads=heads, head_elements=k * v + k + 1, form="mlstm", dtype=FP32),)


STATES: dict[str, Callable[[Config], Stores]] = {"rwkv": _rwkv, "xlstm": _xlstm}
"""Models all of whose layers keep a state of their own form."""


def beside_attention(config: Config, attention: Stores) -> Stores:
    """Short convolutions over keys, values and both block inputs beside attention (Inkling)."""
    own = attention[0]
    if config.has("cca_time0", "cca_time1") and isinstance(own, HeadedAttention):
        # Compressed convolutional attention (Zaya): two convolutions over queries and keys in a row.
        taps = config.integer("cca_time0", default=2) + config.integer("cca_time1", default=2) - 2
        channels = ((own.q_heads, own.k_dim), (own.kv_heads, own.k_dim))
        return (ConvState(channels=channels, columns=max(1, taps)),)
    if not config.has("conv_kernel_size") or not isinstance(own, HeadedAttention):
        return ()
    inputs = (config.integer(*HIDDEN), 1)
    four = ((own.kv_heads, own.k_dim), (own.kv_heads, own.v_dim), inputs, inputs)
    kernel = config.integer("conv_kernel_size", low=2, high=1000)
    return (ConvState(channels=four, columns=kernel - 1),)
