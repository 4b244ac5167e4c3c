"""Steps told by an engine's log while it serves: vLLM's and SGLang's lines of throughput.

vLLM prints every ten seconds how many tokens a second it generated and how many requests ran; SGLang
after every so many decode steps. Where nothing but decoding went on, requests over tokens a second is
the time of a step, and what the cache holds over requests their context. Lines of like batches and
contexts (powers of two) are one point, their median.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from kvroom.errors import KvroomError
from kvroom.observe.logs.lines import Log
from kvroom.records import dataclass

_VLLM = re.compile(
    r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, "
    r"Avg generation throughput: (?P<rate>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs.*?KV cache usage: (?P<usage>[\d.]+)%"
)
_SGLANG = re.compile(
    r"Decode batch.*?#running-req: (?P<running>\d+).*?#(?:full )?token: (?P<tokens>\d+)"
    r".*?gen throughput \(token/s\): (?P<rate>[\d.]+)"
)
_SIZE = re.compile(r"(?:GPU|CPU) KV cache size: (?P<size>[\d,]+) tokens")
NEEDLES = ("Avg generation throughput", "Decode batch", "KV cache size")
MOST_LINES = 1_000_000
MOST_RUNNING = 10**7
"""More requests at once are a misread number."""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """Decode steps of ``concurrency`` requests of ``context_tokens``, over ``lines`` of the log."""

    concurrency: int
    context_tokens: int
    step_s: float
    lines: int


def read_file(path: str) -> list[LoggedStep]:
    """The points that the log at ``path`` tells; none where it tells of no serving.

    KvroomError where it cannot be opened.
    """
    seen: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
    try:
        with Path(path).open("rb") as stream:
            for running, context, step in _steps(Log(stream, NEEDLES)):
                key = (running.bit_length(), context.bit_length())
                if sum(map(len, seen.values())) < MOST_LINES:
                    seen.setdefault(key, []).append((running, context, step))
    except OSError:
        fix = "Give the file that the engine's output went to."
        raise KvroomError("file", path, "cannot be opened", fix) from None
    return [
        LoggedStep(
            concurrency=round(median(r for r, _, _ in found)),
            context_tokens=round(median(c for _, c, _ in found)),
            step_s=median(s for _, _, s in found),
            lines=len(found),
        )
        for _, found in sorted(seen.items())
    ]


def _steps(log: Log) -> Iterator[tuple[int, int, float]]:
    """(requests, tokens of each, seconds a step) of each line that tells of nothing but decoding."""
    size = before = 0
    for line, _ in log:
        if (match := _SIZE.search(line)) is not None:
            size = int(match["size"].replace(",", ""))
        elif (match := _SGLANG.search(line)) is not None:
            running, rate = int(match["running"]), float(match["rate"])
            if 0 < running < MOST_RUNNING and rate > 0 and int(match["tokens"]) >= running:
                yield running, int(match["tokens"]) // running, running / rate
        elif (match := _VLLM.search(line)) is not None:
            running, rate = int(match["running"]), float(match["rate"])
            # Over the whole interval the same requests ran, and none was being read in.
            steady = running == before and float(match["prompt"]) == 0
            before = running
            held = size * float(match["usage"]) / 100
            if steady and 0 < running < MOST_RUNNING and rate > 0 and held >= running:
                yield running, round(held / running), running / rate
