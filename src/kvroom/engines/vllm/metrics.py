"""What vLLM calls its metrics, from 0.3 to 0.33 (both its engines)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines.metric_names import MetricNames

WHOLE = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
"""Labels of ``cache_config_info`` that are flags' values: whole numbers …"""
SHARES = ("gpu_memory_utilization",)
YES_OR_NO = ("enable_prefix_caching",)


class VllmMetrics(MetricNames):
    """Its gauges, counters and histograms; ``cache_config_info`` has the cache's flags."""

    def flags(self, info: Mapping[str, str]) -> dict[str, Any]:
        """The flags that ``cache_config_info`` tells."""
        args: dict[str, Any] = {k: int(info[k]) for k in WHOLE if info.get(k, "").isdecimal()}
        for key in SHARES:
            try:
                args[key] = float(info[key])
            except (KeyError, ValueError):
                continue
        args |= {k: info[k] == "True" for k in YES_OR_NO if info.get(k) in ("True", "False")}
        asked = info.get("user_specified_block_size") == "True"
        if asked and info.get("block_size", "").isdecimal():
            args["block_size"] = int(info["block_size"])
        return args


METRICS = VllmMetrics(
    engine="vllm",
    prefix="vllm:",
    gauges={
        "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "swapped": ("num_requests_swapped",),
        "hit_ratio": ("gpu_prefix_cache_hit_rate",),
    },
    counters={
        "preemptions": ("num_preemptions_total",),
        "queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        "prompt_tokens": ("prompt_tokens_total",),
        "generation_tokens": ("generation_tokens_total",),
        "finished": ("request_success_total",),
    },
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "queue": ("request_queue_time_seconds",),
        "prompt_lengths": ("request_prompt_tokens",),
        "output_lengths": ("request_generation_tokens",),
    },
    info=("cache_config_info",),
    fix="Give its own port's /metrics.",
)
