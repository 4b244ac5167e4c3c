"""Summaries in JSON: vLLM's ``bench serve`` and SGLang's ``bench_serving``, GuideLLM, AIPerf and GenAI-Perf,
inference-perf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvroom.engines.registry import benchmarked_engine
from kvroom.observe.benchmarks.run import (
    BenchmarkRun,
    figure,
    first,
    name_of,
    over,
    run_of,
    seconds,
)
from kvroom.workloads.traces.fields import at, table

Reader = Callable[[Mapping[str, Any]], Iterator[BenchmarkRun]]


def runs_of(value: Mapping[str, Any]) -> Iterator[BenchmarkRun] | None:
    """The runs that an object tells of; None where it is no summary that is known."""
    return next((reader(value) for key, reader in READERS if key in value), None)


def bench_serve(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """vLLM's and SGLang's, whose keys are the same. Totals that are missing are those of the lists of
    requests; of requests in times (``ttfts`` in s) the mean, where only percentiles were kept."""
    done = figure(v.get("completed")) or 0.0
    ways = ("input", "output")
    tokens = [
        over(figure(v.get(f"total_{way}_tokens")), done) or _mean(v.get(f"{way}_lens"))
        for way in ways
    ]
    span = figure(v.get("duration"))
    yield from run_of(
        tool="bench serve",
        model=name_of(at(v, "model_id", "server_info.model_path", "model")),
        engine=benchmarked_engine(v.get("backend")),
        requests=done,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        held=first(figure(v.get("concurrency")), figure(v.get("max_concurrency"))),
        rate=figure(v.get("request_throughput", over(done, span))),
        ttft_s=first(seconds(v.get("mean_ttft_ms")), _mean(v.get("ttfts"))),
        tpot_s=first(seconds(v.get("mean_tpot_ms")), seconds(v.get("mean_itl_ms"))),
    )


def _mean(values: Any) -> float | None:
    """The mean of a list's figures that are above 0 (failed requests have 0)."""
    numbers = [n for value in values if (n := figure(value))] if isinstance(values, list) else []
    return sum(numbers) / len(numbers) if numbers else None


def guidellm(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """GuideLLM: each benchmark's ``metrics``, of requests that succeeded."""
    for benchmark in v["benchmarks"] if isinstance(v["benchmarks"], list) else ():
        metrics = table(table(benchmark).get("metrics"))

        def mean(*names: str, of: Mapping[str, Any] = metrics) -> float | None:
            return first(
                *(figure(at(of, f"{name}.successful.mean", f"{name}.mean")) for name in names)
            )

        counted = at(metrics, "request_latency.successful.count", "request_totals.successful")
        yield from run_of(
            tool="GuideLLM",
            model=name_of(
                at(
                    benchmark,
                    "worker.backend_model",
                    "benchmarker.backend.model",
                    "config.backend.model",
                    "config.model",
                    "args.model",
                )
                or at(v, "args.model")
            ),
            requests=figure(counted),
            input_tokens=mean("prompt_token_count", "prompt_tokens", "text.tokens.input"),
            output_tokens=mean("output_token_count", "output_tokens", "text.tokens.output"),
            held=mean("request_concurrency"),
            rate=mean("requests_per_second"),
            ttft_s=seconds(mean("time_to_first_token_ms")),
            tpot_s=seconds(mean("inter_token_latency_ms", "time_per_output_token_ms")),
        )


UNITS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Of a time, in seconds; others stay as they are."""


def aiperf(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """AIPerf's aggregate and GenAI-Perf's: each metric a table with ``unit`` and ``avg``."""
    records = table(v.get("records")) or v
    values = {
        name: (figure(at(entry, "avg")), str(table(entry).get("unit")))
        for name, entry in records.items()
    }
    config = table(v.get("input_config"))
    yield from of_metrics(
        values,
        tool="AIPerf" if "endpoint" in config or not config else "GenAI-Perf",
        model=name_of(at(config, "endpoint.model_names", "model_names", "model", "models.items")),
        held=first(
            figure(at(config, "loadgen.concurrency", "concurrency")),
            figure(at(config, "perf_analyzer.stimulus.concurrency")),
        ),
    )


def of_metrics(
    values: Mapping[str, tuple[float | None, str]],
    *,
    tool: str,
    model: str | None,
    held: float | None,
) -> Iterator[BenchmarkRun]:
    """The run of AIPerf's and GenAI-Perf's metrics: name → (mean, unit)."""

    def mean(name: str) -> float | None:
        value, unit = values.get(name, (None, ""))
        return None if value is None else value * UNITS.get(unit, 1.0)

    rate, took = mean("request_throughput"), mean("request_latency")
    yield from run_of(
        tool=tool,
        model=model,
        # GenAI-Perf of old counts no requests; that there was one is all that is asked.
        requests=first(mean("request_count"), 1.0 if rate else None),
        input_tokens=mean("input_sequence_length"),
        output_tokens=first(mean("output_sequence_length"), mean("output_token_count")),
        held=first(held, rate * took if rate and took else None),
        rate=rate,
        ttft_s=mean("time_to_first_token"),
        tpot_s=mean("inter_token_latency"),
    )


def inference_perf(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """inference-perf: a stage's or a run's ``successes``, times in seconds."""
    done = table(v.get("successes"))
    count = figure(done.get("count"))
    rate = figure(at(done, "throughput.requests_per_sec"))

    def tokens(way: str, *names: str) -> float | None:
        mean = first(*(figure(at(done, f"{name}.mean")) for name in names))
        total = first(*(figure(at(done, f"{name}.total")) for name in names))
        a_second = figure(at(done, f"throughput.{way}_tokens_per_sec"))
        return first(mean, over(total, count), over(a_second, rate))

    took = figure(at(done, "latency.request_latency.mean"))
    yield from run_of(
        tool="inference-perf",
        model=None,
        requests=count,
        input_tokens=tokens("input", "prompt_tokens", "prompt_len"),
        output_tokens=tokens("output", "output_tokens", "output_len"),
        held=rate * took if rate and took else None,
        rate=rate,
        ttft_s=figure(at(done, "latency.time_to_first_token.mean")),
        tpot_s=first(
            figure(at(done, "latency.time_per_output_token.mean")),
            figure(at(done, "latency.inter_token_latency.mean")),
        ),
    )


READERS: tuple[tuple[str, Reader], ...] = (
    ("mean_ttft_ms", bench_serve),
    ("ttfts", bench_serve),
    (
        "request_throughput",
        lambda v: (aiperf if isinstance(v["request_throughput"], Mapping) else bench_serve)(v),
    ),
    ("benchmarks", guidellm),
    ("time_to_first_token", aiperf),
    ("records", aiperf),
    ("successes", inference_perf),
)
