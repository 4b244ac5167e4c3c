"""Recordings of a watch: JSON lines, written as it goes, read back a line at a time.

The first line tells what was watched (``kvroom_recording``, engine, the cache's size as the engine
tells it); each other line is a sample with the engine's counters and what was observed since the line
before: lengths of requests that ended, times to the first token and between tokens.

``requests`` makes a trace of it: as many requests as were counted, of lengths drawn from those that
were counted. Which prompts began alike is not in an engine's metrics; that trace shares made-up ones, so
that as large a part of it is found in the cache as the engine found (``shared_prefixes``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from kvroom.errors import KvroomError
from kvroom.observe.histogram import Histogram
from kvroom.observe.prometheus import Reading
from kvroom.observe.shared_prefixes import BLOCK_TOKENS, Sharing
from kvroom.observe.watch import Sample, began_anew, observed, remembering
from kvroom.records import dataclass
from kvroom.workloads.draws import Draws
from kvroom.workloads.requests import PS_PER_S, Request

FORMAT = 1
KEY = "kvroom_recording"
LENGTHS = ("prompt_lengths", "output_lengths")
OBSERVED = (*LENGTHS, "ttft", "itl")
"""The histograms whose observations are kept, a sample's since the one before."""
MOST_LINE = 4_000_000
MOST_NUMBER = 1e15
MOST_ARRIVALS = 10_000_000
_TOKENS = {"prompt_lengths": "prompt_tokens", "output_lengths": "generation_tokens"}


_SIZES = {
    "num_blocks": ("num_gpu_blocks",),
    "block_size": ("effective_attention_block_size", "block_size"),
    "kv_tokens": ("kv_cache_size_tokens",),
}
"""Figures of the cache → the labels that tell them, the best first (vLLM's ``cache_config_info``)."""


def recorded_requests(path: str) -> bool:
    """Whether the file at ``path`` is a recording."""
    try:
        with Path(path).open("rb") as file:
            return file.read(64).lstrip().startswith(b'{"' + KEY.encode() + b'"')
    except (OSError, ValueError):
        return False


