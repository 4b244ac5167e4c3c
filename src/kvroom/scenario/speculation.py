"""Speculative decoding as a question: who drafts, how many tokens a step, how many are accepted.

``engines.drafting`` turns it into an engine's flags and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import ClassVar, Self

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.scenario.values import parse_keys, parse_named_object, whole
from kvroom.units import check_float

METHODS = ("mtp", "eagle", "eagle3", "draft", "ngram")
"""Prediction layers of the model's own, heads trained on its hidden states, a small model of its
kind, or the text itself."""
ALIASES = {
    "nextn": "mtp",
    "deepseek_mtp": "mtp",
    "eagle-3": "eagle3",
    "draft_model": "draft",
    "draft-model": "draft",
    "standalone": "draft",
    "[ngram]": "ngram",
    "ngram_gpu": "ngram",
    "prompt_lookup": "ngram",
    "suffix": "ngram",
}
SPELLED = {"acceptance": "acceptance_rate", "tokens": "num_speculative_tokens"}
"""Shorter words for some of them."""
EXAMPLE = "Write it like mtp:1:acceptance=0.8 or eagle3:3:acceptance=0.8/0.6/0.5."
DEFAULT_TOKENS = {"mtp": 1}
"""Drafted a step where nobody says; else 3."""
USUAL_ACCEPTANCE = {"mtp": 0.8, "eagle3": 0.75, "eagle": 0.65, "draft": 0.65, "ngram": 0.4}
"""Chance that a drafted token is kept, given all before it were, where nobody says: an assumption, for
it depends on the text. DeepSeek-V3 reports 0.85 to 0.90 for one token of its prediction layer (arXiv
2412.19437, 5.4.3); it falls where one layer drafts several."""
WITH_MODEL = ("eagle", "eagle3", "draft")
MOST_TOKENS = 1000
MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """``method`` drafts ``tokens`` a step; ``model`` names or holds the draft's own config, if it has one.

    ``acceptance_rate`` is the chance that a drafted token is kept, given all before it were; or, position
    by position, the share of all drafts that are kept there, as engines print it; None: the usual chance
    of the method. ``schedule``: from so many requests in a step on (the first figure) so many tokens are
    drafted. ``field`` is where drafting was asked for, for errors.
    """

    method: str
    tokens: int
    model: str | dict[str, object] | None = None
    field: str = "speculation"
    acceptance_rate: float | tuple[float, ...] | None = None
    schedule: tuple[tuple[int, int], ...] = ()

    @property
    def acceptance_assumed(self) -> bool:
        """Whether nobody said the chance."""
        return self.acceptance_rate is None

    @property
    def kept(self) -> tuple[float, ...]:
        """By position: the chance that this draft and all before it are kept."""
        rate = self.acceptance_rate
        if isinstance(rate, tuple):
            return rate[: self.tokens]
        each = USUAL_ACCEPTANCE[self.method] if rate is None else rate
        return tuple(each**number for number in range(1, self.tokens + 1))


def drafted_at(tokens: int, schedule: tuple[tuple[int, int], ...], requests: float) -> int:
    """Tokens drafted for each of ``requests`` in a step: ``tokens``, or what the schedule has."""
    for first, fewer in schedule:
        if requests >= first:
            tokens = fewer
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeDecoding:
    """A Scenario's ``speculation``: who drafts, how many tokens a step (None: the method's usual number),
    how many of them are accepted (None: the method's usual share), up to how many requests at once."""

    method: str
    model: str | dict[str, object] | None = None
    num_speculative_tokens: int | None = None
    acceptance_rate: float | tuple[float, ...] | None = None
    max_concurrency: int | None = None

    PARSERS: ClassVar[dict[str, Callable[[str, object], object]]]

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """That of an object or a line; KvroomError names the key that is wrong."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            value = line(value, name)
        if not isinstance(value, Mapping):
            how = 'Write {"method": "mtp", "num_speculative_tokens": 1}.'
            raise KvroomError(name, value, "is not an object", how)
        keys: dict[str, object] = {}
        for key, each in value.items():
            known = SPELLED.get(str(key), str(key))
            if known in keys:
                raise KvroomError(name, key, f"is {known} once more", "Say it once.")
            keys[known] = each
        keys.setdefault("method", "")
        return cls(**parse_keys(cls.PARSERS, name, keys))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """The keys that are asked."""
        keys = {field.name: getattr(self, field.name) for field in fields(self)}
        rate = self.acceptance_rate
        keys["acceptance_rate"] = list(rate) if isinstance(rate, tuple) else rate
        return {key: value for key, value in keys.items() if value is not None}


def _draft_model(name: str, value: object) -> str | dict[str, object]:
    if isinstance(value, Mapping) or (isinstance(value, str) and value.strip()):
        return parse_named_object(name, value)
    raise KvroomError(name, value, "names no model", 'Give a name, a path or {"config": {…}}.')


def _acceptance(field: str, value: object) -> float | tuple[float, ...]:
    """One chance, or the shares kept by position, which never rise."""
    if not isinstance(value, list | tuple):
        return check_float(field, value, low=0.0, high=1.0)
    shares = [check_float(field, each, low=0.0, high=1.0) for each in value]
    if not shares:
        raise KvroomError(field, value, "holds no share", "Write one for each position.")
    for before, after in pairwise(shares):
        if after > before:
            why = f"rises to {after:g}: a draft counts only where all before it are kept"
            fix = "Give shares of all drafts, as engines print them by position."
            raise KvroomError(field, before, why, fix)
    return tuple(shares)


def line(text: str, field: str = "--speculation") -> dict[str, object]:
    """``mtp:1:acceptance=0.8`` as an object: the method, how many tokens it drafts, keys.

    Shares by position are joined by slashes.
    """
    method, *parts = (part.strip() for part in text.split(":"))
    keys: dict[str, object] = {"method": method}
    for part in parts:
        key, equals, value = (x.strip() for x in part.partition("="))
        key = key.replace("-", "_")
        key = SPELLED.get(key, key)
        if not equals and "num_speculative_tokens" not in keys:
            key, value = "num_speculative_tokens", key
        elif not equals or not value or key in keys:
            raise KvroomError(field, part, "is no KEY=VALUE of it, once", EXAMPLE)
        if key == "model":
            keys[key] = value
            continue
        try:
            numbers = [int(part) if part.isdecimal() else float(part) for part in value.split("/")]
        except ValueError:
            raise KvroomError(field, part, "is no number", EXAMPLE) from None
        keys[key] = numbers if "/" in value else numbers[0]
    return keys


def method_of(field: str, value: object) -> str:
    """The method that a word names, any engine's name for it."""
    word = value.strip().lower() if isinstance(value, str) else ""
    word = ALIASES.get(word, "mtp" if word.endswith("_mtp") else word)
    if word not in METHODS:
        fix = did_you_mean(word, (*METHODS, *ALIASES), f"One of: {', '.join(METHODS)}.")
        raise KvroomError(field, value, "is no way of drafting that kvroom knows", fix)
    return word


SpeculativeDecoding.PARSERS = {
    "method": method_of,
    "model": _draft_model,
    "num_speculative_tokens": whole(MOST_TOKENS),
    "acceptance_rate": _acceptance,
    "max_concurrency": whole(MOST_REQUESTS),
}
