"""A model by the class that its config names: tensors from a table of classes, caches from keys.

``classes.json`` holds, for each class of transformers without a reader of its own, every tensor's sizes
as expressions of config keys (``tools/class_shapes.py`` measures them on the meta device). This module
puts a config's numbers into them. What each layer keeps is read from the keys (``caches``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from kvroom.models.config import Config
from kvroom.models.hf import caches
from kvroom.models.hf.class_keys import ClassKeys, Entry
from kvroom.models.hf.common import model, ties
from kvroom.models.hf.experts import ACTIVE, by_kind, prediction
from kvroom.models.hf.named import tensor_of
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor

_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings?|shared|tok_embeddings|embed_in)\b"
)
_CROSS = re.compile(r"encoder_attn|EncDecAttention|cross_?attn|crossattention|encoder_attention")
MORE_ACTIVE = ("moe_topk", "top_k_experts", "num_selected_experts", "router_top_k")
_MIXES = re.compile(r"att|mixer|mamba|conv|recurrent|linear_attn|rwkv|lstm", re.IGNORECASE)


@lru_cache(maxsize=1)
def table() -> dict[str, Entry]:
    """Every class of the table by name."""
    text = Path(__file__).with_name("classes.json").read_text("utf-8")
    classes: dict[str, Entry] = json.loads(text)["classes"]
    for entry in classes.values():
        entry["lists"].update({key: _unpacked(value) for key, value in entry["lists"].items()})
    return classes


def _unpacked(values: Any) -> list[Any]:
    """A list, or a unit that comes so many times."""
    return values if isinstance(values, list) else list(values["unit"]) * int(values["times"])


@lru_cache(maxsize=1)
def _by_type() -> dict[str, str]:
    """``model_type`` → its class; of several, one that reads more than text."""
    by_type: dict[str, str] = {}
    for name, entry in table().items():
        if entry["type"] not in by_type or "CausalLM" not in name:
            by_type[entry["type"]] = name
    return by_type


def kinds() -> list[str]:
    """Every ``model_type`` of the table."""
    return list(_by_type())


def class_of(kind: str, architectures: object) -> str | None:
    """The class in the table that a config is for: by its ``architectures``, else by its type."""
    return named(kind, architectures) or _by_type().get(kind)


def named(kind: str, architectures: object) -> str | None:
    """The first of ``architectures`` that the table has for this ``model_type``."""
    names = architectures if isinstance(architectures, list) else []
    for name in (name for name in names if isinstance(name, str)):
        for key in (name, f"{kind}:{name}"):
            if key in table() and table()[key]["type"] == kind:
                return key
    return None


def read(
    config: Config,
    name: str,
    inner: Callable[[Mapping[str, Any]], ModelSpec],
    readers: Container[str],
) -> ModelSpec:
    """The model of the table's class ``name`` with the config's own numbers.

    A text level of a type that has a reader (one of ``readers``) is read by it, through ``inner``; the
    table then says what lies beside.
    """
    keys = ClassKeys(config, table()[name])
    entry = keys.entry
    prefix = entry["prefix"]
    level = keys.level(prefix)
    crosses = any(_CROSS.search(row[0]) for row in entry["inside"])
    if prefix and str(level.get("model_type")) in readers and not crosses:
        spec = inner(_standing_alone(config, level))
        beside = _towers(keys)
        warnings = (*spec.warnings, *keys.beyond(name))
        return replace(spec, beside=beside, layer_names=entry["stack"], warnings=warnings)
    count = keys.layers
    inside = [r for r in entry["inside"] if keys.holds(r[3])]
    where = [keys.members(r[2], count) for r in inside]
    active = level.integer(*ACTIVE, *MORE_ACTIVE, default=1, low=0, high=100_000)
    shapes = [tensor_of(r[0], keys.sizes(r[1], r[0]), active) for r in inside]
    own = caches.by_layer(level, count, entry["type"])
    encoder = _encoder_tokens(config, level) if crosses else 0

    def build(kind: tuple[tuple[int, ...], int]) -> Layer:
        tensors = tuple(shapes[i] for i in kind[0])
        names = [inside[i][0] for i in kind[0]]
        stores = own.kinds[kind[1]] if any(_MIXES.search(name) for name in names) else ()
        if any(_CROSS.search(name) for name in names):
            stores = (*stores, *caches.cross(stores))
        return Layer(stores=stores, tensors=tensors)

    each = [
        (tuple(one_index for one_index, member in enumerate(where) if member[index]), own.at[index])
        for index in range(count)
    ]
    layers = by_kind(each, build)
    outside = [
        tensor_of(r[0], keys.sizes([*([] if r[2] == "1" else [r[2]]), *r[1]], r[0]))
        for r in entry["outside"]
        if keys.holds(r[3])
    ]
    embedding = tuple(t for t in outside if t.part == "embedding")
    head = tuple(t for t in outside if t.part != "embedding")
    tokens = next((t for t in embedding if _EMBEDDING.search(t.name)), None) or next(
        iter(embedding), None
    )
    heads, kv_heads = own.heads
    spec = model(
        level,
        layers,
        hidden=tokens.columns if tokens else level.integer("hidden_size", "d_model", default=1),
        vocab=tokens.rows if tokens else level.integer("vocab_size", default=1),
        q_heads=heads,
        kv_heads=kv_heads,
        embedding=embedding,
        final=head,
        lm_head=(),
        tied=not any(t.part == "head" and t.is_matrix for t in head),
        beside=_towers(keys),
        mtp=prediction(level, layers[-1], tokens.columns if tokens else 1),
        encoder_tokens=encoder,
        layer_names=entry["stack"],
        root=config,
    )
    return replace(spec, warnings=(*spec.warnings, *own.words, *keys.beyond(name)))


def _standing_alone(config: Config, level: Config) -> dict[str, Any]:
    """The text level as a config of its own, with what the outermost level says for the whole."""
    outer = {k: config.raw[k] for k in OUTER if config.raw.get(k) is not None}
    defaults = {key: value for key, value in level.defaults.items() if key not in level.raw}
    text = {**outer, **defaults, **level.raw}
    text["tie_word_embeddings"] = ties(level, config)
    if "quantization_config" in outer:
        text["quantization_config"] = outer["quantization_config"]
    return text


OUTER = ("quantization_config", "dtype", "torch_dtype", "_name_or_path")


def _towers(keys: ClassKeys) -> Tensors:
    """What lies beside the decoder, by shape."""
    tensors = []
    for index, (dims, count, when) in enumerate(keys.entry["beside"]):
        if keys.holds(when):
            rows, *more = keys.sizes(dims, "a tower") or [1]
            columns, many = prod(more), keys.size(count, "a tower")
            if rows and columns and many:
                tensors.append(
                    Tensor(
                        name=f"beside.{index}",
                        count=many,
                        rows=rows,
                        columns=columns,
                        part="encoder",
                    )
                )
    return tuple(tensors)


def _encoder_tokens(config: Config, level: Config) -> int:
    """The longest encoder input that the config states, of the outer level first."""
    names = ("max_source_positions", "max_encoder_position_embeddings", "n_positions")
    for at in (config, config.sub("encoder"), config.sub("encoder_config"), level):
        if at.has(*names):
            return at.integer(*names, high=10**9)
    for at in (config.sub("encoder"), config.sub("encoder_config"), level):
        if at.has("max_position_embeddings"):
            return at.integer("max_position_embeddings", high=10**9)
    return 512
