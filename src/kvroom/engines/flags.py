"""Reading an engine's flags: what every engine's own list of names is checked with.

Names come with underscores or as they are typed (``--page-size``); values may be words as on a command
line. Every refusal is a KvroomError whose field is ``engine_args.NAME``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.units import check_float, check_int

Reader = Callable[[str, Any], Any]
"""(field, value) → the value, checked."""
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")


def plain_name(name: str) -> str:
    """A flag's name with underscores; an environment variable's in lower case."""
    plain = name.strip().lstrip("-").replace("-", "_")
    return plain.lower() if plain.isupper() else plain


ALIKE = 0.8
"""From so alike on an unknown name is a known one mistyped."""
ELSEWHERE = frozenset(
    [
        "gpu_memory_utilization",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
        "mem_fraction_static",
        "max_running_requests",
        "chunked_prefill_size",
        "context_length",
        "free_gpu_memory_fraction",
        "kv_cache_free_gpu_memory_fraction",
        "max_batch_size",
        "max_seq_len",
        "ctx_size",
        "num_ctx",
        "num_parallel",
        "n_gpu_layers",
        "cache_max_entry_count",
    ]
)
"""Names by which one engine or another takes its share, batch and context: given to another they would
say nothing there."""


def plain_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that say something, by their plain names."""
    return {plain_name(key): value for key, value in args.items() if value is not None}


def fields_of(
    readers: Mapping[str, tuple[str, Reader]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The ``given`` flags that ``readers`` read, each by the field that its reader fills."""
    return {
        field: reader(f"engine_args.{name}", given[name])
        for name, (field, reader) in readers.items()
        if given.get(name) is not None
    }


def value_of(text: str) -> Any:
    """A flag's value: a number, true or false, JSON, ``32K`` (binary) or ``32k`` (decimal), or a word."""
    scaled = _SCALED.fullmatch(text)
    if scaled and len(text) < 20:
        step = 1024 if scaled[2].isupper() else 1000
        return int(float(scaled[1]) * step ** ("kmgt".index(scaled[2].lower()) + 1))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float) and not isfinite(value):
        return text
    return value


def _alike(name: str, names: frozenset[str]) -> list[str]:
    from difflib import get_close_matches  # where a flag is not known, and nowhere else

    return get_close_matches(name[:80], names, n=1, cutoff=ALIKE)


def check_known(engine: str, args: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a flag of ``args`` that is a mistyped one of ``known``, or another engine's, naming the
    nearest; one that is like none may be a newer release's (``unknown``)."""
    names = frozenset(known)
    for key, value in args.items():
        name = plain_name(key)
        if name in names:
            continue
        if name in ELSEWHERE or _alike(name, names):
            raise KvroomError(
                f"engine_args.{key}",
                value,
                f"is no flag of {engine} that kvroom knows",
                did_you_mean(plain_name(key), sorted(names), "Leave it out."),
            )


def unknown(engine: str, args: Mapping[str, Any], known: Iterable[str]) -> tuple[str, ...]:
    """A warning for each flag of ``args`` that is not among ``known``."""
    names = frozenset(known)
    return tuple(
        f"{key[:80]} is no flag of {engine} that kvroom knows: it is not used, and may change the answer"
        for key in args
        if plain_name(key) not in names
    )


def check_agrees(name: str, value: Any, key: str, stated: int) -> None:
    """Refuse a degree that is not the one that the Scenario states under ``key``."""
    count = number(f"engine_args.{name}", value, 1, 100_000)
    if count != stated:
        raise KvroomError(
            f"engine_args.{name}",
            value,
            f"is not the {key} of this question, {stated}",
            f"Set {key} to {count}, or leave the flag out.",
        )


def switch(field: str, value: Any) -> bool:
    """True or false; a flag without a value is true."""
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (True, 1, "true", "1", "yes", "on", ""):
        return True
    if word in (False, 0, "false", "0", "no", "off"):
        return False
    raise KvroomError(field, value, "is not true or false", "Write true or false.")


def number(field: str, value: Any, low: int, high: int) -> int:
    """A whole number in ``low … high``, digits in quotes too."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.removeprefix("-").isdecimal():
        text = int(text[:20])
    return check_int(field, text, low=low, high=high)


def count(field: str, value: Any) -> int:
    """A whole number from 1."""
    return number(field, value, 1, 10**9)


def count_or_off(field: str, value: Any) -> int:
    """A whole number from 1, or -1 for off."""
    return number(field, value, -1, 10**9) or 1


def share(field: str, value: Any) -> float:
    """A share above 0 and up to 1."""
    found = fraction(field, value, 1.0)
    if found == 0:
        raise KvroomError(field, value, "leaves no memory", "Write a share above 0, such as 0.9.")
    return found


def fraction(field: str, value: Any, high: float = 1e3) -> float:
    """A number from 0 to ``high``."""
    try:
        given = float(value) if isinstance(value, str) else value
    except ValueError:
        given = value
    return check_float(field, given, low=0.0, high=high)


def counts(field: str, value: Any) -> tuple[int, ...]:
    """A list of whole numbers from 1; one alone is a list of one."""
    listed = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        listed = [listed]
    if not listed:
        raise KvroomError(field, value, "is empty", "Give one number at least.")
    return tuple(count(field, v) for v in listed)


def mapping(field: str, value: Any) -> Mapping[str, Any]:
    """An object, or JSON of one; nothing is an empty one."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise KvroomError(field, value, "is not an object", 'Write it as {"name": value}.')
    return value


def one_of(*words: str) -> Reader:
    """A reader of one of ``words``, any case."""

    def read(field: str, value: Any) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in words:
            fix = did_you_mean(word, words, f"One of: {', '.join(words)}.")
            raise KvroomError(field, value, "is none of its values", fix)
        return word

    return read


def text(field: str, value: Any) -> str:
    """A word, lower case."""
    if not isinstance(value, str) or not value.strip():
        raise KvroomError(field, value, "is not a word", "Write a word in quotes.")
    return value.strip().lower()[:200]
