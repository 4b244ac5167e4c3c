"""Whether a quantisation config's list of names speaks of a tensor.

Configs name modules by their whole path in the checkpoint (``model.layers.3.self_attn.q_proj``), by a
part of it (``lm_head``, ``mlp.gate``), by a glob (``*self_attn*``) or a regular expression
(``re:.*gate$``); wrappers put other prefixes before ``layers``, and some engines' names are fused. So
everything is compared from ``layers.N.`` on, a name covers what lies below it, and a tensor is tried
under each name that it may have. What lies in towers is dropped: towers are never narrowed here.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache

from kvroom.errors import KvroomError
from kvroom.models.tensors import Tensor

_LAYERS = re.compile(
    r"(?:^|\.)(?:layers|layer|h|blocks|block)(?=\.(\d+|\*)(?:[.*]|$)|\.\*|\*|\.\d+\*)\."
)
_WRAPPERS = re.compile(
    r"^(?:(?:model|language_model|text_model|transformer|backbone|decoder|llm)\.)+"
)
_TOWER = re.compile(
    r"vision|visual|audio|image|speech|tower|projector|encoder|multi_modal|connector"
)
_NUMBERED = re.compile(r"layers\.(\d+)(\..*|\*?)", re.DOTALL)
_NESTED_REPEAT = re.compile(r"\([^()]*[*+}][^()]*\)[*+{]")
_MAX_REPEATS = 6
_PREFIXES = ("model.", "", "model.language_model.", "language_model.model.")

_ALIASES = (
    ("mlp.", ("ffn.", "feed_forward.", "block_sparse_moe.", "moe.", "mixer.", "")),
    ("self_attn.", ("attn.", "attention.", "self_attention.", "mixer.")),
    ("linear_attn.", ("self_attn.", "mixer.")),
    ("feed_forward.", ("mlp.", "ffn.")),
    ("block_sparse_moe.", ("mlp.",)),
    ("ffn.", ("mlp.",)),
)
_FUSED = {
    "q_proj": ("qkv_proj",),
    "k_proj": ("qkv_proj",),
    "v_proj": ("qkv_proj",),
    "qkv_proj": ("q_proj",),
    "gate_proj": ("gate_up_proj", "w1", "w13"),
    "up_proj": ("gate_up_proj", "w3", "w13"),
    "down_proj": ("w2",),
    "gate_up_proj": ("gate_proj",),
}
_OUTSIDE = {"lm_head": ("head", "output", "embed_out"), "embed_tokens": ("embed", "wte")}


class Names:
    """A list of names out of a config; ``field`` is its key, for errors."""

    def __init__(self, field: str, entries: Iterable[object]) -> None:
        self.plain: set[str] = set()
        self.layered = False
        self._of_layer: dict[int, list[str]] = {}
        self._globs: list[str] = []
        self._regexes: list[re.Pattern[str]] = []
        for entry in entries:
            if not isinstance(entry, str):
                raise KvroomError(field, entry, "is not a module's name", "List names in quotes.")
            self._add(field, entry.strip())

    def __bool__(self) -> bool:
        return bool(self.plain or self._of_layer or self._globs or self._regexes)

    def _said(self) -> tuple[object, ...]:
        return self.plain, self.layered, self._of_layer, self._globs, self._regexes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self._said() == other._said()

    def __hash__(self) -> int:
        return hash(frozenset(self.plain))

    def _add(self, field: str, entry: str) -> None:
        if entry.startswith("re:"):
            self._regexes.append(_compiled(field, entry))
            self.layered = self.layered or bool(re.search(r"\d", entry))
            return
        name = _from_layers(entry)
        if name is None:
            return
        if name.startswith("mtp"):
            self.layered = True
        if not any(c in name for c in "*?["):
            self.plain.add(name)
            self.layered = self.layered or bool(_NUMBERED.match(name))
            return
        numbered = _NUMBERED.fullmatch(name)
        self.layered = self.layered or any(c.isdigit() for c in name)
        if numbered and numbered[2].startswith("."):
            self._of_layer.setdefault(int(numbered[1]), []).append(numbered[2][1:])
        else:
            self._globs.append(name)

    @cached_property
    def _glob(self) -> re.Pattern[str] | None:
        return _joined(self._globs)

    @cached_property
    def _layer_globs(self) -> dict[int, re.Pattern[str] | None]:
        return {key: _joined(globs) for key, globs in self._of_layer.items()}

    def speak_of(self, tensor: Tensor, layer: int | None, layers: int | None = None) -> bool:
        """Whether any entry covers ``tensor``, in that layer of a model of ``layers`` layers."""
        if not self:
            return False
        variants = variants_of(tensor)
        if layer is None:
            return any(self._covers(name, name) for name in variants)
        near = self._layer_globs.get(layer)
        if near is not None and any(near.match(name) for name in variants):
            return True
        if any(self._covers(f"layers.{layer}.{name}", name) for name in variants):
            return True
        if layers is None or layer < layers:
            return False
        mtp = layer - layers
        return any(
            self._covers(f"mtp.layers.{mtp}.{variant}", variant) for variant in variants
        ) or any(self._covers(f"mtp.{variant}", variant) for variant in variants)

    @cached_property
    def _firsts(self) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in self.plain)

    def _has_run(self, parts: list[str]) -> bool:
        """Whether some run of whole components is one of the plain names."""
        for start, first in enumerate(parts):
            # "layers" further in is an MTP stack's own numbering, of which plain layers do not speak.
            if first in self._firsts and not (first == "layers" and start):
                run = ""
                for part in parts[start:]:
                    run = f"{run}.{part}" if run else part
                    if run in self.plain:
                        return True
        return False

    def _covers(self, path: str, name: str) -> bool:
        if self.plain and self._has_run(path.split(".")):
            return True
        glob = self._glob
        if glob is not None and (glob.match(path) or glob.match(f"model.{path}")):
            return True
        return any(regex.match(prefix + path) for regex in self._regexes for prefix in _PREFIXES)


def _from_layers(entry: str) -> str | None:
    """An entry from ``layers.`` on, wrappers cut off; None if it speaks of a tower."""
    name = entry.removesuffix(".weight").strip(".")
    match = _LAYERS.search(name)
    before = name[: match.start()] if match else ""
    if _TOWER.search(before) or (match is None and _TOWER.match(_WRAPPERS.sub("", name))):
        return None
    if match is not None and "mtp" not in before:
        return "layers." + name[match.end() :]
    return _WRAPPERS.sub("", name) or None


def _joined(globs: list[str]) -> re.Pattern[str] | None:
    if not globs:
        return None
    each = (fnmatch.translate(glob).removesuffix(r"\Z") for glob in globs)
    return re.compile("|".join(rf"(?:{g}(?:\..*)?\Z)" for g in each), re.DOTALL)


def _compiled(field: str, entry: str) -> re.Pattern[str]:
    pattern = entry.removeprefix("re:")
    repeats = sum(pattern.count(c) for c in "*+{")
    if len(pattern) > 1000 or repeats > _MAX_REPEATS * (1 + pattern.count("|")):
        raise KvroomError(field, entry, "is too long a pattern", "Split it into several.")
    if _NESTED_REPEAT.search(pattern):
        raise KvroomError(field, entry, "repeats a repetition", "Write a pattern without.")
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise KvroomError(
            field, entry, f"is no regular expression ({error})", "Correct it."
        ) from None


def variants_of(tensor: Tensor) -> tuple[str, ...]:
    """The names under which checkpoints and configs may speak of a tensor."""
    return _variants(tensor.name, tensor.part == "expert")


@lru_cache(maxsize=4096)
def _variants(name: str, expert: bool) -> tuple[str, ...]:
    names = [name]
    for ours, theirs in _ALIASES:
        if name.startswith(ours):
            names += [their + name.removeprefix(ours) for their in theirs]
    for path in tuple(names):
        before, dot, last = path.rpartition(".")
        names += [f"{before}{dot}{fused}" for fused in _FUSED.get(last, ())]
    names += _OUTSIDE.get(name, ())
    if expert:
        names += [f.replace("experts.", "experts.0.", 1) for f in names if "experts." in f]
    return tuple(dict.fromkeys(names))
