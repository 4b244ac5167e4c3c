"""A script: an engine's settings and the requests it is to serve, played in engine steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.vllm.scheduler import Scheduler, Settings
from kvroom.errors import KvroomError, did_you_mean
from kvroom.kvcache.groups import ChunkGroup, FullGroup, LayerGroup, WindowGroup
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import Sequence
from kvroom.kvcache.state_groups import AlignedStateGroup, StateGroup
from kvroom.kvcache.tokens import BlockHashes, Run, length
from kvroom.simulator.replay import MAX_STEPS, play
from kvroom.simulator.script_results import Played
from kvroom.units import check_float, check_int

MAX_BLOCKS = 2**31
MAX_TOKENS = 2**40
MAX_CONTEXT_TOKENS = 2**24
MAX_REQUESTS = 1_000_000
POLICIES = ("fcfs", "priority")
GROUP_KEYS = {"full": None, "sliding_window": "window", "chunked_local": "chunk", "mamba": None}
"""The kinds of layer groups, and the one key that each has besides its block size."""
NOTES = ("name", "vllm", "expected")
"""Keys of a script that say something about it and are not read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A layer group: its kind, its block size and, where it has one, its window or chunk."""

    type: str
    block_size: int
    reach: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """The engine of a script; ``num_gpu_blocks`` includes the null block."""

    num_gpu_blocks: int
    groups: tuple[Group, ...]
    enable_prefix_caching: bool
    prefix_cache_retention_interval: int | None
    settings: Settings
    drafts: Drafts | None = None

    def scheduler(self) -> Scheduler:
        """vLLM's rules with an empty pool."""
        settings = self.settings
        passes = 2 if settings.async_scheduling else 1
        groups = [_layer_group(i, g, self.enable_prefix_caching) for i, g in enumerate(self.groups)]
        cache = PrefixCache(
            groups,
            self.num_gpu_blocks,
            caching=self.enable_prefix_caching,
            context_tokens=settings.max_model_len,
            in_flight_tokens=passes * settings.max_num_batched_tokens,
            interval=self.prefix_cache_retention_interval,
        )
        return Scheduler(settings, cache, self.drafts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request of a script: token ids as runs of consecutive ones."""

    arrival_step: int
    prompt: tuple[Run, ...]
    output: tuple[Run, ...]
    priority: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What is played: one engine, and requests that it serves from step 0 on."""

    engine: Engine
    requests: tuple[Request, ...]

    @classmethod
    def from_dict(cls, value: Any) -> Script:
        """A script from its JSON form; KvroomError names the key that is wrong."""
        found = _keys("script", value, ("engine", "requests"), optional=NOTES)
        engine = _engine(found["engine"])
        rows = _list("requests", found["requests"])
        check_int("requests", len(rows), low=0, high=MAX_REQUESTS, unit="requests")
        return cls(engine=engine, requests=tuple(_request(i, r) for i, r in enumerate(rows)))

    def sequences(self) -> list[Sequence]:
        """The requests as the rules take them."""
        hash_tokens = self.engine.scheduler().cache.hash_tokens
        return [
            Sequence(
                index,
                request.arrival_step,
                length(request.prompt),
                length(request.output),
                hashes=BlockHashes(request.prompt + request.output, hash_tokens),
                priority=request.priority,
            )
            for index, request in enumerate(self.requests)
        ]

    def play(self, *, max_steps: int = MAX_STEPS) -> Played:
        """Serve all requests, step by step."""
        return play(self.engine.scheduler(), self.sequences(), max_steps=max_steps)


def _layer_group(index: int, group: Group, caching: bool) -> LayerGroup:
    match group.type:
        case "sliding_window":
            return WindowGroup(index, group.block_size, group.reach)
        case "chunked_local":
            return ChunkGroup(index, group.block_size, group.reach)
        case "mamba":
            return (AlignedStateGroup if caching else StateGroup)(index, group.block_size)
        case _:
            return FullGroup(index, group.block_size)


_ENGINE_KEYS = (
    "num_gpu_blocks",
    "groups",
    "max_num_batched_tokens",
    "max_num_seqs",
    "enable_prefix_caching",
    "max_model_len",
)
_ENGINE_OPTIONS = (
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "watermark",
    "scheduler_reserve_full_isl",
    "async_scheduling",
    "policy",
    "prefix_cache_retention_interval",
)


def _engine(value: Any) -> Engine:
    found = _keys("engine", value, _ENGINE_KEYS, optional=_ENGINE_OPTIONS)

    def whole(key: str, low: int, high: int, default: int | None = None, unit: str = "") -> int:
        return check_int(f"engine.{key}", found.get(key, default), low=low, high=high, unit=unit)

    def flag(key: str, default: bool) -> bool:
        return _flag(f"engine.{key}", found.get(key, default))

    policy = found.get("policy", "fcfs")
    if policy not in POLICIES:
        fix = did_you_mean(str(policy), POLICIES, "Write fcfs or priority.")
        raise KvroomError("engine.policy", policy, "is not a scheduling policy", fix)
    settings = Settings(
        max_num_batched_tokens=whole("max_num_batched_tokens", 1, MAX_TOKENS, unit="tokens"),
        max_num_seqs=whole("max_num_seqs", 1, MAX_REQUESTS, unit="requests"),
        max_model_len=whole("max_model_len", 2, MAX_CONTEXT_TOKENS, unit="tokens"),
        enable_chunked_prefill=flag("enable_chunked_prefill", True),
        long_prefill_token_threshold=whole(
            "long_prefill_token_threshold", 0, MAX_TOKENS, 0, "tokens"
        ),
        watermark=check_float("engine.watermark", found.get("watermark", 0.0), low=0.0, high=1.0),
        scheduler_reserve_full_isl=flag("scheduler_reserve_full_isl", True),
        async_scheduling=flag("async_scheduling", False),
        policy=policy,
    )
    rows = _list("engine.groups", found["groups"])
    check_int("engine.groups", len(rows), low=1, high=1000, unit="groups")
    groups = tuple(_group(f"engine.groups[{i}]", row) for i, row in enumerate(rows))
    caching = flag("enable_prefix_caching", True)
    interval = found.get("prefix_cache_retention_interval", 0)
    if interval is not None:
        interval = whole("prefix_cache_retention_interval", 0, MAX_TOKENS, 0, "tokens")
    engine = Engine(
        num_gpu_blocks=whole("num_gpu_blocks", 2, MAX_BLOCKS, unit="blocks"),
        groups=groups,
        enable_prefix_caching=caching,
        prefix_cache_retention_interval=interval,
        settings=settings,
    )
    _check_together(engine)
    return engine


def _check_together(engine: Engine) -> None:
    """What vLLM refuses to start with."""
    settings, interval = engine.settings, engine.prefix_cache_retention_interval
    if not settings.enable_chunked_prefill and (
        settings.max_num_batched_tokens < settings.max_model_len
    ):
        raise KvroomError(
            "engine.max_num_batched_tokens",
            settings.max_num_batched_tokens,
            f"is below max_model_len {settings.max_model_len} with chunked prefill off",
            "Raise it to max_model_len or set enable_chunked_prefill to true.",
        )
    cache = engine.scheduler().cache
    if interval:
        kinds = {group.type for group in engine.groups}
        field = "engine.prefix_cache_retention_interval"
        if not kinds & {"sliding_window", "mamba"}:
            fix = "Leave it out: it is about sliding_window and mamba groups."
            raise KvroomError(field, interval, "has no group to act on", fix)
        if interval % cache.block_tokens:
            fix = f"Write a multiple of {cache.block_tokens}, the groups' common block size."
            raise KvroomError(field, interval, "does not end at whole blocks", fix)
    if engine.enable_prefix_caching:
        for i, group in enumerate(engine.groups):
            if group.type == "chunked_local" and group.block_size != cache.hit_tokens:
                field, size = f"engine.groups[{i}].block_size", group.block_size
                fix = "Give all groups one block_size, or set enable_prefix_caching to false."
                raise KvroomError(field, size, "differs from another group's", fix)


def _group(field: str, value: Any) -> Group:
    found = _object(field, value)
    kind = found.get("type")
    if not isinstance(kind, str) or kind not in GROUP_KEYS:
        fix = did_you_mean(str(kind), GROUP_KEYS, f"Write one of {', '.join(GROUP_KEYS)}.")
        raise KvroomError(f"{field}.type", kind, "is not a kind of layer group", fix)
    own = GROUP_KEYS[kind]
    found = _keys(field, found, ("type", "block_size") + ((own,) if own else ()))
    size = check_int(f"{field}.block_size", found["block_size"], low=1, high=MAX_TOKENS)
    reach = check_int(f"{field}.{own}", found[own], low=1, high=MAX_TOKENS) if own else 0
    return Group(type=kind, block_size=size, reach=reach)


def _request(number: int, value: Any) -> Request:
    field = f"requests[{number}]"
    found = _keys(field, value, ("arrival_step", "prompt", "output"), optional=("priority",))
    arrival = check_int(f"{field}.arrival_step", found["arrival_step"], low=0, high=MAX_TOKENS)
    priority = check_int(
        f"{field}.priority", found.get("priority", 0), low=-MAX_TOKENS, high=MAX_TOKENS
    )
    return Request(
        arrival_step=arrival,
        prompt=_runs(f"{field}.prompt", found["prompt"]),
        output=_runs(f"{field}.output", found["output"]),
        priority=priority,
    )


def _runs(field: str, value: Any) -> tuple[Run, ...]:
    runs: list[Run] = []
    for i, pair in enumerate(_list(field, value)):
        where = f"{field}[{i}]"
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            fix = "Write [first id, how many], such as [100, 16]."
            raise KvroomError(where, pair, "is not a run of token ids", fix)
        first = check_int(where, pair[0], low=0, high=MAX_TOKENS)
        runs.append((first, check_int(where, pair[1], low=1, high=MAX_TOKENS, unit="tokens")))
    if not runs:
        raise KvroomError(
            field, value, "holds no token", "Write at least one run, such as [[0, 1]]."
        )
    return tuple(runs)


def _keys(
    field: str, value: Any, needed: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    found = _object(field, value)
    known = needed + optional
    for key in found:
        if key not in known:
            fix = did_you_mean(str(key), known, f"Known are {', '.join(known)}.")
            raise KvroomError(f"{field}.{key}", found[key], "is not a known key", fix)
    for key in needed:
        if key not in found:
            raise KvroomError(f"{field}.{key}", None, "is missing", f"Add it to {field}.")
    return found


def _object(field: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise KvroomError(field, value, "is not an object", "Write it in braces: {…}.")
    return value


def _list(field: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise KvroomError(field, value, "is not a list", "Write it in brackets: […].")
    return list(value)


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise KvroomError(field, value, "is not true or false", "Write true or false.")
    return value
