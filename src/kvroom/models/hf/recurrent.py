"""Recurrent mixers: the tensors of a state-space layer and what it keeps for a request.

A mixer stands where attention would. Instead of keys and values it keeps a state of fixed size and the
last ``kernel - 1`` inputs of its short convolution, so it costs the same at every length. Shapes:
Mamba (arXiv:2312.00752), Mamba-2 (arXiv:2405.21060) and the classes of transformers; how ranks share
them: vLLM's ``MambaStateShapeCalculator``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.dtypes import BF16, Dtype, cache_dtype
from kvroom.models.kinds import ConvState, LayerKind, RecurrentState
from kvroom.models.parts import Tensors
from kvroom.models.tensors import Part, Split, Tensor
from kvroom.records import dataclass
from kvroom.units import ceil_div

LAYER_TYPES = {
    "mamba": "state",
    "mamba2": "state",
    "linear_attention": "state",
    "recurrent": "state",
    "conv": "conv",
    "short_conv": "conv",
    "attention": "full",
    "full_attention": "full",
    "sliding_attention": "window",
    "hybrid": "hybrid",
    "moe": "moe",
    "mlp": "mlp",
}
"""What configs call a layer, and what it is."""


@dataclass(frozen=True, slots=True)
class Mixer:
    """What stands at a layer's mixing place: what it keeps and what it weighs."""

    stores: tuple[LayerKind, ...]
    tensors: Tensors


def state_dtype(config: Config, default: Dtype = BF16) -> Dtype:
    """The recurrent state's width: what the config asks for, else ``default``."""
    keys = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    name = config.text(*keys, default="auto").removeprefix("torch.")
    return default if name == "auto" else cache_dtype(name, config.field(*keys))


def layer_types(
    config: Config,
    *names: str,
    length: int,
    allowed: Sequence[str],
    default: Sequence[str] | None = None,
    known: Mapping[Any, str] = LAYER_TYPES,
) -> list[str]:
    """What each of ``length`` layers is, from the list called one of ``names``.

    ``default`` are the class's own types where the config has no list. KvroomError where a layer is
    nothing that this architecture (``allowed``) has.
    """
    if default is not None and not config.has(*names):
        return list(default)
    return known_types(config, names, config.items(*names, length=length), allowed, known)


def known_types(
    config: Config,
    names: Sequence[str],
    values: Sequence[Any],
    allowed: Sequence[str],
    known: Mapping[Any, str],
) -> list[str]:
    """What each of ``values``, read from the key called one of ``names``, stands for."""
    types: list[str] = []
    for value in values:
        kind = known.get(value) if isinstance(value, str | int) else None
        if kind is None or kind not in allowed:
            raise KvroomError(
                config.field(*names),
                value,
                "is no layer type of this architecture",
                f"One of: {', '.join(str(key) for key, value in known.items() if value in allowed)}.",
            )
        types.append(kind)
    return types


def mamba_heads(
    config: Config, inner: int, heads: Sequence[str], dims: Sequence[str]
) -> tuple[int, int]:
    """Mamba-2's heads and their width, which together must make the ``inner`` width.

    A width that is absent or ``auto`` is inner / heads.
    """
    count = config.integer(*heads, high=100_000)
    if config.get(*dims, default="auto") == "auto":
        if inner % count:
            raise KvroomError(
                config.field(*heads),
                count,
                f"does not divide the inner width {inner}",
                "Correct it.",
            )
        return count, inner // count
    width = config.integer(*dims, high=100_000)
    if count * width != inner:
        raise KvroomError(
            config.field(*dims),
            width,
            f"times {count} heads is not the inner width {inner}",
            f"Give the {inner} / {count} heads, or correct the heads.",
        )
    return count, width


def dt_rank(config: Config, name: str, hidden: int) -> int:
    """The rank of Mamba's time-step projection: hidden / 16, rounded up, where it says ``auto``."""
    if config.get(name, default="auto") == "auto":
        return ceil_div(hidden, 16)
    return config.integer(name)


def grouped_vector(name: str, size: int, units: int, *, split: Split = "column") -> Tensors:
    """A vector of a recurrent layer that is cut over ranks at its ``units`` heads or groups."""
    return (Tensor(name=name, rows=size, part="state", split=split, units=units),)


