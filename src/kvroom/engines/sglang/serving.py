"""What SGLang's scheduler is given to serve a deployment with."""

from __future__ import annotations

from dataclasses import replace

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.flags import plain_name
from kvroom.engines.paged.scheduler_setup import GroupSpec
from kvroom.engines.serving_rules import (
    FetchRules,
    ServingRules,
    number_flag,
    paged_rules,
    switch_flag,
)
from kvroom.engines.sglang.answer import resolved
from kvroom.engines.sglang.resolved_args import SglangArgs
from kvroom.engines.sglang.scheduler import FIRST_RATIO, SglangScheduler, SglangSettings
from kvroom.engines.sglang.versions import SglangRules
from kvroom.sharding.deployment import Deployment

LOAD_BACK_TOKENS = 10
"""From which length on HiCache loads (``load_back_threshold``, 0.4.10 to 0.5.23)."""
PREFETCH_TOKENS = 256
"""From which length on it prefetches from storage unless told (``prefetch_threshold``, 0.4.10 to 0.5.23)."""
UNCHUNKED = 2**30
"""A chunk that no prompt fills."""
DP_CAREFUL = 0.3
"""Data-parallel attention multiplies ``schedule_conservativeness`` by it (``ServerArgs``)."""


def serving_rules(deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
    """Its tokens, chunks and limits."""
    setup = paged_rules(deployment, capacity).setup
    args = {plain_name(key): value for key, value in deployment.args.items()}
    found = resolved(deployment)
    chunk = found.chunk_each
    careful = float(args.get("schedule_conservativeness") or 1.0)
    if found.flags.attention_dp > 1:
        careful *= DP_CAREFUL
    overlapped = found.draft is not None and found.draft.overlaps(found.rules)
    page, tokens = capacity.block_tokens or 1, capacity.kv_tokens or 0
    settings = SglangSettings(
        tokens=tokens,
        page=page,
        max_running_requests=setup.config.max_num_seqs,
        context_tokens=setup.config.max_model_len,
        chunked_prefill_size=chunk if chunk > 0 else UNCHUNKED,
        max_prefill_tokens=number_flag(args, "max_prefill_tokens") or 16384,
        caching=not switch_flag(args, "disable_radix_cache", False),
        overlap=found.overlap and (found.draft is None or overlapped),
        pairs=_pairs(found),
        shares_beyond=overlapped and found.rules.drafts_shared_beyond,
        reserved_tokens=found.draft.reserved(page) if found.draft and overlapped else 0,
        first_ratio=min(1.0, FIRST_RATIO * careful),
        rules=found.rules,
        input_limits=found.rules.input_limits_chunked or chunk <= 0,
    )
    setup = replace(
        setup,
        num_gpu_blocks=tokens // page + 1,
        groups=(GroupSpec(type="full", block_size=page),),
    )
    limits = replace(setup.config, max_num_batched_tokens=settings.chunked_prefill_size)
    return ServingRules(
        setup=replace(setup, config=limits),
        own=lambda drafts: SglangScheduler(settings, drafts),
        own_steps=2 if settings.overlap else 1,
        mixes=False,
        loads_tokens=LOAD_BACK_TOKENS,
        fetch=fetch_rules(found.rules, page),
        tier_write="selective" if found.rules.writes_selected else "through",
    )


def _pairs(found: SglangArgs) -> bool:
    """Whether the radix tree is of pairs of ids (``is_eagle`` in ``mem_cache``); with state it is not."""
    drafted = found.draft is not None and found.draft.reads_states
    return drafted and found.rules.draft_pairs and not found.traits.state


def fetch_rules(rules: SglangRules, page: int) -> FetchRules:
    """How HiCache prefetches from its storage in a release (``mem_cache/hiradix_cache.py``, since 0.5.19
    ``unified_radix_cache.py``, and ``managers/cache_controller.py``)."""
    base_s, more_s = rules.prefetch_wait
    share, beyond_gpu = rules.prefetch_room
    return FetchRules(
        policy=rules.prefetch,
        least_tokens=max(PREFETCH_TOKENS, page),
        wait_s=base_s,
        wait_s_per_token=more_s / 1024,
        from_turn=rules.prefetch_waits_from_turn,
        share=share,
        beyond_gpu=beyond_gpu,
    )
