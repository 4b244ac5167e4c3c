"""TensorRT-LLM's flags as a Scenario gives them: checked, and those that bear on memory under one roof.

Names are those of ``trtllm-serve`` and of the LLM API's arguments; the fields of ``KvCacheConfig`` may be
given by themselves or within ``kv_cache_config``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.flag_names import flag_names
from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.sharding.layout import Layout
from kvroom.units import parse_bytes

MAX_BATCH = 2048
MAX_NUM_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtLlmFlags:
    """The flags that bear on memory; None where TensorRT-LLM decides."""

    share: float = 0.9
    max_tokens: int | None = None
    block_tokens: int | None = None
    total_bytes: int = 0
    windows: tuple[int, ...] = ()
    reuse: bool = True
    chunked_prefill: bool = False
    requests: int = MAX_BATCH
    batch_tokens: int = MAX_NUM_TOKENS
    length: int | None = None
    beams: int = 1
    attention_dp: bool = False
    backend: str | None = None
    second_manager: bool | None = None
    state_interval: int = 0
    workspace_cap: int | None = None
    cross_share: float = 0.5


def read_flags(args: Mapping[str, Any], layout: Layout) -> TensorrtLlmFlags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    read.check_known("TensorRT-LLM", args, KNOWN_FLAGS)
    given = read.plain_args(args)
    for name in _CONFIGS:
        if name in given:
            inner = _mapping(f"engine_args.{name}", given[name])
            read.check_known("TensorRT-LLM", inner, KNOWN_FLAGS)
            given = {**read.plain_args(inner), **given}
    for name, key in _DEGREES.items():
        if name in given:
            read.check_agrees(name, given[name], key, getattr(layout, key))
    return TensorrtLlmFlags(**read.fields_of(READERS, given))


def attention_groups(args: Mapping[str, Any], tp: int) -> int:
    """Ranks that each compute their own requests' attention (``enable_attention_dp``)."""
    given = read.plain_args(args)
    asked = given.get("enable_attention_dp", False)
    return tp if read.switch("engine_args.enable_attention_dp", asked) else 1


def _mapping(field: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise KvroomError(field, value, "is not an object", 'Write it as {"max_tokens": …}.')
    return value


def _bytes(field: str, value: Any) -> int:
    return 0 if value == 0 else parse_bytes(field, value)


def _block(field: str, value: Any) -> int:
    size = read.number(field, value, 2, 2**16)
    if size & (size - 1):
        raise KvroomError(field, value, "is no power of two", "Use 32, 64 or 128.")
    return size


def _interval(field: str, value: Any) -> int:
    return read.number(field, value, 0, 10**9)


def _auto(field: str, value: Any) -> bool | None:
    return None if value == "auto" else read.switch(field, value)


_BACKENDS = read.one_of("pytorch", "tensorrt", "trt", "_autodeploy", "autodeploy")
READERS: dict[str, tuple[str, read.Reader]] = {
    "free_gpu_memory_fraction": ("share", read.share),
    "kv_cache_free_gpu_memory_fraction": ("share", read.share),
    "kv_cache_free_gpu_mem_fraction": ("share", read.share),
    "max_tokens": ("max_tokens", read.count),
    "max_tokens_in_paged_kv_cache": ("max_tokens", read.count),
    "tokens_per_block": ("block_tokens", _block),
    "max_gpu_total_bytes": ("total_bytes", _bytes),
    "max_attention_window": ("windows", read.counts),
    "max_attention_window_size": ("windows", read.counts),
    "enable_block_reuse": ("reuse", read.switch),
    "enable_chunked_prefill": ("chunked_prefill", read.switch),
    "enable_chunked_context": ("chunked_prefill", read.switch),
    "max_batch_size": ("requests", read.count),
    "max_num_tokens": ("batch_tokens", read.count),
    "max_seq_len": ("length", read.count),
    "max_beam_width": ("beams", read.count),
    "enable_attention_dp": ("attention_dp", read.switch),
    "backend": ("backend", _BACKENDS),
    "use_kv_cache_manager_v2": ("second_manager", _auto),
    "mamba_state_cache_interval": ("state_interval", _interval),
    "fp8_context_mla_kv_len_cap": ("workspace_cap", read.count),
    "cross_kv_cache_fraction": ("cross_share", read.share),
}
_DEGREES = {
    "tp_size": "tp",
    "tensor_parallel_size": "tp",
    "pp_size": "pp",
    "pipeline_parallel_size": "pp",
    "ep_size": "ep",
    "moe_expert_parallel_size": "ep",
}
_CONFIGS = ("kv_cache_config", "kvcache_config")
NAMES = flag_names(__package__)
KNOWN_FLAGS = frozenset((*READERS, *_DEGREES, *_CONFIGS)) | NAMES.others
"""Every flag that a Scenario may carry."""
