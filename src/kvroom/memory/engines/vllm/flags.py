"""vLLM's own flags as a Scenario gives them: checked, and those that matter here under one roof.

Names are those of ``vllm serve`` with underscores; ``no_…`` is the negative of a switch. Flags that
do not bear on cache memory are known and passed over; an unknown one is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.memory.engines.vllm.flag_names import OTHERS
from kvroom.memory.layout import Layout
from kvroom.units import check_float, check_int, parse_bytes

MAMBA_MODES = ("none", "align", "all")
STATE_DTYPES = ("auto", "float16", "bfloat16", "float32")
PERFORMANCE_MODES = ("balanced", "interactivity", "throughput")

PARALLEL = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "decode_context_parallel_size": "dcp",
}
"""Degrees that the Scenario itself states; given here too they must agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags that bear on memory; None where the engine's default holds."""

    utilisation: float | None = None
    cache_bytes: int | None = None
    blocks: int | None = None
    block_tokens: int | None = None
    batch_tokens: int | None = None
    sequences: int | None = None
    eager: bool = False
    prefix_caching: bool | None = None
    hybrid_off: bool | None = None
    asynchronous: bool | None = None
    performance: str = "balanced"
    mamba_mode: str = "none"
    mamba_block: int | None = None
    state_dtype: str = "auto"
    conv_dtype: str = "auto"
    chunked_prefill: bool = True
    auto_fit: bool = False
    speculative_tokens: int = 0


def read_flags(args: Mapping[str, Any], layout: Layout) -> Flags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    given = _positive(args)
    for name in given:
        if name not in _READERS and name not in OTHERS and name not in PARALLEL:
            known = (*_READERS, *PARALLEL, *OTHERS)
            raise KvroomError(
                f"engine_args.{name}",
                args.get(name, given[name]),
                "is no flag of vLLM that kvroom knows",
                did_you_mean(name, known, "Leave it out."),
            )
    for name, degree in PARALLEL.items():
        if name in given:
            _agree(name, given[name], degree, getattr(layout, degree))
    found: dict[str, Any] = {}
    for name, (field, read) in _READERS.items():
        if given.get(name) is not None:
            found[field] = read(f"engine_args.{name}", given[name])
    if "max_model_len" in given:
        found["auto_fit"] = given["max_model_len"] in (-1, "-1", "auto")
    found["speculative_tokens"] = _speculative(given)
    return Flags(**found)


def _positive(args: Mapping[str, Any]) -> dict[str, Any]:
    """``no_x`` turned into its positive, hyphens into underscores."""
    given: dict[str, Any] = {}
    for key, value in args.items():
        name = key.strip().lstrip("-").replace("-", "_")
        if name.startswith("no_") and name[3:] in _SWITCHES:
            given[name[3:]] = not _switch(f"engine_args.{key}", value)
        else:
            given[name] = value
    return given


def _agree(name: str, value: Any, degree: str, stated: int) -> None:
    count = check_int(f"engine_args.{name}", value, low=1, high=100_000)
    if count != stated:
        raise KvroomError(
            f"engine_args.{name}",
            value,
            f"is not the {degree} of this question, {stated}",
            f"Set {degree} to {count}, or leave the flag out.",
        )


def _switch(field: str, value: Any) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (True, 1, "true", "1", "yes", "on", ""):
        return True
    if word in (False, 0, "false", "0", "no", "off"):
        return False
    raise KvroomError(field, value, "is not true or false", "Write true or false.")


def _number(field: str, value: Any, low: int, high: int) -> int:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isdecimal():
        text = int(text)
    return check_int(field, text, low=low, high=high)


def _count(field: str, value: Any) -> int:
    return _number(field, value, 1, 10**9)


def _block(field: str, value: Any) -> int:
    return _number(field, value, 1, 2**20)


def _share(field: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        number = value
    share = check_float(field, number, low=0.0, high=1.0)
    if share == 0:
        raise KvroomError(field, value, "leaves no memory", "Write a share above 0, such as 0.9.")
    return share


def _one_of(*words: str) -> Any:
    def read(field: str, value: Any) -> str:
        if value not in words:
            fix = f"One of: {', '.join(words)}."
            raise KvroomError(field, value, "is none of its values", fix)
        return str(value)

    return read


def _speculative(given: Mapping[str, Any]) -> int:
    """How many tokens are drafted a step."""
    config = given.get("speculative_config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            config = None
        if not isinstance(config, Mapping):
            raise KvroomError(
                "engine_args.speculative_config",
                given["speculative_config"],
                "is not a JSON object",
                'Write it as {"method": …, "num_speculative_tokens": …}.',
            )
    tokens: Any = None
    if isinstance(config, Mapping):
        tokens = config.get("num_speculative_tokens")
    elif given.get("num_speculative_tokens") is not None:
        tokens = given["num_speculative_tokens"]
    if tokens is None:
        return 0
    return _number("engine_args.speculative_config.num_speculative_tokens", tokens, 0, 1000)


_READERS: dict[str, tuple[str, Any]] = {
    "gpu_memory_utilization": ("utilisation", _share),
    "kv_cache_memory_bytes": ("cache_bytes", parse_bytes),
    "kv_cache_memory": ("cache_bytes", parse_bytes),
    "num_gpu_blocks_override": ("blocks", _count),
    "block_size": ("block_tokens", _block),
    "max_num_batched_tokens": ("batch_tokens", _count),
    "max_num_seqs": ("sequences", _count),
    "enforce_eager": ("eager", _switch),
    "enable_prefix_caching": ("prefix_caching", _switch),
    "disable_hybrid_kv_cache_manager": ("hybrid_off", _switch),
    "async_scheduling": ("asynchronous", _switch),
    "performance_mode": ("performance", _one_of(*PERFORMANCE_MODES)),
    "mamba_cache_mode": ("mamba_mode", _one_of(*MAMBA_MODES)),
    "mamba_block_size": ("mamba_block", _block),
    "mamba_ssm_cache_dtype": ("state_dtype", _one_of(*STATE_DTYPES)),
    "mamba_cache_dtype": ("conv_dtype", _one_of(*STATE_DTYPES)),
    "enable_chunked_prefill": ("chunked_prefill", _switch),
}
_SWITCHES = frozenset(
    [name for name, (_, read) in _READERS.items() if read is _switch] + sorted(OTHERS)
)
