"""What SGLang's scheduler is given to serve a deployment with."""

from __future__ import annotations

from dataclasses import replace

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.flags import plain_name
from kvroom.engines.serving_rules import (
    STRETCH_TOKENS,
    ServingRules,
    number_flag,
    paged_rules,
    switch_flag,
)
from kvroom.engines.sglang.engine import chunk_tokens
from kvroom.engines.sglang.scheduler import SglangScheduler, SglangSettings
from kvroom.sharding.deployment import Deployment


def serving_rules(d: Deployment, capacity: EngineCapacity) -> ServingRules:
    """Its tokens, chunks and limits."""
    e, args = (
        paged_rules(d, capacity).setup,
        {plain_name(key): value for key, value in d.args.items()},
    )
    size = e.groups[0].block_size
    s = SglangSettings(
        tokens=(e.num_gpu_blocks - 1) * size,
        page=1 if size == STRETCH_TOKENS else size,
        stretch=size,
        max_running_requests=e.config.max_num_seqs,
        context_tokens=e.config.max_model_len,
        chunked_prefill_size=chunk_tokens(d),
        max_prefill_tokens=number_flag(args, "max_prefill_tokens") or 16384,
        caching=not switch_flag(args, "disable_radix_cache", False),
    )
    limits = replace(e.config, max_num_batched_tokens=s.chunked_prefill_size)
    return ServingRules(
        setup=replace(e, config=limits), own=lambda drafts: SglangScheduler(s, drafts)
    )
