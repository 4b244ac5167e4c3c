"""A script: an engine's settings and the requests it is to serve, played in engine steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import (
    GROUP_KEYS,
    POLICIES,
    GroupSpec,
    SchedulerSetup,
    check_retention,
)
from kvroom.errors import KvroomError, did_you_mean
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes, Run, length
from kvroom.records import dataclass
from kvroom.scenario.engine_names import engine_names
from kvroom.simulator.replay import MAX_STEPS, play
from kvroom.simulator.script_results import ScriptResult
from kvroom.units import check_float, check_int

MAX_BLOCKS = 2**31
MAX_TOKENS = 2**40
MAX_CONTEXT_TOKENS = 2**24
MAX_REQUESTS = 1_000_000
NOTES = ("name", "expected", *engine_names())
"""Keys of a script that are about it and not read: its name, the release that was recorded, what came out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptRequest:
    """A request of a script: token ids as runs of consecutive ones."""

    arrival_step: int
    prompt: tuple[Run, ...]
    output: tuple[Run, ...]
    priority: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What is played: one engine, and requests that it serves from step 0 on."""

    engine: SchedulerSetup
    requests: tuple[ScriptRequest, ...]

    @classmethod
    def from_dict(cls, value: Any) -> Script:
        """A script from its JSON form; KvroomError names the key that is wrong."""
        row = _keys("script", value, ("engine", "requests"), optional=NOTES)
        engine = _engine(row["engine"])
        rows = _list("requests", row["requests"])
        check_int("requests", len(rows), low=0, high=MAX_REQUESTS, unit="requests")
        return cls(
            engine=engine, requests=tuple(_request(index, row) for index, row in enumerate(rows))
        )

    def served(self) -> list[ServedRequest]:
        """The requests as the scheduler takes them, on a clock of steps."""
        hash_tokens = self.engine.scheduler().cache.hash_tokens
        requests = []
        for index, each in enumerate(self.requests):
            request = ServedRequest(
                index,
                each.arrival_step,
                length(each.prompt),
                length(each.output),
                hashes=BlockHashes(each.prompt + each.output, hash_tokens),
            )
            request.priority = each.priority
            requests.append(request)
        return requests

    def play(self, *, max_steps: int = MAX_STEPS) -> ScriptResult:
        """Serve all requests, step by step."""
        return play(self.engine.scheduler(), self.served(), max_steps=max_steps)


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


def _engine(value: Any) -> SchedulerSetup:
    row = _keys("engine", value, _ENGINE_KEYS, optional=_ENGINE_OPTIONS)

    def whole(key: str, low: int, high: int, default: int | None = None, unit: str = "") -> int:
        return check_int(f"engine.{key}", row.get(key, default), low=low, high=high, unit=unit)

    def flag(key: str, default: bool) -> bool:
        return _flag(f"engine.{key}", row.get(key, default))

    policy = row.get("policy", "fcfs")
    if policy not in POLICIES:
        fix = did_you_mean(str(policy), POLICIES, "Write fcfs or priority.")
        raise KvroomError("engine.policy", policy, "is not a scheduling policy", fix)
    config = SchedulerConfig(
        max_num_batched_tokens=whole("max_num_batched_tokens", 1, MAX_TOKENS, unit="tokens"),
        max_num_seqs=whole("max_num_seqs", 1, MAX_REQUESTS, unit="requests"),
        max_model_len=whole("max_model_len", 2, MAX_CONTEXT_TOKENS, unit="tokens"),
        enable_chunked_prefill=flag("enable_chunked_prefill", True),
        long_prefill_token_threshold=whole(
            "long_prefill_token_threshold", 0, MAX_TOKENS, 0, "tokens"
        ),
        watermark=check_float("engine.watermark", row.get("watermark", 0.0), low=0.0, high=1.0),
        scheduler_reserve_full_isl=flag("scheduler_reserve_full_isl", True),
        async_scheduling=flag("async_scheduling", False),
        policy=policy,
    )
    rows = _list("engine.groups", row["groups"])
    check_int("engine.groups", len(rows), low=1, high=1000, unit="groups")
    groups = tuple(_group(f"engine.groups[{index}]", row) for index, row in enumerate(rows))
    caching = flag("enable_prefix_caching", True)
    interval = row.get("prefix_cache_retention_interval", 0)
    if interval is not None:
        interval = whole("prefix_cache_retention_interval", 0, MAX_TOKENS, 0, "tokens")
    engine = SchedulerSetup(
        num_gpu_blocks=whole("num_gpu_blocks", 2, MAX_BLOCKS, unit="blocks"),
        groups=groups,
        enable_prefix_caching=caching,
        prefix_cache_retention_interval=interval,
        config=config,
    )
    _check_together(engine)
    return engine


def _check_together(engine: SchedulerSetup) -> None:
    """What vLLM refuses to start with."""
    config = engine.config
    if not config.enable_chunked_prefill and (config.max_num_batched_tokens < config.max_model_len):
        raise KvroomError(
            "engine.max_num_batched_tokens",
            config.max_num_batched_tokens,
            f"is below max_model_len {config.max_model_len} with chunked prefill off",
            "Raise it to max_model_len or set enable_chunked_prefill to true.",
        )
    check_retention(engine, "engine.prefix_cache_retention_interval")
    cache = engine.scheduler().cache
    if engine.enable_prefix_caching:
        for index, group in enumerate(engine.groups):
            if group.type == "chunked_local" and group.block_size != cache.hit_tokens:
                field, size = f"engine.groups[{index}].block_size", group.block_size
                fix = "Give all groups one block_size, or set enable_prefix_caching to false."
                raise KvroomError(field, size, "differs from another group's", fix)


def _group(field: str, value: Any) -> GroupSpec:
    row = _object(field, value)
    kind = row.get("type")
    if not isinstance(kind, str) or kind not in GROUP_KEYS:
        fix = did_you_mean(str(kind), GROUP_KEYS, f"Write one of {', '.join(GROUP_KEYS)}.")
        raise KvroomError(f"{field}.type", kind, "is not a kind of layer group", fix)
    own = GROUP_KEYS[kind]
    optional = ("prefill_checkpoint",) if kind == "mamba" else ()
    needed = ("type", "block_size") + ((own,) if own else ())
    row = _keys(field, row, needed, optional=optional)
    size = check_int(f"{field}.block_size", row["block_size"], low=1, high=MAX_TOKENS)
    reach = check_int(f"{field}.{own}", row[own], low=1, high=MAX_TOKENS) if own else 0
    checkpoint = check_int(
        f"{field}.prefill_checkpoint", row.get("prefill_checkpoint", 0), low=0, high=MAX_TOKENS
    )
    return GroupSpec(type=kind, block_size=size, reach=reach, prefill_checkpoint=checkpoint)


def _request(number: int, value: Any) -> ScriptRequest:
    field = f"requests[{number}]"
    row = _keys(field, value, ("arrival_step", "prompt", "output"), optional=("priority",))
    arrival = check_int(f"{field}.arrival_step", row["arrival_step"], low=0, high=MAX_TOKENS)
    priority = check_int(
        f"{field}.priority", row.get("priority", 0), low=-MAX_TOKENS, high=MAX_TOKENS
    )
    return ScriptRequest(
        arrival_step=arrival,
        prompt=_runs(f"{field}.prompt", row["prompt"]),
        output=_runs(f"{field}.output", row["output"]),
        priority=priority,
    )


def _runs(field: str, value: Any) -> tuple[Run, ...]:
    runs: list[Run] = []
    for index, pair in enumerate(_list(field, value)):
        where = f"{field}[{index}]"
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
    row = _object(field, value)
    known = needed + optional
    for key in row:
        if key not in known:
            fix = did_you_mean(str(key), known, f"Known are {', '.join(known)}.")
            raise KvroomError(f"{field}.{key}", row[key], "is not a known key", fix)
    for key in needed:
        if key not in row:
            raise KvroomError(f"{field}.{key}", None, "is missing", f"Add it to {field}.")
    return row


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
