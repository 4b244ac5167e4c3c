"""What engines call their metrics, by version: one table an engine.

vLLM 0.3 to 0.33 (both its engines), SGLang 0.3 to 0.5, llama.cpp's server since 2024. A figure has
several names where versions differ; all that are there are read, and of gauges the largest counts: they
are either the same figure under an old and a new name or pools of which the fullest breaks first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Dialect:
    """One engine's names (without ``prefix``) by our figure; ``fix`` turns its metrics on."""

    engine: str
    prefix: str
    gauges: Names
    counters: Names
    histograms: Names
    info: tuple[str, ...]
    """Gauges whose labels describe the cache."""
    fix: str

    def samples(self) -> dict[str, tuple[str, str]]:
        """Whole sample name → (kind, figure)."""
        found: dict[str, tuple[str, str]] = {}
        for kind, names in (("gauge", self.gauges), ("counter", self.counters)):
            found |= {self.prefix + n: (kind, figure) for figure, ns in names.items() for n in ns}
        for figure, names_of in self.histograms.items():
            for name in names_of:
                for part in ("bucket", "sum", "count"):
                    found[f"{self.prefix}{name}_{part}"] = (part, figure)
        return found | {self.prefix + n: ("info", n) for n in self.info}


VLLM = Dialect(
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
SGLANG = Dialect(
    engine="sglang",
    prefix="sglang:",
    gauges={
        "kv_usage": ("token_usage", "full_token_usage", "swa_token_usage", "mamba_usage"),
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "hit_ratio": ("cache_hit_rate",),
        "kv_tokens": ("max_total_num_tokens",),
        "used_tokens": ("num_used_tokens",),
    },
    counters={
        "preemptions": ("num_retracted_requests_total", "num_retracted_reqs_total"),
        "hits": ("cached_tokens_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "generation_tokens": ("generation_tokens_total",),
        "finished": ("num_requests_total",),
    },
    histograms={
        "ttft": ("time_to_first_token_seconds",),
        "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e": ("e2e_request_latency_seconds",),
        "queue": ("queue_time_seconds",),
        "prompt_lengths": ("prompt_tokens_histogram",),
        "output_lengths": ("generation_tokens_histogram",),
    },
    info=(),
    fix="Start it with --enable-metrics.",
)
LLAMA_CPP = Dialect(
    engine="llama.cpp",
    prefix="llamacpp:",
    gauges={
        "kv_usage": ("kv_cache_usage_ratio",),
        "running": ("requests_processing",),
        "waiting": ("requests_deferred",),
        "used_tokens": ("kv_cache_tokens",),
    },
    counters={
        "prompt_tokens": ("prompt_tokens_total",),
        "generation_tokens": ("tokens_predicted_total",),
        "generation_s": ("tokens_predicted_seconds_total",),
    },
    histograms={},
    info=(),
    fix="Start it with --metrics.",
)
DIALECTS = (VLLM, SGLANG, LLAMA_CPP)
SAME_FIGURE_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of ranks that tell the same figure each; of ranks of other labels the figures add up."""
OF_THE_PROCESS = ("python_", "process_", "http_", "go_", "promhttp_")
"""Beginnings of names that are the server's, not the engine's."""
START = "process_start_time_seconds"
