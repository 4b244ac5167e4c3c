"""llama-bench: JSON, JSONL, CSV and Markdown. One sequence at a time: a prompt's speed, an answer's speed.

``pp`` tests compute a prompt of ``n_prompt`` tokens: a first token's time. ``tg`` tests generate ``n_gen``
tokens behind ``n_depth``: a time a token. Prompts behind a depth, and both in one test, tell neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from kvroom.engines.registry import benchmarked_engine
from kvroom.observe.benchmarks.run import BenchmarkRun, name_of, run_of, written

TOOL = "llama-bench"
KEYS = ("n_prompt", "n_gen", "avg_ts")
_TEST = re.compile(r"(?:pp(\d{1,9}))?(?:tg(\d{1,9}))?(?: @ d(\d{1,9}))?")


def of_row(row: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """A row of its JSON or CSV."""
    model = name_of(row.get("model_filename"))
    if model is not None:
        model = PurePosixPath(model.replace("\\", "/")).name.removesuffix(".gguf")
    counts = (written(row.get(key)) for key in ("n_prompt", "n_gen", "n_depth"))
    prompt, answer, depth = (round(count or 0) for count in counts)
    yield from _run(model, prompt, answer, depth, written(row.get("avg_ts")))


def of_test(test: str, speed: str) -> Iterator[BenchmarkRun]:
    """A line of its Markdown: ``pp512``, ``tg128 @ d4096``, and tokens a second (``57.12 ± 0.31``)."""
    found = _TEST.fullmatch(test.strip())
    if found is not None and any(found.groups()[:2]):
        prompt, answer, depth = (int(group or 0) for group in found.groups())
        yield from _run(None, prompt, answer, depth, written(speed.partition("±")[0]))


def _run(
    model: str | None, prompt: int, answer: int, depth: int, tokens_per_s: float | None
) -> Iterator[BenchmarkRun]:
    if not tokens_per_s or bool(prompt) == bool(answer) or (prompt and depth):
        return
    took = 1 / tokens_per_s
    yield from run_of(
        tool=TOOL,
        model=model,
        engine=benchmarked_engine(TOOL),
        requests=1,
        input_tokens=float(prompt or max(1, depth)),
        output_tokens=float(answer or 1),
        held=1.0,
        rate=None,
        ttft_s=prompt * took if prompt else None,
        tpot_s=None if prompt else took,
    )
