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
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.resources import files
from math import prod
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.hf import caches
from kvroom.models.hf.common import model, ties
from kvroom.models.hf.config import MAX_LAYERS, Config
from kvroom.models.hf.experts import ACTIVE, by_kind, prediction
from kvroom.models.hf.named import tensor_of
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.units import check_float

Entry = Mapping[str, Any]
_EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings?|shared|tok_embeddings|embed_in)\b"
)
_CROSS = re.compile(r"encoder_attn|EncDecAttention|cross_?attn|crossattention|encoder_attention")
MORE_ACTIVE = ("moe_topk", "top_k_experts", "num_selected_experts", "router_top_k")
_MIXES = re.compile(r"att|mixer|mamba|conv|recurrent|linear_attn|rwkv|lstm", re.IGNORECASE)


@lru_cache(maxsize=1)
def table() -> dict[str, Entry]:
    """Every class of the table by name."""
    text = files("kvroom.models.hf").joinpath("classes.json").read_text("utf-8")
    found: dict[str, Entry] = json.loads(text)["classes"]
    for entry in found.values():
        entry["lists"].update({k: _unpacked(v) for k, v in entry["lists"].items()})
    return found


def _unpacked(values: Any) -> list[Any]:
    """A list, or a unit that comes so many times."""
    return values if isinstance(values, list) else list(values["unit"]) * int(values["times"])


@lru_cache(maxsize=1)
def _by_type() -> dict[str, str]:
    """``model_type`` → its class; of several, one that reads more than text."""
    found: dict[str, str] = {}
    for name, entry in table().items():
        if entry["type"] not in found or "CausalLM" not in name:
            found[entry["type"]] = name
    return found


def kinds() -> list[str]:
    """Every ``model_type`` of the table."""
    return list(_by_type())


def class_of(kind: str, architectures: object) -> str | None:
    """The class in the table that a config is for: by its ``architectures``, else by its type."""
    return named(kind, architectures) or _by_type().get(kind)


def named(kind: str, architectures: object) -> str | None:
    """The first of ``architectures`` that the table has for this ``model_type``."""
    names = architectures if isinstance(architectures, list) else []
    for name in (n for n in names if isinstance(n, str)):
        for key in (name, f"{kind}:{name}"):
            if key in table() and table()[key]["type"] == kind:
                return key
    return None


def read(
    c: Config, name: str, inner: Callable[[Mapping[str, Any]], ModelSpec], readers: Container[str]
) -> ModelSpec:
    """The model of the table's class ``name`` with the config's own numbers.

    A text level of a type that has a reader (one of ``readers``) is read by it, through ``inner``; the
    table then says what lies beside.
    """
    keys = _Keys(c, table()[name])
    entry = keys.entry
    prefix = entry["prefix"]
    level = keys.level(prefix)
    crosses = any(_CROSS.search(row[0]) for row in entry["inside"])
    if prefix and str(level.get("model_type")) in readers and not crosses:
        spec = inner(_standing_alone(c, level))
        beside = _towers(keys)
        said = (*spec.warnings, *keys.beyond(name))
        return replace(spec, beside=beside, layer_names=entry["stack"], warnings=said)
    count = keys.layers
    inside = [r for r in entry["inside"] if keys.holds(r[3])]
    where = [keys.members(r[2], count) for r in inside]
    active = level.integer(*ACTIVE, *MORE_ACTIVE, default=1, low=0, high=100_000)
    shapes = [tensor_of(r[0], keys.sizes(r[1], r[0]), active) for r in inside]
    own = caches.by_layer(level, count, entry["type"])
    encoder = _encoder_tokens(c, level) if crosses else 0

    def build(kind: tuple[tuple[int, ...], int]) -> Layer:
        mine = [i for i in kind[0]]
        tensors = tuple(shapes[i] for i in mine)
        names = [inside[i][0] for i in mine]
        stores = own.kinds[kind[1]] if any(_MIXES.search(n) for n in names) else ()
        if any(_CROSS.search(n) for n in names):
            stores = (*stores, *caches.cross(stores))
        return Layer(stores=stores, tensors=tensors)

    each = [
        (tuple(j for j, member in enumerate(where) if member[i]), own.at[i]) for i in range(count)
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
        root=c,
    )
    return replace(spec, warnings=(*spec.warnings, *own.words, *keys.beyond(name)))


