"""Sizes, tokens and seconds: how people write them, how they are printed.

Inside kvroom bytes and tokens are ``int``, seconds and ratios ``float``. Memory capacity prints in
binary units (what drivers and engines log; ``decimal_memory`` for who counts as cards are sold),
bandwidth and prices in decimal ones (what data sheets say).
Imports nothing of kvroom but its error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kvroom.errors import KvroomError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
MAX_BYTES = 10**15
"""No device, file or account holds more than this; a larger figure is a slip of the unit."""
MAX_TOKENS = 10**12
MAX_TIME_S = 10**7

_DECIMAL = {"": 1, "b": 1, "kb": KB, "mb": MB, "gb": GB, "tb": TB, "pb": 10**15}
_BINARY = {"kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "pib": 2**50}
_BARE = {"k": "KB or KiB", "m": "MB or MiB", "g": "GB or GiB", "t": "TB or TiB", "p": "PB or PiB"}
_NUMBER = re.compile(
    r"\s*((?:[0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE]\+?[0-9]+)?)\s*([a-zA-Z/]*)\s*"
)


def ceil_div(a: int, b: int) -> int:
    """``a / b`` rounded up, in integers."""
    return -(-a // b)


def _split(field: str, text: str, example: str) -> tuple[float | int, str]:
    match = _NUMBER.fullmatch(text) if len(text) <= 40 else None
    if not match:
        raise KvroomError(field, text, "is not a size", f"Write {example}.")
    digits = match[1].replace(",", "").replace("_", "")
    plain = digits.isdecimal()
    return (int(digits) if plain else float(digits)), match[2]


def parse_bytes(field: str, value: Any) -> int:
    """``80GB`` (80e9), ``80GiB`` (80·2^30), ``80B``, or an ``int`` of bytes, as an ``int``.

    Raises KvroomError for text without a unit, a bare ``80G`` (naming both readings), a negative, a
    non-number, or more than 10^15 bytes.
    """
    example = "80GB (decimal) or 80GiB (binary)"
    if isinstance(value, str):
        number, unit = _split(field, value, example)
        low = unit.lower()
        if not low and number:
            amount = value.strip()
            fix = f"Write {amount}GB (decimal), {amount}GiB (binary) or {amount}B."
            raise KvroomError(field, value, "has no unit", fix)
        if low in _BARE:
            amount = value.strip()[: -len(unit)].strip()
            units = _BARE[low].split(" or ")
            raise KvroomError(
                field,
                value,
                f"is ambiguous: {_BARE[low]}",
                f"Write {amount}{units[0]} (decimal) or {amount}{units[1]} (binary).",
            )
        factor = _DECIMAL.get(low) or _BINARY.get(low)
        if factor is None:
            raise KvroomError(field, value, f"has an unknown unit '{unit}'", f"Write {example}.")
        value = int(number * factor)  # 79.1GiB is no whole number of bytes
    return check_int(field, value, low=0, high=MAX_BYTES, unit="bytes", example=example)


def parse_tokens(field: str, value: Any) -> int:
    """``8k`` or ``8K`` (8,192), ``1M`` (1,048,576), or a plain count, as an ``int`` of at least 1."""
    example = "32768, 32K or 1M"
    if isinstance(value, str):
        number, unit = _split(field, value, example)
        factor = {"": 1, "k": KIB, "m": MIB}.get(unit.lower())
        if factor is None:
            raise KvroomError(field, value, f"has an unknown unit '{unit}'", f"Write {example}.")
        value = number * factor
    return check_int(field, value, low=1, high=MAX_TOKENS, unit="tokens", example=example)


def parse_count(field: str, text: str, *, low: int, high: int) -> int:
    """A whole number as people write it: ``8``, ``1e6``, ``20_000``, ``20,000``."""
    try:
        value, unit = _split(field, text, "8")
    except KvroomError:
        unit = "?"
    if unit:
        fix = f"Write a whole number, {low:,} or more: 8, 1e6."
        raise KvroomError(field, text, "is no whole number", fix)
    return check_int(field, value, low=low, high=high)


_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "": 1.0}


def parse_seconds(field: str, text: str) -> float:
    """``15s``, ``200ms``, ``2min`` or ``1h``. A time without a unit is refused, except 0."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(digits) :]
    factor = _SECONDS.get(unit)
    if not unit and number(field, digits, "Write 15s, 200ms, 2min or 1h."):
        fix = f"Write {text}s, {text}ms, {text}min or {text}h."
        raise KvroomError(field, text, "has no unit", fix)
    if factor is None:
        raise KvroomError(field, text, "has an unknown unit", "Write 15s, 200ms, 2min or 1h.")
    seconds = number(field, digits, "Write 15s, 200ms, 2min or 1h.") * factor
    return check_float(field, seconds, low=0.0, high=float(MAX_TIME_S), unit="seconds")


def number(field: str, text: str, fix: str) -> float:
    """A plain decimal number."""
    try:
        if "_" not in text and len(text) <= 40:
            return float(text)
    except ValueError:
        pass
    raise KvroomError(field, text, "is not a number", fix)


