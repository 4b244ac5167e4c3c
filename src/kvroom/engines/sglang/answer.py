"""SGLang's answer: from its flags and its release's rules to pools, printed tokens and a verdict."""

from __future__ import annotations

from kvroom.answer.plan import Account, EngineCapacity
from kvroom.engines import flags as read
from kvroom.engines.base import EngineAnswer, account
from kvroom.engines.releases import nearest_release, shown
from kvroom.engines.sglang.flags import KNOWN_FLAGS
from kvroom.engines.sglang.pools import (
    SglangPools,
    StageLayers,
    pools_of,
    stage_layers,
    stage_sizes,
)
from kvroom.engines.sglang.resolved_args import SglangArgs, settings_of
from kvroom.engines.sglang.share import StaticShare, image_reserve_mib, static_share
from kvroom.engines.sglang.state import PoolRefused
from kvroom.engines.sglang.versions import NEWEST, OLDEST, rules_of
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank, uneven_heads
from kvroom.units import GIB, KIB, MIB, show_gib

CONTEXT_BYTES = (600 * MIB, 300 * MIB, 1200 * MIB)
"""What the driver's context takes before SGLang looks at free memory: estimate, least, most."""
LINKS_BYTES = (700 * MIB, 200 * MIB, 1800 * MIB)
"""What NCCL takes besides where a replica has several GPUs."""
LEAST_SHARE = 4
"""SGLang's own guess at activations and graphs is at most so many times what they come to."""
LOAD_SLACK = (1.0, 1.0, 1.03)
"""Weights as loaded over weights as stored."""


@dataclass(frozen=True, slots=True)
class Free:
    """One rank's memory as SGLang measures it before it loads, and the weights that it then holds.

    ``beside`` are adapters and a draft model.
    """

    before: int
    weights: int
    beside: int

    @property
    def loaded(self) -> int:
        """All that is there after loading."""
        return self.weights + self.beside

    @property
    def after_gib(self) -> float:
        """GiB free after loading."""
        return (self.before - self.loaded) / GIB


def answer(deployment: Deployment) -> EngineAnswer:
    """What SGLang of the asked release makes of the deployment."""
    release, note = nearest_release("SGLang", deployment.version, OLDEST, NEWEST)
    args = settings_of(deployment, rules_of(release))
    sizes = stage_sizes(args)
    ranks = deployment.weights.ranks(deployment.layout, sizes, args.attention_tp)
    stages = stage_layers(args, sizes)
    share = static_share(args)
    gpu = deployment.known_bytes.get("visible", deployment.device.engine_bytes)
    unused = read.unknown("SGLang", deployment.args, KNOWN_FLAGS)
    warnings = ((note,) if note else ()) + unused + _notes(args)
    heaviest = max(ranks, key=lambda r: (deployment.loaded_bytes(r), -r.stage))
    frees = [_free(deployment, heaviest, gpu, which) for which in (0, 1, 2)]
    uneven = uneven_heads(deployment.model, args.attention_tp)
    try:
        if uneven:
            raise PoolRefused(uneven)
        pools = pools_of(args, stages, _rest_gib(args, share, frees[0]))
    except PoolRefused as refusal:
        return EngineAnswer(
            rank=heaviest,
            gpu_bytes=gpu,
            accounts=_accounts(deployment, share, frees, [0, 0, 0], heaviest),
            kv_bytes=0,
            capacity=None,
            starts=False,
            reason=f"SGLang {shown(args.rules.release)}: {refusal}"
            + ("" if uneven else _static_part(share, frees[0])),
            pools=args.flags.attention_dp,
            warnings=warnings,
        )
    too_little, more = _outside(args, share, frees[0], pools.cache_bytes)
    best, worst = (_pools_or_none(args, stages, share, free) for free in frees[1:])
    ends = [p.cache_bytes if p else 0 for p in (pools, worst, best)]
    tokens = deployment.context_tokens
    rooms = pools.rooms(tokens)
    return EngineAnswer(
        rank=ranks[pools.stage],
        gpu_bytes=gpu,
        accounts=_accounts(deployment, share, frees, ends, heaviest),
        kv_bytes=pools.cache_bytes,
        capacity=EngineCapacity(
            num_blocks=pools.tokens // pools.page,
            block_tokens=pools.page,
            kv_tokens=pools.tokens,
            max_concurrency=pools.concurrency(tokens),
            max_context_tokens=pools.longest(),
            low=worst.concurrency(tokens) if worst else 0.0,
            high=best.concurrency(tokens) if best else pools.concurrency(tokens),
            window_tokens=pools.window_tokens,
            state_slots=pools.slots,
            max_running_requests=pools.requests,
        ),
        starts=not too_little,
        reason=too_little and f"SGLang {shown(args.rules.release)}: {too_little}",
        pools=args.flags.attention_dp,
        limit=pools.limit(tokens),
        binding="state" if rooms.get("state") == min(rooms.values()) else "",
        warnings=warnings + more,
        others_bytes=max(0, gpu - frees[0].before - own_bytes(deployment)),
    )


