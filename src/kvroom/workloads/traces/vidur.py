"""Vidur and Sarathi CSV: lengths by request, with or without arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import lengths, session, time_ps


def vidur(_: RowOptions) -> Row:
    """``num_prefill_tokens``, ``num_decode_tokens``, ``arrived_at`` in s, optional ``session_id``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "num_prefill_tokens", "num_decode_tokens")
        arrival = time_ps(values, "arrived_at", PS_PER_S) if "arrived_at" in values else 0
        return Request(arrival, prompt, answer, session=session(values, "session_id"))

    return row


FORMAT = Format("Vidur", ("arrived_at", "num_prefill_tokens", "num_decode_tokens"), vidur, csv=True)
LENGTHS = replace(FORMAT, needs=FORMAT.needs[1:], timed=False)
