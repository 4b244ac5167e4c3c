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
    "dense": (
        "llama",
        "aquila",
        "yi",
        "Yi",
        "mistral",
        "ministral",
        "qwen2",
        "qwen3",
        "granite",
        "seed_oss",
        "smollm3",
        "internlm3",
        "phi3",
        "glm",
        "glm4",
    ),
    "layernorms": (
        "olmo",
        "olmo2",
        "olmo3",
        "exaone4",
        "cohere",
        "cohere2",
        "starcoder2",
        "stablelm",
        "stablelm_epoch",
        "nemotron",
    ),
    "classic": (
        "gpt2",
        "gpt_bigcode",
        "gptj",
        "codegen",
        "gpt_neo",
        "gpt_neox",
        "opt",
        "bloom",
        "mpt",
        "falcon",
        "RefinedWebModel",
        "RefinedWeb",
        "phi",
        "phi-msft",
    ),
    "remote": (
        "baichuan",
        "internlm",
        "internlm2",
        "qwen",
        "chatglm",
        "exaone",
        "deci",
        "nemotron-nas",
    ),
    "gemma": ("gemma", "gemma2", "gemma3_text"),
    "gemma_shared": ("gemma3n_text", "gemma4_text"),
    "mllama": ("mllama",),
    "encoder_decoder": ("t5", "mt5", "umt5", "bart", "mbart", "whisper"),
    "encoders": ("bert", "roberta", "xlm-roberta", "nomic_bert", "modernbert"),
    "multimodal": (
        "gemma3",
        "gemma3n",
        "gemma4",
        "mistral3",
        "ministral3",
        "llava",
        "llava_next",
        "llava_onevision",
        "paligemma",
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
