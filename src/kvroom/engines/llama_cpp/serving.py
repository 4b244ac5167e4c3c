"""What llama.cpp's slots are given to serve a deployment with."""

from __future__ import annotations

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.flags import plain_name
from kvroom.engines.llama_cpp.scheduler import SlotScheduler, SlotSettings
from kvroom.engines.serving_rules import ServingRules, number_flag, paged_rules
from kvroom.sharding.deployment import Deployment

BATCH_TOKENS = 2048


def serving_rules(deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
    """Its slots and their cells."""
    setup = paged_rules(deployment, capacity).setup
    args = {plain_name(key): value for key, value in deployment.args.items()}
    size = setup.groups[0].block_size
    longest = capacity.max_context_tokens
    settings = SlotSettings(
        slots=setup.config.max_num_seqs,
        tokens=(setup.num_gpu_blocks - 1) * size,
        context_tokens=min(deployment.context_tokens, longest or deployment.context_tokens),
        batch_tokens=number_flag(args, "batch_size") or BATCH_TOKENS,
        stretch=size,
    )
    return ServingRules(
        setup=setup, own=lambda drafts: SlotScheduler(settings, drafts), in_slots=True
    )
