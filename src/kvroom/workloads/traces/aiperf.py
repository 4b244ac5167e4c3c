"""AIPerf's ``profile_export.jsonl``: a record a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import PS_PER_NS, at, span_ps, whole_tokens
from kvroom.workloads.traces.openai import FAILED


def aiperf(options: RowOptions) -> Row:
    """``metadata`` (when, which session) and ``metrics`` (lengths); failed requests are left out."""

    def row(values: Mapping[str, Any]) -> Request | tuple[()]:
        prompt = at(values, "metrics.input_sequence_length.value")
        if values.get("error") is not None or prompt is None:
            options.note(FAILED)
            return ()
        answer = at(
            values, "metrics.output_sequence_length.value", "metrics.output_token_count.value"
        )
        chat = at(values, "metadata.x_correlation_id", "metadata.conversation_id")
        begun = span_ps("request_start_ns", at(values, "metadata.request_start_ns"), PS_PER_NS)
        ended = span_ps("request_end_ns", at(values, "metadata.request_end_ns") or 0, PS_PER_NS)
        request = Request(
            begun,
            whole_tokens("input_sequence_length", prompt, 1),
            whole_tokens("output_sequence_length", answer, 0),
            session=chat if isinstance(chat, int | str) else None,
            took_ps=max(0, ended - begun),
        )
        cached = at(values, "metrics.usage_prompt_cache_read_tokens.value")
        return options.continued(request, cached if isinstance(cached, int) else None)

    return row


def _records(values: Mapping[str, Any]) -> bool:
    return at(values, "metadata.request_start_ns") is not None


FORMAT = Format("AIPerf", ("metadata", "metrics"), aiperf, known=_records)
