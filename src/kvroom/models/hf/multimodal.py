"""Decoders that see: a text config inside, a vision tower and a projector beside.

The decoder's reader takes the text level, with its class's defaults for what the file leaves out (nested
configs are saved as differences from the class). Shapes as in the transformers classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import hf
from kvroom.models.config import Config
from kvroom.models.hf import dense, gemma, gemma_shared, towers
from kvroom.models.parts import Tensors
from kvroom.models.spec import ModelSpec

Reader = Callable[[Config, Config], ModelSpec]

LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
MISTRAL = {**LLAMA, "intermediate_size": 14336, "max_position_embeddings": 131072}
MINISTRAL3 = {**MISTRAL, "vocab_size": 131072, "num_hidden_layers": 34}
MINISTRAL3["max_position_embeddings"] = 262144
QWEN2 = {
    **LLAMA,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
}
GEMMA = {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
}
GEMMA2 = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
}
TEXT: dict[str, tuple[Reader, dict[str, Any]]] = {
    "llama": (dense.llama, LLAMA),
    "mistral": (dense.mistral, MISTRAL),
    "ministral3": (dense.ministral3, MINISTRAL3),
    "qwen2": (dense.qwen2, QWEN2),
    "gemma": (gemma.gemma, GEMMA),
    "gemma2": (gemma.gemma2, GEMMA2),
    "gemma3_text": (gemma.gemma3_text, gemma.GEMMA3_TEXT),
    "gemma3n_text": (gemma_shared.gemma3n_text, gemma_shared.GEMMA3N_TEXT),
    "gemma4_text": (gemma_shared.gemma4_text, gemma_shared.GEMMA4_TEXT),
}
"""Readers of text levels, each with its class's own sizes."""


def _text(root: Config, kind: str) -> ModelSpec:
    """The decoder of the text level, ``kind`` where that does not say its own model_type.

    A config without a text level that has the decoder's keys itself is its own text level.
    """
    if not root.has("text_config") and not root.has("hidden_size"):
        root.integer("text_config.hidden_size")  # says that it is missing
    level = root.sub("text_config") if root.has("text_config") else root
    model_type = level.text("model_type", default=kind) if level is not root else kind
    if model_type not in TEXT:
        return _other_text(root, level)
    read, sizes = TEXT[model_type]
    if level is not root:
        level = level.of_class(**sizes)
    return read(level, root)


def _other_text(root: Config, level: Config) -> ModelSpec:
    """A text level of another type than these towers came with, by that type's own reader."""
    outer = {
        key: root.raw[key]
        for key in ("quantization_config", "dtype", "torch_dtype", "tie_word_embeddings")
        if root.raw.get(key) is not None
    }
    try:
        return hf.read({**outer, **level.raw})
    except KvroomError as error:
        raise KvroomError(
            f"{level.path}{error.field}", error.value, error.message, error.fix
        ) from None


def _beside(
    root: Config,
    spec: ModelSpec,
    tower: Callable[[Config], Tensors],
    projector: Callable[[Config], Tensors],
    layer_names: str = "language_model.model.layers",
) -> ModelSpec:
    """``spec`` with the vision tower and projector of ``vision_config`` beside it."""
    if not root.has("vision_config"):
        warning = "vision_config: so that no vision tower is counted among the weights."
        return replace(spec, layer_names=layer_names, warnings=(*spec.warnings, warning), beside=())
    v = root.sub("vision_config")
    return replace(spec, layer_names=layer_names, beside=(*tower(v), *projector(v)))


def gemma3(config: Config) -> ModelSpec:
    """Gemma 3 4B to 27B: a SigLIP tower whose patches are pooled, normed and projected."""
    spec = _text(config, "gemma3_text")

    def projector(config: Config) -> Tensors:
        seen = config.integer("hidden_size", default=768)
        return (
            *towers.plain("multi_modal_projector.projection", seen, spec.hidden_size),
            *towers.plain("multi_modal_projector.norm", seen),
        )

    return _beside(config, spec, lambda v: towers.vision(v, "siglip_vision_model"), projector)


def gemma3n(config: Config) -> ModelSpec:
    """Gemma 3n: the decoder only; its MobileNet vision and Conformer audio towers are not counted."""
    spec = _text(config, "gemma3n_text")
    warning = "The vision and audio towers of Gemma 3n are not counted among its weights."
    return replace(spec, layer_names="model.language_model.layers", warnings=(warning,))


