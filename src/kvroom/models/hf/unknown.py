"""A ``model_type`` that no reader knows: read as plain attention where nothing speaks against it.

Every key that has a value must be one that a plain decoder has, or one that changes no shape. Keys that
are neither are what makes the model not plain, and the refusal names them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.hf.common import CONTEXT, HEADS, HIDDEN, INNER, LAYERS
from kvroom.models.hf.config import Config
from kvroom.models.hf.dense import llama
from kvroom.models.spec import ModelSpec

PLAIN = {
    *LAYERS,
    *HEADS,
    *HIDDEN,
    *INNER,
    *CONTEXT,
    "num_key_value_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "padded_vocab_size",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
}
"""What ``llama`` reads, or what only says that nothing slides."""

SHAPELESS = re.compile(
    r"_.*|.*_token(_id|s)?|.*dropout.*|.*_pdrop|initializer_.*|rope_.*|rotary_.*|original_max_.*"
    r"|partial_rotary_factor|use_cache|(torch_)?dtype|transformers_version|architectures|auto_map"
    r"|model_type|.*act(ivation)?(_fn|_function)?|.*_eps(ilon)?|output_.*|return_.*|pad_.*|.*token_id"
    r"|tokenizer_.*|.*attn_implementation|use_flash.*|pretraining_tp|.*logit.*|.*softcap.*|.*_multiplier"
    r"|gradient_.*|id2label|label2id|problem_type|quantization_config|compression_config|.*_scale"
    r"|chunk_size_feed_forward|is_decoder|is_encoder_decoder|task_specific_params|torchscript|use_bfloat16"
    r"|language|license|name|description|.*_template|temperature|top_[pk]|do_sample|seed"
)
"""Keys that change no tensor and no cache."""


def read(config: Config, known: list[str]) -> ModelSpec:
    """The plain decoder that ``config`` describes, with a warning; KvroomError if it is not plain."""
    kind = config.text("model_type", default="")
    odd = sorted(key for key, value in config.raw.items() if _says(value) and not _plain(key))
    if odd:
        named = did_you_mean(kind, known, "Use a model whose architecture kvroom knows.")
        shown = ", ".join(odd[:8]) + (f" and {len(odd) - 8} more" if len(odd) > 8 else "")
        raise KvroomError(
            "model_type", kind or None, f"is not known, and its config is not plain: {shown}", named
        )
    if not any(key in config.raw for key in LAYERS):
        raise KvroomError(
            "model_type",
            kind or None,
            "is not known, and the config names no layers",
            "Give a language model's config.json (num_hidden_layers, hidden_size …).",
        )
    c = config
    if not config.flag("use_sliding_window", default=True):
        c = Config({k: v for k, v in config.raw.items() if k != "sliding_window"})
    elif config.has("sliding_window") and "layer_types" not in config.raw:
        layers = config.integer(*LAYERS, high=10_000)
        c = Config({**config.raw, "layer_types": ["sliding_attention"] * layers})
    spec = llama(c)
    told = f"model_type {kind!r}" if kind else "a config without model_type"
    warning = (
        f"{told} is not known: read as a plain decoder (Llama's shape), its parameters may differ"
    )
    return replace(spec, warnings=(*spec.warnings, warning))


def _says(value: Any) -> bool:
    """Whether a key with this value says anything: null, false, zero and empty do not."""
    return value not in (None, False, 0, "", [], {})


def _plain(key: str) -> bool:
    return key in PLAIN or SHAPELESS.fullmatch(key) is not None
