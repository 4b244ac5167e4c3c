"""vLLM's answer: from its flags and its release's rules to blocks, printed tokens and a verdict."""

from __future__ import annotations

from functools import cached_property

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.base import EngineAnswer
from kvroom.engines.releases import shown
from kvroom.engines.start_rules import StartRefusal, refusals
from kvroom.engines.vllm import memory as ledger
from kvroom.engines.vllm.capacity import Stage, VllmPool
from kvroom.engines.vllm.connectors import turns_manager_off
from kvroom.engines.vllm.defaults import Batching, batching
from kvroom.engines.vllm.groups import CannotStart, Group, check_context_ranks, groups_of
from kvroom.engines.vllm.notes import limit_of, notes
from kvroom.engines.vllm.packed import packed_groups
from kvroom.engines.vllm.pages import Pages
from kvroom.engines.vllm.setup import VllmSetup, setup
from kvroom.engines.vllm.specs import LayerSpec, Spec
from kvroom.engines.vllm.start_rules import POOL_RULES, START_RULES, PoolQuestion
from kvroom.engines.vllm.versions import VllmRules
from kvroom.memo import Memo
from kvroom.models.kinds import ChunkedAttention
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank
from kvroom.sharding.ledger import binding_rank
from kvroom.units import say_tokens, show_gib


@dataclass(frozen=True)
class VllmWorkings(VllmSetup):
    """The question with what follows from it."""

    @cached_property
    def batch(self) -> Batching:
        """What the scheduler works with."""
        return batching(self)

    @cached_property
    def pages(self) -> Pages:
        """Block sizes and what is kept of each layer."""
        return Pages(self)

    @property
    def hybrid(self) -> bool:
        """Whether the hybrid cache manager groups the layers."""
        if not self.rules.hybrid_manager or self.first_engine or turns_manager_off(self):
            return False
        chunked = any(isinstance(kind, ChunkedAttention) for kind, _ in self.d.model.stores)
        if self.flags.hybrid_off is None:
            return self.rules.chunked_grouped or not chunked
        return not self.flags.hybrid_off

    def groups(self, rank: Rank) -> list[Group]:
        """The groups as they lie on ``rank``'s stage."""
        specs = self.pages.specs
        if self.pages.compressed:
            return [
                packed_group.on(rank.layers) for packed_group in packed_groups(specs, self.rules)
            ]
        if self.rules.whole_model_groups:
            made = groups_of(specs, self.rules, hybrid=self.hybrid)
            return made if len(self.d.ranks) == 1 else [g.on(rank.layers) for g in made]
        held = [spec for spec in specs if spec[0] in rank.layers]
        return groups_of(held, self.rules, hybrid=self.hybrid)

    @cached_property
    def laid_out(self) -> list[tuple[tuple[Group, ...], tuple[LayerSpec, ...]]]:
        """Each stage's groups, and its layers' specs before any unifying."""
        specs = self.pages.specs
        return [
            (tuple(self.groups(rank)), tuple(spec for spec in specs if spec[0] in rank.layers))
            for rank in self.d.ranks
        ]

    def stages(self, cache_bytes: list[int]) -> list[Stage]:
        """The stages with their groups and ``cache_bytes``."""
        return [
            Stage(groups=groups, specs=specs, cache_bytes=size)
            for (groups, specs), size in zip(self.laid_out, cache_bytes, strict=True)
        ]

    def pool(self, cache_bytes: list[int]) -> VllmPool:
        """The pool of blocks in ``cache_bytes`` of each stage."""
        return VllmPool(
            stages=self.stages(cache_bytes),
            rules=self.rules,
            in_flight=self.batch.in_flight_tokens,
            dcp=self.d.layout.dcp,
            encoder_tokens=self.d.encoder_tokens,
            override=self.flags.blocks,
        )


def _asked(deployment: Deployment) -> tuple[VllmWorkings, tuple[str, ...]]:
    """The VllmWorkings of ``d`` and warnings, kept for whoever asks next about it."""

    def make() -> tuple[VllmWorkings, tuple[str, ...]]:
        asked, warnings = setup(deployment)
        return VllmWorkings(asked.d, asked.rules, asked.flags, asked.platform), warnings

    return _ASKED.get((deployment,), (), make)


_ASKED: Memo[tuple[VllmWorkings, tuple[str, ...]]] = Memo(4)


