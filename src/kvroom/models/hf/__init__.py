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
