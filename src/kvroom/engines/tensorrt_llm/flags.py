"""TensorRT-LLM's flags as a Scenario gives them: checked, and those that bear on memory under one roof.

Names are those of ``trtllm-serve`` and of the LLM API's arguments; the fields of ``KvCacheConfig`` may be
given by themselves or within ``kv_cache_config``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroom.engines import flags as read
from kvroom.errors import KvroomError
from kvroom.sharding.layout import Layout
from kvroom.units import parse_bytes

MAX_BATCH = 2048
MAX_NUM_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
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


def read_flags(args: Mapping[str, Any], layout: Layout) -> Flags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    read.check_known("TensorRT-LLM", args, KNOWN_FLAGS)
    given = {read.plain_name(k): v for k, v in args.items() if v is not None}
    for name in _CONFIGS:
        if name in given:
            inner = _mapping(f"engine_args.{name}", given[name])
            read.check_known("TensorRT-LLM", inner, KNOWN_FLAGS)
            given = {**{read.plain_name(k): v for k, v in inner.items() if v is not None}, **given}
    for name, key in _DEGREES.items():
        if name in given:
            read.check_agrees(name, given[name], key, getattr(layout, key))
    found: dict[str, Any] = {}
    for name, (field, reader) in READERS.items():
        if name in given:
            found[field] = reader(f"engine_args.{name}", given[name])
    return Flags(**found)


def attention_groups(args: Mapping[str, Any], tp: int) -> int:
    """Ranks that each compute their own requests' attention (``enable_attention_dp``)."""
    given = {read.plain_name(k): v for k, v in args.items() if v is not None}
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
_NAMES = """
    allreduce_strategy attn_backend batch_wait_timeout_iters batch_wait_timeout_ms batching_type
    build_config cache_transceiver_config calib_config capacity_scheduler_policy chat_template
    checkpoint_format checkpoint_loader cluster_size cold_tier_offload_min_priority
    context_chunking_policy context_parallel_size copy_on_partial_reuse cp_config cp_size
    cuda_graph_config custom_tokenizer decoding_config disable_overlap_scheduler disk_cache_path
    disk_cache_size dtype dynamic_batch_config embedding_parallel_mode enable_attention_dp_config
    attention_dp_config enable_autotuner enable_build_cache enable_iter_perf_stats
    enable_iter_req_stats enable_layerwise_nvtx_marker enable_lm_head_tp_in_adp enable_lora
    enable_min_latency enable_partial_reuse enable_prompt_adapter enable_sleep enable_tqdm
    event_buffer_max_size extended_runtime_perf_knob_config extra_llm_api_options
    fail_fast_on_attention_window_too_large fast_build force_dynamic_quantization
    garbage_collection_gen0_threshold gather_generation_logits gpus_per_node
    guided_decoding_backend host host_cache_size iter_stats_max_iterations kv_cache_dtype
    kv_connector_config load_format log_level lora_config mamba_ssm_cache_dtype
    max_cpu_loras max_input_len max_lora_rank max_loras max_prompt_adapter_token
    max_stats_len max_util_for_resume metadata_server_config_file mm_encoder_only model
    model_kwargs moe_backend moe_cluster_parallel_size moe_config moe_tensor_parallel_size
    mpi_session nvfp4_gemm_config normalize_log_probs num_postprocess_workers
    orchestrator_type otlp_traces_endpoint peft_cache_config perf_metrics_max_requests port
    postprocess_tokenizer_dir print_iter_log qos quant_config ray_worker_extension_cls
    reasoning_parser request_stats_max_iterations return_perf_metrics revision sampler_type
    scheduler_config secondary_offload_min_priority sink_token_length skip_tokenizer_init
    sparse_attention_config speculative_config stream_interval tokenizer tokenizer_mode
    tokenizer_revision tool_parser torch_compile_config trust_remote_code use_uvm workspace
    kv_cache_max_memory enable_swa_scratch_reuse num_speculative_tokens served_model_name
"""
OTHERS = frozenset(_NAMES.split())
"""Names that kvroom passes over: known, but with no bearing on the pool."""
KNOWN_FLAGS = frozenset((*READERS, *_DEGREES, *_CONFIGS)) | OTHERS
"""Every flag that a Scenario may carry."""
