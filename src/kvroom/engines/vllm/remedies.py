"""What a refusal of vLLM's asks for: the flag that would let it start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kvroom.engines.log_reader import Remedy
from kvroom.engines.log_shapes import number


def remedy(refusal: str, printed: Mapping[str, Any]) -> Remedy | None:
    """What would do against ``refusal``; ``printed`` are the log's figures."""
    for pattern, cure in CURES:
        match = pattern.search(refusal)
        if match is not None and (made := cure(match, printed)) is not None:
            text, args = made
            return Remedy(refusal=refusal, text=text, args=args)
    return None


Cure = tuple[str, dict[str, Any]] | None


def _sequences(match: re.Match[str], printed: Mapping[str, Any]) -> Cure:
    blocks = int(match["blocks"])
    return (
        f"each sequence holds a block of recurrent state, and {blocks:,} are there: "
        f"--max-num-seqs {blocks} or fewer, or a larger share of memory",
        {"max_num_seqs": blocks},
    )


def _length(match: re.Match[str], printed: Mapping[str, Any]) -> Cure:
    longest = printed.get("estimated_max_len")
    if not longest:
        return (
            "one longest request does not fit the cache: a shorter --max-model-len, a larger "
            "--gpu-memory-utilization, --kv-cache-dtype fp8, or more tensor ranks",
            {},
        )
    return (
        f"the cache holds {longest:,} tokens of one request: --max-model-len {longest}, or a larger "
        "share, a narrower cache (--kv-cache-dtype fp8), more tensor ranks",
        {"max_model_len": longest},
    )


def _stored(match: re.Match[str], printed: Mapping[str, Any]) -> Cure:
    tokens = printed.get("kv_tokens")
    if not tokens:
        return None
    return f"the cache holds {tokens:,} tokens: --max-model-len {tokens}", {"max_model_len": tokens}


def _nothing_left(match: re.Match[str], printed: Mapping[str, Any]) -> Cure:
    return (
        "weights and the profiling run take the whole share: a larger --gpu-memory-utilization, a "
        "smaller --max-num-seqs or --max-num-batched-tokens, narrower weights, or more tensor ranks",
        {},
    )


def _share(match: re.Match[str], printed: Mapping[str, Any]) -> Cure:
    free, total = number(match["free"]), number(match["total"])
    if not free or not total:
        return None
    share = int(100 * free / total) / 100
    return (
        f"{free:g} of {total:g} GiB are free as it starts: --gpu-memory-utilization {share:.2f}, or end "
        "what else holds memory of the card",
        {"gpu_memory_utilization": share},
    )


CURES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Mapping[str, Any]], Cure]], ...] = (
    (re.compile(r"exceeds available Mamba cache blocks \((?P<blocks>\d{1,9})\)"), _sequences),
    (re.compile(r"To serve at least one request"), _length),
    (re.compile(r"max seq len .*stored in KV cache", re.DOTALL), _stored),
    (re.compile(r"No available memory for the cache blocks"), _nothing_left),
    (
        re.compile(
            r"Free memory on device.*?\((?P<free>[\d.,]+)(?: GiB)?/(?P<total>[\d.,]+) GiB\)"
        ),
        _share,
    ),
)
