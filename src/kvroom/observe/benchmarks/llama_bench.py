"""llama-bench: JSON, JSONL, CSV and Markdown. One sequence at a time: a prompt's speed, an answer's speed.

``pp`` tests compute a prompt of ``n_prompt`` tokens: a first token's time. ``tg`` tests generate ``n_gen``
tokens behind ``n_depth``: a time a token. Prompts behind a depth, and both in one test, tell neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from kvroom.engines.registry import benchmarked_engine
from kvroom.errors import KvroomError
from kvroom.models.dtypes import CACHE_ALIASES, cache_dtype
from kvroom.models.weight_dtypes import named
from kvroom.observe.benchmarks.run import BenchmarkRun, name_of, run_of, written

TOOL = "llama-bench"
KEYS = ("n_prompt", "n_gen", "avg_ts")
SAYS = ("model", "type_k", "type_v")
"""Columns of its Markdown that say what ran: ``llama 7B Q4_0``, and the cache's types where not F16."""
_WIDTH = re.compile(
    r"(?<!\w)(I?Q\d\w*|MXFP4|BF16|F16|F32)(?:[ _-]+(Small|Medium|Large|[SML]))?(?!\w)",
    re.IGNORECASE,
)
_TEST = re.compile(r"(?:pp(\d{1,9}))?(?:tg(\d{1,9}))?(?: @ d(\d{1,9}))?")


def of_row(row: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """A row of its JSON or CSV."""
    model = name_of(row.get("model_filename"))
    if model is not None:
        model = PurePosixPath(model.replace("\\", "/")).name.removesuffix(".gguf")
    counts = (written(row.get(key)) for key in ("n_prompt", "n_gen", "n_depth"))
    prompt, answer, depth = (round(count or 0) for count in counts)
    settings = {"model": row.get("model_type") or model, **{k: row.get(k) for k in SAYS[1:]}}
    yield from _run(model, (prompt, answer, depth), written(row.get("avg_ts")), settings)


def of_test(test: str, speed: str, settings: Mapping[str, Any]) -> Iterator[BenchmarkRun]:
    """A line of its Markdown: ``pp512``, ``tg128 @ d4096``, and tokens a second (``57.12 ± 0.31``).
    ``settings`` are its other cells, by SAYS."""
    match = _TEST.fullmatch(test.strip())
    if match is not None and any(match.groups()[:2]):
        prompt, answer, depth = (int(group or 0) for group in match.groups())
        yield from _run(None, (prompt, answer, depth), written(speed.partition("±")[0]), settings)


def width_of(text: object) -> str | None:
    """kvroom's word for the weights of a file that llama.cpp describes (``qwen3 8B Q4_K - Medium``); a type
    that kvroom has no bytes for as it is called there, which no plan takes."""
    matches = list(_WIDTH.finditer(text[:300])) if isinstance(text, str) else []
    if not matches:
        return None
    word, mix = (part.lower() if part else "" for part in matches[-1].groups())
    mixed = f"{word}_{mix[0]}" if mix else word
    widths = (_known(name, lambda name: named(name).name) for name in (mixed, word))
    return next(filter(None, widths), mixed)


def cache_of(settings: Mapping[str, Any]) -> str | None:
    """The cache's width by its types of keys and values."""
    key, value = (str(settings.get(name) or "f16").lower() for name in SAYS[1:])
    return _known(key if key == value else f"{key}/{value}", lambda name: cache_dtype(name).name)


def _known(word: str, read: Callable[[str], str]) -> str | None:
    try:
        return read(CACHE_ALIASES.get(word, word))
    except KvroomError:
        return None


def _run(
    model: str | None,
    counts: tuple[int, int, int],
    tokens_per_s: float | None,
    settings: Mapping[str, Any],
) -> Iterator[BenchmarkRun]:
    prompt, answer, depth = counts
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
        weight_dtype=width_of(settings.get("model")),
        kv_dtype=cache_of(settings) if any(settings.get(name) for name in SAYS[1:]) else None,
    )