class Recorder:
    """Writes a recording, a whole line at a time; what is there is readable whenever it stops."""

    def __init__(self, path: str) -> None:
        try:
            self._file: IO[str] = Path(path).open("x", encoding="utf-8")  # noqa: SIM115
        except FileExistsError:
            fix = "Name a file that is not there yet."
            raise KvroomError("--record", path, "is there already", fix) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "the name cannot be one"
            fix = "Give a file in a folder that may be written."
            raise KvroomError("--record", path, f"cannot be written ({why})", fix) from None
        self._path = path
        self._before: Reading | None = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()
        if self._before is None:  # nothing answered
            Path(self._path).unlink(missing_ok=True)

    def header(self, address: str, reading: Reading, scenario: Mapping[str, Any] | None) -> None:
        """What is watched; ``address`` without credentials."""
        self._line(
            {
                KEY: FORMAT,
                "engine": reading.engine,
                "model": reading.model,
                "address": address,
                "began": datetime.now(UTC).isoformat(timespec="seconds"),
                "cache": cache_of(reading),
                "info": reading.info,
                "scenario": dict(scenario) if scenario else None,
            }
        )

    def sample(self, sample: Sample, reading: Reading | None) -> None:
        """One sample, and the counters behind it."""
        line = sample.to_dict()
        if reading is not None:
            before = self._before
            if before is not None and began_anew(before, reading):
                before = Reading(reading.engine)  # all that it counts came since the line before
            line["counters"] = reading.counters
            line["first"] = self._before is None
            for name in OBSERVED:
                lengths = observed(reading, before, name) if before is not None else None
                line[name] = _told(lengths) if lengths and lengths.count else None
            self._before = remembering(before, reading)
        self._line(line)

    def _line(self, value: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(value, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            fix = "Make room, or record elsewhere."
            raise KvroomError(
                "--record", self._path, f"cannot be written ({error.strerror})", fix
            ) from None


def _told(lengths: Histogram) -> dict[str, Any]:
    """A histogram as ``{"total", "steps": [[above, at most, how many], …]}``; null has no bound."""
    steps = [
        [*(None if math.isinf(b) else b for b in (low, high)), count]
        for low, high, count in lengths.steps()
    ]
    return {"total": lengths.total, "steps": steps}


def concurrency_of(reading: Reading) -> float | None:
    """Requests of full length at once, where the engine tells it (vLLM's newer releases)."""
    try:
        return float(reading.info["kv_cache_max_concurrency"])
    except (KeyError, ValueError):
        return None


def cache_of(reading: Reading) -> dict[str, int]:
    """The cache's size as the engine tells it, under the names of start-up logs' figures."""
    cache: dict[str, int] = {}
    for name, keys in _SIZES.items():
        values = [int(v) for key in keys if (v := reading.info.get(key, "")).isdecimal()]
        if values:
            cache[name] = values[0]
    if "kv_tokens" in reading.gauges:
        cache["kv_tokens"] = round(reading.gauges["kv_tokens"])
    return cache


_NUMBERS = (
    *("t_s", "kv_usage", "running", "waiting", "preemptions", "hit_ratio", "window_s"),
    *("requests_per_s", "prompt_tokens_per_s", "generation_tokens_per_s"),
    *("preemptions_lately", "full_in_s"),
)


@dataclass
class Recording:
    """A recording's file: what it tells at its head, and its samples, read anew each time."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path) -> Recording:
        """Read the head; KvroomError where the file is no recording."""
        recording = cls(Path(path))
        first = next(recording._lines(), None)
        if first is None or first.get(KEY) != FORMAT:
            fix = "Give a file that kvroom watch --record wrote."
            raise KvroomError("recording", str(path), "is no recording", fix)
        header = {
            key: value
            for key, value in first.items()
            if not isinstance(value, str) or value.isprintable()
        }
        texts = {k: str(header.get(k) or "unknown") for k in ("engine", "address", "began")}
        maps = {
            k: v if isinstance(v := header.get(k), dict) else {}
            for k in ("cache", "info", "scenario")
        }
        recording.header = {**header, **texts, **maps}
        return recording

    def samples(self) -> Iterator[dict[str, Any]]:
        """The samples in order; a last line that was cut short is left out, and so is any value that
        is not of its kind."""
        lines = self._lines()
        next(lines, None)
        last: float = 0.0
        for line in lines:
            at = _number(line.get("t_s"))
            if at is not None and at >= last:
                last = at
                yield _cleaned(line)

    def _counting(self, *names: str) -> Iterator[dict[str, Any]]:
        """The samples whose counters hold all of ``names``: an answer may lack some."""
        for line in self.samples():
            if all(name in (line.get("counters") or {}) for name in names):
                yield line

    def _lines(self) -> Iterator[dict[str, Any]]:
        fix = "Give a file that kvroom watch --record wrote."
        try:
            with self.path.open("rb") as file:
                while raw := file.readline(MOST_LINE):
                    if not raw.strip():
                        continue
                    try:
                        value = json.loads(raw)
                    except (ValueError, RecursionError):
                        if raw.endswith(b"\n"):
                            raise KvroomError(
                                "recording", str(self.path), "has a line that is no JSON", fix
                            ) from None
                        return
                    if isinstance(value, dict):
                        yield value
        except (OSError, ValueError) as error:
            if isinstance(error, KvroomError):
                raise
            raise KvroomError("recording", str(self.path), "cannot be read", fix) from None

    def requests(self, seed: int = 0) -> Iterator[Request]:
        """The requests that arrived while it ran, at even distances inside each interval.

        Arrived = ended + running + waiting, each as it changed. Without a count of ended requests (no
        engine but llama.cpp's server) nothing can be said: KvroomError.
        """
        lengths = [self._lengths(name) for name in LENGTHS]
        draws = Draws(seed, "recording")
        if not any(self._counting("finished")):
            why = "holds no count of requests, so no trace can be made of it"
            fix = "Its engine does not count them: record the clients' requests instead."
            raise KvroomError("recording", str(self.path), why, fix)
        ratio = self.hit_ratio()
        size = (self.header.get("cache") or {}).get("block_size") or BLOCK_TOKENS
        sharing = Sharing(ratio, size) if ratio else None
        before: dict[str, Any] | None = None
        owed = 0.0
        start = None
        for line in self._counting("finished"):
            if before is not None:
                start = before["t_s"] if start is None else start
                came = _rise(before, line, "finished") + _inside(line) - _inside(before) + owed
                count = max(0, round(came))
                if count > MOST_ARRIVALS:
                    why = f"tells of {count:,} requests between two samples"
                    fix = "Give a file that kvroom watch --record wrote, as it wrote it."
                    raise KvroomError("recording", str(self.path), why, fix)
                owed = min(0.0, came - count)
                span = line["t_s"] - before["t_s"]
                for index in range(count):
                    at = before["t_s"] - start + span * (index + 0.5) / count
                    prompt, answer = (length.draw(draws) for length in lengths)
                    prefix = sharing.prefix(max(1, prompt)) if sharing else None
                    yield Request(round(at * PS_PER_S), max(1, prompt), answer, prefix)
            before = line

    def hit_ratio(self) -> float | None:
        """Of the prompt tokens looked up while it ran, how many were found; None where the engine
        counts neither."""
        hits = queries = 0.0
        before: dict[str, Any] | None = None
        for line in self._counting("hits", "queries"):
            if before is not None:
                hits += _rise(before, line, "hits")
                queries += _rise(before, line, "queries")
            before = line
        return min(1.0, hits / queries) if queries else None

    def _lengths(self, name: str) -> _Lengths:
        """All lengths of one kind: their buckets and their mean."""
        steps: dict[tuple[float, float], float] = {}
        total = tokens = ended = 0.0
        before: dict[str, Any] | None = None
        for line in self.samples():
            told = line.get(name) or {}
            total += told.get("total") or 0.0
            for above, most, count in told.get("steps", ()):
                low = float(above or 0.0)
                key = (low, float(most if most is not None else max(1.0, 2 * low)))
                steps[key] = steps.get(key, 0.0) + count
        for line in self._counting("finished", _TOKENS[name]):
            if before is not None:
                tokens += _rise(before, line, _TOKENS[name])
                ended += _rise(before, line, "finished")
            before = line
        counted = sum(steps.values())
        mean = total / counted if counted and total else tokens / ended if ended else 1.0
        return _Lengths(sorted(steps.items()), mean)


def _cleaned(line: Mapping[str, Any]) -> dict[str, Any]:
    """A sample with all values of their kinds: what another hand wrote in is as if it were not told."""
    sample: dict[str, Any] = {name: _number(line.get(name)) for name in _NUMBERS}
    told = line.get("warnings")
    error = line.get("error")
    sample |= {
        "restarted": line.get("restarted") is True,
        "warnings": [w for w in told if isinstance(w, str)] if isinstance(told, list) else [],
        "error": error if isinstance(error, str) else None,
    }
    for name in ("ttft_s", "itl_s"):
        sample[name] = line.get(name) if _is_spread(line.get(name)) else None
    counters = line.get("counters")
    if isinstance(counters, dict):
        kept = ((name, _number(value)) for name, value in counters.items())
        sample["counters"] = {name: value for name, value in kept if value is not None}
    sample |= {name: line[name] for name in OBSERVED if _is_histogram(line.get(name))}
    return sample


def _number(value: object) -> int | float | None:
    """A number that can be counted with, else None."""
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_NUMBER else None  # type: ignore[operator, return-value]


def _is_spread(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    figures = ("mean", "count", "p50", "p95") if "p50" in value else ("mean", "count")
    marked = value.get("at_least", [])
    fine = all(_number(value.get(figure)) is not None for figure in figures)
    return fine and isinstance(marked, list)


def _is_histogram(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    total = value.get("total")
    return (total is None or _number(total) is not None) and all(
        isinstance(step, list)
        and len(step) == 3
        and all(edge is None or _number(edge) is not None for edge in step[:2])
        and _number(step[2]) is not None
        for step in value["steps"]
    )


def _rise(before: Mapping[str, Any], line: Mapping[str, Any], name: str) -> float:
    now, then = (float(x["counters"].get(name, 0.0)) for x in (line, before))
    return now - then if now >= then else now


def _inside(line: Mapping[str, Any]) -> float:
    return float(line.get("running") or 0) + float(line.get("waiting") or 0)


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Lengths in buckets ((low, high], how many), or one mean where there are none."""

    steps: list[tuple[tuple[float, float], float]]
    mean: float

    def draw(self, draws: Draws) -> int:
        """A length: a bucket by its share, evenly inside it, scaled so that the mean is kept."""
        total = sum(count for _, count in self.steps)
        if not total:
            return max(1, round(self.mean))
        middle = sum((low + high) / 2 * count for (low, high), count in self.steps) / total
        at, length = draws.uniform() * total, middle
        for (low, high), count in self.steps:
            if at < count:
                length = low + (high - low) * at / count
                break
            at -= count
        return max(1, round(length * self.mean / middle))


__all__ = ["Recorder", "Recording", "cache_of", "concurrency_of"]
