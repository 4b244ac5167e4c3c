"""A running engine, sample by sample: fill, queue, preemptions, hit ratio, latencies, and what comes.

Rates and percentiles are those of a window of time before the sample (the first sample's: of the
server's life), from differences of counters. A counter that falls tells that the server began anew.
Memory is bounded: a window of samples, and nothing of those before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from kvroom.errors import as_sentence
from kvroom.observe import prometheus
from kvroom.observe.endpoint import Endpoint, NoAnswerError
from kvroom.observe.histogram import Histogram
from kvroom.observe.prometheus import Reading
from kvroom.records import dataclass

WINDOW_S = 60.0
MOST_SAMPLES = 600
"""Kept at most, however short the interval."""
TREND_S = 30.0
"""The fill's trend is taken over so long, from at least so many samples:"""
TREND_SAMPLES = 4
SOON_S = 120.0
"""A cache that is full within so long is worth a warning, from this fill on:"""
TREND_FROM = 0.3
FALL = 0.02
"""A drop of more than this ends what is a trend."""
RECENT_S = 10.0
"""Preemptions are warned of so long."""
FULL = 0.95
ROOMY = 0.5
NOT_METRICS = "its answer holds no figure of vLLM, SGLang or llama.cpp"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One look at the engine. What it does not tell, or did not answer, is None.

    ``preemptions`` is the engine's own counter, ``preemptions_lately`` those of the last ten seconds;
    ``hit_ratio``, ``ttft_s``, ``itl_s`` and the rates are of the last ``window_s`` seconds (None: since
    the server began). ``error`` says why there is nothing.
    """

    t_s: float
    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    hit_ratio: float | None = None
    ttft_s: dict[str, Any] | None = None
    itl_s: dict[str, Any] | None = None
    window_s: float | None = None
    requests_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    preemptions_lately: int | None = None
    restarted: bool = False
    full_in_s: float | None = None
    warnings: tuple[str, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, a line of ``watch --json``."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """What is going on, in one sentence: the worst warning, or that all is well."""
        if self.error is not None:
            return f"No answer: {self.error}."
        if self.warnings:
            return self.warnings[0]
        parts = []
        if self.kv_usage is not None:
            parts.append(f"the cache is {self.kv_usage:.0%} full")
        if self.running is not None:
            parts.append(f"{self.running:,} run{'s' if self.running == 1 else ''}")
        if self.waiting is not None:
            wait = f"{self.waiting:,} wait{'s' if self.waiting == 1 else ''}"
            parts.append(wait if self.waiting else "none waits")
        told = ", ".join(parts)
        return as_sentence(told) or "The engine tells none of its state."


@dataclass(frozen=True, slots=True)
class _Kept:
    t_s: float
    reading: Reading


@dataclass
class Watcher:
    """Turns readings into samples; keeps a window of them."""

    window_s: float = WINDOW_S
    _kept: deque[_Kept] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))

    @property
    def last(self) -> Reading | None:
        """The newest reading, None before the first."""
        return self._kept[-1].reading if self._kept else None

    def failed(self, t_s: float, error: str) -> Sample:
        """The sample of a server that did not answer."""
        return Sample(t_s=t_s, error=error)

    def take(self, t_s: float, reading: Reading) -> Sample:
        """The sample of ``reading``, taken ``t_s`` seconds after the watch began."""
        restarted = self.last is not None and began_anew(self.last, reading)
        if restarted:
            self._kept.clear()
        while len(self._kept) > 1 and self._kept[1].t_s <= t_s - self.window_s:
            self._kept.popleft()
        base = self._kept[0] if self._kept else None
        self._kept.append(_Kept(t_s, remembering(self.last, reading)))
        sample = replace(
            _sample(t_s, reading, base, restarted),
            full_in_s=self._full_in(),
            preemptions_lately=self._preempted(),
        )
        return replace(sample, warnings=tuple(warnings(sample)))

    def _preempted(self) -> int | None:
        """Preemptions of the last ten seconds; None without a sample before."""
        now = self._kept[-1]
        before = next(k for k in self._kept if k.t_s >= now.t_s - RECENT_S)
        if before is now and len(self._kept) > 1:  # samples are further apart than that
            before = self._kept[-2]
        if before is now:
            return None
        return _whole(increase(now.reading, before.reading, "preemptions"))

    def _full_in(self) -> float | None:
        """Seconds until the cache is full at the trend's pace; None where it does not fill."""
        now = self._kept[-1]
        points: list[tuple[float, float]] = []
        for k in reversed(self._kept):
            fill = k.reading.gauges.get("kv_usage")
            if fill is None or k.t_s < now.t_s - TREND_S:
                break
            if points and fill > points[-1][1] + FALL:
                break
            points.append((k.t_s - now.t_s, fill))
        if len(points) < TREND_SAMPLES or points[0][1] < TREND_FROM:
            return None
        slope = _slope(points)
        return (1 - points[0][1]) / slope if slope > 0 else None


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line."""
    count = len(points)
    mean_t, mean_v = (sum(point[i] for point in points) / count for i in (0, 1))
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else 0.0


def began_anew(before: Reading, now: Reading) -> bool:
    """Whether the server behind the address is another process than before."""
    if before.engine != now.engine:
        return True
    if before.started_s is not None and now.started_s is not None:
        return now.started_s != before.started_s
    fell = any(value < before.counters.get(key, 0.0) for key, value in now.counters.items())
    return fell or any(
        value.count < before.histograms[key].count
        for key, value in now.histograms.items()
        if key in before.histograms
    )


def remembering(before: Reading | None, now: Reading) -> Reading:
    """``now``, with what it lacks of the counts of ``before``: an answer that leaves a counter out does
    not set it to zero, and what is counted from there is not all that ever was."""
    if before is None:
        return now
    return replace(
        now,
        counters={**before.counters, **now.counters},
        histograms={**before.histograms, **now.histograms},
    )


def increase(reading: Reading, base: Reading | None, name: str) -> float | None:
    """How far a counter rose since ``base`` (since the server began where there is none)."""
    now = reading.counters.get(name)
    if now is None:
        return None
    before = base.counters.get(name, 0.0) if base else 0.0
    return now - before if now >= before else now


def observed(reading: Reading, base: Reading | None, name: str) -> Histogram | None:
    """The observations of a histogram since ``base``."""
    now = reading.histograms.get(name)
    return None if now is None else now.since(base.histograms.get(name) if base else None)


def _sample(t_s: float, reading: Reading, base: _Kept | None, restarted: bool) -> Sample:
    before = base.reading if base else None
    window = t_s - base.t_s if base else None

    def rate(name: str) -> float | None:
        rose = increase(reading, before, name)
        return rose / window if rose is not None and window else None

    ttft, itl = (observed(reading, before, n) for n in ("ttft", "itl"))
    return Sample(
        t_s=t_s,
        kv_usage=reading.gauges.get("kv_usage"),
        running=_whole(reading.gauges.get("running")),
        waiting=_waiting(reading),
        preemptions=_whole(reading.counters.get("preemptions")),
        hit_ratio=_hit_ratio(reading, before),
        ttft_s=ttft.spread() if ttft else None,
        itl_s=itl.spread() if itl else _mean_only(reading, before),
        window_s=window,
        requests_per_s=rate("finished"),
        prompt_tokens_per_s=rate("prompt_tokens"),
        generation_tokens_per_s=rate("generation_tokens"),
        restarted=restarted,
    )


def _waiting(reading: Reading) -> int | None:
    """Requests in the queue, those swapped out with them (vLLM's first engine)."""
    waiting = reading.gauges.get("waiting")
    return None if waiting is None else round(waiting + reading.gauges.get("swapped", 0.0))


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _hit_ratio(reading: Reading, before: Reading | None) -> float | None:
    """Cached over asked tokens; the engine's own gauge where it counts neither."""
    hits, queries = (increase(reading, before, n) for n in ("hits", "queries"))
    if hits is not None and queries is not None:
        return min(1.0, hits / queries) if queries else None
    return reading.gauges.get("hit_ratio")


def _mean_only(reading: Reading, before: Reading | None) -> dict[str, Any] | None:
    """The mean time of a token, for an engine that counts seconds and tokens only."""
    seconds, tokens = (increase(reading, before, n) for n in ("generation_s", "generation_tokens"))
    if seconds is None or not tokens:
        return None
    return {"mean": seconds / tokens, "count": tokens}


def warnings(sample: Sample) -> list[str]:
    """What stands before the cliff or has gone over it, worst first, a sentence each."""
    found: list[str] = []
    usage = sample.kv_usage
    if sample.preemptions_lately:
        many = "" if sample.preemptions_lately == 1 else "s"
        found.append(
            f"{sample.preemptions_lately:,} preemption{many} in the last {RECENT_S:.0f} s: the cache is "
            "too small for what runs, and what is thrown out is computed again; "
            "admit fewer at once or give more cache."
        )
    if usage is not None and usage >= FULL and sample.waiting:
        wait = "waits" if sample.waiting == 1 else "wait"
        found.append(
            f"The cache is full ({usage:.0%}): {sample.waiting:,} {wait} for others to end."
        )
    elif usage is not None and sample.full_in_s is not None and sample.full_in_s <= SOON_S:
        found.append(
            f"The cache is {usage:.0%} full and at this pace full in about {sample.full_in_s:.0f} s: "
            "requests then wait or are preempted."
        )
    if sample.waiting and usage is not None and usage < ROOMY and not sample.preemptions_lately:
        one = sample.waiting == 1
        found.append(
            f"{sample.waiting:,} wait{'s' if one else ''} although the cache is only {usage:.0%} full: "
            "the limit on requests or on tokens a step holds, not the cache."
        )
    if sample.restarted:
        found.append("The server began anew: its cache is empty and counters start from zero.")
    return found


def look(
    endpoint: Endpoint, watcher: Watcher, timeout_s: float, t_s: float
) -> tuple[Sample, Reading | None]:
    """One sample, whatever the server does."""
    try:
        reading = prometheus.read(endpoint.fetch(timeout_s))
    except NoAnswerError as error:
        return watcher.failed(t_s, str(error)), None
    if reading is None:
        return watcher.failed(t_s, NOT_METRICS), None
    return watcher.take(t_s, reading), reading


def samples(
    endpoint: Endpoint,
    watcher: Watcher,
    interval_s: float,
    count: int | None = None,
    timeout_s: float = 5.0,
) -> Iterator[tuple[Sample, Reading | None]]:
    """A sample each ``interval_s``, ``count`` of them; what was missed meanwhile is not made up."""
    begun = due = time.monotonic()
    done = 0
    while count is None or done < count:
        time.sleep(max(0.0, due - time.monotonic()))
        yield look(endpoint, watcher, timeout_s, round(time.monotonic() - begun, 3))
        done += 1
        due = max(due + interval_s, time.monotonic())
