"""What TensorRT-LLM refuses as it starts: one table, a source a row."""

from __future__ import annotations

from functools import partial

from kvroom.engines.start_rules import Against, StartRule, cache_type, too_old
from kvroom.engines.tensorrt_llm.support import SUPPORT
from kvroom.sharding.deployment import Deployment


def _vendor(deployment: Deployment) -> Against | None:
    vendor = deployment.device.vendor.lower()
    if vendor in (*SUPPORT.vendors, "unknown", "none", ""):
        return None
    return Against(
        f"TensorRT-LLM runs on NVIDIA GPUs only, and {deployment.device.name} is of another maker",
        "vLLM or SGLang",
    )


START_RULES = (
    StartRule(
        name="vendor",
        why=_vendor,
        source="TensorRT-LLM documentation, support matrix: NVIDIA GPUs",
        unsupported=True,
    ),
    StartRule(
        name="card",
        why=partial(too_old, least=SUPPORT.capability, engine="TensorRT-LLM"),
        source="TensorRT-LLM documentation, support matrix (1.0): Ampere or later",
        unsupported=True,
    ),
    StartRule(
        name="cache_type",
        why=partial(cache_type, known=SUPPORT.cache_types),
        source="TensorRT-LLM, KvCacheConfig.dtype",
        key="kv_dtype",
    ),
)
