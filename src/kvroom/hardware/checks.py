"""The checks that devices, links, tiers and machines share, and their way to plain JSON values.

Each returns the value in its proper type (bytes ``int``, rates ``float``) or raises KvroomError
with the field it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.units import MAX_BYTES, check_float, number, parse_bytes

MAX_RATE = 1e18
MAX_FLOPS = 1e20
MAX_TEXT = 4000


def check_text(name: str, value: Any) -> str:
    """``value`` if it is a text of at most 4,000 characters; KvroomError otherwise."""
    if not isinstance(value, str):
        raise KvroomError(name, value, "is not a text", "Write it in quotes.")
    if len(value) > MAX_TEXT:
        fix = f"Keep it within {MAX_TEXT:,} characters."
        raise KvroomError(name, value, "is too long", fix)
    return value


def check_rate(name: str, value: Any, unit: str = "bytes per second") -> float:
    """A positive finite ``float`` of ``unit`` (bytes/s up to 1e18, FLOP/s up to 1e20); a text such as
    ``3.35TB/s`` or ``989TFLOPS`` is read."""
    value = _rate_text(name, value, unit) if isinstance(value, str) else value
    high = MAX_FLOPS if unit == "FLOP per second" else MAX_RATE
    if isinstance(value, int) and not isinstance(value, bool) and not 0 < value <= high:
        value = float(min(max(value, -MAX_FLOPS * 10), MAX_FLOPS * 10))
    rate = check_float(name, value, low=0.0, high=high, unit=unit)
    if rate <= 0:
        example = "3.35e12" if unit == "bytes per second" else "989e12"
        raise KvroomError(name, value, "must be above zero", f"Write {unit}, such as {example}.")
    return rate


_RATE = re.compile(r"([0-9.]+(?:e\+?[0-9]+)?)\s*([kmgtpe]?)(b/s|b/sec|flops|flop/s)", re.IGNORECASE)
_PREFIX = ("", "k", "m", "g", "t", "p", "e")


def _rate_text(name: str, text: str, unit: str) -> float:
    """A rate as people write it, decimal."""
    of_bytes = unit == "bytes per second"
    match = _RATE.fullmatch(text.strip())
    if match is None or of_bytes != match[3].lower().startswith("b"):
        example = "3.35TB/s" if of_bytes else "989TFLOPS"
        raise KvroomError(name, text, "is no rate", f"Write {example}, or {unit} as a number.")
    return number(name, match[1], f"Write {unit}.") * 1000.0 ** _PREFIX.index(match[2].lower())


def check_size(name: str, value: Any) -> int:
    """A positive number of bytes up to 10^15; a text such as ``80GiB`` is parsed."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_BYTES**2:
        value = float(MAX_BYTES**2) if value > 0 else -float(MAX_BYTES**2)
    size = parse_bytes(name, value)
    if size < 1:
        raise KvroomError(name, value, "must be above zero", "Write 80GB, 80GiB or whole bytes.")
    return size


def check_mapping(name: str, value: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    """``value`` if it is a mapping with no key outside ``known``; KvroomError names the nearest."""
    if not isinstance(value, Mapping):
        fix = f"Write a table with {', '.join(known[:3])} …"
        raise KvroomError(name, value, "is not a table of keys and values", fix)
    for key in value:
        if not isinstance(key, str) or key not in known:
            fix = did_you_mean(str(key), known, f"The keys are {', '.join(known)}.")
            raise KvroomError(f"{name}.{str(key)[:60]}", value[key], "is an unknown key", fix)
    return value


def assign(obj: object, **values: Any) -> None:
    """Set fields of a frozen dataclass, for its ``__post_init__`` only."""
    for name, value in values.items():
        object.__setattr__(obj, name, value)


def checked(cls: Any, value: Any, name: str, required: tuple[str, ...]) -> dict[str, Any]:
    """``value``'s keys as arguments of ``cls``: unknown and missing ones are KvroomErrors."""
    keys = check_mapping(name, value, tuple(field.name for field in fields(cls)))
    for key in required:
        if keys.get(key) is None:
            fix = f"Give {', '.join(required)}."
            raise KvroomError(f"{name}.{key}", keys.get(key), "is missing", fix)
    optional = {field.name for field in fields(cls) if field.name not in required}
    return {key: value for key, value in keys.items() if not (value is None and key in optional)}


def plain(obj: Any) -> dict[str, Any]:
    """A spec object as JSON values: sources become texts, tuples become lists, absent fields are left
    out."""
    pairs = ((field.name, getattr(obj, field.name)) for field in fields(obj))
    return {k: _value(v) for k, v in pairs if v is not None and v not in ({}, ())}


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _value(value) for key, value in value.items()}
    if isinstance(value, list | tuple):
        return [_value(v) for v in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value if isinstance(value, bool | int | float | str) else str(value)
