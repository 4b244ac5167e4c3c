"""The trace formats, one function each: what a row says → a Request.

A format is known by the keys that its rows have; other keys are ignored. Sources: Mooncake's and
Qwen-Bailian's published traces, the Azure Public Dataset, BurstGPT, and token-id recordings as
LLMServingSim writes them. A KvroomError here names the key; the reader adds the line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import ceil_div, check_int
from kvroom.workloads.requests import PS_PER_S, HashIds, Prefix, Request, TokenIds

MAX_REQUEST_TOKENS = 10**9
"""No prompt or answer is longer; a larger figure is a slip."""
MAX_ARRIVAL_S = 10**10
"""No trace is longer than some three hundred years."""
PS_PER_MS, PS_PER_NS = 10**9, 10**3

Row = Callable[[Mapping[str, Any]], Request]


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format: the keys it ``needs``, and ``reader``, which makes a function row → Request.

    ``reader`` takes the tokens of one hash id. ``hash_tokens`` is what the format's own traces use
    (None: it has no hash ids).
    """

    name: str
    needs: tuple[str, ...]
    reader: Callable[[int], Row]
    hash_tokens: int | None = None
    csv: bool = False
    plain: Callable[[bytes], Request | None] | None = None
    """A short cut for rows of the commonest shape."""

    def fits(self, keys: Mapping[str, Any] | Sequence[str]) -> bool:
        """Whether rows with these keys can be of this format."""
        return all(k in keys for k in self.needs)


