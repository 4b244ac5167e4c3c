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
from kvroom.engines.sglang.answer import chunk_tokens
from kvroom.engines.sglang.scheduler import SglangScheduler, SglangSettings
from kvroom.sharding.deployment import Deployment

LOAD_BACK_TOKENS = 10
"""From which length on HiCache loads (``load_back_threshold``, 0.4.10 to 0.5.23)."""


def serving_rules(deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
    """Its tokens, chunks and limits."""
    setup = paged_rules(deployment, capacity).setup
    args = {plain_name(key): value for key, value in deployment.args.items()}
    size = setup.groups[0].block_size
    settings = SglangSettings(
        tokens=(setup.num_gpu_blocks - 1) * size,
        page=1 if size == STRETCH_TOKENS else size,
        stretch=size,
        max_running_requests=setup.config.max_num_seqs,
        context_tokens=setup.config.max_model_len,
        chunked_prefill_size=chunk_tokens(deployment),
        max_prefill_tokens=number_flag(args, "max_prefill_tokens") or 16384,
        caching=not switch_flag(args, "disable_radix_cache", False),
    )
    limits = replace(setup.config, max_num_batched_tokens=settings.chunked_prefill_size)
    return ServingRules(
        setup=replace(setup, config=limits),
        own=lambda drafts: SglangScheduler(settings, drafts),
        mixes=False,
        loads_tokens=LOAD_BACK_TOKENS,
    )
