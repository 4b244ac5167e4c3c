"""What an engine does not have: cache types that it would refuse, cards that it is not built for.

Sources: ``CacheDType`` of vLLM's ``config/cache.py`` and its least compute capability (7.0), SGLang's
choices of ``--kv-cache-dtype`` and what its ``ModelRunner`` refuses (below 7.5), TensorRT-LLM's
``KvCacheConfig.dtype``.
"""

from __future__ import annotations

from kvroom.sharding.deployment import Deployment

CACHE_TYPES = {
    "vllm": (
        "bf16",
        "fp16",
        "fp8",
        "nvfp4",
        "fp8_per_token_head",
        "int8_per_token_head",
        "int4_per_token_head",
    ),
    "sglang": ("bf16", "fp8", "nvfp4"),
    "tensorrt-llm": ("fp16", "bf16", "fp8", "int8", "nvfp4"),
}
"""What keys and values may be stored in, by kvroom's names (the model's own width is ``auto``)."""
LEAST_CAPABILITY = {"vllm": 7.0, "sglang": 7.5}


def cache_refusal(d: Deployment) -> str:
    """Why the engine would refuse the cache type that was asked for, "" where it would not."""
    known = CACHE_TYPES.get(d.engine)
    own = (d.weights.quantisation.kv_dtype, d.model.dtype)
    if known is None or d.kv_asked == "auto" or d.kv.name in known or d.kv_asked in own:
        return ""
    return f"{d.engine} has no cache type {d.kv_asked} (kv_dtype: auto, {', '.join(known)})"


def card_notes(d: Deployment) -> tuple[str, ...]:
    """A warning where the engine does not run on the card."""
    vendor, said = d.device.vendor.lower(), d.device.compute_capability
    if d.engine == "tensorrt-llm" and vendor not in ("nvidia", ""):
        return (f"TensorRT-LLM runs on NVIDIA GPUs only: {d.device.name} is {d.device.vendor}'s",)
    least = LEAST_CAPABILITY.get(d.engine)
    try:
        found = float(said) if said and vendor == "nvidia" else None
    except ValueError:
        return ()
    if least is None or found is None or found >= least:
        return ()
    return (
        f"{d.engine} needs compute capability {least} and {d.device.name} has {said}: it does not run there",
    )
