"""What vLLM's scheduler is made of: layer groups, blocks and settings."""

from __future__ import annotations

from itertools import groupby

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.paged.scheduler import Scheduler
from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.errors import KvroomError
from kvroom.kvcache.block_pool import BlockPool
from kvroom.kvcache.groups import (
    ChunkedLocalGroup,
    FullAttentionGroup,
    KVCacheGroup,
    SlidingWindowGroup,
)
from kvroom.kvcache.mamba_groups import AlignedMambaGroup, MambaGroup
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.records import dataclass

POLICIES = ("fcfs", "priority")
GROUP_KEYS = {"full": None, "sliding_window": "window", "chunked_local": "chunk", "mamba": None}
"""The kinds of layer groups, and the one key that each has besides its block size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSpec:
    """A layer group: its kind, its block size and, where it has one, its window or chunk.

    ``prefill_checkpoint``: of recurrent layers whose kernels save a state within a step, what it is a
    multiple of in tokens (0: they do not). ``rewritten``: a state that a running request names again counts
    as written in that step, so that nobody may start from it before the next.
    """

    type: str
    block_size: int
    reach: int = 0
    prefill_checkpoint: int = 0
    rewritten: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerSetup:
    """What one engine's scheduler is made of; ``num_gpu_blocks`` includes the null block."""

    num_gpu_blocks: int
    groups: tuple[GroupSpec, ...]
    enable_prefix_caching: bool
    prefix_cache_retention_interval: int | None
    config: SchedulerConfig
    drafts: Drafts | None = None

    def counts(self, named: bool) -> bool:
        """Whether what requests hold of each kind of group follows from their lengths alone while they
        decode: blocks that grow are of one size, and either all are cached or those at prompts' ends.

        ``named``: requests say what they share. Where every state of an answer is cached too, who may start
        from one then hangs on the step in which it was written.
        """
        groups, context = self.groups, self.config.max_model_len
        caching = self.enable_prefix_caching
        sizes = {group.block_size for group in groups if caching or group.block_size < context}
        alike = [key for key, _ in groupby(groups)]
        ends = not caching or not self.prefix_cache_retention_interval
        narrow = any(group.type == "sliding_window" and group.reach < 2 for group in groups)
        if caching and self.config.in_turn:
            return False  # windows and answers then leave blocks whose place in the queue is not counted
        if self.config.async_scheduling and self.config.bounding_batches is not None:
            return False  # what is counted as held is what steps in flight read
        if named and caching and self.prefix_cache_retention_interval is None:
            ends = all(group.type != "mamba" for group in groups)
        return len(sizes) <= 1 and len(alike) == len(set(alike)) and ends and not narrow

    def scheduler(self) -> Scheduler:
        """vLLM's rules with an empty pool."""
        return Scheduler(self.config, self.cache(), self.drafts)

    def cache(self, pool: BlockPool | None = None) -> PrefixCache:
        """The layer groups over an empty pool, or over ``pool``."""
        config = self.config
        groups = [
            _kv_cache_group(index, group, self.enable_prefix_caching, config)
            for index, group in enumerate(self.groups)
        ]
        made = PrefixCache(
            groups,
            self.num_gpu_blocks,
            caching=self.enable_prefix_caching,
            context_tokens=config.max_model_len,
            in_flight_tokens=config.bounding_tokens,
            interval=self.prefix_cache_retention_interval,
            pool=pool,
        )
        made.pool.in_turn = config.in_turn
        made.keeps_in_flight = config.bounding_batches is None
        return made


def _kv_cache_group(
    index: int, group: GroupSpec, caching: bool, config: SchedulerConfig
) -> KVCacheGroup:
    match group.type:
        case "sliding_window":
            return SlidingWindowGroup(index, group.block_size, group.reach)
        case "chunked_local":
            return ChunkedLocalGroup(index, group.block_size, group.reach)
        case "mamba":
            if not caching:
                return MambaGroup(index, group.block_size)
            made = AlignedMambaGroup(
                index, group.block_size, group.prefill_checkpoint, rewritten=group.rewritten
            )
            made.waits, made.finds_inside_blocks = config.state_replays, config.state_inside
            return made
        case _:
            return FullAttentionGroup(index, group.block_size)


def check_retention(setup: SchedulerSetup, field: str) -> None:
    """Refuse a retention interval as vLLM does at its start; KvroomError names ``field``."""
    interval = setup.prefix_cache_retention_interval
    if not interval:
        return
    if not {group.type for group in setup.groups} & {"sliding_window", "mamba"}:
        fix = "Leave it out: it is about sliding_window and mamba groups."
        raise KvroomError(field, interval, "has no group to act on", fix)
    block_tokens = setup.scheduler().cache.block_tokens
    if interval % block_tokens:
        fix = f"Write a multiple of {block_tokens}, the groups' common block size."
        raise KvroomError(field, interval, "does not end at whole blocks", fix)
