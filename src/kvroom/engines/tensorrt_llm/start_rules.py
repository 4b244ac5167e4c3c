"""What TensorRT-LLM refuses as it starts: one table, a source a row."""

from __future__ import annotations

from kvroom.engines.start_rules import Against, StartRule, cache_type, too_old
from kvroom.engines.tensorrt_llm.support import SUPPORT
from kvroom.sharding.deployment import Deployment

Why = Against | None


def _vendor(deployment: Deployment) -> Why:
    vendor = deployment.device.vendor.lower()
    if vendor in (*SUPPORT.vendors, "unknown", "none", ""):
        return None
    return Against(
        f"TensorRT-LLM runs on NVIDIA GPUs only, and {deployment.device.name} is of another maker",
        "vLLM or SGLang",
    )


def _card(deployment: Deployment) -> Why:
    return too_old(deployment, SUPPORT.capability, "TensorRT-LLM")


def _cache_type(deployment: Deployment) -> Why:
    return cache_type(deployment, SUPPORT.cache_types)


START_RULES = (
    StartRule(
        name="vendor",
        why=_vendor,
        source="TensorRT-LLM documentation, support matrix: NVIDIA GPUs",
        unsupported=True,
    ),
    StartRule(
        name="card",
        why=_card,
        source="TensorRT-LLM documentation, support matrix (1.0): Ampere or later",
        unsupported=True,
    ),
    StartRule(
        name="cache_type",
        why=_cache_type,
        source="TensorRT-LLM, KvCacheConfig.dtype",
        key="kv_dtype",
    ),
)
