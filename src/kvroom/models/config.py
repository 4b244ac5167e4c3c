"""A config.json seen through the names that its many authors gave the same things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.errors import KvroomError, is_slip
from kvroom.units import check_float, check_int

MAX_LAYERS = 10_000
MAX_WIDTH = 10_000_000
"""Above every published width and vocabulary by more than tenfold; a larger one is a slip."""

LONG = 8
"""Letters of a key from which on one that is like it is the same key misspelt."""
_REQUIRED: Any = object()


class Config:
    """One level of a config with its defaults; every getter names the key it did not like.

    ``raw`` is the decoded JSON object, ``defaults`` what the model's class takes for keys that the
    file leaves out, ``path`` where this level lies (``text_config.``).
    """

    def __init__(
        self, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, path: str = ""
    ) -> None:
        self.raw = raw
        self.defaults = dict(defaults or {})
        self.path = path

    def with_defaults(self, **defaults: Any) -> Config:
        """The same level, taking ``defaults`` for keys that are absent."""
        return Config(self.raw, {**self.defaults, **defaults}, self.path)

    def of_class(self, **defaults: Any) -> Config:
        """The same level as its class fills it in.

        Keys that are absent take ``defaults``, earlier ones of a narrower class winning; a null in the
        file stays null.
        """
        stated = self.raw.keys() | self.defaults.keys()
        return self.with_defaults(
            **{key: value for key, value in defaults.items() if key not in stated}
        )

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of ``names`` that is there and not null, else a class default, else ``default``."""
        for source in (self.raw, self.defaults):
            for name in names:
                if source.get(name) is not None:
                    return source[name]
        return default

    def has(self, *names: str) -> bool:
        """Whether any of ``names`` has a value, a class default counting as one."""
        return self.get(*names) is not None

    def field(self, *names: str) -> str:
        """The key to name in an error: the one that is there, else the first."""
        present = [name for name in names if name in self.raw]
        return self.path + (present or list(names))[0]

    def integer(
        self, *names: str, default: Any = _REQUIRED, low: int = 1, high: int = MAX_WIDTH
    ) -> int:
        """A whole number within ``low … high``."""
        value = self.get(*names)
        if value is None:
            if default is _REQUIRED:
                raise KvroomError(
                    self.field(*names),
                    None,
                    "is missing from the model's config",
                    f"Add it{' (also known as ' + ', '.join(names[1:]) + ')' if names[1:] else ''}.",
                )
            self._check_spelling(names)
            value = default
        return check_int(self.field(*names), value, low=low, high=high)

    def maybe_integer(self, *names: str, low: int = 1, high: int = MAX_WIDTH) -> int | None:
        """A whole number within ``low … high``, or None where no such key has a value."""
        if not self.has(*names):
            self._check_spelling(names)
            return None
        return self.integer(*names, low=low, high=high)

    def _check_spelling(self, names: Sequence[str]) -> None:
        """Refuse a key that is a slip of the pen from one of ``names``, of which the file has none: what it
        says would count for nothing."""
        if any(name in self.raw for name in names):
            return
        for key in self.raw:
            for name in names:
                other = len(key) == len(name) and sorted(key) != sorted(name)
                # Short names, and those with another letter in one place, are other authors' keys.
                if len(name) >= LONG and not other and is_slip(key, name):
                    why, fix = "is no key of a model's config", f"Did you mean {name}?"
                    raise KvroomError(self.path + key, self.raw[key], why, fix)

    def number(self, *names: str, default: float, low: float = 0.0, high: float = 1e9) -> float:
        """A finite number within ``low … high``."""
        return check_float(
            self.field(*names), self.get(*names, default=default), low=low, high=high
        )

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(*names, default=default)
        if not isinstance(value, bool):
            if value in (0, 1):
                return bool(value)
            raise KvroomError(
                self.field(*names), value, "is not true or false", "Write true or false."
            )
        return value

    def text(self, *names: str, default: str = "") -> str:
        """A string."""
        value = self.get(*names, default=default)
        if not isinstance(value, str):
            raise KvroomError(self.field(*names), value, "is not a string", "Write it in quotes.")
        return value

    def items(self, *names: str, length: int | None = None, default: Any = _REQUIRED) -> list[Any]:
        """A list, of at least ``length`` entries where that is given (extra ones are cut off).

        Configs with multi-token-prediction layers carry an entry for each of those at the end.
        """
        value = self.get(*names)
        if value is None:
            if default is _REQUIRED:
                raise KvroomError(
                    self.field(*names), None, "is missing from the model's config", "Add the list."
                )
            value = default
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise KvroomError(self.field(*names), value, "is not a list", "Write it in brackets.")
        if length is not None:
            if len(value) < length:
                raise KvroomError(
                    self.field(*names),
                    value,
                    f"has {len(value)} entries for {length} layers",
                    "Give one entry for each layer.",
                )
            value = value[:length]
        return list(value)

    def integers(
        self,
        *names: str,
        length: int | None = None,
        default: Any = _REQUIRED,
        low: int = 0,
        high: int = MAX_WIDTH,
    ) -> list[int]:
        """A list of whole numbers."""
        values = self.items(*names, length=length, default=default)
        return [check_int(self.field(*names), v, low=low, high=high) for v in values]

    def sub(self, *names: str, **defaults: Any) -> Config:
        """The level below: a nested object (an empty one where there is none)."""
        value = self.get(*names, default={})
        if not isinstance(value, Mapping):
            raise KvroomError(self.field(*names), value, "is not an object", "Write it in braces.")
        return Config(value, defaults, f"{self.field(*names)}.")