def conv1d(name: str, channels: Sequence[tuple[int, int]], kernel: int, *, bias: bool) -> Tensors:
    """A depthwise convolution over channels ((units, width), …), each part cut at its units.

    Stored as (channels, 1, kernel) and never quantised, so a vector to everything downstream. A part
    with fewer units than ranks is replicated, as its state is.
    """
    tensors: list[Tensor] = []
    for units, width in channels:
        tensors += grouped_vector(name, units * width * kernel, units, split="kv")
        if bias:
            tensors += grouped_vector(f"{name}.bias", units * width, units, split="kv")
    return tuple(tensors)


def expanded(config: Config, hidden: int, name: str) -> int:
    """A mixer's inner width, so many times the hidden one."""
    return max(1, int(config.number(name, default=2.0, low=0.01, high=100.0) * hidden))


def mamba1(
    hidden: int,
    *,
    inner: int,
    state: int,
    rank: int,
    kernel: int,
    name: str = "mixer",
    conv_bias: bool = True,
    proj_bias: bool = False,
    norms: bool = False,
    dtype: Dtype = BF16,
) -> Mixer:
    """Mamba: each of ``inner`` channels has its own state of ``state`` numbers.

    ``norms`` are Jamba's RMS norms on the time step, B and C.
    """
    part: Part = "state"
    column: Split = "column"
    tensors = (
        *parts.linear(
            f"{name}.in_proj", 2 * inner, hidden, part=part, split=column, bias=proj_bias
        ),
        *conv1d(f"{name}.conv1d", [(inner, 1)], kernel, bias=conv_bias),
        *parts.linear(f"{name}.x_proj", rank + 2 * state, inner, part=part, split="row"),
        *parts.linear(f"{name}.dt_proj", inner, rank, part=part, split=column, bias=True),
        *grouped_vector(f"{name}.A_log", inner * state, inner),
        *grouped_vector(f"{name}.D", inner, inner),
        *parts.linear(f"{name}.out_proj", hidden, inner, part=part, split="row", bias=proj_bias),
    )
    if norms:
        tensors += (
            *parts.norm(f"{name}.dt_layernorm", rank),
            *parts.norm(f"{name}.b_layernorm", state),
            *parts.norm(f"{name}.c_layernorm", state),
        )
    return Mixer(
        stores=(
            RecurrentState(heads=inner, head_elements=state, form="mamba1", dtype=dtype),
            ConvState(channels=((inner, 1),), columns=kernel - 1),
        ),
        tensors=tensors,
    )


def mamba2(
    hidden: int,
    *,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    name: str = "mixer",
    conv_bias: bool = True,
    in_bias: bool = False,
    out_bias: bool = False,
    gated_norm: bool = True,
    dtype: Dtype = BF16,
) -> Mixer:
    """Mamba-2: heads of ``head_dim`` × ``state`` numbers; B and C shared by ``groups`` of heads.

    ``in_proj`` makes gate, input, B, C and time step in one matrix; its B and C rows are listed on
    their own because they are cut at groups, and replicated where ranks outnumber those.
    """
    inner = heads * head_dim
    part: Part = "state"
    project = f"{name}.in_proj"
    channels = ((heads, head_dim), (groups, state), (groups, state))
    tensors = (
        *parts.linear(
            project, 2 * inner + heads, hidden, part=part, split="column", bias=in_bias, units=heads
        ),
        *parts.linear(
            project, 2 * groups * state, hidden, part=part, split="kv", bias=in_bias, units=groups
        ),
        *conv1d(f"{name}.conv1d", [(heads, head_dim), (groups, 2 * state)], kernel, bias=conv_bias),
        *grouped_vector(f"{name}.dt_bias", heads, heads),
        *grouped_vector(f"{name}.A_log", heads, heads),
        *grouped_vector(f"{name}.D", heads, heads),
        *(grouped_vector(f"{name}.norm", inner, heads) if gated_norm else ()),
        *parts.linear(
            f"{name}.out_proj", hidden, inner, part=part, split="row", bias=out_bias, units=heads
        ),
    )
    return Mixer(
        stores=(
            RecurrentState(heads=heads, head_elements=head_dim * state, form="mamba2", dtype=dtype),
            ConvState(channels=channels, columns=kernel - 1),
        ),
        tensors=tensors,
    )
