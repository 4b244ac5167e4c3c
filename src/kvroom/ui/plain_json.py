"""JSON by the standard library alone, where msgspec is not: in a browser. The same values as its."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any


def encode(value: Any) -> str:
    """``value`` (dataclasses, dicts …) on one line; what is no number is null, as msgspec writes it."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(value))


def decode(text: str | bytes) -> Any:
    """The value of strict JSON ``text``; ValueError where it is none."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _fields(value: Any) -> dict[str, Any]:
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is nothing that JSON has")
    return {field.name: getattr(value, field.name) for field in fields(value)}


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_fields
)


def _finite(value: Any) -> Any:
    """``value`` with null for every infinity."""
    if is_dataclass(value):
        value = _fields(value)
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value
