"""A config's numbers in the expressions of the table of classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf import schedules
from kvroom.units import check_float

Entry = Mapping[str, Any]
"""A class's line: ``defaults``, ``derived``, ``lists``, ``switches``, the ``layers``' expression and the
rows ``inside`` the layers, ``outside`` and ``beside`` them (``tools/class_table.py`` writes it)."""


class ClassKeys:
    """A config's numbers, completed by what its class takes for keys that are left out."""

    def __init__(self, config: Config, entry: Entry) -> None:
        self.c, self.entry = config, entry
        self.values: dict[str, Fraction] = {}

    def raw(self, path: str) -> Any:
        """What stands at a path; None where there is nothing."""
        level: Any = self.c.raw
        for key in path.split("."):
            if isinstance(level, list) and key.isdigit():
                level = level[int(key)] if int(key) < len(level) else None
            else:
                level = level.get(key) if isinstance(level, Mapping) else None
        return level

    @cached_property
    def layers(self) -> int:
        """Layers of the decoder: as their keys say, else as long as the list that names each."""
        text, prefix = self.entry["layers"], self.entry["prefix"]
        if text.isdigit():
            for key in schedules.NAMES:
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
        for key in self.entry["derived"]:
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and "." not in name and not level.has(name):
                defaults[name] = int(self.number(key))
        lists = {key: value for key, value in defaults.items() if isinstance(value, list)}
        count = self.layers
        for key, value in lists.items():
            if len(value) != count or any(level.has(k) for k in schedules.SCHEDULES.get(key, ())):
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
        """Several expressions' whole values."""
        return [self.size(text, what) for text in texts]

    def beyond(self, name: str) -> list[str]:
        """What to say where the config has a width that the table knows at one value only."""
        odd = [
            f"{key} {self.raw(key)} (known for {value})"
            for key, value in self.entry.get("fixed", {}).items()
            if self.raw(key) not in (None, value)
        ]
        warning = f"tensors of {name} are not known for {', '.join(odd[:4])}: parameters may differ"
        return [warning] if odd else []

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
            return [value in labels for value in values]
        if how in ("from", "before"):
            first = self.size(rest[0], "layers", high=MAX_LAYERS)
            return [(index >= first) == (how == "from") for index in range(count)]
        if how == "every":
            every, offset = max(1, self.size(rest[0], "a period", high=MAX_LAYERS)), rest[1]
            return [(index + offset) % every == 0 for index in range(count)]
        if how in ("in", "out"):
            inside = self.raw(rest[0])
            if not isinstance(inside, list):
                inside = self.entry["lists"].get(rest[0], [])
            return [(index in inside) == (how == "in") for index in range(count)]
        if how == "both":
            pair = zip(*(self.members(w, count) for w in rest), strict=True)
            return [a and b for a, b in pair]
        at = {i if i >= 0 else count + i for i in rest[0]}
        if how == "not":
            return [index not in at for index in range(count)]
        return [index in at for index in range(count)]

    def _labels(self, path: str, count: int) -> list[Any]:
        """A list key's entry for each layer, made from other keys where it is absent."""
        prefix, _, key = path.rpartition(".")
        prefix = prefix and prefix + "."
        level = self.level(prefix)
        if level.has(key):
            return level.items(key, length=count)
        labels = schedules.schedule(level, key, count)
        if labels is not None:
            return labels
        own = self.entry["lists"].get(path) or [None]
        return [own[min(index, len(own) - 1)] for index in range(count)]


def _evaluate(text: str, keys: ClassKeys) -> Fraction:
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
