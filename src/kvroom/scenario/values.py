"""Plain values of a question, checked one by one: KvroomError names the key that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite

from kvroom.errors import KvroomError, did_you_mean
from kvroom.units import check_int, parse_tokens

MAX_GPUS = 100_000
MAX_REPLICAS = 10_000
MAX_REQUESTS = 10**9


def parse_object(name: str, value: object) -> Mapping[str, object]:
    """``value``, which is to be an object."""
    if not isinstance(value, Mapping):
        raise KvroomError(name, value, "is not an object", "Write it in braces: {…}.")
    return value


def parse_list(name: str, value: object) -> Sequence[object]:
    """``value``, which is to be a list of one or more."""
    if not isinstance(value, list | tuple) or not value:
        why = "has nothing in it" if value == [] else "is not a list"
        raise KvroomError(name, value, why, "Write it in brackets, one or more.")
    return value


def parse_json_object(name: str, value: object) -> dict[str, object]:
    """An object of any JSON values."""
    return {
        str(key): parse_json(f"{name}.{key}", value)
        for key, value in parse_object(name, value).items()
    }


def parse_json(name: str, value: object, *, finite: bool = True) -> object:
    """``value`` as JSON gives it back: its keys are strings, its text UTF-8, its numbers ``finite``."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=not finite)
        text.encode()
        return json.loads(text)
    except RecursionError:
        raise KvroomError(name, "…", "is nested too deeply", "Give a plain one.") from None
    except (TypeError, ValueError):
        fix = "Give plain text (UTF-8), finite numbers, lists and objects."
        raise KvroomError(name, value, "is nothing that JSON can hold", fix) from None


def parse_text(name: str, value: object) -> str:
    """A word or a name, not empty."""
    if not isinstance(value, str) or not value.strip():
        raise KvroomError(name, value, "is not a name", "Write a word in quotes.")
    return str(parse_json(name, value.strip()))


def parse_flag(name: str, value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise KvroomError(name, value, "is not true or false", "Write true or false.")
    return value


def parse_word(name: str, value: object, known: Sequence[str], what: str) -> str:
    """One of the ``known`` words; ``what`` is said of any other."""
    if not isinstance(value, str) or value not in known:
        fix = did_you_mean(str(value), known, f"One of: {', '.join(known)}.")
        raise KvroomError(name, value, what, fix)
    return value


def whole(high: int, low: int = 1) -> Callable[[str, object], int]:
    """The parser of a whole number from ``low`` to ``high``."""
    return lambda name, value: check_int(name, value, low=low, high=high)


def parse_tokens_or_zero(name: str, value: object) -> int:
    """A number of tokens, none included."""
    nothing = value == 0 and not isinstance(value, bool)
    nothing = nothing or (isinstance(value, str) and value.strip() == "0")
    return 0 if nothing else parse_tokens(name, value)


def parse_named_object(name: str, value: object) -> str | dict[str, object]:
    """A name, or the thing itself as an object (published configs have Infinity)."""
    if not isinstance(value, Mapping):
        return parse_text(name, value)
    parsed = parse_json(name, dict(value), finite=False)
    return dict(parse_object(name, parsed))


def parse_keys(
    parsers: Mapping[str, Callable[[str, object], object]], where: str, value: object
) -> dict[str, object]:
    """What ``parsers`` make of the keys of an object; null is a key left out, an unknown one refused."""
    keys = parse_object(where, value)
    check_keys(where, keys, tuple(parsers))
    prefix = "" if where == "scenario" else f"{where}."
    return {
        key: parsers[key](prefix + key, value) for key, value in keys.items() if value is not None
    }


def check_keys(where: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse a key that ``known`` does not hold, naming the nearest one that it does."""
    for key in given:
        if key not in known:
            fix = did_you_mean(str(key), known, f"Known keys: {', '.join(known)}.")
            raise KvroomError(where, key, "is no known key", fix)


def number_of(value: object) -> float | None:
    """A finite number, written as text or not; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None
