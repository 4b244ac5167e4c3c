"""A benchmark's file → its runs, the tool told by what the file holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.observe.benchmarks import llama_bench
from kvroom.observe.benchmarks.records import RecordedRequest, record_of, run_of_records
from kvroom.observe.benchmarks.run import BenchmarkRun
from kvroom.observe.benchmarks.summaries import runs_of
from kvroom.observe.benchmarks.tables import runs_of_text

MOST_BYTES = 256 * 2**20
"""A file with every request's text can be long."""
MOST_TEXT_BYTES = 16 * 2**20
"""A table of results is short; a log that is longer is read as a log."""
_YAML_REPORT = re.compile(rb"^benchmarks:\s*$", re.MULTILINE)
"""The key that holds GuideLLM's benchmarks, where its report is YAML."""


def read_file(path: str) -> list[BenchmarkRun] | None:
    """The runs in the file at ``path``, none where it tells no lengths and times; None where it is no
    benchmark's."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
            file.seek(0)
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        fix = "Give a log, a recording or a benchmark's output."
        raise KvroomError("file", path, "cannot be opened", fix) from None
    if not start.startswith((b"{", b"[")):
        if len(raw) > MOST_TEXT_BYTES:
            return None
        if _YAML_REPORT.search(raw):
            return runs_of_values(_yaml(raw))
        table = runs_of_text(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
        return None if table is None else table[1]
    if len(raw) > MOST_BYTES:
        raise KvroomError("file", path, f"is longer than {MOST_BYTES:,} bytes", "Leave texts out.")
    return runs_of_values(_values(raw))


def runs_of_values(values: Iterator[Any]) -> list[BenchmarkRun] | None:
    """The runs that JSON values tell of, one by one or as records of one run; None where none does."""
    runs: list[BenchmarkRun] = []
    records: dict[str, list[RecordedRequest | None]] = {}
    known = False
    for value in values:
        if not isinstance(value, Mapping):
            continue
        if all(key in value for key in llama_bench.KEYS):
            more: Iterator[BenchmarkRun] | None = llama_bench.of_row(value)
        elif (record := record_of(value)) is not None:
            records.setdefault(record[0], []).append(record[1])
            more = iter(())
        else:
            more = runs_of(value)
        if more is not None:
            known = True
            runs += more
    for tool, rows in records.items():
        runs += run_of_records(tool, rows)
    return runs if known else None


def _yaml(raw: bytes) -> Iterator[Any]:
    """GuideLLM's report saved as YAML; nothing where it cannot be read."""
    import yaml  # where a report is YAML, and nowhere else

    try:
        yield yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return


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
