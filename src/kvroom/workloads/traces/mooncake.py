"""Mooncake JSONL (the published traces of Kimi), and what kvroom itself writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import PS_PER_MS, hash_ids, lengths, priority, session, time_ps


def mooncake(options: RowOptions) -> Row:
    """``timestamp`` in ms, lengths, optional ``hash_ids``, ``session`` and ``priority``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "input_length", "output_length")
        return Request(
            time_ps(values, "timestamp", PS_PER_MS),
            prompt,
            answer,
            hash_ids(values, prompt, options.hash_tokens),
            session(values, "session"),
            priority(values),
        )

    return row


PLAIN_BYTES = 100
"""A plain row is no longer."""
_PLAIN = re.compile(
    rb'\{"timestamp": (\d{1,12}), "input_length": ([1-9]\d{0,8}), "output_length": (\d{1,9})\}\s*'
)


def plain_mooncake(line: bytes) -> Request | None:
    """The Request of a row of whole numbers and nothing else, at a fraction of what any row costs."""
    found = _PLAIN.fullmatch(line) if len(line) < PLAIN_BYTES else None
    if found is None:
        return None
    arrival, prompt, answer = found.groups()
    return Request(int(arrival) * PS_PER_MS, int(prompt), int(answer))


FORMAT = Format(
    "Mooncake",
    ("timestamp", "input_length", "output_length"),
    mooncake,
    512,
    plain=plain_mooncake,
)