def _standing_alone(c: Config, level: Config) -> dict[str, Any]:
    """The text level as a config of its own, with what the outermost level says for the whole."""
    outer = {k: c.raw[k] for k in OUTER if c.raw.get(k) is not None}
    defaults = {k: v for k, v in level.defaults.items() if k not in level.raw}
    text = {**outer, **defaults, **level.raw}
    text["tie_word_embeddings"] = ties(level, c)
    if "quantization_config" in outer:
        text["quantization_config"] = outer["quantization_config"]
    return text


OUTER = ("quantization_config", "dtype", "torch_dtype", "_name_or_path")


def _towers(keys: _Keys) -> Tensors:
    """What lies beside the decoder, by shape."""
    found = []
    for i, (dims, count, when) in enumerate(keys.entry["beside"]):
        if keys.holds(when):
            rows, *more = keys.sizes(dims, "a tower") or [1]
            columns, many = prod(more), keys.size(count, "a tower")
            if rows and columns and many:
                found.append(
                    Tensor(
                        name=f"beside.{i}", count=many, rows=rows, columns=columns, part="encoder"
                    )
                )
    return tuple(found)


def _encoder_tokens(c: Config, level: Config) -> int:
    """The longest encoder input that the config states, of the outer level first."""
    names = ("max_source_positions", "max_encoder_position_embeddings", "n_positions")
    for at in (c, c.sub("encoder"), c.sub("encoder_config"), level):
        if at.has(*names):
            return at.integer(*names, high=10**9)
    for at in (c.sub("encoder"), c.sub("encoder_config"), level):
        if at.has("max_position_embeddings"):
            return at.integer("max_position_embeddings", high=10**9)
    return 512


