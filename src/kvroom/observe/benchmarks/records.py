"""Files with a record a request: AIPerf's ``profile_export.jsonl``, inference-perf's
``per_request_lifecycle_metrics.json``. Their means make one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kvroom.observe.benchmarks.run import BenchmarkRun, figure, first, over, run_of
from kvroom.workloads.traces.fields import at, table


class RecordedRequest(NamedTuple):
    """A request that was answered, in seconds and tokens."""

    start_s: float
    end_s: float
    input_tokens: float | None
    output_tokens: float | None
    ttft_s: float | None
    tpot_s: float | None


def record_of(value: Mapping[str, Any]) -> tuple[str, RecordedRequest | None] | None:
    """The tool and the record that an object is; None where it is no record that is known. A request that
    failed has no record."""
    if at(value, "metadata.request_start_ns") is not None:
        return "AIPerf", _aiperf(value)
    if "start_time" in value and isinstance(value.get("info"), Mapping):
        return "inference-perf", _inference_perf(value)
    return None


def _aiperf(v: Mapping[str, Any]) -> RecordedRequest | None:
    start, end = (figure(at(v, f"metadata.request_{way}_ns")) for way in ("start", "end"))
    if v.get("error") is not None or start is None or end is None:
        return None

    def metric(name: str) -> float | None:
        value = figure(at(v, f"metrics.{name}.value"))
        unit = at(v, f"metrics.{name}.unit")
        return None if value is None else value / 1e3 if unit == "ms" else value

    return RecordedRequest(
        start / 1e9,
        end / 1e9,
        metric("input_sequence_length"),
        first(metric("output_sequence_length"), metric("output_token_count")),
        metric("time_to_first_token"),
        metric("inter_token_latency"),
    )


def _inference_perf(v: Mapping[str, Any]) -> RecordedRequest | None:
    start, end = figure(v.get("start_time")), figure(v.get("end_time"))
    info = table(v["info"])
    answers = table(info.get("response_metrics")) or info
    asked = table(info.get("request_metrics")) or info
    if v.get("error") is not None or start is None or end is None:
        return None
    tokens = figure(answers.get("output_tokens"))
    times = answers.get("output_token_times")
    began = figure(times[0]) if isinstance(times, list) and times else None
    gaps = (end - began) / (tokens - 1) if began is not None and tokens and tokens > 1 else None
    return RecordedRequest(
        start,
        end,
        first(figure(asked.get("input_tokens")), figure(at(asked, "text.input_tokens"))),
        tokens,
        None if began is None or began < start else began - start,
        gaps if gaps is not None and gaps >= 0 else None,
    )


def run_of_records(tool: str, records: Iterable[RecordedRequest | None]) -> Iterator[BenchmarkRun]:
    """One run of all that was answered."""
    done = [record for record in records if record is not None]
    if not done:
        return
    span = max(r.end_s for r in done) - min(r.start_s for r in done)

    def mean(values: Iterable[float | None]) -> float | None:
        values_known = [value for value in values if value is not None]
        return sum(values_known) / len(values_known) if values_known else None

    yield from run_of(
        tool=tool,
        model=None,
        requests=float(len(done)),
        input_tokens=mean(r.input_tokens for r in done),
        output_tokens=mean(r.output_tokens for r in done),
        held=over(sum(r.end_s - r.start_s for r in done), span),
        rate=over(float(len(done)), span),
        ttft_s=mean(r.ttft_s for r in done),
        tpot_s=mean(r.tpot_s for r in done),
    )
