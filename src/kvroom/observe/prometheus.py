"""An engine's ``/metrics`` text → the figures it holds, by the official parser.

Only lines of known names reach the parser; the names of others are listed. A line that it refuses is
counted and left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cache
from typing import Any

from kvroom.engines.metric_names import OF_THE_PROCESS, SAME_FIGURE_RANKS, START, MetricNames
from kvroom.engines.registry import metric_tables
from kvroom.errors import KvroomError
from kvroom.observe.histogram import Histogram, merged
from kvroom.records import dataclass

MOST_UNKNOWN = 200
MOST_VALUE = 1e300
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?=[{\s])")
_ENDING = re.compile(r"_(bucket|sum|count|total|created)$")
_REFUSALS = (ValueError, LookupError, TypeError, AttributeError)
"""What the parser raises for text that is no metrics."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one answer, by our names; one that the engine does not tell has no key.

    ``unknown`` are the names of the engine's metrics that were ignored, ``unreadable`` the number of
    lines that could not be parsed. ``started_s`` is the server's start (seconds of the epoch).
    """

    engine: str
    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    unknown: tuple[str, ...] = ()
    unreadable: int = 0
    started_s: float | None = None


def read(text: str) -> Reading | None:
    """The figures in ``text``; None where it holds no figure of a known engine."""
    lines, unknown, unreadable = _sorted_out(text)
    found: list[_Sample] = []
    for sample in _parsed(lines):
        if sample is None:
            unreadable += 1
        else:
            found.append(sample)
    best: Reading | None = None
    for names in metric_tables():
        reading = _of(names, found, unknown, unreadable)
        if reading and (best is None or len(reading.counters) > len(best.counters)):
            best = reading
    return best


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    labels: dict[str, str]
    value: float


@cache
def _known() -> dict[str, tuple[str, str, str]]:
    """Sample name → (engine, kind, figure)."""
    return {
        key: (metric_table.engine, *told)
        for metric_table in metric_tables()
        for key, told in metric_table.samples().items()
    }


def _sorted_out(text: str) -> tuple[list[str], tuple[str, ...], int]:
    """(lines of known names, unknown names, lines without a name)."""
    lines: list[str] = []
    unknown: dict[str, None] = {}
    nameless = 0
    for line in text.split("\n"):
        bare = line.strip()
        if not bare or bare[0] == "#":
            continue
        match = _NAME.match(bare)
        if match is None:
            nameless += 1
        elif match[0] in _known() or match[0] == START:
            lines.append(bare)
        elif not match[0].startswith(OF_THE_PROCESS) and len(unknown) < MOST_UNKNOWN:
            base = _ENDING.sub("", match[0])
            if f"{base}_total" not in _known() and f"{base}_count" not in _known():  # _created
                unknown[base[:120]] = None
    return lines, tuple(sorted(unknown)), nameless


def _parsed(lines: list[str]) -> Iterator[_Sample | None]:
    """A sample a line, None for one that the parser refuses."""
    try:
        yield from list(_samples("\n".join(lines)))
    except _REFUSALS:
        for line in lines:
            try:
                yield from list(_samples(line))
            except _REFUSALS:
                yield None


def _samples(text: str) -> Iterator[_Sample | None]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ModuleNotFoundError:
        fix = "Run: pip install kvroom[live]"
        raise KvroomError("watch", "prometheus_client", "is not installed", fix) from None
    for family in text_string_to_metric_families(text + "\n"):
        for sample in family.samples:
            value: Any = sample.value
            yield _Sample(sample.name, dict(sample.labels), float(value))


def _of(
    names: MetricNames, samples: Iterable[_Sample], unknown: tuple[str, ...], unreadable: int
) -> Reading | None:
    """What the samples say in one engine's words."""
    values: dict[tuple[str, str], dict[Labels, float]] = {}
    buckets: dict[str, dict[Labels, dict[float, float]]] = {}
    infos: dict[str, str] = {}
    model = started = None
    for sample in samples:
        if sample.name == START:
            started = sample.value
            continue
        engine, kind, figure = _known()[sample.name]
        if engine != names.engine:
            continue
        model = model or sample.labels.get("model_name")
        if kind == "info":
            infos |= {key: value for key, value in sample.labels.items() if len(infos) < 100}
        elif kind == "bucket":
            bound = _number(sample.labels.get("le"))
            if bound is not None:
                series = buckets.setdefault(figure, {}).setdefault(
                    _series(sample.name, sample.labels), {}
                )
                series[bound] = max(sample.value, series.get(bound, 0.0))
        elif math.isfinite(sample.value) and 0 <= sample.value < MOST_VALUE:
            if sample.labels.get("cache_source") == "total":
                continue  # the sum of its sources, which are told too
            series_ = values.setdefault((kind, figure), {})
            key = _series(sample.name, sample.labels)
            series_[key] = max(sample.value, series_.get(key, 0.0))
    gauges = {
        value: _gauge(value, list(this_value.values()))
        for (one_value, value), this_value in values.items()
        if one_value == "gauge"
    }
    counters = {
        value: _added(this_value)
        for (one_value, value), this_value in values.items()
        if one_value == "counter"
    }
    histograms = _histograms(buckets, values)
    if not (gauges or counters or histograms):
        return None
    if "hits" in counters and "queries" not in counters and "prompt_tokens" in counters:
        counters["queries"] = counters["prompt_tokens"]
    prefixes = tuple(
        metric_table.prefix for metric_table in metric_tables() if metric_table is not names
    )
    return Reading(
        engine=names.engine, gauges=gauges, counters=counters, histograms=histograms, info=infos,
        model=model, unknown=tuple(n for n in unknown if not n.startswith(prefixes)),
        unreadable=unreadable, started_s=started,
    )  # fmt: skip


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _series(name: str, labels: dict[str, str]) -> Labels:
    """What tells a series from others of its figure; its name first, ranks of one figure left out."""
    kept = sorted(
        (key, value)
        for key, value in labels.items()
        if key != "le" and key not in SAME_FIGURE_RANKS
    )
    return (("", _ENDING.sub("", name)), *kept)


def _gauge(figure: str, values: list[float]) -> float:
    """Of several series: the fullest pool, a cache's size of one replica (as the engine's log and a plan
    have it), and otherwise what they come to together."""
    if figure == "kv_tokens":
        return min(values)
    return min(1.0, max(values)) if figure in ("kv_usage", "hit_ratio") else sum(values)


def _added(series: dict[Labels, float]) -> float:
    """A counter's series added up, those of one name only: another name is an older word for it."""
    names = {key[0][1] for key in series}
    return max(sum(value for key, value in series.items() if key[0][1] == name) for name in names)


def _histograms(
    buckets: dict[str, dict[Labels, dict[float, float]]],
    values: dict[tuple[str, str], dict[Labels, float]],
) -> dict[str, Histogram]:
    found: dict[str, Histogram] = {}
    for figure, series in buckets.items():
        sums = values.get(("sum", figure), {})
        parts: dict[str, list[Histogram]] = {}
        for key, counts in series.items():
            part = Histogram.of(counts, sums.get(key))
            if part is not None:
                parts.setdefault(key[0][1], []).append(part)
        made = [h for name in sorted(parts) if (h := merged(parts[name])) is not None]
        if made:
            found[figure] = max(made, key=lambda h: h.count)
    return found
