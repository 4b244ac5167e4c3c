"""What vLLM's scheduler is given to serve a deployment with."""

from __future__ import annotations

from kvroom.engines.flags import one_of, plain_name
from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import (
    GROUP_KEYS,
    POLICIES,
    GroupSpec,
    SchedulerSetup,
    check_retention,
)
from kvroom.engines.serving_rules import (
    ServingRules,
    drafts_of,
    number_flag,
    share_flag,
    switch_flag,
)
from kvroom.engines.vllm.answer import paging
from kvroom.errors import KvroomError
from kvroom.sharding.deployment import Deployment

RETENTION = "prefix_cache_retention_interval"
STATES = "the spare states that recurrent layers keep of a request that drafts are not simulated"
KINDS = {"full": "full", "latent": "full", "window": "sliding_window", "chunked": "chunked_local"}
"""Cache types as groups of the scheduler; what is missing here is state."""


def serving_rules(deployment: Deployment) -> ServingRules:
    """Its blocks, layer groups and limits; KvroomError where requests store nothing."""
    paged = paging(deployment)
    args = {plain_name(key): value for key, value in deployment.args.items()}
    caching = paged.caching
    groups: list[GroupSpec] = []
    for spec in paged.groups:
        if spec.type == "cross":
            continue  # as many blocks for every request, whatever its length
        kind = KINDS.get(spec.type, "mamba")
        tokens = spec.block_tokens * (deployment.layout.dcp if spec.shardable else 1)
        reach = spec.window if GROUP_KEYS[kind] else 0
        groups.append(
            GroupSpec(
                type=kind,
                block_size=tokens,
                reach=reach,
                prefill_checkpoint=spec.checkpoint_tokens,
                rewritten=kind == "mamba" and not paged.rules.state_named_once,
            )
        )
    if not groups:
        why = "keeps no cache that requests would share out"
        raise KvroomError(
            "model", deployment.model.name, why, "Simulate a model that generates text."
        )
    interval = 0 if paged.rules.sparse_retention else None
    if RETENTION in args:
        value = args[RETENTION]
        interval = None if value is None else number_flag(args, RETENTION)
    config = SchedulerConfig(
        max_num_batched_tokens=paged.batch.tokens,
        max_num_seqs=paged.batch.sequences,
        max_model_len=deployment.context_tokens,
        enable_chunked_prefill=paged.chunked_prefill,
        long_prefill_token_threshold=number_flag(args, "long_prefill_token_threshold"),
        watermark=share_flag(args, "watermark"),
        scheduler_reserve_full_isl=switch_flag(
            args, "scheduler_reserve_full_isl", paged.rules.reserves_whole_prompt
        ),
        async_scheduling=paged.batch.asynchronous,
        stages=deployment.layout.pp,
        spreads=paged.batch.spreads,
        policy=one_of(*POLICIES)("engine_args.scheduling_policy", args.get("scheduling_policy"))
        if args.get("scheduling_policy")
        else "fcfs",
        overruns=paged.rules.overruns,
        tries_others=paged.rules.priority_tries_others,
        lone_prompt_uncapped=paged.rules.lone_prompt_uncapped,
        passes_over=paged.rules.passes_over,
        in_turn=not paged.rules.uncached_first,
        bounding_batches=paged.rules.bounding_batches,
        state_short_of_end=paged.rules.state_short_of_end,
        state_replays=paged.rules.state_replays,
        junctions=paged.rules.junctions,
        state_inside=paged.rules.state_inside,
        rest_uncut=paged.rules.rest_uncut,
    )
    setup = SchedulerSetup(
        num_gpu_blocks=paged.num_blocks,
        groups=tuple(groups),
        enable_prefix_caching=caching,
        prefix_cache_retention_interval=interval,
        config=config,
        drafts=drafts_of(deployment),
    )
    check_retention(setup, f"engine_args.{RETENTION}")
    notes: list[str] = []
    if deployment.speculation and any(group.type == "mamba" for group in groups):
        notes.append(STATES)
    return ServingRules(setup=setup, block_bytes=paged.block_bytes, warnings=tuple(notes))
