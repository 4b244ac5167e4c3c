"""What the cells of a row say: tokens, times, sessions, hash ids; a KvroomError names the key."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import ceil_div, check_int
from kvroom.workloads.requests import PS_PER_S, HashIds

MAX_REQUEST_TOKENS = 10**9
"""No prompt or answer is longer; a larger figure is a slip."""
MAX_ARRIVAL_S = 10**10
"""No trace is longer than some three hundred years."""
PS_PER_MS, PS_PER_US, PS_PER_NS = 10**9, 10**6, 10**3


def cell(row: Mapping[str, Any], name: str) -> Any:
    """What stands under ``name``; KvroomError where nothing does."""
    value = row.get(name)
    if value is None:
        raise KvroomError(name, None, "is missing", "Every row needs it.")
    return value


def tokens(row: Mapping[str, Any], name: str, low: int) -> int:
    """A number of tokens, ``low`` or more."""
    return whole_tokens(name, cell(row, name), low)


def whole_tokens(name: str, value: Any, low: int) -> int:
    """``value`` as a number of tokens, ``low`` or more."""
    if type(value) is int and low <= value <= MAX_REQUEST_TOKENS:
        return value
    if isinstance(value, str):
        value = _decimal(name, value)
    if isinstance(value, Decimal):
        value = float(value)
    return check_int(name, value, low=low, high=MAX_REQUEST_TOKENS, unit="tokens")


def lengths(row: Mapping[str, Any], prompt: str, answer: str) -> tuple[int, int]:
    """A prompt has a token at least; an answer may have none."""
    first: Any = row.get(prompt)
    after: Any = row.get(answer)
    whole = type(first) is int and type(after) is int
    if whole and 1 <= first <= MAX_REQUEST_TOKENS and 0 <= after <= MAX_REQUEST_TOKENS:
        return first, after
    return tokens(row, prompt, 1), tokens(row, answer, 0)


def _decimal(name: str, text: str) -> Decimal:
    try:
        value = Decimal(text.strip()[:60])
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise KvroomError(name, text, "is not a number", "Write digits only.")
    return value


def time_ps(row: Mapping[str, Any], name: str, unit_ps: int) -> int:
    """An arrival in picoseconds, exactly, from a number of units of ``unit_ps``."""
    return span_ps(name, cell(row, name), unit_ps)


def span_ps(name: str, value: Any, unit_ps: int) -> int:
    """``value`` units of ``unit_ps`` in picoseconds; KvroomError unless 0 or more and of a sane size."""
    if type(value) is int and 0 <= value <= MAX_ARRIVAL_S:
        return value * unit_ps
    if isinstance(value, str):
        value = _decimal(name, value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise KvroomError(name, value, "is not a number", "Write the arrival as a number.")
    if value < 0:
        raise KvroomError(name, _plain(value), "is negative", "Count arrivals from the start.")
    if value > MAX_ARRIVAL_S * PS_PER_S // unit_ps:
        fix = f"Arrivals end at {MAX_ARRIVAL_S:,} seconds."
        raise KvroomError(name, _plain(value), "is beyond any trace", fix)
    return round(value * unit_ps)


def _plain(value: int | Decimal) -> int | str:
    return value if isinstance(value, int) else str(value)


EPOCHS = ((10**11, PS_PER_S), (10**14, PS_PER_MS), (10**17, PS_PER_US), (10**30, PS_PER_NS))
"""A moment below so many units since 1970 is counted in units of so many picoseconds."""


def moment_ps(name: str, value: Any) -> int:
    """A moment as logs write it: a date and time, or s, ms, µs or ns since 1970 (told by size)."""
    if isinstance(value, str):
        if "-" in value.strip()[1:] or ":" in value:
            return date_ps(value, name)
        value = _decimal(name, value)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        for below, unit_ps in EPOCHS:
            if value < below:
                return span_ps(name, value, unit_ps)
    raise KvroomError(name, value, "is no moment", _DATE_FIX)


def hash_ids(row: Mapping[str, Any], prompt_tokens: int, hash_tokens: int) -> HashIds | None:
    """``hash_ids`` of the row, which must fit the prompt's length; None where it has none."""
    ids = row.get("hash_ids")
    if ids is None or ids == []:
        return None
    numbers = packed("hash_ids", ids, ("q", "Q"), "whole numbers of 64 bits")
    most, least = ceil_div(prompt_tokens, hash_tokens), prompt_tokens // hash_tokens
    if not least <= len(numbers) <= most:
        raise KvroomError(
            "hash_ids",
            len(numbers),
            f"ids do not fit {prompt_tokens:,} prompt tokens at {hash_tokens} tokens an id",
            "Say how many tokens an id stands for with --hash-tokens.",
        )
    return HashIds(numbers, hash_tokens)


def packed(name: str, ids: Any, kinds: Sequence[str], what: str) -> array[int]:
    """The list ``ids`` as an array of the first of ``kinds`` that holds it."""
    if isinstance(ids, list):
        for kind in kinds:
            try:
                return array(kind, ids)
            except (TypeError, OverflowError):
                continue
    shown = ids[:3] if isinstance(ids, list) else ids
    raise KvroomError(name, shown, f"is no list of {what}", "Write such a list.")


def session(row: Mapping[str, Any], name: str) -> int | str | None:
    """The session that the row names under ``name``, if any."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise KvroomError(name, value, "is no session", "Write a number or a name.")
    return value


def priority(row: Mapping[str, Any], name: str = "priority") -> int:
    """The engine's priority: lower goes first; 0 where the row has none."""
    value = row.get(name)
    if isinstance(value, str):
        value = float(_decimal(name, value)) if value else None
    return 0 if value is None else check_int(name, value, low=-(2**31), high=2**31)


def at(row: Any, *paths: str) -> Any:
    """The first of ``paths`` (keys with dots between) that leads to something; None where none does."""
    for path in paths:
        value = row
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def table(value: Any) -> Mapping[str, Any]:
    """``value`` where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def date_ps(text: Any, name: str = "timestamp") -> int:
    """``2023-11-16 18:15:46.6805900``, with or without a zone (none: UTC), since 1970."""
    if not isinstance(text, str):
        raise KvroomError(name, text, "is no date and time", _DATE_FIX)
    whole, point, rest = text.partition(".")
    digits = rest
    zone = ""
    for index, sign in enumerate(rest):
        if not sign.isdecimal():
            digits, zone = rest[:index], rest[index:]
            break
    if len(digits) > 12 or (point and not digits):
        raise KvroomError(name, text, "is no date and time", _DATE_FIX)
    return _second(whole + zone, name) * PS_PER_S + int(digits.ljust(12, "0") if digits else 0)


_DATE_FIX = "Write it like 2023-11-16 18:15:46.680590."


@lru_cache(maxsize=1024)
def _second(text: str, name: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise KvroomError(name, text, "is no date and time", _DATE_FIX) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _ONE_SECOND


_ONE_SECOND = datetime(1970, 1, 1, 0, 0, 1) - datetime(1970, 1, 1)
