"""TraceLab JSONL (github.com/uw-syfi/TraceLab): a round of a coding agent a line.

``input_tokens_total`` of a round is ``prefix_tokens``, which the provider found cached, and
``newly_append_tokens``; ``timing_events`` tell when its input was ready (the last user message or tool
result) and when its output came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import cell, date_ps, objects, session, tokens

ASKED = ("user_message", "tool_result")
ANSWERED = ("reasoning", "text", "tool_call")


def tracelab(options: RowOptions) -> Row:
    """A round a row; sub-agents' rounds name a session of their own."""

    def row(values: Mapping[str, Any]) -> Request:
        events = objects(cell(values, "timing_events"))
        asked_at = [_when(event) for event in events if event.get("event_type") in ASKED]
        answered = [_when(event) for event in events if event.get("event_type") in ANSWERED]
        if not asked_at and not answered:
            fix = "A round needs the time of its input or of its output."
            raise KvroomError("timing_events", len(events), "tell no time", fix)
        begun = max((t for t in asked_at if not answered or t <= min(answered)), default=None)
        begun = min(answered) if begun is None else begun
        request = Request(
            begun,
            tokens(values, "input_tokens_total", 1),
            tokens(values, "output_tokens", 0),
            session=session(values, "session_id"),
            took_ps=max([0, *(t - begun for t in answered)]),
        )
        return options.continued(request, tokens(values, "prefix_tokens", 0))

    return row


def _when(event: Mapping[str, Any]) -> int:
    return date_ps(event.get("timestamp"))


FORMAT = Format(
    "TraceLab", ("session_id", "timing_events", "input_tokens_total", "output_tokens"), tracelab, 64
)
