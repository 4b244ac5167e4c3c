"""vLLM's own flags as a Scenario gives them: checked, and those that matter here under one roof.

Names are those of ``vllm serve`` with underscores; ``no_…`` is the negative of a switch. Flags that
do not bear on cache memory are known and passed over; an unknown one is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.flag_names import flag_names
from kvroom.errors import KvroomError, check_spelling
from kvroom.records import dataclass
from kvroom.scenario.offload import json_object
from kvroom.sharding.layout import Layout
from kvroom.units import parse_bytes

MAMBA_MODES = ("none", "align", "all")
STATE_DTYPES = ("auto", "float16", "bfloat16", "float32")
TRANSFER_KEYS = (
    "kv_connector", "kv_connector_extra_config", "kv_connector_module_path", "kv_role", "engine_id",
    "kv_rank", "kv_parallel_size", "kv_ip", "kv_port", "kv_buffer_device", "kv_buffer_size",
    "kv_load_failure_policy", "enable_permute_local_kv",
)  # fmt: skip
"""Fields of ``KVTransferConfig``, which refuses any other."""
PERFORMANCE_MODES = ("balanced", "interactivity", "throughput")

NAMES = flag_names(__package__)
PARALLEL = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "decode_context_parallel_size": "dcp",
}
"""Degrees that the Scenario itself states; given here too they must agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmFlags:
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
    windows_off: bool = False
    skipped_layers: tuple[str, ...] = ()
    """Layers that keep the model's width whatever the cache's is: indices, or ``sliding_window``."""
    offline: bool = False
    estimates_graphs: bool | None = None
    auto_fit: bool = False
    speculative_tokens: int = 0


def read_flags(args: Mapping[str, Any], layout: Layout) -> VllmFlags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    given = positive(args)
    read.check_known("vLLM", given, KNOWN_FLAGS)
    for name, degree in PARALLEL.items():
        if name in given:
            read.check_agrees(name, given[name], degree, getattr(layout, degree))
    transfer = json_object(given.get("kv_transfer_config"))
    check_spelling("engine_args.kv_transfer_config", transfer, TRANSFER_KEYS)
    found = read.fields_of(READERS, given)
    if "max_model_len" in given:
        found["auto_fit"] = given["max_model_len"] in (-1, "-1", "auto")
    found["speculative_tokens"] = _speculative(given)
    if "usage_context" in given:
        found["offline"] = _usage("engine_args.usage_context", given["usage_context"]) in (
            "llm_class",
            "llm",
        )
    return VllmFlags(**found)


def positive(args: Mapping[str, Any]) -> dict[str, Any]:
    """``no_x`` turned into its positive, hyphens into underscores."""
    given: dict[str, Any] = {}
    for key, value in args.items():
        name = read.plain_name(key)
        if name.startswith("no_") and name[3:] in _SWITCHES:
            given[name[3:]] = not read.switch(f"engine_args.{key}", value)
        else:
            given[name] = value
    return given


def _block(field: str, value: Any) -> int:
    return read.number(field, value, 1, 2**20)


def _layers(field: str, value: Any) -> tuple[str, ...]:
    """Layers by index, and ``sliding_window``: a list, or words of one text."""
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    words = [words] if isinstance(words, int) else words
    if not isinstance(words, list | tuple) or not all(
        str(word) == "sliding_window" or str(word).isdecimal() for word in words
    ):
        fix = 'Give layers by their index, or "sliding_window": ["0", "1"].'
        raise KvroomError(field, value, "names no layers", fix)
    return tuple(str(word) for word in words)


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
    return read.number("engine_args.speculative_config.num_speculative_tokens", tokens, 0, 1000)


_usage = read.one_of("openai_api_server", "api_server", "llm_class", "llm")
"""``UsageContext``: who makes the engine, the API server or the offline ``LLM`` class; each has its own
default of max_num_batched_tokens."""

READERS: dict[str, tuple[str, read.Reader]] = {
    "gpu_memory_utilization": ("utilisation", read.share),
    "kv_cache_memory_bytes": ("cache_bytes", parse_bytes),
    "kv_cache_memory": ("cache_bytes", parse_bytes),
    "num_gpu_blocks_override": ("blocks", read.count),
    "block_size": ("block_tokens", _block),
    "max_num_batched_tokens": ("batch_tokens", read.count),
    "max_num_seqs": ("sequences", read.count),
    "enforce_eager": ("eager", read.switch),
    "enable_prefix_caching": ("prefix_caching", read.switch),
    "disable_hybrid_kv_cache_manager": ("hybrid_off", read.switch),
    "async_scheduling": ("asynchronous", read.switch),
    "performance_mode": ("performance", read.one_of(*PERFORMANCE_MODES)),
    "mamba_cache_mode": ("mamba_mode", read.one_of(*MAMBA_MODES)),
    "mamba_block_size": ("mamba_block", _block),
    "mamba_ssm_cache_dtype": ("state_dtype", read.one_of(*STATE_DTYPES)),
    "mamba_cache_dtype": ("conv_dtype", read.one_of(*STATE_DTYPES)),
    "vllm_memory_profiler_estimate_cudagraphs": ("estimates_graphs", read.switch),
    "enable_chunked_prefill": ("chunked_prefill", read.switch),
    "disable_sliding_window": ("windows_off", read.switch),
    "kv_cache_dtype_skip_layers": ("skipped_layers", _layers),
}
_SWITCHES = frozenset(
    [name for name, (_, reader) in READERS.items() if reader is read.switch] + sorted(NAMES.others)
)
VARIABLES = (
    "vllm_allow_long_max_model_len",
    "vllm_pp_layer_partition",
    "vllm_memory_profiler_estimate_cudagraphs",
    "lmcache_local_cpu",
    "lmcache_max_local_cpu_size",
    "lmcache_local_disk",
    "lmcache_max_local_disk_size",
    "lmcache_chunk_size",
)
"""Environment variables that bear on memory, as they are called among the flags."""
MEMORY_FLAGS = frozenset(READERS) | {"max_model_len", "usage_context", *VARIABLES}
"""The flags that bear on memory here."""
KNOWN_FLAGS = MEMORY_FLAGS | NAMES.others | frozenset(PARALLEL)
"""Every flag that a Scenario may carry."""