def gemma4(config: Config) -> ModelSpec:
    """Gemma 4: its own vision tower, and an audio tower where ``audio_config`` is there."""
    spec = _text(config, "gemma4_text")

    def projector(config: Config) -> Tensors:
        seen = config.integer("hidden_size", default=768)
        return towers.plain("embed_vision.embedding_projection", spec.hidden_size, seen)

    spec = _beside(config, spec, towers.gemma4_vision, projector, "model.language_model.layers")
    if not config.has("audio_config"):
        return spec
    a = config.sub("audio_config")
    heard = a.integer("output_proj_dims", default=1536)
    projection = towers.plain("embed_audio.embedding_projection", spec.hidden_size, heard)
    return replace(spec, beside=(*spec.beside, *towers.gemma4_audio(a), *projection))


def mistral3(config: Config) -> ModelSpec:
    """Mistral Small 3.1 on and Ministral 3: a Pixtral tower, patches merged and projected.

    Tied where the text level says so. (transformers 5 ties by class; the published Mistral Small files
    hold a head of their own.)
    """
    spec = _text(config, "mistral")
    hidden = spec.hidden_size
    merged = config.integer("spatial_merge_size", default=2, high=1000) ** 2

    def projector(one_config: Config) -> Tensors:
        seen = one_config.integer("hidden_size", default=1024)
        return (
            *towers.plain("multi_modal_projector.norm", seen),
            *towers.plain("multi_modal_projector.merging_layer", seen, seen * merged),
            *_two_linears(config, hidden, seen, bias=config.flag("multimodal_projector_bias")),
        )

    return _beside(config, spec, lambda v: towers.vision(v, "pixtral"), projector)


def ministral3(config: Config) -> ModelSpec:
    """Ministral 3 (multimodal, with a text level) or Devstral 2 (text only, without)."""
    return mistral3(config) if config.has("text_config") else dense.ministral3(config)


def llava(config: Config) -> ModelSpec:
    """LLaVA 1.5 and its kin (Pixtral 12B in transformers' form): a tower and a projector of two layers."""
    return _llava(config, "llama", "clip_vision_model")


def llava_next(config: Config) -> ModelSpec:
    """LLaVA 1.6: as LLaVA, with a learned vector that ends a row of image tiles."""
    spec = _llava(config, "llama", "clip_vision_model")
    return replace(spec, beside=(*spec.beside, *towers.plain("image_newline", spec.hidden_size)))


def llava_onevision(config: Config) -> ModelSpec:
    """LLaVA-OneVision: LLaVA 1.6 with SigLIP and Qwen 2."""
    spec = _llava(config, "qwen2", "siglip_vision_model")
    return replace(spec, beside=(*spec.beside, *towers.plain("image_newline", spec.hidden_size)))


def paligemma(config: Config) -> ModelSpec:
    """PaliGemma: Gemma behind a SigLIP tower and one linear layer."""
    spec = _text(config, "gemma")

    def projector(config: Config) -> Tensors:
        seen = config.integer("hidden_size", default=1152)
        return towers.plain("multi_modal_projector.linear", spec.hidden_size, seen + 1)

    return _beside(config, spec, lambda v: towers.vision(v, "siglip_vision_model"), projector)


LLAVA_TOWERS = {
    "clip_vision_model": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "image_size": 336,
        "patch_size": 14,
    },
    "siglip_vision_model": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 26,
        "image_size": 384,
        "patch_size": 14,
        "vision_use_head": False,
    },
}


def _llava(config: Config, text: str, tower: str) -> ModelSpec:
    spec = _text(config, text)
    if not config.has("vision_config"):
        config = config.with_defaults(vision_config=LLAVA_TOWERS[tower])

    def projector(one_config: Config) -> Tensors:
        seen = one_config.integer("hidden_size", default=1024)
        bias = config.flag("multimodal_projector_bias", default=True)
        return _two_linears(config, spec.hidden_size, seen, bias=bias)

    return _beside(config, spec, lambda v: towers.vision(v, tower), projector)


def _two_linears(config: Config, hidden: int, seen: int, *, bias: bool) -> Tensors:
    layers = config.get("vision_feature_layer", default=-1)
    inputs = seen * (len(layers) if isinstance(layers, list) else 1)
    return (
        *towers.plain("multi_modal_projector.linear_1", hidden, inputs + bias),
        *towers.plain("multi_modal_projector.linear_2", hidden, hidden + bias),
    )
