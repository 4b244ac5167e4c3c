"""Hugging Face ``config.json`` → ModelSpec. One reader an architecture, found by ``model_type``.

A reader is a function ``(Config) -> ModelSpec`` in a family's module, called as its ``model_type`` is. To
add an architecture: write the reader and name the type in ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

from kvroom.models.config import Config
from kvroom.models.spec import ModelSpec, Vision

FAMILIES: dict[str, str] = {
    "classic": (
        "gpt2 gpt_bigcode gptj codegen gpt_neo gpt_neox opt bloom mpt falcon "
        "RefinedWebModel=falcon RefinedWeb=refined_web phi phi-msft=phi_msft"
    ),
    "compressed": "deepseek_v4 deepseek_ref=deepseek_v4",
    "delta": "qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text olmo_hybrid",
    "dense": (
        "llama aquila=llama yi=llama Yi=llama mistral ministral=mistral qwen2 qwen3 granite "
        "seed_oss smollm3 internlm3 phi3 glm glm4"
    ),
    "encoder_decoder": "t5 mt5 umt5 bart mbart whisper",
    "encoders": "bert roberta xlm-roberta=roberta nomic_bert modernbert",
    "gemma": "gemma gemma2 gemma3_text",
    "gemma_shared": "gemma3n_text gemma4_text",
    "griffin": "recurrent_gemma lfm2 lfm2_moe",
    "hybrid": "jamba bamba granitemoehybrid=granite falcon_h1",
    "kimi": "kimi_linear kimi_k3 bailing_hybrid",
    "latent": "deepseek_v2 deepseek_v3 kimi_k2=deepseek_v3 deepseek_v32 glm_moe_dsa glm4_moe_lite",
    "layernorms": (
        "olmo olmo2 olmo3 exaone4 cohere cohere2 starcoder2 stablelm stablelm_epoch=stablelm "
        "nemotron"
    ),
    "lightning": "minimax minimax_text_01=minimax minimax_m1=minimax",
    "longcat": "longcat_flash",
    "mamba": "mamba falcon_mamba=mamba mamba2=mamba2_reader",
    "mllama": "mllama",
    "moe": (
        "mixtral phimoe minimax_m2 olmoe granitemoe granitemoeshared=granitemoe dbrx qwen2_moe "
        "qwen3_moe"
    ),
    "moe_shared": (
        "deepseek glm4_moe ernie4_5 ernie4_5_moe hunyuan_v1_moe=hunyuan "
        "hunyuan_v1_dense=hunyuan mimo"
    ),
    "multimodal": (
        "gemma3 gemma3n gemma4 mistral3 ministral3 llava llava_next llava_onevision paligemma"
    ),
    "multimodal_moe": (
        "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text=qwen2_vl_text qwen3_vl qwen3_vl_text "
        "qwen3_vl_moe qwen3_vl_moe_text kimi_k25 glm4v_moe glm4v_moe_text minimax_m3 "
        "minimax_m3_vl=minimax_m3 minimax_m3_vl_text=minimax_m3_text"
    ),
    "nemotron_h": "nemotron_h",
    "remote": "baichuan internlm internlm2 qwen chatglm exaone deci nemotron-nas=nemotron_nas",
    "windowed_moe": "gpt_oss llama4 llama4_text mimo_v2_flash step3p5 step3p7",
    "zamba": "zamba zamba2",
}
"""Which module reads which ``model_type``: the function of the type's name, or the one behind its ``=``.
A module is imported only when its type is asked for."""

HALVES = (
    "BartForCausalLM", "MBartForCausalLM", "WhisperForCausalLM", "BertLMHeadModel", "RobertaForCausalLM",
    "XLMRobertaForCausalLM",
)  # fmt: skip
"""Classes that hold less (a decoder alone) or more (a head) than the reader of their type reads."""

_READER_OF = {
    kind: (module, reader or kind)
    for module, kinds in FAMILIES.items()
    for kind, _, reader in (word.partition("=") for word in kinds.split())
}
"""``model_type`` → the module and the function that read it."""


def has_reader(kind: str) -> bool:
    """Whether a model type is read by a reader of its own, not by its class or its keys."""
    return kind in _READER_OF


def read(config: Mapping[str, Any]) -> ModelSpec:
    """The model that a decoded ``config.json`` describes; KvroomError says what is wrong with it.

    A type without a reader is read by the class that its config names (``by_class``), one that no
    class has by its keys (``by_keys``), with a warning that says from which.
    """
    one_config = Config(config)
    kind = one_config.text("model_type", default="")
    named = _class_of(kind, config.get("architectures"))
    if kind in _READER_OF or named:
        if named:
            from kvroom.models.hf import by_class

            spec: ModelSpec = by_class.read(one_config, named, read, _READER_OF)
        else:
            module, reader = _READER_OF[kind]
            spec = getattr(import_module(f"kvroom.models.hf.{module}"), reader)(one_config)
        drafted = config.get("draft_vocab_size")
        return replace(
            spec,
            architecture=_architecture(config),
            vision=_vision(config),
            draft_vocab_size=drafted if isinstance(drafted, int) and drafted > 0 else None,
        )
    from kvroom.models.hf import by_class, by_keys

    return by_keys.read(one_config, (*_READER_OF, *by_class.kinds()), read)


def _class_of(kind: str, architectures: object) -> str | None:
    """The class in the table of classes that a config is for, None where its type has a reader.

    A type with a reader is read by the table only where the config names one of ``HALVES``.
    """
    halved = isinstance(architectures, list) and architectures and architectures[0] in HALVES
    if not kind or (kind in _READER_OF and not halved):
        return None
    from kvroom.models.hf import by_class

    return by_class.class_of(kind, architectures)


def _architecture(config: Mapping[str, Any]) -> str:
    """The first of ``architectures``; "" where the config names none."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else ""
    return first if isinstance(first, str) else ""


def _vision(config: Mapping[str, Any]) -> Vision | None:
    """What the config says of its vision tower; None where it has no ``vision_config``."""
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        return None
    sizes = {field.name: tower.get(field.name) for field in fields(Vision)}
    return Vision(
        **{key: value for key, value in sizes.items() if type(value) is int and value > 0}
    )
