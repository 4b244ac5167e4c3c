"""What load generators write: vLLM's ``bench serve`` and SGLang's ``bench_serving`` (JSON, a run a line),
GuideLLM and AIPerf (JSON).

Each run becomes a BenchmarkRun: who came, and the mean times they saw. The tools are told apart by their
keys; a mean that a tool does not write is None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.records import dataclass

MOST_BYTES = 256 * 2**20
"""A file with every request's text can be long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """One run: requests completed, tokens in and out of each (means), how many at once, mean times.

    ``concurrency`` is what the run held in flight on average: completed requests a second times how
    long each took (Little's law), or what it was told to hold where times are missing.
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


def read_file(path: str) -> list[BenchmarkRun] | None:
    """The runs in the file at ``path``; None where it is no such output."""
    try:
        with Path(path).open("rb") as file:
            if not file.read(4096).lstrip().startswith((b"{", b"[")):
                return None
            file.seek(0)
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        fix = "Give a log, a recording or a benchmark's output."
        raise KvroomError("file", path, "cannot be opened", fix) from None
    if len(raw) > MOST_BYTES:
        raise KvroomError("file", path, f"is longer than {MOST_BYTES:,} bytes", "Leave texts out.")
    found = [run for value in _values(raw) for run in _runs(value)]
    return found or None


def _values(raw: bytes) -> Iterator[Any]:
    """The whole file as one value, or one a line."""
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError):
        for line in raw.splitlines():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue
        return
    yield from whole if isinstance(whole, list) else (whole,)


def _runs(value: Any) -> Iterator[BenchmarkRun]:
    if not isinstance(value, Mapping):
        return
    readers: tuple[tuple[str, Callable[[Mapping[str, Any]], Iterator[BenchmarkRun]]], ...] = (
        ("mean_ttft_ms", _bench_serve),
        ("benchmarks", _guidellm),
        ("time_to_first_token", _aiperf),
        ("records", _aiperf),
    )
    for key, reader in readers:
        if key in value:
            yield from reader(value)
            return


def _number(value: Any) -> float | None:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _seconds(ms: Any) -> float | None:
    value = _number(ms)
    return None if value is None else value / 1e3


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _made(
    *, requests: float | None, held: float | None, rate: float | None, **given: Any
) -> Iterator[BenchmarkRun]:
    """A BenchmarkRun, where there were requests with tokens and times."""
    ttft, tpot = given["ttft_s"], given["tpot_s"]
    if not requests or given["input_tokens"] is None or not given["output_tokens"]:
        return
    if ttft is None and tpot is None:
        return
    in_flight = held
    if rate and ttft is not None and tpot is not None:
        in_flight = rate * (ttft + tpot * max(0.0, given["output_tokens"] - 1))
    yield BenchmarkRun(
        requests=round(requests), concurrency=in_flight, requests_per_s=rate, **given
    )


def _bench_serve(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """vLLM's and SGLang's, whose keys are the same; SGLang's has its tokens' own count beside."""
    done = _number(v.get("completed")) or 0.0
    tokens = [_number(v.get(f"total_{way}_tokens")) for way in ("input", "output")]
    name = v.get("model_id") or _table(v.get("server_info")).get("model_path")
    yield from _made(
        tool="bench serve",
        model=name if isinstance(name, str) else None,
        requests=done,
        input_tokens=None if tokens[0] is None or not done else tokens[0] / done,
        output_tokens=None if tokens[1] is None or not done else tokens[1] / done,
        held=_number(v.get("max_concurrency")),
        rate=_number(v.get("request_throughput")),
        ttft_s=_seconds(v.get("mean_ttft_ms")),
        tpot_s=_seconds(v.get("mean_tpot_ms")),
    )


def _guidellm(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """GuideLLM: each benchmark's ``metrics``, of requests that succeeded."""
    for benchmark in v["benchmarks"] if isinstance(v["benchmarks"], list) else ():
        metrics = _table(_table(benchmark).get("metrics"))

        def mean(name: str, of: Mapping[str, Any] = metrics) -> Any:
            return _table(_table(of.get(name)).get("successful")).get("mean")

        counted = _table(_table(metrics.get("request_latency")).get("successful")).get("count")
        yield from _made(
            tool="GuideLLM",
            model=None,
            requests=_number(counted)
            or _number(_table(metrics.get("request_totals")).get("successful")),
            input_tokens=_number(mean("prompt_token_count")),
            output_tokens=_number(mean("output_token_count")),
            held=_number(mean("request_concurrency")),
            rate=_number(mean("requests_per_second")),
            ttft_s=_seconds(mean("time_to_first_token_ms")),
            tpot_s=_seconds(mean("inter_token_latency_ms")),
        )


def _aiperf(v: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """AIPerf's aggregate: each metric a table with ``unit`` and ``avg``."""
    records = _table(v.get("records")) or v

    def mean(name: str) -> float | None:
        value = _number(_table(records.get(name)).get("avg"))
        unit = _table(records.get(name)).get("unit")
        return value / 1e3 if value is not None and unit == "ms" else value

    config = _table(v.get("input_config"))
    names = _table(config.get("endpoint")).get("model_names")
    yield from _made(
        tool="AIPerf",
        model=names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None,
        requests=mean("request_count"),
        input_tokens=mean("input_sequence_length"),
        output_tokens=mean("output_sequence_length"),
        held=_number(_table(config.get("loadgen")).get("concurrency")),
        rate=mean("request_throughput"),
        ttft_s=mean("time_to_first_token"),
        tpot_s=mean("inter_token_latency"),
    )
