"""BurstGPT CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import lengths, session, time_ps


def burstgpt(_: RowOptions) -> Row:
    """``Timestamp`` in s, ``Request tokens``, ``Response tokens`` (0: it failed), ``Session ID``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "request tokens", "response tokens")
        arrival = time_ps(values, "timestamp", PS_PER_S)
        return Request(arrival, prompt, answer, session=session(values, "session id"))

    return row


FORMAT = Format("BurstGPT", ("timestamp", "request tokens", "response tokens"), burstgpt, csv=True)