def check_int(
    field: str, value: Any, *, low: int, high: int, unit: str = "", example: str = ""
) -> int:
    """``value`` as an ``int`` within ``low … high``; KvroomError names what is wrong otherwise."""
    of = f" {unit}" if unit else ""
    fix = f"Write a whole number{of and ' of' + of} from {low:,} to {high:,}" + (
        f", such as {example}." if example else "."
    )
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KvroomError(field, value, "is not a number", fix)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise KvroomError(field, value, "is not a finite number", fix)
        if value != int(value):
            raise KvroomError(field, value, "is not a whole number", fix)
        value = int(value)
    number: int = value
    if number < low:
        raise KvroomError(field, value, f"is below {low:,}{of}", fix)
    if number > high:
        raise KvroomError(field, value, f"is above {high:,}{of}", fix)
    return number


def check_float(field: str, value: Any, *, low: float, high: float, unit: str = "") -> float:
    """``value`` as a finite ``float`` within ``low … high``; KvroomError otherwise."""
    fix = f"Write a number{' of ' + unit if unit else ''} from {low:g} to {high:g}."
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KvroomError(field, value, "is not a number", fix)
    if isinstance(value, float) and not math.isfinite(value):
        raise KvroomError(field, value, "is not a finite number", fix)
    if not low <= value <= high:
        raise KvroomError(field, value, f"is outside {low:g} to {high:g}", fix)
    return float(value)


def _scaled(value: float, step: int, names: tuple[str, ...]) -> str:
    scaled, name = float(value), names[0]
    for name in names:
        if abs(scaled) < step * 0.9995 or name == names[-1]:
            break
        scaled /= step
    if name == names[0] and value == int(value):
        return f"{int(value):,} {name}"
    digits = 0 if abs(scaled) >= 1000 else 1 if abs(scaled) >= 100 else 2
    text = f"{scaled:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {name}"


def show_gib(value: float) -> str:
    """Bytes as people read memory: binary units, about three figures (``10.0`` loses its zero)."""
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def show_gb(value: float) -> str:
    """Bytes in decimal units, as cards are sold and data sheets speak."""
    return _scaled(value, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


_decimal: ContextVar[bool] = ContextVar("memory is written in decimal units", default=False)


@contextmanager
def decimal_memory(on: bool = True) -> Iterator[None]:
    """``show_memory`` writes decimal units within: a page counts memory as cards are sold."""
    token = _decimal.set(on)
    try:
        yield
    finally:
        _decimal.reset(token)


def show_memory(value: float) -> str:
    """Bytes in the unit that whoever asks counts memory in: binary, or decimal (``decimal_memory``)."""
    return show_gb(value) if _decimal.get() else show_gib(value)


def show_rate(value: float) -> str:
    """Bytes per second, decimal."""
    return show_gb(value) + "/s"


def show_count(value: float) -> str:
    """A large count in words' short form: ``70.6B`` parameters, ``1.04T``."""
    return _scaled(value, 1000, ("", "K", "M", "B", "T", "P")).replace(" ", "")


def show_tokens(value: int) -> str:
    """Tokens: ``32K`` or ``1M`` where that is whole and short, else with commas."""
    if value >= MIB and value % MIB == 0:
        return f"{value // MIB:,}M"
    if KIB <= value < 10_000 * KIB and value % KIB == 0:
        return f"{value // KIB}K"
    return f"{value:,}"


def say_tokens(value: int) -> str:
    """A length in words: ``1 token``, ``32K tokens``."""
    return f"{show_tokens(value)} token{'s' if value != 1 else ''}"


def show_seconds(value: float) -> str:
    """Seconds to three figures: ``24.1 ms``, ``1.2 s``, ``3 min`` from 100 s on."""
    if value >= 100:
        return f"{value / 60:,.1f} min"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-9)} ns"


def _three(value: float) -> str:
    """Three figures, never as a power of ten: ``1000``, not ``1e+03``."""
    return f"{float(f'{value:.3g}'):g}"


def show_usd(value: float) -> str:
    """Dollars to three figures, cents at least: ``$1.99``, ``$0.043``."""
    return f"${value:,.2f}" if value >= 1 else f"${value:.3g}"


def longest_fit(holds: Callable[[int], bool], limit: int, near: int = 0) -> int:
    """The largest n ≤ ``limit`` for which ``holds`` is true (``holds`` is true up to some n and false
    after it); 0 for none. A good guess ``near`` makes the search shorter."""
    if holds(limit):
        return limit
    low, high, step = 0, limit, 1
    if 0 < near < limit and holds(near):
        low = near
        while near + step < limit and holds(near + step):
            low, step = near + step, 8 * step
        high = min(limit, near + step)
    elif 0 < near < limit:
        high = near
        while near - step > 0 and not holds(near - step):
            high, step = near - step, 8 * step
        low = max(0, near - step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def smallest(holds: Callable[[int], bool], limit: int) -> int | None:
    """The smallest n in 1 … ``limit`` from which ``holds`` is true (it must stay true), or None."""
    if not holds(limit):
        return None
    return longest_fit(lambda n: n < limit and (n < 1 or not holds(n)), limit) + 1
