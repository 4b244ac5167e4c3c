"""Laws of histograms, counters and metrics texts, whatever the text holds."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from kvroom.engines.registry import metric_tables
from kvroom.observe.histogram import Histogram
from kvroom.observe.prometheus import read
from kvroom.observe.watch import Watcher
from metrics_server import vllm

NAMES = sorted(n for d in metric_tables() for n in d.samples())
INF = math.inf

observations = st.lists(st.floats(0, 100), max_size=60)
bounds = st.lists(st.floats(0.001, 90), min_size=1, max_size=12, unique=True).map(sorted)


def counted(values, edges):
    buckets = {b: float(sum(v <= b for v in values)) for b in edges}
    return Histogram.of({**buckets, INF: float(len(values))}, float(sum(values)))


@given(
    observations.filter(bool),
    bounds,
    st.lists(st.floats(0.1, 100), min_size=2, max_size=6).map(sorted),
)
def test_percentiles_lie_in_the_bucket_of_the_ranked_value_and_rise(values, edges, percents):
    h = counted(values, edges)
    found = [h.percentile(p) for p in percents]
    assert [v for v, _ in found] == sorted(v for v, _ in found)
    ordered = sorted(values)
    for p, (value, at_least) in zip(percents, found, strict=True):
        exact = ordered[max(0, math.ceil(len(values) * p / 100 - 1e-9) - 1)]
        low = max((e for e in edges if e < exact), default=0.0)
        high = min((e for e in edges if e >= exact), default=INF)
        assert low <= value <= high * (1 + 1e-12)
        assert at_least == (high == INF)


@given(observations, observations, bounds)
def test_what_came_since_is_what_came_since(first, more, edges):
    before, both = counted(first, edges), counted(first + more, edges)
    since = both.since(before)
    assert since.counts == counted(more, edges).counts
    assert since.count == len(more)


@given(st.dictionaries(st.floats(), st.floats(), max_size=10), st.floats())
def test_any_buckets_make_a_rising_histogram_or_none(buckets, total):
    h = Histogram.of(buckets, total)
    if h is None:
        return
    assert list(h.bounds) == sorted(set(h.bounds))
    assert list(h.counts) == sorted(h.counts)
    assert h.bounds[-1] == INF
    spread = h.spread()
    if spread is not None:
        assert all(math.isfinite(spread[f"p{p}"]) for p in (50, 90, 95, 99))


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=30))
def test_rates_are_never_negative_whatever_restarts(steps):
    watcher = Watcher(10.0)
    count = 0
    for t, (more, restart) in enumerate(steps):
        count = more if restart else count + more
        s = watcher.take(
            float(t), read(vllm(generation_tokens_total=count, num_preemptions_total=count))
        )
        assert s.generation_tokens_per_s is None or s.generation_tokens_per_s >= 0
        assert s.preemptions == count
        assert s.preemptions_lately is None or s.preemptions_lately >= 0


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), min_size=1, max_size=20))
def test_a_sample_is_json_with_one_sentence(steps):
    watcher = Watcher()
    for t, (fill, waiting) in enumerate(steps):
        s = watcher.take(
            float(t), read(vllm(kv_cache_usage_perc=fill, num_requests_waiting=waiting))
        )
        json.dumps(s.to_dict(), allow_nan=False)
        assert s.sentence.endswith(".")
        assert s.full_in_s is None or s.full_in_s >= 0


values = st.one_of(st.floats().map(str), st.sampled_from(["", "+Inf", "1e999", "0x1", "--"]))
labels = st.one_of(
    st.just(""),
    st.sampled_from(
        ['{le="0.1"}', '{le="x"}', '{le="+Inf"}', '{engine="1"}', '{a="\\\\"}', "{", '{"x"}']
    ),
    st.text(max_size=12),
)
lines = st.builds("{}{} {}".format, st.sampled_from(NAMES), labels, values)


@given(st.lists(st.one_of(lines, st.text(max_size=40)), max_size=20).map("\n".join))
def test_any_text_is_read_or_is_none(text):
    reading = read(text)
    if reading is None:
        return
    figures = [*reading.gauges.values(), *reading.counters.values()]
    assert all(math.isfinite(v) and v >= 0 for v in figures)
    s = Watcher().take(0.0, reading)
    json.dumps(s.to_dict(), allow_nan=False)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_are_none(data):
    read(data.decode("utf-8", "replace"))


@given(st.integers(0, 10_000))
def test_a_text_cut_short_is_read_up_to_there(cut):
    text = vllm()
    reading = read(text[: cut % len(text)])
    if reading is not None:
        whole = read(text)
        assert reading.gauges.keys() <= whole.gauges.keys()
        assert reading.counters.keys() <= whole.counters.keys()