def _value(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if value is None:
        raise KvroomError(name, None, "is missing", "Every row needs it.")
    return value


def _tokens(row: Mapping[str, Any], name: str, low: int) -> int:
    value = _value(row, name)
    if type(value) is int and low <= value <= MAX_REQUEST_TOKENS:
        return value
    if isinstance(value, str):
        value = _decimal(name, value)
    if isinstance(value, Decimal):
        value = float(value)
    return check_int(name, value, low=low, high=MAX_REQUEST_TOKENS, unit="tokens")


def _lengths(row: Mapping[str, Any], prompt: str, answer: str) -> tuple[int, int]:
    """A prompt has a token at least; an answer may have none."""
    found: Any = row.get(prompt)
    after: Any = row.get(answer)
    whole = type(found) is int and type(after) is int
    if whole and 1 <= found <= MAX_REQUEST_TOKENS and 0 <= after <= MAX_REQUEST_TOKENS:
        return found, after
    return _tokens(row, prompt, 1), _tokens(row, answer, 0)


def _decimal(name: str, text: str) -> Decimal:
    try:
        value = Decimal(text.strip()[:60])
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise KvroomError(name, text, "is not a number", "Write digits only.")
    return value


def _time_ps(row: Mapping[str, Any], name: str, unit_ps: int) -> int:
    """An arrival in picoseconds, exactly, from a number of units of ``unit_ps``."""
    value = _value(row, name)
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


def _prefix(row: Mapping[str, Any], prompt_tokens: int, hash_tokens: int) -> Prefix | None:
    ids = row.get("hash_ids")
    if ids is None or ids == []:
        return None
    packed = _packed("hash_ids", ids, ("q", "Q"), "whole numbers of 64 bits")
    most, least = ceil_div(prompt_tokens, hash_tokens), prompt_tokens // hash_tokens
    if not least <= len(packed) <= most:
        raise KvroomError(
            "hash_ids",
            len(packed),
            f"ids do not fit {prompt_tokens:,} prompt tokens at {hash_tokens} tokens an id",
            "Say how many tokens an id stands for with --hash-tokens.",
        )
    return HashIds(packed, hash_tokens)


def _packed(name: str, ids: Any, kinds: Sequence[str], what: str) -> array[int]:
    if isinstance(ids, list):
        for kind in kinds:
            try:
                return array(kind, ids)
            except (TypeError, OverflowError):
                continue
    shown = ids[:3] if isinstance(ids, list) else ids
    raise KvroomError(name, shown, f"is no list of {what}", "Write such a list.")


def _session(row: Mapping[str, Any], name: str) -> int | str | None:
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise KvroomError(name, value, "is no session", "Write a number or a name.")
    return value


def _priority(row: Mapping[str, Any]) -> int:
    value = row.get("priority")
    return 0 if value is None else check_int("priority", value, low=-(2**31), high=2**31)


def mooncake(hash_tokens: int) -> Row:
    """``timestamp`` in ms, lengths, optional ``hash_ids``, ``session`` and ``priority``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = _lengths(values, "input_length", "output_length")
        return Request(
            _time_ps(values, "timestamp", PS_PER_MS),
            prompt,
            answer,
            _prefix(values, prompt, hash_tokens),
            _session(values, "session"),
            _priority(values),
        )

    return row


PLAIN_BYTES = 100
"""A plain row is no longer."""
_PLAIN = re.compile(
    rb'\{"timestamp": (\d{1,12}), "input_length": ([1-9]\d{0,8}), "output_length": (\d{1,9})\}\s*'
)


def plain_mooncake(line: bytes) -> Request | None:
    """The Request of a row of whole numbers and nothing else, at a fraction of what any row costs."""
    found = _PLAIN.fullmatch(line) if len(line) < PLAIN_BYTES else None
    if found is None:
        return None
    arrival, prompt, answer = found.groups()
    return Request(int(arrival) * PS_PER_MS, int(prompt), int(answer))


def bailian(hash_tokens: int) -> Row:
    """``timestamp`` in s, lengths, hash ids; a chat's session is the chat that it began with."""
    roots: dict[int | str, int | str] = {}

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = _lengths(values, "input_length", "output_length")
        chat, parent = _session(values, "chat_id"), _session(values, "parent_chat_id")
        session = chat
        if chat is not None and parent not in (None, -1, "-1"):
            session = roots[chat] = roots.get(parent, parent)
        return Request(
            _time_ps(values, "timestamp", PS_PER_S),
            prompt,
            answer,
            _prefix(values, prompt, hash_tokens),
            session,
        )

    return row


def token_ids(_: int) -> Row:
    """``arrival_time_ns``, ``input_tok_ids`` and ``output_tok_ids`` (or only ``output_toks``)."""

    def ids(values: Mapping[str, Any], name: str) -> array[int]:
        return _packed(name, _value(values, name), ("I",), "token ids")

    def row(values: Mapping[str, Any]) -> Request:
        prompt = ids(values, "input_tok_ids")
        check_int("input_tok_ids", len(prompt), low=1, high=MAX_REQUEST_TOKENS, unit="tokens")
        if "output_tok_ids" in values:
            answer = ids(values, "output_tok_ids")
            length = len(answer)
        else:
            answer, length = array("I"), _tokens(values, "output_toks", 0)
        return Request(
            _time_ps(values, "arrival_time_ns", PS_PER_NS),
            len(prompt),
            length,
            TokenIds(prompt, answer),
            _session(values, "session"),
            _priority(values),
        )

    return row


def azure(_: int) -> Row:
    """``TIMESTAMP`` (date and time), ``ContextTokens``, ``GeneratedTokens``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = _lengths(values, "contexttokens", "generatedtokens")
        return Request(_date_ps(_value(values, "timestamp")), prompt, answer)

    return row


def _date_ps(text: str) -> int:
    """``2023-11-16 18:15:46.6805900``, with or without a zone (none: UTC), since 1970."""
    whole, point, rest = text.partition(".")
    digits = rest
    zone = ""
    for i, sign in enumerate(rest):
        if not sign.isdigit():
            digits, zone = rest[:i], rest[i:]
            break
    if len(digits) > 12 or (point and not digits):
        raise KvroomError("timestamp", text, "is no date and time", _DATE_FIX)
    return _second(whole + zone) * PS_PER_S + int(digits.ljust(12, "0") if digits else 0)


_DATE_FIX = "Write it like 2023-11-16 18:15:46.680590."


@lru_cache(maxsize=1024)
def _second(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise KvroomError("timestamp", text, "is no date and time", _DATE_FIX) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _ONE_SECOND


_ONE_SECOND = datetime(1970, 1, 1, 0, 0, 1) - datetime(1970, 1, 1)


def burstgpt(_: int) -> Row:
    """``Timestamp`` in s, ``Request tokens``, ``Response tokens`` (0: it failed), ``Session ID``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = _lengths(values, "request tokens", "response tokens")
        arrival = _time_ps(values, "timestamp", PS_PER_S)
        return Request(arrival, prompt, answer, session=_session(values, "session id"))

    return row


FORMATS = (
    Format("token ids", ("arrival_time_ns", "input_tok_ids"), token_ids),
    Format("Qwen-Bailian", ("chat_id", "timestamp", "input_length", "output_length"), bailian, 16),
    Format(
        "Mooncake",
        ("timestamp", "input_length", "output_length"),
        mooncake,
        512,
        plain=plain_mooncake,
    ),
    Format("Azure", ("timestamp", "contexttokens", "generatedtokens"), azure, csv=True),
    Format("BurstGPT", ("timestamp", "request tokens", "response tokens"), burstgpt, csv=True),
)
"""The more particular first; CSV columns are told in any case."""
