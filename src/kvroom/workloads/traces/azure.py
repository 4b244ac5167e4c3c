"""CSV of the Azure Public Dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import cell, date_ps, lengths


def azure(_: RowOptions) -> Row:
    """``TIMESTAMP`` (date and time), ``ContextTokens``, ``GeneratedTokens``."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "contexttokens", "generatedtokens")
        return Request(date_ps(cell(values, "timestamp")), prompt, answer)

    return row


FORMAT = Format("Azure", ("timestamp", "contexttokens", "generatedtokens"), azure, csv=True)
