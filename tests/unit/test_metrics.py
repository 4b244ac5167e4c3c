"""Engines' metrics texts → figures: names by version, ranks, histograms, and text that is none."""

import math

import pytest

from kvroom.engines.registry import metric_tables
from kvroom.observe.histogram import Histogram, merged
from kvroom.observe.prometheus import read
from metrics_server import buckets, vllm

INF = math.inf

# Figures of the example in SGLang's documentation of its metrics (v0.4, Llama-3.1-8B-Instruct).
SGLANG = """\
# HELP sglang:token_usage how full
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="Llama-3.1-8B"} 0.28
sglang:cache_hit_rate{model_name="Llama-3.1-8B"} 0.007507552643049313
sglang:num_running_reqs{model_name="Llama-3.1-8B"} 162.0
sglang:num_queue_reqs{model_name="Llama-3.1-8B"} 2826.0
sglang:num_used_tokens{model_name="Llama-3.1-8B"} 123859.0
sglang:prompt_tokens_total{model_name="Llama-3.1-8B"} 8.128902e+06
sglang:generation_tokens_total{model_name="Llama-3.1-8B"} 7.557572e+06
sglang:time_to_first_token_seconds_sum{model_name="Llama-3.1-8B"} 2.3518979e+06
sglang:time_to_first_token_seconds_bucket{le="1.0",model_name="Llama-3.1-8B"} 27.0
sglang:time_to_first_token_seconds_bucket{le="10.0",model_name="Llama-3.1-8B"} 1330.0
sglang:time_to_first_token_seconds_bucket{le="30.0",model_name="Llama-3.1-8B"} 2513.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="Llama-3.1-8B"} 11008.0
sglang:time_per_output_token_seconds_sum{model_name="Llama-3.1-8B"} 866964.58
sglang:time_per_output_token_seconds_bucket{le="0.075",model_name="Llama-3.1-8B"} 433413.0
sglang:time_per_output_token_seconds_bucket{le="0.1",model_name="Llama-3.1-8B"} 4.950195e+06
sglang:time_per_output_token_seconds_bucket{le="+Inf",model_name="Llama-3.1-8B"} 7.400757e+06
sglang:func_latency_seconds_count{name="generate_request"} 14007.0
"""
LLAMA_CPP = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 512
llamacpp:prompt_seconds_total 1.25
llamacpp:tokens_predicted_total 39080
llamacpp:tokens_predicted_seconds_total 1235.5
llamacpp:n_decode_total 39303
llamacpp:n_busy_slots_per_decode 3.87
llamacpp:requests_processing 4
llamacpp:requests_deferred 46
"""


def test_sglang():
    r = read(SGLANG)
    assert r.engine == "sglang"
    assert r.gauges["kv_usage"] == 0.28
    assert (r.gauges["running"], r.gauges["waiting"]) == (162, 2826)
    assert r.gauges["used_tokens"] == 123_859
    assert r.histograms["ttft"].spread()["p50"] == 30.0
    assert r.histograms["ttft"].spread()["at_least"] == ["p50", "p90", "p95", "p99"]
    assert 0.075 < r.histograms["itl"].percentile(50)[0] < 0.1
    assert r.unknown == ("sglang:func_latency_seconds",)


def test_llama_cpp():
    r = read(LLAMA_CPP)
    assert r.engine == "llama.cpp"
    assert (r.gauges["running"], r.gauges["waiting"]) == (4, 46)
    assert "kv_usage" not in r.gauges
    assert r.counters["generation_s"] / r.counters["generation_tokens"] == pytest.approx(
        0.0316, abs=1e-4
    )
    assert r.unknown == (
        "llamacpp:n_busy_slots_per_decode",
        "llamacpp:n_decode",
        "llamacpp:prompt_seconds",
    )


@pytest.mark.parametrize(
    ("line", "where", "figure", "value"),
    [
        ('vllm:gpu_cache_usage_perc{model_name="m"} 0.5', "gauges", "kv_usage", 0.5),
        ('vllm:kv_cache_usage_perc{engine="0"} 0.5', "gauges", "kv_usage", 0.5),
        ('vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.4', "gauges", "hit_ratio", 0.4),
        ('vllm:gpu_prefix_cache_queries_total{model_name="m"} 9', "counters", "queries", 9),
        ('vllm:prefix_cache_hits_total{model_name="m"} 7', "counters", "hits", 7),
        ('vllm:num_requests_swapped{model_name="m"} 3', "gauges", "swapped", 3),
        ('sglang:num_retracted_requests_total{tp_rank="0"} 5', "counters", "preemptions", 5),
        ("llamacpp:kv_cache_usage_ratio 0.75", "gauges", "kv_usage", 0.75),
    ],
)
def test_a_name_of_some_version(line, where, figure, value):
    assert getattr(read(line + "\n"), where)[figure] == value


def test_engines_of_one_server_add_up_and_the_fullest_counts():
    two = "".join(
        f'vllm:{name}{{engine="{i}",model_name="m"}} {value}\n'
        for name, values in (
            ("num_requests_running", (3, 4)),
            ("kv_cache_usage_perc", (0.2, 0.9)),
            ("num_preemptions_total", (1, 2)),
        )
        for i, value in enumerate(values)
    )
    r = read(two)
    assert r.gauges == {"running": 7, "kv_usage": 0.9}
    assert r.counters == {"preemptions": 3}


def test_ranks_that_tell_the_same_count_once():
    lines = (
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} 5\n'
        for dp in (0, 1)
        for tp in range(4)
    )
    assert read("".join(lines)).gauges == {"running": 10}


def test_an_old_and_a_new_name_of_one_figure_count_once():
    both = "vllm:prefix_cache_hits_total 7\nvllm:gpu_prefix_cache_hits_total 7\n"
    assert read(both).counters == {"hits": 7}


def test_sglangs_hits_are_of_prompt_tokens():
    r = read(
        'sglang:cached_tokens_total{cache_source="device"} 30\nsglang:prompt_tokens_total 90\n'
    )
    assert (r.counters["hits"], r.counters["queries"]) == (30, 90)


def test_what_cannot_be_a_value_is_left_out():
    r = read(
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc 0.5\n"
    )
    assert r.gauges == {"kv_usage": 0.5}


def test_unreadable_lines_are_counted_and_the_rest_is_read():
    r = read(
        vllm()
        + 'vllm:num_preemptions_total{engine="0" 2\n\x00\x01\nvllm:num_requests_running two\n'
    )
    assert r.gauges["running"] == 2
    assert r.unreadable == 3


@pytest.mark.parametrize(
    "text", ["", "\n\n", "<html>no</html>", '{"detail": "Not Found"}', "\x00" * 99]
)
def test_no_metrics(text):
    assert read(text) is None


def test_other_servers_metrics():
    assert read("python_gc_objects_collected_total 3\nfoo_bar 2\n") is None


def test_names_of_engines_do_not_meet():
    names = [n for d in metric_tables() for n in d.samples()]
    assert len(names) == len(set(names))


def test_unknown_names_are_bounded():
    r = read(vllm() + "".join(f"vllm:new_{i} 1\n" for i in range(5000)))
    assert len(r.unknown) == 200


def test_percentiles_interpolate_inside_a_bucket():
    h = Histogram.of({0.1: 10, 0.2: 30, INF: 40}, 5.0)
    assert h.percentile(25) == (pytest.approx(0.1), False)
    assert h.percentile(50) == (pytest.approx(0.15), False)
    assert h.percentile(99) == (0.2, True)
    assert h.mean == 0.125
    assert h.steps() == [(0.0, 0.1, 10), (0.1, 0.2, 20), (0.2, INF, 10)]


def test_a_histogram_that_began_anew():
    old, new = Histogram.of({1: 5, INF: 9}, 20.0), Histogram.of({1: 1, INF: 2}, 3.0)
    assert new.since(old) == new
    assert Histogram.of({1: 6, INF: 12}, 26.0).since(old) == Histogram.of({1: 1, INF: 3}, 6.0)


def test_buckets_that_differ_are_not_mixed():
    first, other = Histogram.of({1: 5, INF: 9}, 20.0), Histogram.of({2: 5, INF: 9}, 20.0)
    assert merged([first, other]) == first
    assert merged([first, first]).count == 18
    assert merged([]) is None


def test_empty_histogram():
    h = Histogram.of({1: 0, INF: 0}, 0.0)
    assert h.spread() is None
    assert h.percentile(50) is None
    assert Histogram.of({}) is None


def test_histogram_from_text():
    text = vllm() + buckets("time_to_first_token_seconds", {"0.1": 1, "0.5": 3, "+Inf": 4}, 2.0)
    h = read(text).histograms["ttft"]
    assert (h.bounds, h.counts, h.total) == ((0.1, 0.5, INF), (1, 3, 4), 2.0)
