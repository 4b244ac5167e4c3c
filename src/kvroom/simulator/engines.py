"""Which rules an engine plays by, and the blocks and limits that a deployment gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvroom.engines.base import EngineAnswer
from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.flags import count, one_of, plain_name, share, switch
from kvroom.engines.llama_cpp.scheduler import Slots, SlotSettings
from kvroom.engines.scheduler import RuleSet
from kvroom.engines.sglang.engine import chunk_tokens
from kvroom.engines.sglang.scheduler import Sglang, SglangSettings
from kvroom.engines.vllm.engine import paging
from kvroom.engines.vllm.scheduler import Settings
from kvroom.errors import KvroomError
from kvroom.sharding.deployment import Deployment
from kvroom.simulator.script import GROUP_KEYS, POLICIES, Engine, Group

BLOCK_TOKENS = STRETCH_TOKENS = 16
SLOT_BATCH_TOKENS = 2048
SEQUENCES, BATCH_TOKENS = 256, 8192
"""Taken for engines whose own limits are not known."""
OWN_RULES = ("arithmetic", "sglang", "llama.cpp", "ollama")
"""Engines that need no word about whose rules they are played by."""
ASYNC_SINCE = (0, 14, 0)
SYNC_ONLY = ("ngram",)
"""Drafts that vLLM looks up on the CPU once a pass is done: the next is not scheduled before."""
STATES = "the spare states that recurrent layers keep of a request that drafts are not simulated"
RESERVE_SINCE = (0, 19, 0)
SPARSE_SINCE = (0, 33, 0)
KINDS = {"full": "full", "latent": "full", "window": "sliding_window", "chunked": "chunked_local"}
"""vLLM's cache types as groups of the rules; what is missing here is state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """The engine of a deployment as the rules take it, and what has to be said about it."""

    engine: Engine
    own: Callable[[Drafts | None], RuleSet] | None = None
    """Makes the rules of an engine that does not go by vLLM's, of which ``engine`` holds the sizes."""
    warnings: tuple[str, ...] = ()

    @property
    def jumps(self) -> bool:
        """Whether it can be served from event to event, while nothing is drafted."""
        groups = self.engine.groups
        return self.own is None and len(groups) == 1 and groups[0].type == "full"

    def seeded(self, seed: int) -> Played:
        """The same with drafts drawn by ``seed``."""
        e = self.engine
        if e.drafts is None:
            return self
        return replace(self, engine=replace(e, drafts=replace(e.drafts, seed=seed)))

    @property
    def passes_in_flight(self) -> int:
        """Passes that may be scheduled before the output of the first is there."""
        if self.own is not None:
            return self.rules().passes_in_flight
        return 2 if self.engine.settings.async_scheduling else 1

    @property
    def name_tokens(self) -> int:
        """How many tokens of a prompt its cache tells apart."""
        if self.own is not None:
            return self.engine.groups[0].block_size
        return self.engine.scheduler().cache.hash_tokens

    def rules(self) -> RuleSet:
        """The rules, to be stepped."""
        return self.own(self.engine.drafts) if self.own else self.engine.scheduler()


def played(d: Deployment, answer: EngineAnswer) -> Played:
    """What ``d`` gives one data-parallel replica's scheduler; KvroomError where it would not start."""
    if not (answer.starts or answer.cache_given) or answer.capacity is None:
        fix = "Take more or larger GPUs, a shorter --context, or narrower weights or cache."
        raise KvroomError("engine", d.engine, f"would not start: {answer.reason}", fix)
    if d.engine == "vllm":
        return _vllm(d)
    found = _other(d, answer)
    if d.engine == "sglang":
        return _sglang(d, found)
    if d.engine in ("llama.cpp", "ollama"):
        return _slots(d, answer, found)
    return found


