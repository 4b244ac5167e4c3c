"""Where a prompt's steps end so that recurrent states can be reused (rules of vLLM 0.33)."""

from __future__ import annotations

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import ServedRequest


def aligned_tokens(
    cache: PrefixCache, config: SchedulerConfig, request: ServedRequest, start: int, tokens: int
) -> int:
    """``tokens`` from ``start`` on, cut where a recurrent state must be written to be reused."""
    prefill_end = request.prefill_end
    if start >= prefill_end or not (
        config.state_replays or request.num_tokens == request.num_prompt_tokens
    ):
        return tokens
    size = min(group.block_tokens for group in cache.groups)
    end = start + tokens
    tail_tokens = cache.hash_tokens if cache.inside_blocks else cache.block_tokens
    tail = (prefill_end - 1) // tail_tokens * tail_tokens
    saved = end >= prefill_end and all(g.saves(start, tail, end) for g in cache.aligned)
    if end < (prefill_end if config.rest_uncut else request.num_tokens // size * size):
        largest = config.max_num_batched_tokens
        threshold = config.long_prefill_token_threshold
        if threshold > 0:
            largest = min(largest, threshold)
        whole = end // size * size
        if whole > start or size <= largest:
            end = whole
    short = 1 if config.state_short_of_end else 0
    last = 0 if saved else (request.num_tokens - short) // size * size
    stops = [last]
    if start % size and not saved:
        stops.append((start // size + 1) * size)
    if cache.inside_blocks and not saved:
        tail = (request.num_prompt_tokens - short) // cache.hash_tokens * cache.hash_tokens
        if last < tail < request.num_prompt_tokens:
            stops.append(tail)
    known = config.junctions == "prompt" or (
        config.junctions == "first step" and not request.num_computed_tokens
    )
    if known and start < request.junction < end:
        stops.append(start + (request.junction - start) // size * size)
    end = min((stop for stop in stops if start < stop < end), default=end)
    return max(end - start, 0)