def answer(deployment: Deployment) -> EngineAnswer:
    """What vLLM of the asked release makes of the deployment."""
    workings, warnings = _asked(deployment)
    budgets = [ledger.budget(workings, rank, workings.batch) for rank in deployment.ranks]
    given = workings.flags.cache_bytes
    sizes = [given if given is not None else budget.cache_bytes() for budget in budgets]
    if refused := tuple(refusals(START_RULES, workings, workings.release)):
        return _refused(
            workings, budgets, sizes, refused[0].reason.clause, warnings, refused=refused
        )
    try:
        check_context_ranks(deployment, workings.pages.specs)
        pool = workings.pool(sizes)
    except CannotStart as refusal:
        return _refused(workings, budgets, sizes, str(refusal), warnings)
    if not any(stage.groups for stage in pool.stages):
        return _cacheless(workings, budgets, sizes, warnings)
    tokens = deployment.context_tokens
    if workings.flags.auto_fit:
        tokens, more = _auto_fit(pool, tokens)
        warnings += more
    warnings += notes(workings, workings.pages, pool, hybrid=workings.hybrid, tokens=tokens)
    against = tuple(
        refusals(POOL_RULES, PoolQuestion(workings, pool, budgets[0]), workings.release)
    )
    starts, reason = _check(workings, pool, tokens)
    if against:
        starts, reason = False, f"vLLM {shown(workings.rules.release)}: {against[0].reason.clause}"
    at = min(range(len(deployment.ranks)), key=lambda i: (_room(pool.stages[i]), i))
    low, high = (
        (workings.pool([budget.cache_bytes(k) for budget in budgets]) for k in (-1, 1))
        if given is None
        else (pool, pool)
    )
    return EngineAnswer(
        rank=deployment.ranks[at],
        gpu_bytes=budgets[at].gpu_bytes,
        accounts=ledger.accounts(budgets[at], deployment, given),
        kv_bytes=max(0, sizes[at]),
        capacity=EngineCapacity(
            num_blocks=pool.num_blocks,
            block_tokens=pool.block_tokens,
            kv_tokens=pool.printed_tokens(tokens),
            max_concurrency=pool.concurrency(tokens),
            max_context_tokens=pool.longest(),
            low=low.concurrency(tokens),
            high=high.concurrency(tokens),
            max_running_requests=workings.batch.sequences,
        ),
        starts=starts,
        reason=reason,
        refusals=against,
        cache_given=workings.flags.cache_bytes is not None,
        limit=limit_of(workings.pages, pool, at, hybrid=workings.hybrid, tokens=tokens),
        stage_bytes=tuple(sizes),
        warnings=warnings,
        outside_bytes=budgets[at].outside,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Paging:
    """What the scheduler of a replica works with: its pool, its layer groups, its limits."""

    rules: VllmRules
    num_blocks: int
    groups: tuple[Spec, ...]
    batch: Batching
    chunked_prefill: bool
    caching: bool
    block_bytes: tuple[int, ...]
    """By stage, what a block takes on one rank."""


def paging(deployment: Deployment) -> Paging:
    """The blocks and limits that requests are scheduled with; CannotStart where vLLM refuses."""
    workings, _ = _asked(deployment)
    given = workings.flags.cache_bytes
    sizes = [
        given if given is not None else ledger.budget(workings, rank, workings.batch).cache_bytes()
        for rank in deployment.ranks
    ]
    pool = workings.pool(sizes)
    return Paging(
        rules=workings.rules,
        num_blocks=pool.num_blocks,
        groups=tuple(group.spec for group in pool.stages[0].groups),
        batch=workings.batch,
        chunked_prefill=workings.flags.chunked_prefill,
        caching=workings.pages.caching,
        block_bytes=tuple(stage.block_bytes for stage in pool.stages),
    )


def _room(stage: Stage) -> int:
    """Blocks of a stage; one that stores nothing never binds."""
    return stage.blocks if stage.block_bytes else 2**62


def _auto_fit(pool: VllmPool, limit: int) -> tuple[int, tuple[str, ...]]:
    """The longest context up to ``limit`` that fits, as ``max_model_len=-1`` asks for."""
    longest = pool.longest(limit) or 0
    if longest in (0, limit):
        return limit, ()
    return longest, (
        f"max_model_len is fitted to the cache: {longest:,} of {limit:,} tokens (auto)",
    )


def _check(workings: VllmWorkings, pool: VllmPool, tokens: int) -> tuple[bool, str]:
    """Whether one request of ``tokens`` fits as the start-up check counts, and why not."""
    if pool.fits(tokens):
        return True, ""
    need, have = max(pool.needs(tokens), key=lambda x: x[0] - x[1])
    if have <= 0:
        return False, f"nothing is left for cache ({show_gib(have)})"
    return False, (
        f"one request of {say_tokens(tokens)} needs {show_gib(need)} of cache by "
        f"vLLM {shown(workings.rules.release)}'s count, and {show_gib(have)} are there"
    )


def _refused(
    workings: VllmWorkings,
    budgets: list[ledger.Budget],
    sizes: list[int],
    reason: str,
    warnings: tuple[str, ...],
    *,
    refused: tuple[StartRefusal, ...] = (),
) -> EngineAnswer:
    rank = binding_rank(workings.d, budgets[0].gpu_bytes)
    at = rank.stage
    cache = max(0, sizes[at])
    return EngineAnswer(
        rank=rank,
        gpu_bytes=budgets[at].gpu_bytes,
        accounts=ledger.accounts(budgets[at], workings.d, workings.flags.cache_bytes),
        kv_bytes=cache,
        capacity=None,
        starts=False,
        reason=f"vLLM {shown(workings.rules.release)}: {reason}",
        refusals=refused,
        cache_given=workings.flags.cache_bytes is not None,
        warnings=warnings,
    )


def _cacheless(
    workings: VllmWorkings,
    budgets: list[ledger.Budget],
    sizes: list[int],
    warnings: tuple[str, ...],
) -> EngineAnswer:
    """A model that stores nothing for a request: it starts when its weights and overheads fit."""
    at = binding_rank(workings.d, budgets[0].gpu_bytes).stage
    fits = all(size >= 0 for size in sizes)
    cache = max(0, sizes[at])
    return EngineAnswer(
        rank=workings.d.ranks[at],
        gpu_bytes=budgets[at].gpu_bytes,
        accounts=ledger.accounts(budgets[at], workings.d, workings.flags.cache_bytes),
        kv_bytes=cache,
        capacity=EngineCapacity(max_running_requests=workings.batch.sequences),
        starts=fits,
        reason="" if fits else "weights and overheads need more than its share",
        cache_given=workings.flags.cache_bytes is not None,
        warnings=warnings,
        outside_bytes=budgets[at].outside,
    )
