"""SGLang's flags as a Scenario gives them: checked, and those that bear on memory under one roof.

Names are those of ``sglang.launch_server`` with underscores, of any release: one that the named
release lacks is refused (``flags.ini``). SglangFlags without bearing on cache memory are passed over.
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

STATE_DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of one number of recurrent state."""
STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
NAMES = flag_names(__package__)
GRAPH_BACKENDS = ("full", "breakable", "tc_piecewise", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangFlags:
    """The flags that bear on memory; None where SGLang decides."""

    static_share: float | None = None
    chunk: int | None = None
    prefill_tokens: int = 16384
    max_tokens: int | None = None
    requests: int | None = None
    page: int | None = None
    backend: str | None = None
    prefill_backend: str | None = None
    decode_backend: str | None = None
    sparse_prefill: str | None = None
    sparse_decode: str | None = None
    attention_dp: int = 1
    context_parallel: int = 1
    radix: bool = True
    overlap: bool = True
    windows: bool = True
    window_ratio: float | None = None
    llama4_ratio: float | None = None
    state_ratio: float = 0.9
    state_slots: int | None = None
    state_bytes: int | None = None
    strategy: str = "auto"
    multimodal: bool | None = None
    feature_transport: str | None = None
    speculation: str | None = None
    draft_path: bool = False
    draft_steps: int | None = None
    draft_topk: int | None = None
    draft_tokens: int | None = None
    ngram_breadth: int = 10
    a2a: str = "none"
    lora: bool = False
    two_batches: bool = False
    decode_graphs: bool = True
    graph_size: int | None = None
    prefill_graphs: str | None = None
    prefill_graphs_asked: bool = False
    prefill_graph_size: int | None = None
    prefill_graph_sizes: tuple[int, ...] | None = None


def read_flags(args: Mapping[str, Any], layout: Layout) -> SglangFlags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    read.check_known("SGLang", args, KNOWN_FLAGS)
    given = read.plain_args(args)
    found = read.fields_of(READERS, given)
    for name, field in _OFF.items():
        if name in given and read.switch(f"engine_args.{name}", given[name]):
            found[field] = False
    found["draft_path"] = bool(given.get("speculative_draft_model_path"))
    found["attention_dp"] = _attention_dp(given, layout)
    found.update(_graphs(given))
    return SglangFlags(**found)


def _attention_dp(given: Mapping[str, Any], layout: Layout) -> int:
    """Data-parallel attention groups within the tensor ranks; plain replicas are the layout's dp."""
    for name, key in _DEGREES.items():
        if name in given:
            read.check_agrees(name, given[name], key, getattr(layout, key))
    inner = 1
    for name in ("attn_dp_size", "attention_data_parallel_size"):
        if name in given:
            inner = read.number(f"engine_args.{name}", given[name], 1, 100_000)
    groups = next((n for n in ("dp_size", "data_parallel_size") if n in given), None)
    within = read.switch("engine_args.enable_dp_attention", given.get("enable_dp_attention", False))
    if groups is not None:
        size = read.number(f"engine_args.{groups}", given[groups], 1, 100_000)
        if within:
            inner = max(inner, size)
        else:
            read.check_agrees(groups, size, "dp", layout.dp)
    if layout.tp % inner:
        raise KvroomError(
            f"engine_args.{groups or 'attn_dp_size'}",
            inner,
            f"does not divide tp {layout.tp}, whose ranks it groups",
            "With data-parallel attention tp counts all GPUs of the replica.",
        )
    return inner


def attention_groups(args: Mapping[str, Any], tp: int) -> int:
    """Data-parallel attention groups that the flags ask for; 1 where they cannot be."""
    given = read.plain_args(args)
    names = ["attn_dp_size", "attention_data_parallel_size"]
    if read.switch("engine_args.enable_dp_attention", given.get("enable_dp_attention", False)):
        names += ["dp_size", "data_parallel_size"]
    counts = [
        read.number(f"engine_args.{name}", given[name], 1, 100_000)
        for name in names
        if name in given
    ]
    groups = max(counts, default=1)
    return groups if tp % groups == 0 else 1


def _graphs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Which CUDA graphs are captured, by any of the names that SGLang has had for it."""
    found: dict[str, Any] = {}

    def on(name: str) -> bool:
        return name in given and read.switch(f"engine_args.{name}", given[name])

    def backend(name: str, value: Any) -> str:
        return str(read.one_of(*GRAPH_BACKENDS)(f"engine_args.{name}", value))

    if on("disable_cuda_graph"):
        found.update(decode_graphs=False, prefill_graphs="disabled")
    if on("disable_decode_cuda_graph"):
        found["decode_graphs"] = False
    if on("disable_prefill_cuda_graph") or on("disable_piecewise_cuda_graph"):
        found["prefill_graphs"] = "disabled"
    if on("enforce_piecewise_cuda_graph"):
        found["prefill_graphs"] = "tc_piecewise"
    if on("enable_piecewise_cuda_graph"):
        found["prefill_graphs_asked"] = True
    for name in ("cuda_graph_backend_decode", "cuda_graph_backend_prefill"):
        if name in given:
            said = backend(name, given[name])
            if name.endswith("decode"):
                found["decode_graphs"] = said != "disabled"
            else:
                found["prefill_graphs"] = said
    for name, field in _GRAPH_SIZES.items():
        if name in given:
            found[field] = read.count(f"engine_args.{name}", given[name])
    for name in ("cuda_graph_bs", "cuda_graph_bs_decode"):
        if name in given:
            found["graph_size"] = max(read.counts(f"engine_args.{name}", given[name]))
    for name in ("piecewise_cuda_graph_tokens", "cuda_graph_bs_prefill"):
        if name in given:
            found["prefill_graph_sizes"] = read.counts(f"engine_args.{name}", given[name])
    config = _graph_config(given.get("cuda_graph_config"))
    decode, prefill = config.get("decode", {}), config.get("prefill", {})
    if "backend" in decode:
        found["decode_graphs"] = backend("cuda_graph_config", decode["backend"]) != "disabled"
    if "backend" in prefill:
        found["prefill_graphs"] = backend("cuda_graph_config", prefill["backend"])
    if decode.get("max_bs") is not None:
        found["graph_size"] = read.count("engine_args.cuda_graph_config", decode["max_bs"])
    if prefill.get("max_bs") is not None:
        found["prefill_graph_size"] = read.count("engine_args.cuda_graph_config", prefill["max_bs"])
    return found


def _graph_config(value: Any) -> dict[str, dict[str, Any]]:
    """``cuda_graph_config``: an object of ``decode`` and ``prefill`` settings, or its JSON text."""
    if value is None:
        return {}
    try:
        config = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        config = None
    if isinstance(config, Mapping) and all(isinstance(value, Mapping) for value in config.values()):
        return {str(key): dict(value) for key, value in config.items()}
    raise KvroomError(
        "engine_args.cuda_graph_config",
        value,
        "is not an object of phases",
        'Write it as {"decode": {"max_bs": …}, "prefill": {"backend": …}}.',
    )


def _algorithm(field: str, value: Any) -> str:
    """The drafting algorithm in capitals; NEXTN is SGLang's other name for EAGLE."""
    name = read.text(field, value).upper()
    return "EAGLE" if name == "NEXTN" else name


def _state_bytes(field: str, value: Any) -> int:
    return STATE_DTYPES[read.one_of(*STATE_DTYPES)(field, value)]


def _ratio(field: str, value: Any) -> float:
    return read.fraction(field, value, 1.0)


READERS: dict[str, tuple[str, read.Reader]] = {
    "mem_fraction_static": ("static_share", read.share),
    "chunked_prefill_size": ("chunk", read.count_or_off),
    "max_prefill_tokens": ("prefill_tokens", read.count),
    "max_total_tokens": ("max_tokens", read.count),
    "max_running_requests": ("requests", read.count),
    "page_size": ("page", read.count),
    "attention_backend": ("backend", read.text),
    "prefill_attention_backend": ("prefill_backend", read.text),
    "decode_attention_backend": ("decode_backend", read.text),
    "nsa_prefill_backend": ("sparse_prefill", read.text),
    "nsa_decode_backend": ("sparse_decode", read.text),
    "dsa_prefill_backend": ("sparse_prefill", read.text),
    "dsa_decode_backend": ("sparse_decode", read.text),
    "attn_cp_size": ("context_parallel", read.count),
    "swa_full_tokens_ratio": ("window_ratio", read.share),
    "hybrid_kvcache_ratio": ("llama4_ratio", _ratio),
    "mamba_full_memory_ratio": ("state_ratio", read.fraction),
    "max_mamba_cache_size": ("state_slots", read.count),
    "mamba_ssm_dtype": ("state_bytes", _state_bytes),
    "mamba_scheduler_strategy": ("strategy", read.one_of(*STRATEGIES)),
    "mamba_radix_cache_strategy": ("strategy", read.one_of(*STRATEGIES)),
    "enable_multimodal": ("multimodal", read.switch),
    "mm_feature_transport": ("feature_transport", read.text),
    "speculative_algorithm": ("speculation", _algorithm),
    "speculative_num_steps": ("draft_steps", read.count),
    "speculative_eagle_topk": ("draft_topk", read.count),
    "speculative_num_draft_tokens": ("draft_tokens", read.count),
    "speculative_ngram_max_bfs_breadth": ("ngram_breadth", read.count),
    "moe_a2a_backend": ("a2a", read.text),
    "enable_lora": ("lora", read.switch),
    "enable_two_batch_overlap": ("two_batches", read.switch),
}
_OFF = {
    "disable_radix_cache": "radix",
    "disable_overlap_schedule": "overlap",
    "disable_hybrid_swa_memory": "windows",
}
"""Switches that turn a field off."""
_DEGREES = {
    "tp_size": "tp",
    "tensor_parallel_size": "tp",
    "pp_size": "pp",
    "pipeline_parallel_size": "pp",
    "dcp_size": "dcp",
}
"""Degrees that the Scenario itself states; given here too they must agree."""
_GRAPH_SIZES = {
    "cuda_graph_max_bs": "graph_size",
    "cuda_graph_max_bs_decode": "graph_size",
    "piecewise_cuda_graph_max_tokens": "prefill_graph_size",
    "cuda_graph_max_bs_prefill": "prefill_graph_size",
}
_DERIVED = (
    *_OFF,
    *_DEGREES,
    *_GRAPH_SIZES,
    "attention_data_parallel_size",
    "attn_dp_size",
    "context_length",
    "cuda_graph_backend_decode",
    "cuda_graph_backend_prefill",
    "cuda_graph_bs",
    "cuda_graph_bs_decode",
    "cuda_graph_bs_prefill",
    "cuda_graph_config",
    "data_parallel_size",
    "disable_cuda_graph",
    "disable_decode_cuda_graph",
    "disable_piecewise_cuda_graph",
    "disable_prefill_cuda_graph",
    "dp_size",
    "enable_dp_attention",
    "enable_piecewise_cuda_graph",
    "enforce_piecewise_cuda_graph",
    "kv_cache_dtype",
    "max_model_len",
    "piecewise_cuda_graph_tokens",
    "speculative_draft_model_path",
)
"""Known names that no reader of one field takes."""
MEMORY_FLAGS = frozenset((*READERS, *_DERIVED)) - frozenset(_DEGREES)
"""The flags that bear on memory here."""
VARIABLES = (
    "sglang_allow_overwrite_longer_context_len",
    "sglang_pp_layer_partition",
    "lmcache_local_cpu",
    "lmcache_max_local_cpu_size",
    "lmcache_local_disk",
    "lmcache_max_local_disk_size",
    "lmcache_chunk_size",
)
"""Environment variables that bear on the answer."""
KNOWN_FLAGS = MEMORY_FLAGS | NAMES.others | frozenset((*_DEGREES, *VARIABLES))
"""Every flag that a Scenario may carry."""
