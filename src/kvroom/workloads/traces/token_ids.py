"""JSONL with token ids, as LLMServingSim writes it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from kvroom.units import check_int
from kvroom.workloads.requests import Request, TokenIds
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import (
    MAX_REQUEST_TOKENS,
    PS_PER_NS,
    cell,
    packed,
    priority,
    session,
    time_ps,
    tokens,
)


def token_ids(_: RowOptions) -> Row:
    """``arrival_time_ns``, ``input_tok_ids`` and ``output_tok_ids`` (or only ``output_toks``)."""

    def ids(values: Mapping[str, Any], name: str) -> array[int]:
        return packed(name, cell(values, name), ("I",), "token ids")

    def row(values: Mapping[str, Any]) -> Request:
        prompt = ids(values, "input_tok_ids")
        check_int("input_tok_ids", len(prompt), low=1, high=MAX_REQUEST_TOKENS, unit="tokens")
        if "output_tok_ids" in values:
            answer = ids(values, "output_tok_ids")
            length = len(answer)
        else:
            answer, length = array("I"), tokens(values, "output_toks", 0)
        return Request(
            time_ps(values, "arrival_time_ns", PS_PER_NS),
            len(prompt),
            length,
            TokenIds(prompt, answer),
            session(values, "session"),
            priority(values),
        )

    return row


FORMAT = Format("token ids", ("arrival_time_ns", "input_tok_ids"), token_ids)
