"""What an installed vLLM's scheduler does beside deciding, spared in its own Python (``asked.py`` plays it).

Each of these is left out since nothing that it decides can come of it: what it writes for a worker and a
client that are not there, and calls that find by the scheduler's own books that there is nothing to do. What
a release lacks is passed over; ``KVROOM_SPARE_NOTHING`` leaves all as it is, and tests hold the two to each
other.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

REQUEST = ("append_output_token_ids", "update_block_hashes", "take_events")
"""What a request has where it is spared anything."""
WHOLE = "KVROOM_SPARE_NOTHING" in os.environ
"""Whether the scheduler does all that it would."""


def spare(scheduler: Any) -> None:
    """Let ``scheduler`` write nothing for workers, and do nothing where its books say so."""
    if WHOLE:
        return
    module: Any = next(
        sys.modules[base.__module__]
        for base in type(scheduler).__mro__
        if base.__name__ == "Scheduler"
    )
    nothing = contextlib.nullcontext()
    if hasattr(module, "record_function_or_nullcontext"):
        module.record_function_or_nullcontext = lambda *_: nothing  # names stretches for a profiler
    written = getattr(scheduler, "_make_cached_request_data", None)
    empty = getattr(getattr(module, "CachedRequestData", None), "make_empty", None)
    alone = getattr(scheduler, "connector", None) is None  # a connector reads it too
    if written is not None and empty is not None and alone:
        none = empty()  # what workers know of already
        scheduler._make_cached_request_data = lambda *_, **__: none
    grammars: Any = getattr(scheduler, "structured_output_manager", None)
    if hasattr(grammars, "accept_tokens"):
        grammars.accept_tokens = lambda *_: True  # no request has a grammar
    pool = scheduler.kv_cache_manager.block_pool
    _names(pool, len(getattr(scheduler.kv_cache_config, "kv_cache_groups", ())))
    _blocks(scheduler.kv_cache_manager)


def _names(pool: Any, groups: int) -> None:
    """Let ``pool`` read the names of its blocks in one go each: those of the first group bear no number."""
    module: Any = sys.modules[type(pool).__module__]
    block: Any = type(getattr(pool, "null_block", None))
    if isinstance(vars(block).get("block_hash"), property) and "_block_hash" in vars(block):
        block.block_hash = vars(block)["_block_hash"]  # the field itself, which that property gives
    by_name = getattr(getattr(pool, "cached_block_hash_to_block", None), "_cache", None)
    numbered = getattr(module, "make_block_hash_with_group_id", None)
    if (
        not isinstance(by_name, dict)
        or numbered is None
        or getattr(pool, "enable_kv_cache_events", False)
    ):
        return

    def named(name: bytes, group: int) -> bytes:
        return numbered(name, group) if group else name

    def get_cached_block(name: bytes, _: Any) -> Any:
        found = by_name.get(name)
        if found is None:
            return None
        return [next(iter(found.values())) if type(found) is dict else found]

    if numbered.__name__ != named.__name__:
        module.make_block_hash_with_group_id = named
    if groups == 1:
        pool.get_cached_block = get_cached_block


def _blocks(cache: Any) -> None:
    """Let ``cache`` look at a request's blocks only where it gets one or one has filled up: within a block
    of full attention there is nothing to free, to hand out or to name."""
    coordinator = getattr(cache, "coordinator", None)
    managers: Any = getattr(coordinator, "single_type_managers", ())
    pool = cache.block_pool
    unit = getattr(pool, "hash_block_size", None)
    plain = [type(each).__name__ == "FullAttentionManager" for each in managers]
    sizes = {getattr(each, "block_size", None) for each in managers}
    if not all(plain) or len(managers) != 1 or sizes != {unit}:
        return
    if not hasattr(cache, "empty_kv_cache_blocks"):
        return
    (manager,) = managers
    size, held, named = manager.block_size, manager.req_to_blocks, manager.num_cached_block
    names = bool(cache.enable_caching)
    allocate, register = cache.allocate_slots, cache.cache_blocks
    nothing = cache.empty_kv_cache_blocks

    def allocate_slots(
        request: Any, new: int, *more: Any, num_lookahead_tokens: int = 0, **other: Any
    ) -> Any:
        end = request.num_computed_tokens + new
        key = request.request_id
        if (
            more
            or other
            or key not in named
            or end + num_lookahead_tokens > len(held[key]) * size
            or (names and min(end, request.num_tokens) // size > named[key])
        ):
            return allocate(request, new, *more, num_lookahead_tokens=num_lookahead_tokens, **other)
        return nothing

    def cache_blocks(request: Any, tokens: int) -> None:
        if tokens // size > named.get(request.request_id, 0):
            register(request, tokens)

    cache.allocate_slots, cache.cache_blocks = allocate_slots, cache_blocks


def spared_request(request: Any) -> Any:
    """A class of requests without images, grammars and events, whose names of blocks are asked for as blocks
    fill up."""
    if WHOLE or not all(hasattr(request, name) for name in REQUEST):
        return request

    class Spared(request):  # type: ignore[misc]
        has_encoder_inputs = False
        num_encoder_inputs = 0
        use_structured_output = False

        def begin(self, unit: int) -> Spared:
            self.unit = unit
            self.output_token_ids, self.all_token_ids = self._output_token_ids, self._all_token_ids
            self.prefill_stats = None
            return self

        def append_output_token_ids(self, token_ids: Any) -> None:
            tokens = self._all_token_ids
            if type(token_ids) is int:
                tokens.append(token_ids)
                self._output_token_ids.append(token_ids)
                if len(tokens) % self.unit:
                    return
            else:
                tokens.extend(token_ids)
                self._output_token_ids.extend(token_ids)
            self.update_block_hashes()

        def take_events(self) -> None:
            return None

    return Spared