def _outside(
    args: SglangArgs, share: StaticShare, free: Free, cache: int
) -> tuple[str, tuple[str, ...]]:
    """(why it fails at the start, warnings) where the static part leaves too little beside it.

    Nothing is measured before the pools are laid out: what comes after them, the capture of CUDA graphs
    and then prefill, runs out of memory. It is a refusal where not even the graphs have room, a warning
    where all is less than the low end of its band.
    """
    known = args.d.known_bytes
    left = free.before - free.loaded - cache
    guessed = share.graphs if args.flags.decode_graphs else 0
    graphs = known.get("graphs", guessed)
    activations = known.get("activations", share.activations)
    flags = "--mem-fraction-static, --chunked-prefill-size or --cuda-graph-max-bs"
    asked = (
        f"mem_fraction_static {share.fraction:.3f} leaves {show_gib(max(0, left))} beside the pools"
    )
    if left < graphs:
        return f"{asked}, and CUDA graphs alone take about {show_gib(graphs)} (lower {flags})", ()
    least = sum(
        known.get(name, size // LEAST_SHARE)
        for name, size in (("activations", share.activations), ("graphs", guessed))
    )
    if left >= least:
        return "", ()
    return "", (
        f"{asked}, and prefill may take {show_gib(activations)} and CUDA graphs {show_gib(graphs)}: "
        f"out of memory at graph capture or in the first long prompt (lower {flags})",
    )


def resolved(deployment: Deployment) -> SglangArgs:
    """Its arguments, as the release settles them."""
    release, _ = nearest_release("SGLang", deployment.version, OLDEST, NEWEST)
    return settings_of(deployment, rules_of(release))


def _pools_or_none(
    args: SglangArgs, stages: list[StageLayers], share: StaticShare, free: Free
) -> SglangPools | None:
    try:
        return pools_of(args, stages, _rest_gib(args, share, free))
    except PoolRefused:
        return None


def own_bytes(deployment: Deployment, which: int = 0) -> int:
    """What it takes before it looks at free memory: as estimated (0), at best (1), at worst (2)."""
    links = LINKS_BYTES[which] if deployment.layout.tp * deployment.layout.pp > 1 else 0
    return deployment.known_bytes.get("runtime", CONTEXT_BYTES[which] + links)


def _free(deployment: Deployment, rank: Rank, gpu: int, which: int) -> Free:
    """Free memory and weights: as estimated (0), at best (1), at worst (2); known bytes as they are."""
    taken = own_bytes(deployment, which)
    return Free(
        before=deployment.known_bytes.get("free_before_load", max(0, gpu - taken)),
        weights=deployment.known_bytes.get("weights", round(rank.weight_bytes * LOAD_SLACK[which])),
        beside=sum(_at(account, which) for account in deployment.extras.accounts(rank.stage)),
    )


def _at(account: Account, which: int) -> int:
    """An account as estimated (0), at best (1), at worst (2)."""
    return (account.bytes, account.low_bytes, account.high_bytes)[which]


def _rest_gib(args: SglangArgs, share: StaticShare, free: Free) -> float:
    """GiB for cache: what is free after loading less what stays outside the static part."""
    kept = free.before / GIB * (1 - share.fraction)
    reserve = image_reserve_mib(args) / KIB
    return free.after_gib - kept - reserve if reserve else free.after_gib - kept


def _accounts(
    deployment: Deployment, share: StaticShare, frees: list[Free], cache: list[int], rank: Rank
) -> tuple[Account, ...]:
    """One GPU's memory; what activations and graphs get is what the static part leaves."""
    free, best, worst = frees
    known = deployment.known_bytes
    gpu = known.get("visible", deployment.device.engine_bytes)
    kept = round(free.before * (1 - share.fraction))
    kept = max(0, min(kept, free.before - free.loaded - cache[0]))
    activations = known.get("activations", min(share.activations, kept))
    graphs = known.get("graphs", min(share.graphs, max(0, kept - activations)))
    runtime = max(0, gpu - free.before)
    spent = free.loaded + activations + graphs + runtime + cache[0]
    source = "measured" if {"free_before_load", "runtime"} & set(known) else "assumed"
    band = (max(0, gpu - best.before), max(0, gpu - worst.before))
    return (
        account(
            "weights",
            free.weights,
            "measured" if "weights" in known else "config",
            (best.weights, worst.weights),
        ),
        *deployment.extras.accounts(rank.stage),
        _fitted(deployment, "activations", activations, kept),
        account("runtime", runtime, source, band),
        _fitted(deployment, "graphs", graphs, kept),
        account("kv", cache[0], "engine rule", (min(cache), max(cache))),
        account("unused", gpu - spent, "engine rule"),
    )


def _fitted(deployment: Deployment, name: str, size: int, kept: int) -> Account:
    """An account of the ``kept`` part: as measured, else SGLang's own guess, which it may fill."""
    if name in deployment.known_bytes:
        return account(name, size, "measured")
    return account(name, size, "engine rule", (min(size, kept) // LEAST_SHARE, max(size, kept)))


def _static_part(share: StaticShare, free: Free) -> str:
    """What the refusal of a pool came from."""
    static = free.before * share.fraction
    return (
        f" (mem_fraction_static {share.fraction:.3f} of {show_gib(free.before)} free is "
        f"{show_gib(round(static))}, the weights take {show_gib(free.weights)})"
    )


def _notes(args: SglangArgs) -> tuple[str, ...]:
    """Where the release's own rule changes the answer, or the model lies outside what it knows."""
    release = shown(args.rules.release)
    notes: list[str] = []
    near = any(kind.window_tokens is not None for kind, _ in args.d.model.stores)
    if near and not args.windows and not args.traits.compressed:
        notes.append(f"SGLang {release} keeps this model's windows at full length")
    if args.traits.state and not args.rules.state_pool:
        notes.append(f"SGLang {release} has no pool of recurrent state: none is counted")
    if args.traits.compressed and args.rules.compressed == "none":
        notes.append(f"SGLang {release} does not know compressed attention (0.5.12 does)")
    if args.draft is not None and args.draft.own_checkpoint and args.rules.draft_charged:
        notes.append(
            f"the draft model's cache is taken as {args.draft.layers} of the model's own layers"
        )
    return tuple(notes)
