"""BurstGPT CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import lengths, session, span_ps, time_ps


def burstgpt(options: RowOptions) -> Row:
    """``Timestamp`` in s, ``Request tokens``, ``Response tokens`` (0: it failed); since version 1.2
    ``Session ID`` and ``Elapsed time`` (s)."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "request tokens", "response tokens")
        arrival = time_ps(values, "timestamp", PS_PER_S)
        took = span_ps("elapsed time", values.get("elapsed time") or 0, PS_PER_S)
        chat = session(values, "session id")
        return options.continued(Request(arrival, prompt, answer, session=chat, took_ps=took))

    return row


FORMAT = Format("BurstGPT", ("timestamp", "request tokens", "response tokens"), burstgpt, csv=True)