def _vllm(d: Deployment) -> Played:
    p = paging(d)
    args = {plain_name(key): value for key, value in d.args.items()}
    caching = p.caching
    groups: list[Group] = []
    for spec in p.groups:
        if spec.type == "cross":
            continue  # as many blocks for every request, whatever its length
        kind = KINDS.get(spec.type, "mamba")
        tokens = spec.block_tokens * (d.layout.dcp if spec.shardable else 1)
        reach = spec.window if GROUP_KEYS[kind] else 0
        groups.append(Group(type=kind, block_size=tokens, reach=reach))
    if not groups:
        why = "keeps no cache that requests would share out"
        raise KvroomError("model", d.model.name, why, "Simulate a model that generates text.")
    if len(groups) > 1 and p.release < SPARSE_SINCE:
        interval: int | None = None
    else:
        interval = 0
    if "prefix_cache_retention_interval" in args:
        given = args["prefix_cache_retention_interval"]
        interval = None if given is None else count("engine_args.prefix_cache_…", given)
    method = d.speculation.method if d.speculation else ""
    settings = Settings(
        max_num_batched_tokens=p.batch_tokens,
        max_num_seqs=p.sequences,
        max_model_len=d.context_tokens,
        enable_chunked_prefill=p.chunked_prefill,
        long_prefill_token_threshold=_number(args, "long_prefill_token_threshold"),
        watermark=_share(args, "watermark"),
        scheduler_reserve_full_isl=_switch(
            args, "scheduler_reserve_full_isl", p.release >= RESERVE_SINCE
        ),
        async_scheduling=_switch(
            args, "async_scheduling", p.release >= ASYNC_SINCE and method not in SYNC_ONLY
        ),
        policy=one_of(*POLICIES)("engine_args.scheduling_policy", args.get("scheduling_policy"))
        if args.get("scheduling_policy")
        else "fcfs",
    )
    return Played(
        engine=Engine(
            num_gpu_blocks=p.num_blocks,
            groups=tuple(groups),
            enable_prefix_caching=caching,
            prefix_cache_retention_interval=interval,
            settings=settings,
            drafts=_drafts(d),
        ),
        warnings=(STATES,) if d.speculation and any(g.type == "mamba" for g in groups) else (),
    )


def _drafts(d: Deployment) -> Drafts | None:
    return Drafts.of(d.speculation) if d.speculation else None


def _other(d: Deployment, answer: EngineAnswer) -> Played:
    """Another engine, by vLLM's rules over the tokens that its own cache holds."""
    capacity = answer.capacity
    assert capacity is not None
    tokens = capacity.kv_tokens
    if tokens is None:
        why = "keeps no cache that requests would share out"
        raise KvroomError("model", d.model.name, why, "Simulate a model that generates text.")
    # Prefixes are told apart in stretches of 16 tokens where pages are smaller.
    size = max(capacity.block_tokens or BLOCK_TOKENS, STRETCH_TOKENS)
    settings = Settings(
        max_num_batched_tokens=BATCH_TOKENS,
        max_num_seqs=capacity.max_running_requests or SEQUENCES,
        max_model_len=d.context_tokens,
    )
    engine = Engine(
        num_gpu_blocks=tokens // size + 1,
        groups=(Group(type="full", block_size=size),),
        enable_prefix_caching=True,
        prefix_cache_retention_interval=0,
        settings=settings,
        drafts=_drafts(d),
    )
    said = (f"requests of {d.engine} are scheduled by vLLM's rules over its {tokens:,} tokens",)
    return Played(engine=engine, warnings=said if d.engine not in OWN_RULES else ())


def _sglang(d: Deployment, found: Played) -> Played:
    """SGLang's own rules over its tokens."""
    e, args = found.engine, {plain_name(key): value for key, value in d.args.items()}
    size = e.groups[0].block_size
    s = SglangSettings(
        tokens=(e.num_gpu_blocks - 1) * size,
        page=1 if size == STRETCH_TOKENS else size,
        stretch=size,
        max_running_requests=e.settings.max_num_seqs,
        context_tokens=e.settings.max_model_len,
        chunked_prefill_size=chunk_tokens(d),
        max_prefill_tokens=_number(args, "max_prefill_tokens") or 16384,
        caching=not _switch(args, "disable_radix_cache", False),
    )
    limits = replace(e.settings, max_num_batched_tokens=s.chunked_prefill_size)
    return Played(engine=replace(e, settings=limits), own=lambda drafts: Sglang(s, drafts))


def _slots(d: Deployment, answer: EngineAnswer, found: Played) -> Played:
    """llama.cpp's own rules over its slots."""
    e, args = found.engine, {plain_name(key): value for key, value in d.args.items()}
    size = e.groups[0].block_size
    longest = answer.capacity.max_context_tokens if answer.capacity else None
    s = SlotSettings(
        slots=e.settings.max_num_seqs,
        tokens=(e.num_gpu_blocks - 1) * size,
        context_tokens=min(d.context_tokens, longest or d.context_tokens),
        batch_tokens=_number(args, "batch_size") or SLOT_BATCH_TOKENS,
        stretch=size,
    )
    return Played(engine=e, own=lambda drafts: Slots(s, drafts))


def _number(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name)
    return 0 if value in (None, 0, "0") else count(f"engine_args.{name}", value)


def _share(args: Mapping[str, Any], name: str) -> float:
    value = args.get(name)
    return 0.0 if value in (None, 0, 0.0, "0") else share(f"engine_args.{name}", value)


def _switch(args: Mapping[str, Any], name: str, usual: bool) -> bool:
    if args.get(f"no_{name}") is not None:
        return not switch(f"engine_args.no_{name}", args[f"no_{name}"])
    return usual if args.get(name) is None else switch(f"engine_args.{name}", args[name])
