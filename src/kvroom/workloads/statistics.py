"""What a workload is like: lengths, arrivals, and what its blocks waste.

Percentiles are nearest ranks. Memory grows with the number of different lengths and eight bytes a
request that comes in order, not with the requests' content.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import sqrt
from typing import Any, TypeVar

from kvroom.errors import KvroomError
from kvroom.units import ceil_div
from kvroom.workloads.requests import PS_PER_S, HashIds, Request, TokenRuns

BLOCK_SIZES = (16, 32, 64, 128, 256, 512)
PERCENTS = (50, 90, 99)


Number = TypeVar("Number", int, float)


def nearest_rank(ordered: Sequence[Number], percent: int) -> Number:
    """The ``percent``-th percentile of ascending values: one of them, the nearest rank's."""
    return ordered[max(0, ceil_div(percent * len(ordered), 100) - 1)]


def spread(values: Iterable[int]) -> dict[str, Any]:
    """Mean, percentiles, ends and sum of whole numbers."""
    ordered = sorted(values)
    if not ordered:
        return {}
    total = sum(ordered)
    ranks = {f"p{percent}": nearest_rank(ordered, percent) for percent in PERCENTS}
    ends = {"min": ordered[0], "max": ordered[-1], "sum": total}
    return {"mean": total / len(ordered), **ranks, **ends}


def spread_of(counts: Mapping[int, int]) -> dict[str, Any]:
    """The same as ``spread`` of values that are told by how often each comes."""
    if not counts:
        return {}
    ordered, number = sorted(counts), sum(counts.values())
    total = sum(value * count for value, count in counts.items())
    upto = list(accumulate(counts[value] for value in ordered))
    ranks = {
        f"p{percent}": ordered[bisect_left(upto, max(1, ceil_div(percent * number, 100)))]
        for percent in PERCENTS
    }
    return {
        "mean": total / number,
        **ranks,
        "min": ordered[0],
        "max": ordered[-1],
        "sum": total,
    }


def spread_s(values_ps: Iterable[int]) -> dict[str, float]:
    """The same of picoseconds, told in seconds, without the sum."""
    spread_ps = spread(values_ps)
    return {name: value / PS_PER_S for name, value in spread_ps.items() if name != "sum"}


def fragmentation(
    lengths: Mapping[int, int], sizes: Iterable[int] = BLOCK_SIZES
) -> dict[str, float]:
    """The share of allocated tokens that finished requests leave unused, by block size in tokens.

    ``lengths`` counts requests by their final length, prompt and answer.
    """
    used = sum(tokens * value for tokens, value in lengths.items())
    by_size: dict[str, float] = {}
    for size in sizes:
        allocated = sum(ceil_div(tokens, size) * value for tokens, value in lengths.items()) * size
        by_size[str(size)] = (allocated - used) / allocated if allocated else 0.0
    return by_size


def reservation(lengths: Mapping[int, int], cap: int) -> dict[str, Any]:
    """What reserving ``cap`` tokens for every request that fits would use of them in the end."""
    fit = sum(value for tokens, value in lengths.items() if tokens <= cap)
    used = sum(tokens * value for tokens, value in lengths.items() if tokens <= cap)
    return {"cap_tokens": cap, "requests": fit, "useful_ratio": used / (fit * cap) if fit else 0.0}


def describe(
    requests: Iterable[Request], block_sizes: Iterable[int] = BLOCK_SIZES
) -> dict[str, Any]:
    """The statistics of a workload in one reading, as plain JSON values.

    ``interarrival_cv`` is the gaps' standard deviation over their mean (1: Poisson, 0: a clock), None
    where all arrive at once. ``useful_ratio`` of ``reservation`` is at the longest request's length.
    """
    inputs: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    sessions: set[int | str] = set()
    arrivals: array[int] | list[int] = array("q")
    notes: Counter[str] = Counter()
    for request in requests:
        inputs[request.input_tokens] += 1
        outputs[request.output_tokens] += 1
        lengths[request.input_tokens + request.output_tokens] += 1
        try:
            arrivals.append(request.arrival_ps)
        except OverflowError:  # a clock that jumped by months: picoseconds beyond 64 bits
            arrivals = [*arrivals, request.arrival_ps]
        notes[_known(request)] += 1
        if request.session is not None:
            sessions.add(request.session)
    count = len(arrivals)
    if not count:
        raise KvroomError("workload", 0, "requests are too few to describe", "Give one at least.")
    in_order = all(later >= earlier for earlier, later in pairwise(arrivals))
    times = arrivals if in_order else sorted(arrivals)
    span_ps = times[-1] - times[0]
    return {
        "requests": count,
        "sessions": len(sessions) or None,
        "duration_s": span_ps / PS_PER_S,
        "requests_per_s": (count - 1) * PS_PER_S / span_ps if span_ps else None,
        "interarrival_cv": _cv(times),
        "input_tokens": spread_of(inputs),
        "output_tokens": spread_of(outputs),
        "total_tokens": spread_of(lengths),
        "prefix": dict(notes),
        "fragmentation": fragmentation(lengths, block_sizes),
        "reservation": reservation(lengths, max(lengths)),
    }


def _known(request: Request) -> str:
    prefix = request.prefix
    if prefix is None:
        return "unknown"
    if isinstance(prefix, HashIds):
        return f"hash ids of {prefix.tokens} tokens"
    return "made up" if isinstance(prefix, TokenRuns) else "token ids"


def _cv(times: Sequence[int]) -> float | None:
    total, number = times[-1] - times[0], len(times) - 1
    if not total:
        return None
    mean = total / number
    gaps = (later - earlier for earlier, later in pairwise(times))
    return sqrt(sum((gap - mean) ** 2 for gap in gaps) / number) / mean