class _Keys:
    """A config's numbers, completed by what its class takes for keys that are left out."""

    def __init__(self, c: Config, entry: Entry) -> None:
        self.c, self.entry = c, entry
        self.values: dict[str, Fraction] = {}

    def raw(self, path: str) -> Any:
        """What stands at a path; None where there is nothing."""
        level: Any = self.c.raw
        for key in path.split("."):
            level = level.get(key) if isinstance(level, Mapping) else None
        return level

    @cached_property
    def layers(self) -> int:
        """Layers of the decoder: as their keys say, else as long as the list that names each."""
        text, prefix = self.entry["layers"], self.entry["prefix"]
        if text.isdigit():
            for key in caches.NAMES:
                said, own = self.raw(prefix + key), self.entry["lists"].get(prefix + key)
                if isinstance(said, list) and said and own:
                    return max(1, min(int(text) * len(said) // len(own), MAX_LAYERS))
        return self.size(text, "num_hidden_layers", high=MAX_LAYERS, low=1)

    def level(self, prefix: str) -> Config:
        """The level at ``prefix`` with the class's defaults for what it leaves out."""
        raw = self.raw(prefix[:-1]) if prefix else self.c.raw
        if raw is not None and not isinstance(raw, Mapping):
            raise KvroomError(prefix[:-1], raw, "is not an object", "Write it in braces.")
        defaults = {
            path.removeprefix(prefix): value
            for path, value in {**self.entry["defaults"], **self.entry["lists"]}.items()
            if path.startswith(prefix) and "." not in path.removeprefix(prefix)
        }
        level = Config(raw or {}, path=prefix)
        for key, text in self.entry["derived"].items():
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and "." not in name and not level.has(name):
                defaults[name] = int(self.number(key))
        lists = {k: v for k, v in defaults.items() if isinstance(v, list)}
        count = self.layers
        for key, value in lists.items():
            if len(value) != count or any(level.has(k) for k in caches.SCHEDULES.get(key, ())):
                del defaults[key]  # the class's own list is of another number of layers
        return level.with_defaults(**defaults)

    def number(self, path: str) -> Fraction:
        """The number at a path: the config's, else derived from others, else the class's own."""
        if path not in self.values:
            value = self.raw(path)
            if value is None:
                text = self.entry["derived"].get(path)
                value = self.entry["defaults"].get(path, 0)
                if text is not None:
                    self.values[path] = self.evaluate(text)
                    return self.values[path]
            self.values[path] = Fraction(check_float(path, value, low=0, high=1e9))
        return self.values[path]

    def evaluate(self, text: str) -> Fraction:
        """A sum of products and quotients of keys (``~`` is the decoder's level) and whole numbers."""
        return _evaluate(text.replace("~", self.entry["prefix"]), self)

    def size(self, text: str, what: str, *, low: int = 0, high: int = 10**12) -> int:
        """An expression's whole value within ``low … high``; KvroomError names what it is of."""
        value = int(self.evaluate(text))
        if not low <= value <= high:
            keys = re.findall(r"[a-z][\w.]*", text)
            raise KvroomError(
                keys[0] if keys else "model",
                value,
                f"makes {what} of {text} = {value}",
                "Correct the config.",
            )
        return value

    def sizes(self, texts: list[str], what: str) -> list[int]:
        return [self.size(t, what) for t in texts]

    def beyond(self, name: str) -> list[str]:
        """What to say where the config has a width that the table knows at one value only."""
        odd = [
            f"{key} {self.raw(key)} (known for {value})"
            for key, value in self.entry.get("fixed", {}).items()
            if self.raw(key) not in (None, value)
        ]
        told = f"tensors of {name} are not known for {', '.join(odd[:4])}: parameters may differ"
        return [told] if odd else []

    def holds(self, when: Mapping[str, Any] | None) -> bool:
        """Whether switches are as a tensor needs them."""
        for path, wanted in (when or {}).items():
            value = self.raw(path)
            if value is None and not (wanted is None and self._says_null(path)):
                value = self.entry["switches"].get(path)
            if isinstance(wanted, bool):
                if bool(value) != wanted:
                    return False
            elif (value is None) != (wanted is None):
                return False
        return True

    def _says_null(self, path: str) -> bool:
        above, _, last = path.rpartition(".")
        level = self.raw(above) if above else self.c.raw
        return isinstance(level, Mapping) and last in level

    def members(self, where: list[Any] | None, count: int) -> list[bool]:
        """Which of ``count`` layers have a tensor."""
        if where is None:
            return [True] * count
        how, *rest = where
        if how == "list":
            key, labels = rest
            values = self._labels(key, count)
            return [v in labels for v in values]
        if how in ("from", "before"):
            first = self.size(rest[0], "layers", high=MAX_LAYERS)
            return [(i >= first) == (how == "from") for i in range(count)]
        if how == "every":
            every, offset = max(1, self.size(rest[0], "a period", high=MAX_LAYERS)), rest[1]
            return [(i + offset) % every == 0 for i in range(count)]
        if how in ("in", "out"):
            inside = self.raw(rest[0])
            if not isinstance(inside, list):
                inside = self.entry["lists"].get(rest[0], [])
            return [(i in inside) == (how == "in") for i in range(count)]
        if how == "both":
            first, second = (self.members(w, count) for w in rest)
            return [a and b for a, b in zip(first, second, strict=True)]
        at = {i if i >= 0 else count + i for i in rest[0]}
        if how == "not":
            return [i not in at for i in range(count)]
        return [i in at for i in range(count)]

    def _labels(self, path: str, count: int) -> list[Any]:
        """A list key's entry for each layer, made from other keys where it is absent."""
        prefix, _, key = path.rpartition(".")
        prefix = prefix and prefix + "."
        level = self.level(prefix)
        if level.has(key):
            return level.items(key, length=count)
        made = caches.schedule(level, key, count)
        if made is not None:
            return made
        own = self.entry["lists"].get(path) or [None]
        return [own[min(i, len(own) - 1)] for i in range(count)]


def _evaluate(text: str, keys: _Keys) -> Fraction:
    total = Fraction(0)
    for term in _terms(text):
        value = Fraction(1)
        for down, factor in term:
            number = Fraction(int(factor)) if _NUMBER.fullmatch(factor) else keys.number(factor)
            if down and not number:
                raise KvroomError(factor, 0, "is a divisor here and is 0", "Correct the config.")
            value = value / number if down else value * number
        total += value
    return total


_NUMBER = re.compile(r"-?\d+")


@lru_cache(maxsize=4096)
def _terms(text: str) -> tuple[tuple[tuple[bool, str], ...], ...]:
    """((is a divisor, key or number) …) for each term of the sum."""
    return tuple(
        tuple((part[0] == "/", part.lstrip("*/")) for part in re.findall(r"[*/]?[^*/]+", term))
        for term in text.split("+")
    )
