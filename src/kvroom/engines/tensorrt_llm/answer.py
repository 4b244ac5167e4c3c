"""TensorRT-LLM's answer: its budget, its pools, and what of a request they hold."""

from __future__ import annotations

from fractions import Fraction
from math import hypot

from kvroom.answer.plan import Account, EngineCapacity
from kvroom.engines import flags as read
from kvroom.engines.base import EngineAnswer, account
from kvroom.engines.tensorrt_llm.flags import KNOWN_FLAGS, read_flags
from kvroom.engines.tensorrt_llm.pools import (
    TensorrtLlmSetup,
    WindowPools,
    growing,
    pools_of,
    state_bytes,
)
from kvroom.engines.tensorrt_llm.versions import release_of
from kvroom.models.kinds import Latent
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank
from kvroom.sharding.ledger import binding_rank
from kvroom.units import MIB, show_gib, show_tokens

Band = tuple[int, int, int]
"""(estimate, low, high) in bytes."""

CONTEXT: Band = (750 * MIB, 350 * MIB, 2048 * MIB)
"""The driver's context, workspaces and decoder buffers, from the few logs that tell them."""
LINKS: Band = (700 * MIB, 200 * MIB, 1800 * MIB)
"""NCCL's buffers where a replica has several GPUs."""
GRAPHS: Band = (400 * MIB, 50 * MIB, 2048 * MIB)


@dataclass(frozen=True)
class RankMemory:
    """One rank's memory: what is there, what is taken, what the cache gets of the rest."""

    gpu_bytes: int
    others: int
    weights: int
    beside: tuple[Account, ...]
    """What is loaded beside the weights: a draft model."""
    overheads: dict[str, Band]
    share: float
    workspace: int = 0

    def free(self, end: int = 0) -> int:
        """Free after the estimation run: as estimated, or at the good (1) or bad (-1) end."""
        left = self.gpu_bytes - self.others - self.weights - sum(a.bytes for a in self.beside)
        left -= sum(overhead[0] for overhead in self.overheads.values())
        if end > 0:
            left += round(
                hypot(*(overhead[0] - overhead[1] for overhead in self.overheads.values()))
            )
        if end < 0:
            left -= round(
                hypot(*(overhead[2] - overhead[0] for overhead in self.overheads.values()))
            )
        return max(0, left)

    def cache(self, end: int = 0) -> int:
        """Bytes for cache by the engine's fraction."""
        return int(Fraction(self.share) * self.free(end))


def answer(deployment: Deployment) -> EngineAnswer:
    """What TensorRT-LLM of the asked release makes of the deployment."""
    rules, note = release_of(deployment.version)
    flags = read_flags(deployment.args, deployment.layout)
    tp = 1 if flags.attention_dp else deployment.layout.tp
    own, whole = (
        deployment.extras.on(deployment.weights.ranks(deployment.layout, None, n), n)
        for n in (tp, 1)
    )
    setup = TensorrtLlmSetup(deployment, rules, flags, own, whole)
    budgets = [_budget(setup, rank) for rank in setup.ranks]
    pools_at = [_pools(setup, budgets, end) for end in (0, -1, 1)]
    pools = pools_at[0]
    unused = read.unknown("TensorRT-LLM", deployment.args, KNOWN_FLAGS)
    warnings = ((note,) if note else ()) + unused + _notes(setup)
    count = deployment.layout.tp if flags.attention_dp else 1
    if pools is None:
        return _cacheless(setup, budgets, warnings)
    budget = budgets[pools.stage]
    tokens = deployment.context_tokens
    starts, reason = _check(setup, budget, pools)
    longest = pools.longest()
    if starts and longest < setup.length:
        warnings += (
            f"max_seq_len is cut to {longest:,} tokens, what the pool holds of one request",
        )
    held = pools.concurrency(tokens)
    ends = [p.concurrency(tokens) if p else held for p in pools_at]
    window = next((pool for pool in pools.pools if pool.window), None)
    return EngineAnswer(
        rank=setup.ranks[pools.stage],
        gpu_bytes=budget.gpu_bytes,
        accounts=_accounts(deployment, budget, pools_at if starts else []),
        kv_bytes=pools.cache_bytes + pools.state_bytes if starts else 0,
        capacity=EngineCapacity(
            num_blocks=pools.blocks,
            block_tokens=setup.block_tokens,
            kv_tokens=pools.tokens,
            max_concurrency=held,
            max_context_tokens=longest,
            low=min(ends),
            high=max(ends),
            window_tokens=window.tokens // setup.block_tokens * setup.block_tokens
            if window and window is not pools.main
            else None,
            state_slots=setup.slots if pools.state_bytes else None,
            max_running_requests=flags.requests,
        ),
        starts=starts,
        reason=reason,
        pools=count,
        warnings=warnings,
    )


