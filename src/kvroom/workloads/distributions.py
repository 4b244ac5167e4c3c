"""Distributions of lengths and times, and how people write them: ``lognormal:mean=1000:sigma=0.8``.

Lengths are tokens, times seconds; both are drawn as floats and rounded by whoever asked. The grammar is
``KIND:VALUE`` or ``KIND:key=value:key=value``; a bare number is ``fixed``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.units import MAX_TIME_S, check_float, number, parse_seconds, parse_tokens
from kvroom.workloads.draws import Draws, exp, log

Parser = Callable[[str, str], float]
LARGEST_EXPONENT = 700.0
"""A little more and ``exp`` overflows."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always ``value``."""

    value: float

    @property
    def mean(self) -> float:
        """The mean."""
        return self.value

    def draw(self, draws: Draws) -> float:
        """The value; nothing is drawn."""
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything from ``low`` to ``high`` alike."""

    low: float
    high: float

    @property
    def mean(self) -> float:
        """The mean."""
        return (self.low + self.high) / 2

    def draw(self, draws: Draws) -> float:
        """One value."""
        return self.low + (self.high - self.low) * draws.uniform()


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Its logarithm is normal with spread ``sigma``; ``mean`` is its own, before it is held within bounds."""

    mean: float
    sigma: float
    low: float
    high: float
    middle: float = field(init=False, repr=False)
    """The mean of the logarithm."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "middle", log(self.mean) - self.sigma * self.sigma / 2)

    def draw(self, draws: Draws) -> float:
        """One value."""
        exponent = self.middle + self.sigma * draws.normal()
        if exponent > LARGEST_EXPONENT:
            return self.high
        value = exp(exponent)
        return self.low if value < self.low else self.high if value > self.high else value


@dataclass(frozen=True, slots=True)
class Exponential:
    """Without memory; ``mean`` before it is held within bounds."""

    mean: float
    low: float
    high: float

    def draw(self, draws: Draws) -> float:
        """One value."""
        return min(max(self.mean * draws.exponential(), self.low), self.high)


@dataclass(frozen=True, slots=True)
class WeightedValues:
    """One of ``values``, each as likely as its weight says; ``reached`` are the weights summed up."""

    values: tuple[float, ...]
    reached: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean."""
        total, below = 0.0, 0.0
        for value, reached in zip(self.values, self.reached, strict=True):
            total, below = total + value * (reached - below), reached
        return total / self.reached[-1]

    def draw(self, draws: Draws) -> float:
        """One value."""
        index = bisect_right(self.reached, draws.uniform() * self.reached[-1])
        return self.values[min(index, len(self.values) - 1)]


Distribution = Fixed | Uniform | Lognormal | Exponential | WeightedValues

SHAREGPT: dict[str, Distribution] = {
    "input": Lognormal(mean=175.30, sigma=1.2, low=4, high=1024),
    "output": Lognormal(mean=349.93, sigma=1.0, low=4, high=2048),
}
"""Like ShareGPT conversations: within their bounds the means are 161.3 and 338.0 tokens, those of Kwon et
al. (SOSP 2023, section 6.1); the spreads are assumed."""

_KEYS = {
    "fixed": (),
    "uniform": ("low", "high"),
    "lognormal": ("mean", "median", "sigma", "min", "max"),
    "exponential": ("mean", "min", "max"),
    "sharegpt": (),
}
_EXAMPLES = {
    "fixed": "fixed:200",
    "uniform": "uniform:100-2000",
    "lognormal": "lognormal:mean=1000:sigma=0.8",
    "exponential": "exponential:mean=1000",
    "histogram": "histogram:128=0.7:1024=0.3",
    "sharegpt": "sharegpt",
}


def parse_length(field: str, text: str) -> Distribution:
    """A distribution of token counts of at least 1; ``sharegpt`` by the field's last name."""
    side = field.rpartition(".")[2]
    if text == "sharegpt":
        if side in SHAREGPT:
            return SHAREGPT[side]
        raise KvroomError(field, text, "tells input and output only", "Write a distribution.")
    return _parse(field, text, _length, high=float(10**9), low=1.0)


