"""Hugging Face ``config.json`` → ModelSpec. One reader an architecture, found by ``model_type``.

A reader is a function ``(Config) -> ModelSpec`` in a family's module, listed in that module's
``READERS`` under its ``model_type``. To add an architecture: write the reader, add it to ``READERS``,
name the type in ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.hf.config import Config
from kvroom.models.spec import ModelSpec

FAMILIES: dict[str, tuple[str, ...]] = {
    "dense": ("llama", "mistral", "qwen2", "qwen3"),
    "mamba": ("mamba", "falcon_mamba", "mamba2"),
    "hybrid": ("jamba", "bamba", "granitemoehybrid", "falcon_h1"),
    "zamba": ("zamba", "zamba2"),
    "nemotron_h": ("nemotron_h",),
    "delta": (
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "olmo_hybrid",
    ),
    "kimi": ("kimi_linear", "kimi_k3", "bailing_hybrid"),
    "lightning": ("minimax", "minimax_text_01", "minimax_m1"),
    "griffin": ("recurrent_gemma", "lfm2", "lfm2_moe"),
    "moe": (
        "mixtral",
        "phimoe",
        "minimax_m2",
        "olmoe",
        "granitemoe",
        "granitemoeshared",
        "dbrx",
        "qwen2_moe",
        "qwen3_moe",
    ),
    "moe_shared": (
        "deepseek",
        "glm4_moe",
        "ernie4_5",
        "ernie4_5_moe",
        "hunyuan_v1_moe",
        "hunyuan_v1_dense",
        "mimo",
    ),
    "latent": (
        "deepseek_v2",
        "deepseek_v3",
        "kimi_k2",
        "deepseek_v32",
        "glm_moe_dsa",
        "glm4_moe_lite",
    ),
    "compressed": ("deepseek_v4", "deepseek_ref"),
    "windowed_moe": (
        "gpt_oss",
        "llama4",
        "llama4_text",
        "mimo_v2_flash",
        "step3p5",
        "step3p7",
    ),
    "multimodal_moe": (
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen3_vl",
        "qwen3_vl_text",
        "qwen3_vl_moe",
        "qwen3_vl_moe_text",
        "kimi_k25",
        "glm4v_moe",
        "glm4v_moe_text",
        "minimax_m3",
        "minimax_m3_vl",
        "minimax_m3_vl_text",
    ),
}
"""Which module reads which ``model_type``; a module is imported only when its type is asked for."""

_MODULE_OF = {kind: module for module, kinds in FAMILIES.items() for kind in kinds}


def read(config: Mapping[str, Any]) -> ModelSpec:
    """The model that a decoded ``config.json`` describes; KvroomError says what is wrong with it."""
    c = Config(config)
    kind = c.text("model_type", default="")
    module = _MODULE_OF.get(kind)
    if module is None:
        raise KvroomError("model_type", kind, "is not known", "…")
    reader = import_module(f"kvroom.models.hf.{module}").READERS[kind]
    spec: ModelSpec = reader(c)
    return spec
