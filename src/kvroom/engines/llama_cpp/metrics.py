"""What llama.cpp's server calls its metrics, since 2024."""

from __future__ import annotations

from kvroom.engines.metric_names import MetricNames

METRICS = MetricNames(
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
