"""Results as text: the table that ``bench serve`` prints, llama-bench's Markdown, and the CSV of llama-bench,
GuideLLM, AIPerf and GenAI-Perf."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from kvroom.observe.benchmarks import llama_bench
from kvroom.observe.benchmarks.run import BenchmarkRun, name_of, written
from kvroom.observe.benchmarks.summaries import bench_serve, guidellm, of_metrics

SERVED = "Serving Benchmark Result"
_ENTRY = re.compile(r"^\s*([A-Za-z][^:]*?):\s+(\S.*?)\s*$")
_SERVED_KEYS = {
    "backend": "backend",
    "model": "model_id",
    "successful requests": "completed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "concurrency": "concurrency",
    "max request concurrency": "max_concurrency",
    "maximum request concurrency": "max_concurrency",
    "mean ttft (ms)": "mean_ttft_ms",
    "mean tpot (ms)": "mean_tpot_ms",
    "mean itl (ms)": "mean_itl_ms",
}
_METRIC = re.compile(r"(.+?)\s*\(([^)]*)\)")


def runs_of_text(text: str) -> tuple[str, list[BenchmarkRun]] | None:
    """The tool that wrote ``text`` and its runs; None where none did that is known."""
    lines = text.splitlines()
    if any(SERVED in line for line in lines):
        return "bench serve", list(_served(lines))
    head = next((line for line in lines if line.strip()), "")
    columns = [part.strip().strip('"').lower() for part in head.split(",")]
    if all(key in columns for key in llama_bench.KEYS):
        rows = _rows(lines)
        return llama_bench.TOOL, [run for row in rows for run in llama_bench.of_row(row)]
    if columns[:2] == ["metric", "avg"]:
        return "AIPerf", list(_metrics(lines))
    if any(column.startswith("successful ") and column.endswith(" mean") for column in columns):
        return "GuideLLM", [run for row in _rows(lines) for run in _guidellm(row)]
    if any(_is_markdown(line) for line in lines):
        return llama_bench.TOOL, list(_markdown(lines))
    return None


def _served(lines: list[str]) -> Iterator[BenchmarkRun]:
    """Each table, with what was printed of the run since the one before it (its model, its concurrency)."""
    settings: dict[str, object] = {}
    inside = False
    for line in [*lines, "=" * 10]:
        if SERVED in line:
            inside = True
        elif inside and line.startswith("====="):
            if "duration" in settings:  # the rate is printed with two decimals
                settings.pop("request_throughput", None)
            yield from bench_serve(settings)
            settings, inside = {}, False
        elif (entry := _ENTRY.match(line)) is not None:
            key = _SERVED_KEYS.get(entry.group(1).strip().lower())
            if key is not None:
                number = written(entry.group(2))
                settings[key] = entry.group(2) if number is None else number


def _rows(lines: list[str]) -> Iterator[Mapping[str, str]]:
    try:
        for row in csv.DictReader(line for line in lines if line.strip()):
            yield {
                str(key).strip().lower(): value
                for key, value in row.items()
                if isinstance(value, str)
            }
    except csv.Error:
        return


def _guidellm(row: Mapping[str, str]) -> Iterator[BenchmarkRun]:
    """A line: columns such as ``Successful time_to_first_token_ms mean``."""
    metrics: dict[str, dict[str, dict[str, float | None]]] = {}
    for column, value in row.items():
        if column.startswith("successful ") and column.endswith(" mean"):
            name = column.removeprefix("successful ").removesuffix(" mean")
            metrics[name] = {"successful": {"mean": written(value)}}
    counted = written(row.get("successful requests")) or written(row.get("completed requests"))
    totals = {"request_totals": {"successful": 1.0 if counted is None else counted}}
    model = name_of(row.get("model") or row.get("backend model"))
    yield from guidellm({"benchmarks": [{"metrics": metrics | totals, "config": {"model": model}}]})


def _metrics(lines: list[str]) -> Iterator[BenchmarkRun]:
    """AIPerf's and GenAI-Perf's CSV: a metric a line, its mean in the second cell."""
    values: dict[str, tuple[float | None, str]] = {}
    try:
        for cells in csv.reader(lines):
            match = _METRIC.fullmatch(cells[0]) if len(cells) > 1 else None
            if match is not None:
                name = match.group(1).strip().lower().replace(" ", "_")
                values.setdefault(name, (written(cells[1]), match.group(2)))
    except csv.Error:
        return
    yield from of_metrics(values, tool="AIPerf", model=None, held=None)


def _is_markdown(line: str) -> bool:
    cells = _cells(line)
    return "test" in cells and "t/s" in cells


def _cells(line: str) -> list[str]:
    return [part.strip() for part in line.strip().strip("|").split("|")] if "|" in line else []


def _markdown(lines: list[str]) -> Iterator[BenchmarkRun]:
    """Every table with the columns ``test`` and ``t/s``."""
    columns: list[str] = []
    for before, line in pairwise(["", *lines]):
        if not before and not line:
            columns = []
        cells = _cells(line)
        if _is_markdown(line):
            columns = cells
        elif len(cells) == len(columns) > 0:
            row = dict(zip(columns, cells, strict=True))
            yield from llama_bench.of_test(row["test"], row["t/s"], row)
