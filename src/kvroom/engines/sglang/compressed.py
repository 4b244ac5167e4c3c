"""DeepSeek-V4's pools: full tokens stand for entries of compressed attention, windows have their own.

A slot of latent attention takes FP8 numbers with their scales and a 16-bit rotary part; of every 4th and
every 128th token compressed entries are kept; compression itself keeps a ring of FP32 numbers, those of
the 4-token layers with the window's pages, those of the 128-token layers by request.
"""

from __future__ import annotations

from kvroom.engines.sglang.resolved_args import SglangArgs
from kvroom.models.kinds import Compressed, Indexer, SlidingWindow
from kvroom.units import ceil_div

WINDOW_RATIO = 0.1
PAGE_UNIT = 576
"""Pages are padded to whole multiples of so many bytes."""
ROPE_DIM = 64
SCALE_BYTES = 8
STATE_BYTES = 4
RINGS = {4: 8, 128: 128}
DRAFT_RINGS = {4: 16, 128: 256}
"""Entries of a compression ring by its ratio, without and with speculative decoding."""


def window_of(args: SglangArgs) -> int:
    """The window of the layers that have one."""
    return max(
        (kind.window for kind, _ in args.d.model.stores if isinstance(kind, SlidingWindow)),
        default=0,
    )


def sizes(args: SglangArgs, budget: int) -> tuple[int, int, int]:
    """(full tokens, window tokens, bytes taken) of the pools in ``budget`` bytes."""
    ratio = WINDOW_RATIO if args.flags.window_ratio is None else args.flags.window_ratio
    each = _full_token_bytes(args, ratio)
    if args.draft is not None:
        layers = args.d.model.num_layers
        each *= (layers + 1) / layers
    fixed = 0
    if args.rules.compressed == "state by request":
        fixed = _request_state_bytes(args, max(1, args.requests_each or 1))
    tokens = int(max(budget - fixed, 0) / each) // args.page * args.page
    if args.flags.max_tokens is not None:
        tokens = min(tokens, args.flags.max_tokens // args.page * args.page)
    window = int(tokens * ratio) // args.page * args.page
    return tokens, window, int(tokens * each) + fixed


def _full_token_bytes(args: SglangArgs, ratio: float) -> float:
    """Bytes of one token of the full pool, its share of windows and their rings included."""
    layers = args.d.model.num_layers
    few, many = _layers(args, 4), _layers(args, 128)
    index = next(
        (kind.entry_bytes(args.kv) for kind, _ in args.d.model.stores if isinstance(kind, Indexer)),
        0,
    )
    ring_page = args.page if args.rules.compressed_ring_page else window_of(args)
    ring = _rings(args)[4] / ring_page * _ring_row(args, 4)
    near = _slot(args, args.page) * layers + ring * few
    if args.rules.compressed == "all in tokens":
        near += _rings(args)[128] / ring_page * _ring_row(args, 128) * many
    far = (_slot(args, args.page // 4) + index) / 4 * few + _slot(
        args, args.page // 128
    ) / 128 * many
    return ratio * near + far


def _slot(args: SglangArgs, entries: int) -> float:
    """Bytes of one latent slot in a page of ``entries``, the page's padding included."""
    width = _width(args)
    plain = width - ROPE_DIM + ROPE_DIM * 2 + SCALE_BYTES
    if not args.rules.compressed_padded:
        return plain
    return ceil_div(entries * plain, PAGE_UNIT) * PAGE_UNIT / entries


def _width(args: SglangArgs) -> int:
    return next((kind.dim for kind, _ in args.d.model.stores if isinstance(kind, Compressed)), 512)


def _layers(args: SglangArgs, ratio: int) -> int:
    return sum(
        count
        for kind, count in args.d.model.stores
        if isinstance(kind, Compressed) and kind.ratio == ratio
    )


def _rings(args: SglangArgs) -> dict[int, int]:
    return DRAFT_RINGS if args.draft is not None else RINGS


def _ring_row(args: SglangArgs, ratio: int) -> int:
    """Bytes of one ring entry of a layer: values and scores, of 4-token layers of two rings and with
    those of the index keys."""
    if ratio == 128:
        return 2 * _width(args) * STATE_BYTES
    index = next((kind.dim for kind, _ in args.d.model.stores if isinstance(kind, Indexer)), 0)
    return 4 * (_width(args) + index) * STATE_BYTES


def _request_state_bytes(args: SglangArgs, requests: int) -> int:
    """The rings of the 128-token layers: one for each request and one to spare, in whole 128 rows."""
    ring = _rings(args)[128]
    rows = ceil_div((requests + 1) * ring + ring + 1, 128) * 128
    return rows * _ring_row(args, 128) * _layers(args, 128)
