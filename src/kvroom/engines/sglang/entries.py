"""Bytes that SGLang keeps of one token and of one request's state, on one rank of a pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.engines.sglang.flags import STATE_DTYPES
from kvroom.engines.sglang.models import attention_of
from kvroom.engines.sglang.resolved_args import SglangArgs
from kvroom.models.kinds import (
    ChunkedAttention,
    ConvState,
    FullAttention,
    HeadedAttention,
    Indexer,
    Latent,
    RecurrentState,
    SlidingWindow,
)
from kvroom.models.spec import Layer
from kvroom.records import dataclass

SCALE_GROUP = 128
"""FP8 latents of sparse attention have an FP32 scale for so many numbers."""
CONV_BYTES = 2
FLOAT_STATE = ("GraniteMoeHybridForCausalLM", "KimiLinearForCausalLM")
"""Models whose state width SGLang does not read from the config."""
WHOLE_WINDOWS = ("MiMoV2", "Step3p", "Laguna", "DeepseekV4")
"""Models whose window counts the current token too."""


@dataclass(frozen=True, slots=True)
class Entries:
    """One stage: ``full`` and ``window`` bytes a token (all its layers of that pool), their layers.

    Where there is no window pool, ``full`` holds every layer. ``drafts`` and ``window_drafts`` are what a
    draft model's layers add to each.
    """

    full: int
    window: int
    full_layers: int
    window_layers: int
    drafts: int = 0
    window_drafts: int = 0
    window_tokens: int = 0


def entries_of(args: SglangArgs, layers: Sequence[Layer]) -> Entries:
    """The Entries of ``layers`` on one rank."""
    full = window = full_layers = window_layers = index = reach = 0
    plain = _plain_attention(args)
    for layer in layers:
        for kind in layer.stores:
            headed = attention_of(kind)
            if isinstance(headed, SlidingWindow | ChunkedAttention) and args.windows:
                window += _headed(args, headed)
                window_layers += 1
                reach = max(reach, _reach(args, headed))
            elif headed is not None:
                near = isinstance(headed, SlidingWindow | ChunkedAttention)
                full += _headed(args, plain if near and plain is not None else headed)
                full_layers += 1
            elif isinstance(kind, Latent):
                full += _latent(args, kind)
                full_layers += 1
            elif isinstance(kind, Indexer):
                index += _index(args, kind)
    if args.traits.sparse and args.rules.sparse_index and not args.rules.sparse_shared:
        index = full_layers * _index_width(args)
    drafts, window_drafts = _drafts(args, full, full_layers, window, window_layers)
    return Entries(
        full=full + index,
        window=window,
        full_layers=full_layers,
        window_layers=window_layers,
        drafts=drafts,
        window_drafts=window_drafts,
        window_tokens=reach,
    )


def _plain_attention(args: SglangArgs) -> FullAttention | None:
    """The geometry that one pool for all layers takes for each of them: the full layers'."""
    return next((kind for kind, _ in args.d.model.stores if isinstance(kind, FullAttention)), None)


def _headed(args: SglangArgs, kind: HeadedAttention) -> int:
    heads = max(1, kind.kv_heads // args.attention_tp)
    values = kind.v_dim if args.rules.value_width else kind.k_dim
    return args.kv.bytes_for(kind.k_dim, heads) + args.kv.bytes_for(values, heads)


def _reach(args: SglangArgs, kind: SlidingWindow | ChunkedAttention) -> int:
    """A window's length as SGLang counts it: most models' without the current token."""
    if isinstance(kind, ChunkedAttention):
        return kind.chunk
    return kind.window - (not args.traits.architecture.startswith(WHOLE_WINDOWS))


def _latent(args: SglangArgs, kind: Latent) -> int:
    if args.traits.sparse and args.rules.sparse_scales and not args.sparse_raw:
        scales = kind.latent_dim // SCALE_GROUP * 4
        return kind.latent_dim + scales + kind.rope_dim * 2  # the rotary part stays 16 bits wide
    return args.kv.bytes_for(kind.latent_dim + kind.rope_dim)


def _index(args: SglangArgs, kind: Indexer) -> int:
    if args.traits.latent:
        return kind.entry_bytes(args.kv) if args.rules.sparse_index else 0
    return kind.dim * 2  # MiniMax-M3's index keys are as wide as the model


def _index_width(args: SglangArgs) -> int:
    return next(
        (kind.entry_bytes(args.kv) for kind, _ in args.d.model.stores if isinstance(kind, Indexer)),
        0,
    )


def _drafts(
    args: SglangArgs, full: int, full_layers: int, window: int, window_layers: int
) -> tuple[int, int]:
    """What the draft model's layers add to a token of each pool: as much as the target's layers."""
    draft = args.draft
    if draft is None or not draft.keeps_cache or not draft.layers or not args.rules.draft_charged:
        return 0, 0
    if args.windows and window_layers:
        near = 0 if draft.own_checkpoint else min(window_layers, draft.layers)
        far = draft.layers - near
        each = full // full_layers if full_layers else 0
        return each * far, window // window_layers * near
    if not full_layers:
        return 0, 0
    own = int(full * draft.layers / full_layers)
    return own + (_index_width(args) * draft.layers if args.traits.sparse else 0), 0


def state_bytes(args: SglangArgs, layers: Sequence[Layer]) -> int:
    """One slot of recurrent and convolution state of ``layers`` on one rank."""
    width = state_width(args)
    total = 0
    for layer in layers:
        for kind in layer.stores:
            cut = kind.on_rank(args.attention_tp)
            if isinstance(cut, RecurrentState):
                total += cut.heads * cut.head_elements * width
            elif isinstance(cut, ConvState):
                total += cut.width * cut.columns * CONV_BYTES
    return total


def state_width(args: SglangArgs) -> int:
    """Bytes of one number of recurrent state: FP32 unless a flag or the config says otherwise."""
    if args.flags.state_bytes is not None:
        return args.flags.state_bytes
    if args.traits.architecture in FLOAT_STATE:
        return 4
    return STATE_DTYPES.get(args.d.model.state_dtype or "", 4)


def has_state(layer: Layer) -> bool:
    """Whether a layer keeps recurrent or convolution state."""
    return any(isinstance(kind, RecurrentState | ConvState) for kind in layer.stores)
