"""What vLLM's scheduler is given to serve a deployment with."""

from __future__ import annotations

from kvroom.engines.flags import count, one_of, plain_name
from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import GROUP_KEYS, POLICIES, GroupSpec, SchedulerSetup
from kvroom.engines.serving_rules import (
    ServingRules,
    drafts_of,
    number_flag,
    share_flag,
    switch_flag,
)
from kvroom.engines.vllm.engine import paging
from kvroom.errors import KvroomError
from kvroom.sharding.deployment import Deployment

SYNC_ONLY = ("ngram",)
"""Drafts that are looked up on the CPU once a step is done: the next is not scheduled before."""
STATES = "the spare states that recurrent layers keep of a request that drafts are not simulated"
KINDS = {"full": "full", "latent": "full", "window": "sliding_window", "chunked": "chunked_local"}
"""Cache types as groups of the scheduler; what is missing here is state."""


def serving_rules(d: Deployment) -> ServingRules:
    """Its blocks, layer groups and limits; KvroomError where requests store nothing."""
    p = paging(d)
    args = {plain_name(key): value for key, value in d.args.items()}
    caching = p.caching
    groups: list[GroupSpec] = []
    for spec in p.groups:
        if spec.type == "cross":
            continue  # as many blocks for every request, whatever its length
        kind = KINDS.get(spec.type, "mamba")
        tokens = spec.block_tokens * (d.layout.dcp if spec.shardable else 1)
        reach = spec.window if GROUP_KEYS[kind] else 0
        groups.append(GroupSpec(type=kind, block_size=tokens, reach=reach))
    if not groups:
        why = "keeps no cache that requests would share out"
        raise KvroomError("model", d.model.name, why, "Simulate a model that generates text.")
    interval = None if len(groups) > 1 and not p.rules.sparse_retention else 0
    if "prefix_cache_retention_interval" in args:
        given = args["prefix_cache_retention_interval"]
        interval = None if given is None else count("engine_args.prefix_cache_…", given)
    method = d.speculation.method if d.speculation else ""
    config = SchedulerConfig(
        max_num_batched_tokens=p.batch_tokens,
        max_num_seqs=p.sequences,
        max_model_len=d.context_tokens,
        enable_chunked_prefill=p.chunked_prefill,
        long_prefill_token_threshold=number_flag(args, "long_prefill_token_threshold"),
        watermark=share_flag(args, "watermark"),
        scheduler_reserve_full_isl=switch_flag(
            args, "scheduler_reserve_full_isl", p.rules.reserves_whole_prompt
        ),
        async_scheduling=switch_flag(
            args, "async_scheduling", p.rules.async_scheduling and method not in SYNC_ONLY
        ),
        policy=one_of(*POLICIES)("engine_args.scheduling_policy", args.get("scheduling_policy"))
        if args.get("scheduling_policy")
        else "fcfs",
    )
    return ServingRules(
        setup=SchedulerSetup(
            num_gpu_blocks=p.num_blocks,
            groups=tuple(groups),
            enable_prefix_caching=caching,
            prefix_cache_retention_interval=interval,
            config=config,
            drafts=drafts_of(d),
        ),
        warnings=(STATES,) if d.speculation and any(g.type == "mamba" for g in groups) else (),
    )