def _length(field: str, text: str) -> float:
    return float(parse_tokens(field, text))


def parse_time(field: str, text: str) -> Distribution:
    """A distribution of seconds (``15s``, ``200ms``, ``2min``)."""
    return _parse(field, text, parse_seconds, high=float(MAX_TIME_S), low=0.0)


def pairs(field: str, parts: Sequence[str], known: Sequence[str], example: str) -> dict[str, str]:
    """``key=value`` parts as a dict; KvroomError names an unknown, doubled or empty key."""
    values: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise KvroomError(field, part, "is no key=value", f"Write it like {example}.")
        if key not in known:
            otherwise = f"It takes {', '.join(known)}: {example}."
            raise KvroomError(field, key, "is no known key", did_you_mean(key, known, otherwise))
        if key in values:
            raise KvroomError(field, part, "is said twice", f"Write it once: {example}.")
        values[key] = value
    return values


def _parse(field: str, text: str, value: Parser, *, low: float, high: float) -> Distribution:
    kind, *parts = text.split(":")
    if kind[:1].isdigit() or kind[:1] in "-.":
        kind, parts = "fixed", [text]
    if kind not in _EXAMPLES:
        otherwise = f"Write one of {', '.join(_EXAMPLES)}, such as {_EXAMPLES['lognormal']}."
        raise KvroomError(
            field, kind, "is no known distribution", did_you_mean(kind, _EXAMPLES, otherwise)
        )
    example = _EXAMPLES[kind]
    if kind == "histogram":
        return _histogram(field, parts, value, example)
    if kind == "fixed":
        return Fixed(value(field, _only(field, text, parts, example)))
    if kind == "uniform":
        ends = _only(field, text, parts, example).split("-")
        if len(ends) != 2:
            raise KvroomError(field, text, "has no two ends", f"Write it like {example}.")
        first, last = (value(field, end) for end in ends)
        if first > last:
            raise KvroomError(field, text, "ends before it begins", f"Write it like {example}.")
        return Uniform(first, last)
    words = pairs(field, parts, _KEYS[kind], example)
    numbers: dict[str, Any] = {
        k: value(field, words[k]) for k in ("mean", "median", "min", "max") if k in words
    }
    bounds = {"low": numbers.get("min", low), "high": numbers.get("max", high)}
    if bounds["low"] > bounds["high"]:
        raise KvroomError(field, text, "has a min above its max", f"Write it like {example}.")
    if not numbers.get("mean") and not numbers.get("median"):
        raise KvroomError(field, text, "has no mean above zero", f"Write it like {example}.")
    if kind == "exponential":
        return Exponential(numbers["mean"], **bounds)
    sigma = number(field, words.get("sigma", "1"), f"Write it like {example}.")
    sigma = check_float(f"{field} sigma", sigma, low=0.0, high=5.0)
    if "mean" in numbers and "median" in numbers:
        raise KvroomError(field, text, "gives mean and median", "Give one of them.")
    mean = numbers["mean"] if "mean" in numbers else numbers["median"] * exp(sigma * sigma / 2)
    return Lognormal(mean, sigma, **bounds)


def _only(field: str, text: str, parts: Sequence[str], example: str) -> str:
    if len(parts) != 1:
        raise KvroomError(field, text, "takes one value", f"Write it like {example}.")
    return parts[0]


def _histogram(field: str, parts: Sequence[str], value: Parser, example: str) -> WeightedValues:
    values: list[float] = []
    reached: list[float] = []
    total = 0.0
    for part in parts:
        text, equals, weight = part.partition("=")
        if not equals:
            raise KvroomError(field, part, "is no value=weight", f"Write it like {example}.")
        values.append(value(field, text))
        share = number(field, weight, f"Write it like {example}.")
        total += check_float(f"{field} weight", share, low=0.0, high=1e12)
        reached.append(total)
    if total <= 0.0:
        raise KvroomError(field, ":".join(parts), "weighs nothing", f"Write it like {example}.")
    return WeightedValues(tuple(values), tuple(reached))
