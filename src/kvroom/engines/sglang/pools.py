"""SGLang's pools: tokens of full layers, tokens of window layers, slots of state, and requests at once.

A budget is GiB in floating point, as SGLang keeps it: every product and division is done in its order, so
that the floors fall where they do there.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.engines.sglang import compressed
from kvroom.engines.sglang.entries import Entries, entries_of
from kvroom.engines.sglang.resolved_args import SglangArgs
from kvroom.engines.sglang.state import PoolRefused, slot_bytes, state_pool
from kvroom.models.kinds import CrossAttention
from kvroom.models.spec import Layer
from kvroom.records import dataclass
from kvroom.units import ceil_div

EVICTION_TOKENS = 128
"""Tokens that a window may lag behind before its old ones are given back."""
UNBOUND = 2**62
"""Tokens of a pipeline stage that keeps none: another stage decides."""
MOST_REQUESTS = 4096
"""Requests that a pool serves at once where nobody says how many."""
WINDOW_RATIO = 0.8
"""Window tokens for each token of the full pool, unless asked otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangPools:
    """What SGLang allocates on each rank and prints, for one data-parallel attention group.

    ``tokens`` are those of the full pool (all layers where there is no other), ``requests`` its
    max_running_requests, ``cache_bytes`` what all pools of the stage that binds take. A request's
    ``encoder_tokens`` take slots of the full pool too.
    """

    tokens: int
    window_tokens: int | None
    window_reach: int
    slots: int | None
    slots_each: int
    page: int
    requests: int
    stage: int
    cache_bytes: int
    encoder_tokens: int = 0

    def pages(self, tokens: int) -> int:
        """``tokens`` rounded up to whole pages."""
        return ceil_div(tokens, self.page) * self.page

    def rooms(self, tokens: int) -> dict[str, float]:
        """Requests of ``tokens`` that each pool holds at once."""
        found = {"full": self.tokens / self.pages(tokens + self.encoder_tokens)}
        if self.window_tokens is not None:
            near = self.pages(min(tokens, self.window_reach + 1))
            found["window"] = self.window_tokens / near
        if self.slots is not None:
            found["state"] = float(self.slots // self.slots_each)
        return found

    def concurrency(self, tokens: int) -> float:
        """Requests of ``tokens`` that the pools hold at once."""
        return min(self.rooms(tokens).values())

    def limit(self, tokens: int) -> str:
        """Which of several pools is full first at ``tokens``, and the flag that shares them out."""
        rooms = self.rooms(tokens)
        ratios = {"window": "swa_full_tokens_ratio", "state": "mamba_full_memory_ratio"}
        flags = " and ".join(flag for name, flag in ratios.items() if name in rooms)
        match min(rooms, key=lambda name: rooms[name]):
            case "state":
                first = f"its {self.slots:,} slots of state, {self.slots_each} a request, run out"
            case "window":
                first = f"its window pool of {self.window_tokens:,} tokens is full"
            case _:
                first = f"its pool of {self.tokens:,} tokens for full attention is full"
        return f"{first} first ({flags})" if flags else ""

    def longest(self) -> int:
        """The longest single request: a token less than the pool, and what its window pool admits."""
        longest = self.tokens - 1 - self.encoder_tokens
        if self.window_tokens is not None and self.window_reach + self.page >= self.window_tokens:
            longest = min(longest, self.window_tokens - self.page)
        return max(0, longest)


@dataclass(frozen=True, slots=True)
class StageLayers:
    """The layers of one pipeline stage."""

    layers: tuple[Layer, ...]
    entries: Entries


def stage_layers(args: SglangArgs, sizes: Sequence[int]) -> list[StageLayers]:
    """The model's layers dealt out to stages of ``sizes``."""
    layers = list(args.d.model.each_layer())
    made: list[StageLayers] = []
    start = 0
    for size in sizes:
        held = tuple(layers[start : start + size])
        made.append(StageLayers(held, entries_of(args, held)))
        start += size
    return made


def stage_sizes(args: SglangArgs) -> tuple[int, ...]:
    """Layers of each pipeline stage: the last ones have one more, before 0.5.6 the last all the rest."""
    if args.d.layout.stage_layers:
        return args.d.layout.stage_layers
    base, odd = divmod(args.d.model.num_layers, args.d.layout.pp)
    sizes = [base] * args.d.layout.pp
    if args.rules.spread_odd_layers:
        for index in range(odd):
            sizes[-1 - index] += 1
    else:
        sizes[-1] += odd
    return tuple(sizes)


def pools_of(args: SglangArgs, stages: Sequence[StageLayers], rest_gib: float) -> SglangPools:
    """The pools in ``rest_gib`` of each rank; PoolRefused where SGLang would not start."""
    slots: int | None = None
    per_slot = slot_bytes(args, [stage.layers for stage in stages])
    if per_slot:
        rest_gib, slots = state_pool(args, per_slot, rest_gib)
    early = args.rules.requests == "profiled"
    if rest_gib <= 0 and not early:
        raise PoolRefused("the static part holds no more than the weights")
    budget = int(rest_gib * (1 << 30))
    if early:
        return _profiled(args, stages, budget, slots, per_slot)
    stage, reach = 0, max((stage.entries.window_tokens for stage in stages), default=0)
    window: int | None
    if args.traits.compressed and args.rules.compressed != "none":
        tokens, window, taken = compressed.sizes(args, budget)
        reach = compressed.window_of(args)
    else:
        stage, tokens, window = _smallest(args, stages, budget)
        taken = _taken(stages[stage].entries, tokens, window, slots, per_slot)
    if tokens <= 0:
        raise PoolRefused("not one page of cache fits the static part")
    if (
        window is not None
        and args.rules.window_check
        and reach + args.page >= window
        and not _capped(args)
    ):
        raise PoolRefused(
            f"the window pool of {window:,} tokens cannot admit a request with a window of {reach:,}"
        )
    return SglangPools(
        tokens=tokens,
        window_tokens=window,
        window_reach=reach,
        slots=slots,
        slots_each=args.state_slots_each,
        page=args.page,
        requests=_requests(args, tokens, slots),
        stage=stage,
        cache_bytes=taken,
        encoder_tokens=_encoder_tokens(args),
    )


def _smallest(
    args: SglangArgs, stages: Sequence[StageLayers], budget: int
) -> tuple[int, int, int | None]:
    """(stage, tokens, window tokens) of the stage whose pools hold least, the user's limit applied."""
    found = [_capacity(args, stage.entries, budget) for stage in stages]
    stage = min(range(len(found)), key=lambda i: (found[i][0], i))
    tokens, window = found[stage]
    limit = args.flags.max_tokens
    if limit is not None and limit < tokens:
        tokens = limit // args.page * args.page
        window = _window_of(args, stages[stage].entries, tokens)
    return stage, tokens, window


def _encoder_tokens(args: SglangArgs) -> int:
    return (
        args.d.encoder_tokens
        if any(isinstance(kind, CrossAttention) for kind, _ in args.d.model.stores)
        else 0
    )


def _taken(
    entries: Entries, tokens: int, window: int | None, slots: int | None, per_slot: int
) -> int:
    state = (slots or 0) * per_slot
    return (
        tokens * (entries.full + entries.drafts)
        + (window or 0) * (entries.window + entries.window_drafts)
        + state
    )


def _requests(args: SglangArgs, tokens: int, slots: int | None) -> int:
    """max_running_requests of one data-parallel attention group; PoolRefused where state serves none."""
    estimated = max(min(int(tokens / args.d.context_tokens * 512), MOST_REQUESTS), 2048)
    asked = args.requests_each
    if asked is None:
        most = min(estimated, tokens // 2)
    elif args.rules.requests == "at most estimated":
        most = min(asked, estimated)
    else:
        most = min(max(1, asked), tokens // 2)
    if slots is None:
        return most
    if slots < args.state_slots_each:
        raise PoolRefused(
            f"{slots:,} slots of state do not serve one request, which takes {args.state_slots_each}"
        )
    return min(most, slots // args.state_slots_each)


def _capacity(args: SglangArgs, entries: Entries, budget: int) -> tuple[int, int | None]:
    """Tokens of one stage's pools in ``budget`` bytes: (full, window)."""
    page = args.page
    if not entries.window_layers:
        return _tokens(args, budget, entries.full + entries.drafts) // page * page, None
    if args.rules.window_split != "bytes":
        return _split(args, entries, budget // (entries.full + entries.window) // page * page)
    if _capped(args):
        window = _window_cap(args, entries)
        left = budget - window * (entries.window + entries.window_drafts)
        return int(left // (entries.full + entries.drafts)) // page * page, window
    if not entries.full_layers:
        tokens = budget // (entries.window + entries.window_drafts) // page * page
        return tokens, tokens
    both = entries.full + entries.drafts + _ratio(args) * (entries.window + entries.window_drafts)
    tokens = int(budget // both) // page * page
    return tokens, _window_of(args, entries, tokens)


def _tokens(args: SglangArgs, budget: int, cell: int) -> int:
    """Tokens of ``cell`` bytes in ``budget``; a model without attention has them for every request."""
    if cell:
        return budget // cell
    if any(not kind.recurrent for kind, _ in args.d.model.stores):
        return UNBOUND
    return args.flags.max_tokens or MOST_REQUESTS * args.d.context_tokens


def _ratio(args: SglangArgs) -> float:
    return WINDOW_RATIO if args.flags.window_ratio is None else args.flags.window_ratio


def _window_of(args: SglangArgs, entries: Entries, tokens: int) -> int | None:
    """Window tokens beside ``tokens`` of the full pool."""
    if not entries.window_layers:
        return None
    if _capped(args):
        return min(_window_cap(args, entries), tokens)
    return int(tokens * _ratio(args)) // args.page * args.page


def _capped(args: SglangArgs) -> bool:
    """Whether the window pool is sized for the requests asked for, whose old tokens nobody reuses."""
    return (
        args.rules.window_cap
        and not args.flags.radix
        and args.requests is not None
        and args.chunk_each > 0
        and not args.traits.compressed
    )


def _window_cap(args: SglangArgs, entries: Entries) -> int:
    """The most window tokens alive with that many requests: each keeps its window, what eviction lags
    behind and its next page; and the prefill chunks in flight."""
    draft, page = args.draft, args.page
    trailing = entries.window_tokens + EVICTION_TOKENS * (draft.tokens if draft else 1) + page
    coming = page
    if draft is not None:
        drafted = max(draft.steps * draft.topk, draft.tokens)
        coming = (2 if args.overlap else 1) * ceil_div(drafted, page) * page
    chunks = 2 if args.overlap else 1
    most = (trailing + coming) * max(1, args.requests_each or 1) + chunks * args.chunk_each + page
    return ceil_div(most, page) * page


def _split(args: SglangArgs, entries: Entries, tokens: int) -> tuple[int, int]:
    """The pools up to 0.5.10: tokens counted for all layers alike, then dealt out."""
    if (
        args.rules.llama4_ratio
        and args.flags.llama4_ratio
        and args.traits.architecture.startswith("Llama4")
    ):
        return _llama4_split(args, entries, tokens)
    ratio = _ratio(args)
    far, near = entries.full, entries.window
    if args.rules.window_split == "layers":
        far, near = entries.full_layers, entries.window_layers
    full = int(tokens * (far + near) / (far + ratio * near))
    window = int(full * ratio)
    return full // args.page * args.page, window // args.page * args.page


def _llama4_split(args: SglangArgs, entries: Entries, tokens: int) -> tuple[int, int]:
    """Llama-4's pools by ``hybrid_kvcache_ratio``: between equal (0) and chunk over context (1)."""
    asked = args.flags.llama4_ratio or 0.0
    share = (1 - asked) + asked * entries.window_tokens / args.d.context_tokens
    window = int(4 * tokens * share // (3 * share + 1))
    full = int(4 * tokens - 12 * tokens * share // (3 * share + 1))
    return full // args.page * args.page, window // args.page * args.page


def _profiled(
    args: SglangArgs, stages: Sequence[StageLayers], budget: int, slots: int | None, per_slot: int
) -> SglangPools:
    """Up to 0.5.9: requests follow the tokens first profiled, before limits and pages."""
    cells = [stage.entries.full + stage.entries.window for stage in stages]
    found = [_tokens(args, budget, cell) for cell in cells]
    stage = min(range(len(found)), key=lambda i: (found[i], i))
    tokens = found[stage]
    asked = args.requests
    size = asked
    if size is None:
        size = min(max(int(tokens / args.d.context_tokens * 512), 2048), MOST_REQUESTS)
    if slots is not None:
        size = min(size, slots // args.state_slots_each)
    if args.draft is not None and args.rules.draft_slots and args.draft.keeps_cache:
        tokens += size * (args.draft.steps * args.draft.topk + args.draft.tokens) + 100
    if args.flags.max_tokens is not None:
        tokens = min(tokens, args.flags.max_tokens)
    tokens = tokens // args.page * args.page
    entries = stages[stage].entries
    window: int | None = None
    if entries.window_layers:
        tokens, window = _split(args, entries, tokens)
    if tokens <= 0:
        raise PoolRefused("not one page of cache fits the static part")
    own = tokens // 2 if asked is None else args.requests_each or 0
    if min(own, size) <= 0:
        raise PoolRefused("no request fits (max_running_requests comes out as 0)")
    return SglangPools(
        tokens=tokens,
        window_tokens=window,
        window_reach=entries.window_tokens,
        slots=slots,
        slots_each=args.state_slots_each,
        page=args.page,
        requests=min(own, size),
        stage=stage,
        cache_bytes=_taken(entries, tokens, window, slots, per_slot),
        encoder_tokens=_encoder_tokens(args),
    )
