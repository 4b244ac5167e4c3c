"""A recording, or a metrics text, as what a start-up log tells: engine, flags, the cache's size.

vLLM's ``cache_config_info`` has the cache's flags and its size; SGLang's metrics the tokens; llama.cpp's
neither. Metrics name no release and no card: those are asked for, or stand in a recording's plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.observe import prometheus
from kvroom.observe.endpoint import MOST_BYTES
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.observe.recording import FORMAT, KEY, Recording, cache_of, concurrency_of


def read_file(path: str) -> StartupLog | None:
    """What the file at ``path`` tells; None where it is neither a recording nor metrics."""
    try:
        header = Recording.open(path).header
    except KvroomError:
        return _metrics(Path(path))
    return _recording(header)


def read_bytes(data: bytes) -> StartupLog | None:
    """The same of a file's content."""
    try:
        first = json.loads(data.partition(b"\n")[0])
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and first.get(KEY) == FORMAT:
        return _recording(first)
    try:
        return _metrics_of(data[:MOST_BYTES])
    except KvroomError:
        return None


def _recording(header: Mapping[str, Any]) -> StartupLog:
    """What a recording's head tells."""
    info = {str(key): str(value) for key, value in (header.get("info") or {}).items()}
    note = f"a recording of {header.get('address')}, begun {header.get('began')}"
    reading = prometheus.Reading(str(header.get("engine")), info=info, model=header.get("model"))
    return _log(reading, header.get("cache") or {}, header.get("scenario") or {}, note)


def _metrics(path: Path) -> StartupLog | None:
    try:
        with path.open("rb") as file:
            return _metrics_of(file.read(MOST_BYTES))
    except (OSError, KvroomError):  # without the parser it is no file that can be read
        return None


def _metrics_of(data: bytes) -> StartupLog | None:
    reading = prometheus.read(data.decode("utf-8", "replace"))
    return None if reading is None else _log(reading, cache_of(reading), {}, "an engine's metrics")


def _log(
    reading: prometheus.Reading, cache: Mapping[str, Any], scenario: Mapping[str, Any], note: str
) -> StartupLog:
    printed: dict[str, Any] = {key: value for key, value in cache.items() if isinstance(value, int)}
    room = concurrency_of(reading)
    if room is not None:
        printed["max_concurrency"] = room
    question = {"engine": reading.engine, **scenario}
    if reading.model and "model" not in question:
        question["model"] = reading.model
    metrics = engine_of(reading.engine).metrics
    args = metrics.flags(reading.info) if metrics else {}
    if args:
        question["engine_args"] = {**args, **(question.get("engine_args") or {})}
    width = reading.info.get("cache_dtype")
    if width and width != "auto":
        question.setdefault("kv_dtype", width.partition("_")[0])
    return StartupLog(engine=reading.engine, printed=printed, question=question, notes=(note,))
