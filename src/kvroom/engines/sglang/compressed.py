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


def window_of(s: SglangArgs) -> int:
    """The window of the layers that have one."""
    return max((k.window for k, _ in s.d.model.stores if isinstance(k, SlidingWindow)), default=0)


def sizes(s: SglangArgs, budget: int) -> tuple[int, int, int]:
    """(full tokens, window tokens, bytes taken) of the pools in ``budget`` bytes."""
    ratio = WINDOW_RATIO if s.flags.window_ratio is None else s.flags.window_ratio
    each = _full_token_bytes(s, ratio)
    if s.draft is not None:
        layers = s.d.model.num_layers
        each *= (layers + 1) / layers
    fixed = 0
    if s.rules.compressed == "state by request":
        fixed = _request_state_bytes(s, max(1, s.requests_each or 1))
    tokens = int(max(budget - fixed, 0) / each) // s.page * s.page
    if s.flags.max_tokens is not None:
        tokens = min(tokens, s.flags.max_tokens // s.page * s.page)
    window = int(tokens * ratio) // s.page * s.page
    return tokens, window, int(tokens * each) + fixed


def _full_token_bytes(s: SglangArgs, ratio: float) -> float:
    """Bytes of one token of the full pool, its share of windows and their rings included."""
    layers = s.d.model.num_layers
    few, many = _layers(s, 4), _layers(s, 128)
    index = next((k.entry_bytes(s.kv) for k, _ in s.d.model.stores if isinstance(k, Indexer)), 0)
    ring_page = s.page if s.rules.compressed_ring_page else window_of(s)
    ring = _rings(s)[4] / ring_page * _ring_row(s, 4)
    near = _slot(s, s.page) * layers + ring * few
    if s.rules.compressed == "all in tokens":
        near += _rings(s)[128] / ring_page * _ring_row(s, 128) * many
    far = (_slot(s, s.page // 4) + index) / 4 * few + _slot(s, s.page // 128) / 128 * many
    return ratio * near + far


def _slot(s: SglangArgs, entries: int) -> float:
    """Bytes of one latent slot in a page of ``entries``, the page's padding included."""
    width = _width(s)
    plain = width - ROPE_DIM + ROPE_DIM * 2 + SCALE_BYTES
    if not s.rules.compressed_padded:
        return plain
    return ceil_div(entries * plain, PAGE_UNIT) * PAGE_UNIT / entries


def _width(s: SglangArgs) -> int:
    return next((k.dim for k, _ in s.d.model.stores if isinstance(k, Compressed)), 512)


def _layers(s: SglangArgs, ratio: int) -> int:
    return sum(n for k, n in s.d.model.stores if isinstance(k, Compressed) and k.ratio == ratio)


def _rings(s: SglangArgs) -> dict[int, int]:
    return DRAFT_RINGS if s.draft is not None else RINGS


def _ring_row(s: SglangArgs, ratio: int) -> int:
    """Bytes of one ring entry of a layer: values and scores, of 4-token layers of two rings and with
    those of the index keys."""
    if ratio == 128:
        return 2 * _width(s) * STATE_BYTES
    index = next((k.dim for k, _ in s.d.model.stores if isinstance(k, Indexer)), 0)
    return 4 * (_width(s) + index) * STATE_BYTES


def _request_state_bytes(s: SglangArgs, requests: int) -> int:
    """The rings of the 128-token layers: one for each request and one to spare, in whole 128 rows."""
    ring = _rings(s)[128]
    rows = ceil_div((requests + 1) * ring + ring + 1, 128) * 128
    return rows * _ring_row(s, 128) * _layers(s, 128)
