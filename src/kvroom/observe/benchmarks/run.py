"""One run of a load generator or a benchmark: who came, and the mean times they saw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kvroom.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """One run: requests completed, tokens in and out of each (means), how many at once, mean times.

    ``concurrency`` is what the run held in flight on average: completed requests a second times how
    long each took (Little's law), or what it was told to hold where times are missing. ``engine`` is the
    engine that it can only be of. A mean that a tool does not write is None.
    """

    tool: str
    model: str | None
    requests: int
    input_tokens: float
    output_tokens: float
    concurrency: float | None
    requests_per_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    engine: str | None = None
    weight_dtype: str | None = None
    """How the file that ran stores its weights, where the tool says it."""
    kv_dtype: str | None = None


def run_of(
    *, requests: float | None, held: float | None, rate: float | None, **said: Any
) -> Iterator[BenchmarkRun]:
    """A BenchmarkRun, where there were requests with tokens and times."""
    ttft, tpot = said["ttft_s"], said["tpot_s"]
    if not requests or said["input_tokens"] is None or not said["output_tokens"]:
        return
    if ttft is None and tpot is None:
        return
    in_flight = held
    if rate and ttft is not None and tpot is not None:
        in_flight = rate * (ttft + tpot * max(0.0, said["output_tokens"] - 1))
    yield BenchmarkRun(requests=round(requests), concurrency=in_flight, requests_per_s=rate, **said)


def figure(value: Any) -> float | None:
    """A finite number that is not negative; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def written(text: Any) -> float | None:
    """A figure as tables write it: ``"1,146.31"``."""
    if not isinstance(text, str):
        return figure(text)
    try:
        return figure(float(text.replace(",", "").strip()[:40]))
    except ValueError:
        return None


def seconds(ms: Any) -> float | None:
    """Milliseconds as seconds."""
    value = figure(ms)
    return None if value is None else value / 1e3


def over(total: float | None, count: float | None) -> float | None:
    """A mean of a total."""
    return None if total is None or not count else total / count


def first(*values: float | None) -> float | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def name_of(value: Any) -> str | None:
    """A model's name: a text, or the first of a list of them."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) and value else None
