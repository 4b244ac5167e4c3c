"""How llama.cpp's server is started."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.engines.command_line import CommandLine, Texts, visible_cards
from kvroom.engines.llama_cpp.flags import CACHE_WORDS, KNOWN_FLAGS, NAMES, READERS, split_shares
from kvroom.models.dtypes import CACHE_ALIASES
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment


class LlamaCppCommandLine(CommandLine):
    """``llama-server --model FILE``."""

    def from_environment(self, env: Texts, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """It takes every card that it sees."""
        if shown := visible_cards(env):
            keys["gpu_count"] = shown[1]

    def finish(self, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """One width for keys and values is the Scenario's own; slots are as many as a server's own."""
        key, value = args.get("cache_type_k"), args.get("cache_type_v")
        if key is not None and key == value:
            del args["cache_type_k"], args["cache_type_v"]
            keys["kv_dtype"] = CACHE_ALIASES.get(key, key)
        if args.get("tensor_split") is not None:  # a share for each card
            keys.setdefault("gpu_count", cards_of(args["tensor_split"]))
        if not args.keys() & {"parallel", "ctx_size", "kv_unified_per_slot"}:
            args["parallel"] = -1

    def settled(self, scenario: Scenario, deployment: Deployment, plan: Plan) -> Scenario:
        """Its context is that of all slots together."""
        args: dict[str, Any] = dict(scenario.engine_args)
        capacity = plan.capacity.engine
        slots = args.get("parallel") or slots_of(plan)
        if "ctx_size" not in args and "c" not in args:
            tokens = (
                capacity.kv_tokens if capacity and capacity.max_running_requests == slots else None
            )
            args["ctx_size"] = tokens or deployment.context_tokens * slots
        args.setdefault("parallel", slots)
        return replace(scenario, engine_args=args)

    def cache_flags(self, kv_dtype: str) -> dict[str, Any]:
        """Keys and values each have a flag."""
        word = CACHE_WORDS.get(kv_dtype, kv_dtype)
        return {"cache_type_k": word, "cache_type_v": word}

    def notes(self, scenario: Scenario, model: ModelSpec) -> tuple[str, ...]:
        """What it loads."""
        if str(scenario.model).endswith(".gguf"):
            return ()
        return ("llama.cpp loads GGUF files: name one (--model), or a repository that holds one",)


def cards_of(split: Any) -> int:
    """Cards that ``--tensor-split`` gives a share: up to the last that is above 0."""
    shares = split_shares("--tensor-split", split)
    return max((place for place, share in enumerate(shares, 1) if share), default=1)


def slots_of(plan: Plan) -> int:
    """The requests that are asked for, else as many slots as the plan has."""
    capacity, users = plan.capacity.engine, plan.scenario.concurrency
    most = (capacity.max_running_requests if capacity else None) or 1
    return min(users, most) if users else most


COMMAND = LlamaCppCommandLine(
    engine="llama.cpp",
    label="llama.cpp",
    programs=(("llama-server",), ("llama-cli",), ("llama-server.exe",)),
    image=re.compile(r"(?:^|/)llama\.cpp(?::([\w.+-]+))?$"),
    default_image="ghcr.io/ggml-org/llama.cpp",
    port=8080,
    names=NAMES,
    readers=READERS,
    known=KNOWN_FLAGS,
    model_flag="model",
    list_joiner=",",
    model_flags=("model", "m", "hf_repo", "hf", "hfr"),
    hub_flag="hf_repo",
    variable_prefixes=("LLAMA_",),
    flag_variables="LLAMA_ARG_",
    harmless=frozenset(("LLAMA_CACHE",)),
    default_tp=False,
)
