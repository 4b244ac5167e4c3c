"""What SGLang calls its metrics, from 0.3 to 0.5."""

from __future__ import annotations

from kvroom.engines.metric_names import MetricNames

METRICS = MetricNames(
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
