"""Which rules a deployment is served by: its engine's scheduler, with the blocks and limits that it gives.

Engines bring their own (``Engine.scheduler_rules``); what is not modelled goes by the rules of ``paged``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.flags import count, share, switch
from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import GroupSpec, SchedulerSetup
from kvroom.engines.scheduler import EngineScheduler
from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment

BLOCK_TOKENS = STRETCH_TOKENS = 16
SEQUENCES, BATCH_TOKENS = 256, 8192
"""Taken for engines whose own limits are not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchRules:
    """How an engine brings cache from storage into host memory while a request waits in its queue.

    ``policy``: a request whose turn comes starts with what is there (``best_effort``), waits for all of it
    (``wait_complete``), or until ``wait_s`` and ``wait_s_per_token`` are over (``timeout``), counted from
    when its turn first came (``from_turn``) or from when it was queued. Nothing is fetched that is less than
    ``least_tokens``, nor while requests ask for more than the host's ``share`` of what ``beyond_gpu`` it
    has.
    """

    policy: str
    least_tokens: int
    wait_s: float
    wait_s_per_token: float
    from_turn: bool
    share: float
    beyond_gpu: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRules:
    """The engine of a deployment as the rules take it, and what has to be said about it."""

    setup: SchedulerSetup
    own: Callable[[Drafts | None], EngineScheduler] | None = None
    """Makes the rules of an engine that does not go by vLLM's, of which ``setup`` holds the sizes."""
    warnings: tuple[str, ...] = ()
    mixes: bool = True
    """Whether a step computes prompts beside requests that decode."""
    own_steps: int | None = None
    own_names: int | None = None
    """Of ``own`` rules: steps in flight, tokens that its cache tells apart (None: a step, a block)."""
    loads_tokens: int | None = None
    """``own`` rules load what lies in tiers below the cache where it is so many tokens, whatever that takes
    (None: they know no tiers)."""
    fetch: FetchRules | None = None
    """How ``own`` rules fetch what lies below host memory (None: they do not)."""
    tier_write: str = "through"
    """How tiers are written where nothing else is said."""
    block_bytes: tuple[int, ...] = ()
    """By stage, what a block of the pool takes on one rank, where a connector serves layers in groups."""
    in_slots: bool = False
    """Whether what a request leaves stays in its slot until the next takes that."""

    @property
    def jumps(self) -> bool:
        """Whether it can be served from event to event, while nothing is drafted, with tiers or in two pools
        too: it has one group of full attention, whose queue nobody overtakes."""
        groups = self.setup.groups
        return self._in_order and len(groups) == 1 and groups[0].type == "full"

    def jumps_over_groups(self, named: bool) -> bool:
        """Whether several groups, or one of windows, can be served from event to event, while nothing is
        drafted; ``named``: requests say what they share."""
        return self._in_order and self.setup.counts(named)

    @property
    def _in_order(self) -> bool:
        """Whether vLLM's rules serve it, and nobody overtakes the head of the queue."""
        config = self.setup.config
        return self.own is None and (config.enable_chunked_prefill or not config.passes_over)

    def seeded(self, seed: int) -> ServingRules:
        """The same with drafts drawn by ``seed``."""
        setup = self.setup
        if setup.drafts is None:
            return self
        return replace(self, setup=replace(setup, drafts=replace(setup.drafts, seed=seed)))

    @property
    def steps_in_flight(self) -> int:
        """Steps that may be scheduled before the output of the first is there."""
        if self.own is not None:
            return self.own_steps or 1
        return self.setup.config.steps_in_flight

    @property
    def depth(self) -> int:
        """Steps that are in the stages of a pipeline at once; 0: it has none, or is played as one step."""
        config = self.setup.config
        return config.depth if config.stages > 1 else 0

    @property
    def name_tokens(self) -> int:
        """How many tokens of a prompt its cache tells apart."""
        if self.own is not None:
            return self.own_names or self.setup.groups[0].block_size
        return self.setup.scheduler().cache.hash_tokens

    def scheduler(self) -> EngineScheduler:
        """The scheduler, to be stepped."""
        return self.own(self.setup.drafts) if self.own else self.setup.scheduler()


def drafts_of(deployment: Deployment) -> Drafts | None:
    """What is drafted in a simulation of ``d``."""
    return Drafts.of(deployment.speculation) if deployment.speculation else None


def paged_rules(deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
    """An engine without a scheduler of its own here: vLLM's rules over the tokens that its cache holds.

    KvroomError where it keeps no cache that requests would share out.
    """
    tokens = capacity.kv_tokens
    if tokens is None:
        why = "keeps no cache that requests would share out"
        raise KvroomError(
            "model", deployment.model.name, why, "Simulate a model that generates text."
        )
    # Prefixes are told apart in stretches of 16 tokens where pages are smaller.
    size = max(capacity.block_tokens or BLOCK_TOKENS, STRETCH_TOKENS)
    config = SchedulerConfig(
        max_num_batched_tokens=BATCH_TOKENS,
        max_num_seqs=capacity.max_running_requests or SEQUENCES,
        max_model_len=deployment.context_tokens,
    )
    setup = SchedulerSetup(
        num_gpu_blocks=tokens // size + 1,
        groups=(GroupSpec(type="full", block_size=size),),
        enable_prefix_caching=True,
        prefix_cache_retention_interval=0,
        config=config,
        drafts=drafts_of(deployment),
    )
    return ServingRules(setup=setup)


def number_flag(args: Mapping[str, Any], name: str) -> int:
    """A flag's whole number, 0 where it is not set."""
    value = args.get(name)
    return 0 if value in (None, 0, "0") else count(f"engine_args.{name}", value)


def share_flag(args: Mapping[str, Any], name: str) -> float:
    """A flag's share, 0 where it is not set."""
    value = args.get(name)
    return 0.0 if value in (None, 0, 0.0, "0") else share(f"engine_args.{name}", value)


def switch_flag(args: Mapping[str, Any], name: str, usual: bool) -> bool:
    """A switch or its negative, ``usual`` where neither is set."""
    if args.get(f"no_{name}") is not None:
        return not switch(f"engine_args.no_{name}", args[f"no_{name}"])
    return usual if args.get(name) is None else switch(f"engine_args.{name}", args[name])