def _pools(setup: TensorrtLlmSetup, budgets: list[RankMemory], end: int) -> WindowPools | None:
    caches = []
    for memory in budgets:
        size = memory.cache(end)
        if setup.flags.total_bytes:
            size = min(size, setup.flags.total_bytes)
        caches.append(max(0, size - memory.workspace))
    # Once the run is over its activations are free again.
    frees = [budget.free(end) + budget.overheads["activations"][0] for budget in budgets]
    return pools_of(setup, caches, frees)


def _budget(setup: TensorrtLlmSetup, rank: Rank) -> RankMemory:
    deployment, known = setup.d, setup.d.known_bytes
    gpu = known.get("visible", deployment.device.engine_bytes)
    several = deployment.layout.tp * deployment.layout.pp > 1
    runtime = tuple(a + (link if several else 0) for a, link in zip(CONTEXT, LINKS, strict=True))
    accounts: dict[str, Band] = {
        "activations": _activations(setup),
        "runtime": (runtime[0], runtime[1], runtime[2]),
        "graphs": GRAPHS if setup.pytorch else (0, 0, 0),
    }
    for name in accounts:
        if name in known:
            accounts[name] = (known[name],) * 3
    memory = RankMemory(
        gpu_bytes=gpu,
        others=max(0, gpu - known.get("free_before_load", gpu)),
        weights=known.get("weights", rank.weight_bytes),
        beside=deployment.extras.accounts(rank.stage),
        overheads=accounts,
        share=setup.flags.share,
    )
    return RankMemory(**{**vars(memory), "workspace": _workspace(setup, rank, memory.cache())})


def _activations(setup: TensorrtLlmSetup) -> Band:
    """The peak of a run of max_num_tokens: what the widest layer holds at 16 bits."""
    model = setup.d.model
    inner = max(
        (
            sum(
                tensor.rows * (tensor.active or 1)
                for tensor in run.layer.tensors
                if tensor.part in ("mlp", "expert")
            )
            for run in model.layers
        ),
        default=0,
    )
    middle = setup.flags.batch_tokens * (8 * model.hidden_size + inner // setup.d.layout.tp) * 2
    return middle, middle // 3, 4 * middle


def _workspace(setup: TensorrtLlmSetup, rank: Rank, cache: int) -> int:
    """What FP8 latent attention keeps aside to expand cached prompts in, where prefixes are reused and
    prefill is not cut into chunks."""
    latent = next((kind for kind, _ in rank.stores if isinstance(kind, Latent)), None)
    chunked = setup.flags.chunked_prefill or not setup.flags.reuse
    if latent is None or setup.d.kv.bits != 8 or chunked or not setup.pytorch:
        return 0
    each = latent.q_heads * (latent.k_dim + latent.v_dim)
    stored = sum(
        kind.block_bytes(1, setup.d.kv) * count for kind, count in rank.stores if growing(kind)
    )
    requests = min(setup.flags.requests, setup.flags.batch_tokens)
    lengths = setup.flags.workspace_cap or requests * setup.length
    return min(each * lengths, cache * each // (stored + each))


def _check(setup: TensorrtLlmSetup, budget: RankMemory, pools: WindowPools) -> tuple[bool, str]:
    """Whether it starts: weights fit and a block is left."""
    if budget.free() <= 0:
        return False, f"weights and a full batch leave nothing free of {show_gib(budget.gpu_bytes)}"
    if pools.state_bytes and not pools.blocks:
        return False, (
            f"recurrent state of {setup.flags.requests:,} requests takes "
            f"{show_gib(pools.state_bytes)} (max_batch_size)"
        )
    if not pools.blocks:
        return False, "not one block of cache has room"
    return True, ""


def _accounts(
    deployment: Deployment, memory: RankMemory, ends: list[WindowPools | None]
) -> tuple[Account, ...]:
    """One GPU's memory; ``ends``: the pools as estimated and at the ends of the bands (none: refused)."""
    known = deployment.known_bytes
    sizes = [end.cache_bytes + end.state_bytes for end in ends if end] or [0]
    activations = memory.overheads["activations"]
    accounts = [
        account("weights", memory.weights, "measured" if "weights" in known else "config"),
        *memory.beside,
        account(
            "activations",
            activations[0] + memory.workspace,
            "measured" if "activations" in known else "assumed",
            (activations[1] + memory.workspace, activations[2] + memory.workspace),
        ),
        *(
            account(
                n,
                memory.overheads[n][0],
                "measured" if n in known else "assumed",
                memory.overheads[n][1:],
            )
            for n in ("runtime", "graphs")
        ),
        account("kv", sizes[0], "engine rule", (min(sizes), max(sizes))),
    ]
    unused = memory.gpu_bytes - sum(account.bytes for account in accounts)
    return (*accounts, account("unused", unused, "engine rule"))


def _cacheless(
    setup: TensorrtLlmSetup, budgets: list[RankMemory], warnings: tuple[str, ...]
) -> EngineAnswer:
    """A model without blocks: state alone, or nothing to keep."""
    rank = binding_rank(setup.d, budgets[0].gpu_bytes)
    budget = budgets[rank.stage]
    state = state_bytes(setup.ranks[rank.stage])
    need = state * setup.slots
    starts = budget.free() > 0 and need <= budget.cache()
    held = min(setup.flags.requests, budget.cache() // state) if state else None
    over = budget.overheads
    accounts = [
        account("weights", budget.weights, "config"),
        *budget.beside,
        *(account(key, value[0], "assumed", value[1:]) for key, value in over.items()),
        account("kv", need if starts else 0, "engine rule"),
    ]
    spent = sum(account.bytes for account in accounts)
    return EngineAnswer(
        rank=setup.ranks[rank.stage],
        gpu_bytes=budget.gpu_bytes,
        accounts=(*accounts, account("unused", budget.gpu_bytes - spent, "engine rule")),
        kv_bytes=need if starts else 0,
        capacity=EngineCapacity(
            max_concurrency=float(held) if held is not None else None,
            state_slots=setup.slots if state else None,
            max_running_requests=setup.flags.requests,
        ),
        starts=starts,
        reason=""
        if starts
        else f"weights, overheads and state of {setup.flags.requests:,} requests have no room "
        "(max_batch_size)",
        warnings=warnings,
    )


def _notes(setup: TensorrtLlmSetup) -> tuple[str, ...]:
    notes: list[str] = []
    near = [kind for kind, _ in setup.d.model.stores if kind.window_tokens is not None]
    if near and not any(setup.window_of(k) for k in near):
        notes.append(
            "TensorRT-LLM keeps this model's windows at full length (max_attention_window sets them)"
        )
    if setup.flags.length and setup.flags.length < setup.d.context_tokens:
        notes.append(
            f"max_seq_len {setup.flags.length:,} is below the {show_tokens(setup.d.context_tokens)} asked for"
        )
    if setup.second_manager and any(setup.window_of(k) for k in near):
        notes.append(
            "the cache manager V2 moves memory between windows: their pools are an estimate"
        )
    if not setup.pytorch:
        notes.append("a compiled engine's cache dtype and limits are those it was built with")
    return tuple(notes)
